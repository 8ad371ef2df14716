"""Indexing: slices, integers, masks, integer tensors; gather, scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self, cast

import numpy as np

from weft.errors import BoundsError, DTypeError, ShapeError
from weft.frontend import literals, views
from weft.frontend.arguments import describe
from weft.frontend.arithmetic import as_operand
from weft.frontend.core import Scalar, TensorCore
from weft.frontend.places import stamp
from weft.frontend.promotion import broadcast_shapes
from weft.frontend.reduce import Reduction
from weft.frontend.state import later, state
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.expr import Expr, needs_size
from weft.ir.node import Dim, Node
from weft.ir.op import Op
from weft.ir.size import canonical

__all__ = ["Indexing"]


class _Advanced(NamedTuple):
    """An index that is data: the axis of the sliced view that it replaces."""

    axis: int
    places: Node


class _Masked(NamedTuple):
    """One axis of a boolean mask: where it holds, and the size it was made for."""

    places: TensorCore
    size: int


class Indexing(Reduction):
    """Reading and writing parts of a tensor."""

    __slots__ = ()

    # x[...]

    def __getitem__(self, key: Any) -> Self:
        mask = self._whole_mask(key)
        if mask is not None:
            if state.capture is not None:
                state.capture.refuse("x[mask]")
            if self._chosen_at_once(mask):
                return cast(Self, later.counted.chosen(self, mask))
        steps, advanced = self._parse(key, "getitem")
        out = self
        for step in steps:
            out = out._view(step)
        return out._take(advanced) if advanced else (out if steps else out._view(
            views.Reshape(self.shape)))  # fmt: skip

    def __setitem__(self, key: Any, value: object) -> None:
        value = literals.source(self, value, "setitem")
        mask = self._whole_mask(key)
        if mask is not None:
            return self._put_mask(mask, value)
        steps, advanced = self._parse(key, "setitem")
        target = self
        for step in steps:
            target = target._view(step)
        if advanced:
            target._put_at(advanced, value)
            self._follow(target)
            return None
        return self._follow(target.copy_(value))

    def _follow(self, target: TensorCore) -> None:
        """Take part in the autograd history that a write through a view began."""
        if target._requires_grad and not self._requires_grad:
            self._requires_grad, self._is_leaf = True, False

    def _whole_mask(self, key: Any) -> Self | None:
        if not isinstance(key, TensorCore):
            if not isinstance(key, np.ndarray) or key.dtype != np.bool_:
                return None
            key = as_operand(self, key)
        if key.dtype is not dt.bool_:
            return None
        shape, own = key.shape, self.shape
        return cast(Self, key) if shape == own or shape == own[:len(shape)] else None

    def _chosen_at_once(self, mask: Self) -> bool:
        """Whether what a mask chooses is computed with its places: nothing asks for a gradient."""
        shape = self.shape
        return mask.shape == shape and 0 not in shape and not self._requires_grad

    def _put_mask(self, mask: Self, value: object) -> None:
        shape = mask.shape + (1,) * (len(self.shape) - len(mask.shape))
        wide = mask.reshape(shape).expand(self.shape)
        new = as_operand(self, value)
        inner = len(self.shape) - len(mask.shape)
        lead = new.shape[: max(len(new.shape) - inner, 0)]
        fits = len(new.shape) <= len(self.shape) and all(n == 1 for n in lead)
        if not fits:  # one value for each true element, in order
            rank = mask.ravel().cumsum(0).sub(1).clamp(0)
            taken = new.index_select(0, rank)
            new = taken.reshape(*mask.shape, *new.shape[1:])
        old = self._read()
        chosen = infer.expand(infer.cast(new._read(), self.dtype), self.shape)
        node = infer.elementwise(Op.WHERE, wide._read(), chosen, old)
        self._write(node, new)

    def _parse(self, key: Any, operation: str) -> tuple[list[views.Step], list[_Advanced]]:
        items = self._normal_items(key, operation)
        starts: list[Dim] = []
        sizes: list[Dim] = []
        strides: list[int] = []
        shape: list[int] = []
        advanced: list[_Advanced] = []
        axis = 0
        for item in items:
            if item is None:
                shape.append(1)
                continue
            n = self.shape[axis]
            if isinstance(item, _Masked):
                if item.size != n:
                    raise ShapeError(
                        operation, found=f"a mask with {item.size} elements along axis {axis} of "
                        f"{self.shape}", expected=f"{n}",
                    )
                item = item.places
            if isinstance(item, TensorCore):
                advanced.append(_Advanced(len(shape), item._read()))
                item = slice(None)
            if isinstance(item, slice):
                start, size, step = self._slice_of(item, n, operation)
                shape.append(size)
            else:
                if not -n <= item < n:
                    raise BoundsError(
                        operation, found=f"index {item} on axis {axis} of {self.shape}",
                        expected=f"{-n} to {n - 1}" if n else "no index: the axis is empty",
                    )
                start, size, step = item + n if item < 0 else item, 1, 1
            starts.append(start)
            sizes.append(size)
            strides.append(step)
            axis += 1
        steps: list[views.Step] = []
        if tuple(sizes) != self.shape or any(s != 1 for s in strides):
            steps.append(views.Slice(tuple(starts), tuple(sizes), tuple(strides)))
        if tuple(shape) != tuple(sizes):
            steps.append(views.Reshape(tuple(shape)))
        return steps, advanced

    def _slice_of(self, item: slice, n: Any, operation: str) -> tuple[int, int, int]:
        bounds = []
        for bound in (item.start, item.stop, item.step):
            if isinstance(bound, TensorCore):
                bound = int(cast(Any, bound))
            bounds.append(bound)
        if bounds[2] == 0:
            raise ShapeError(operation, found="a slice step of 0", expected="another step")
        if isinstance(n, Expr) or any(isinstance(b, Expr) for b in bounds):
            return cast("tuple[int, int, int]", _symbolic_slice(n, bounds, operation))
        try:
            start, stop, step = slice(*bounds).indices(n)
        except TypeError:
            raise DTypeError(operation, found=f"{item}", expected="integers in a slice") from None
        count = len(range(start, stop, step))
        return (start if count else 0), count, step

    def _normal_items(self, key: Any, operation: str) -> list[Any]:
        """Return one item an axis (None adds one): ints, slices and integer tensors."""
        items: list[Any] = []
        for item in key if isinstance(key, tuple) else (key,):
            items.extend(self._item(item, operation))
        used = sum(1 for i in items if i is not None and i is not Ellipsis)
        if sum(1 for i in items if i is Ellipsis) > 1:
            raise ShapeError(operation, found="two ellipses", expected="at most one")
        if used > len(self.shape):
            raise BoundsError(operation, found=f"{used} indices into {self.shape}",
                              expected=f"at most {len(self.shape)}")
        if not any(i is Ellipsis for i in items):
            items.append(Ellipsis)
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        return items[:at] + [slice(None)] * (len(self.shape) - used) + items[at + 1 :]

    def _item(self, item: Any, operation: str) -> list[Any]:
        if item is None or item is Ellipsis or isinstance(item, slice):
            return [item]
        if isinstance(item, bool | np.bool_):
            item = as_operand(self, np.asarray(item))
        if isinstance(item, TensorCore) and not item.shape and item.dtype.is_integer and (
            item._buffer is not None and state.capture is None
        ):
            return [int(cast(Any, item))]
        if isinstance(item, int | np.integer):
            return [int(item)]
        if isinstance(item, Expr):
            return [item]
        if isinstance(item, list | np.ndarray | range):
            array = np.asarray(item)
            if array.size == 0:
                array = array.astype(np.int64)
            item = as_operand(self, array)
        if not isinstance(item, TensorCore):
            raise DTypeError(operation, found=f"an index of type {type(item).__name__}",
                             expected="integers, slices, None, ..., and integer or bool tensors")
        if item.dtype.is_bool:
            places = cast(Any, item).nonzero(as_tuple=True)
            return [_Masked(p, n) for p, n in zip(places, item.shape, strict=True)]
        if not item.dtype.is_integer:
            raise DTypeError(operation, found=f"an index of {item.dtype.name}",
                             expected="integers or bool")
        return [item]

    # data as index

    def _front(self, advanced: list[_Advanced], what: str
               ) -> tuple[list[int], int, Node, tuple[Dim, ...]]:  # fmt: skip
        """Return the order with indexed axes in front, their sizes' product, one flat index."""
        axes = [a.axis for a in advanced]
        order = axes + [a for a in range(len(self.shape)) if a not in axes]
        shape = broadcast_shapes(what, *(a.places.shape for a in advanced))
        flat: Node | None = None
        for a in advanced:
            n = self.shape[a.axis]
            index = infer.expand(wrap_index(infer.cast(a.places, dt.int64), n), shape)
            if len(advanced) > 1:  # each is checked on its own: a sum may be in range by accident
                count = infer.reshape(index, (_count(shape),))
                index = stamp(infer.gather(infer.iota(n), count, 0, what))
                index = infer.reshape(index, shape)
            if flat is None:
                flat = index
            else:
                scaled = infer.elementwise(Op.MUL, flat, infer.full(shape, n, dt.int64))
                flat = infer.elementwise(Op.ADD, scaled, index)
        total = _count([self.shape[a] for a in axes])
        return order, total, cast(Node, flat), shape

    def _place(self, advanced: list[_Advanced]) -> int:
        """Return where the index's axes go in the result, as NumPy does."""
        axes = [a.axis for a in advanced]
        return axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0

    def _take(self, advanced: list[_Advanced], what: str = "index") -> Self:
        order, total, flat, shape = self._front(advanced, what)
        rest = [self.shape[a] for a in order[len(advanced) :]]
        count, width = _count(shape), _count(rest)
        x = infer.reshape(infer.permute(self._read(), order), (total, width))
        index = infer.expand(infer.reshape(flat, (count, 1)), (count, width))
        taken = infer.reshape(stamp(infer.gather(x, index, 0, what)), (*shape, *rest))
        place, k = self._place(advanced), len(shape)
        back = [*range(k, k + place), *range(k), *range(k + place, k + len(rest))]
        return self._wrap(infer.permute(taken, back))

    def _put_at(self, advanced: list[_Advanced], value: object, kind: str = "set",
                what: str = "index") -> None:  # fmt: skip
        order, total, flat, shape = self._front(advanced, what)
        rest = [self.shape[a] for a in order[len(advanced) :]]
        count, width = _count(shape), _count(rest)
        place, k = self._place(advanced), len(shape)
        result = (*rest[:place], *shape, *rest[place:])
        new = as_operand(self, value)
        updates = infer.expand(infer.cast(new._read(), self.dtype), result)
        updates = infer.permute(
            updates, [*range(place, place + k), *range(place), *range(place + k, len(result))])
        x = infer.permute(self._read(), order)
        index = infer.expand(infer.reshape(flat, (count, 1)), (count, width))
        out = stamp(infer.scatter(infer.reshape(x, (total, width)), index,
                                  infer.reshape(updates, (count, width)), 0, kind, what))
        inverse = sorted(range(len(order)), key=order.__getitem__)
        self._write(infer.permute(infer.reshape(out, x.shape), inverse), new)

    def index_put_(self, indices: Sequence[Any], values: object, accumulate: bool = False) -> Self:
        """Write (or add, with `accumulate`) `values` at integer indices, in order."""
        steps, advanced = self._parse(tuple(indices), "index_put_")
        if steps or not advanced:
            raise ShapeError("index_put_", found=f"{len(indices)} indices that are not all tensors",
                             expected="a tensor of integers for each of the first axes")
        values = literals.source(self, values, "index_put_")
        self._put_at(advanced, values, "add" if accumulate else "set")
        return self

    # gather and scatter

    def gather(self, dim: int, index: object) -> Self:
        """Return ``out[i, j] = self[index[i, j], j]`` (dim 0); an index past the axis raises."""
        return self._gathered(dim, index, "gather")

    def _gathered(self, dim: int, index: object, what: str) -> Self:
        position = as_operand(self, index)
        return self._wrap(stamp(infer.gather(self._read(), position._read(), dim, what)))

    def take_along_dim(self, indices: object, dim: int | None = None) -> Self:
        """Return elements picked along an axis; negative indices count from the end."""
        position = as_operand(self, indices)
        if dim is None:
            return self.ravel().take_along_dim(position.ravel(), 0)
        axis = self._axis(dim, "take_along_dim")
        index = infer.cast(position._read(), dt.int64)
        sizes = [index.shape[a] if a == axis else self.shape[a] for a in range(len(self.shape))]
        index = wrap_index(infer.expand(index, sizes), self.shape[axis])
        return self._wrap(stamp(infer.gather(self._read(), index, axis, "take_along_dim")))

    def index_select(self, dim: int, index: object) -> Self:
        """Return slices of an axis, picked by a vector of integers."""
        return self._slices_at(dim, index, "index_select")

    def _slices_at(self, dim: int, index: object, what: str) -> Self:
        axis = self._axis(dim, what)
        position = as_operand(self, index)
        if not position.dtype.is_integer:
            raise DTypeError(what, found=f"an index of {position.dtype.name}",
                             expected="integers")
        if len(position.shape) > 1:
            raise ShapeError(what, found=f"an index of shape {position.shape}",
                             expected="a vector")
        return self._take([_Advanced(axis, position.ravel()._read())], what)

    def take(self, index: object) -> Self:
        """Return elements by their place in row-major order."""
        return self.ravel()._take([_Advanced(0, as_operand(self, index)._read())], "take")

    def masked_select(self, mask: object) -> Self:
        """Return the elements where `mask` holds (realizes the mask)."""
        condition = as_operand(self, mask)
        shape = broadcast_shapes("masked_select", self.shape, condition.shape)
        wide = self.expand(shape)
        return wide[condition.expand(shape)]

    def masked_scatter(self, mask: object, source: object) -> Self:
        """Return the tensor with true places of `mask` filled from `source`, in order."""
        out = self.clone()
        condition = as_operand(self, mask).expand(self.shape)
        rank = condition.ravel().cumsum(0).sub(1).clamp(0)
        taken = as_operand(self, source).ravel().index_select(0, rank).reshape(self.shape)
        return condition.where(taken, out)

    def scatter(self, dim: int, index: object, src: object, *, reduce: str | None = None) -> Self:
        """Return the tensor with ``out[index[i, j], j] = src[i, j]`` (dim 0), in order."""
        kinds = {None: "set", "add": "add", "multiply": "prod"}
        if not (reduce is None or isinstance(reduce, str)) or reduce not in kinds:
            raise ShapeError("scatter", found=f"reduce={describe(reduce)}",
                             expected="'add', 'multiply' or None")
        return self._scattered(dim, index, src, kinds[reduce], "scatter")

    def scatter_add(self, dim: int, index: object, src: object) -> Self:
        """Return the tensor with ``out[index[i, j], j] += src[i, j]`` (dim 0)."""
        return self._scattered(dim, index, src, "add", "scatter_add")

    def scatter_reduce(self, dim: int, index: object, src: object, reduce: str) -> Self:
        """Return the tensor combined with `src` at indices: sum, prod, amax or amin."""
        kinds = {"sum": "add", "prod": "prod", "amax": "max", "amin": "min"}
        if not isinstance(reduce, str) or reduce not in kinds:
            raise ShapeError("scatter_reduce", found=describe(reduce), expected=" or ".join(kinds))
        return self._scattered(dim, index, src, kinds[reduce], "scatter_reduce")

    def index_add(self, dim: int, index: object, source: object) -> Self:
        """Return the tensor with slices of `source` added at places of an axis."""
        axis = self._axis(dim, "index_add")
        out = self.clone()
        out._put_at([_Advanced(axis, as_operand(self, index)._read())], source, "add")
        return out

    def index_copy(self, dim: int, index: object, source: object) -> Self:
        """Return the tensor with slices of `source` put at places of an axis."""
        out = self.clone()
        axis = self._axis(dim, "index_copy")
        out._put_at([_Advanced(axis, as_operand(self, index)._read())], source)
        return out

    def index_fill(self, dim: int, index: object, value: Scalar) -> Self:
        """Return the tensor with `value` at places of an axis."""
        return self.index_copy(dim, index, value)

    def _scattered(self, dim: int, index: object, src: object, kind: str, name: str) -> Self:
        axis = self._axis(dim, name)
        position, new = as_operand(self, index), as_operand(self, src)
        updates = infer.cast(new._read(), self.dtype)
        where = position._read()
        if not new.shape:
            updates = infer.expand(updates, where.shape)
        elif new.shape != position.shape:
            if len(new.shape) != len(where.shape):
                raise ShapeError(name, found=f"updates of {new.shape}",
                                 expected=f"the index's shape, {position.shape}")
            updates = infer.slice_(updates, [0] * updates.ndim, where.shape)
        return self._wrap(stamp(infer.scatter(self._read(), where, updates, axis, kind, name)), new)

    # writes

    def copy_(self, source: object) -> Self:
        """Replace the elements by those of `source`, broadcast and converted."""
        source = literals.source(self, source, "copy_")
        new = as_operand(self, source) if not isinstance(source, int | float) else None
        if new is None:
            value = dt.check_value(cast(Scalar, source), self.dtype, "copy_")
            self._write(infer.full(self.shape, value, self.dtype))
            return self
        broadcast = broadcast_shapes("copy_", self.shape, _strip(new.shape, len(self.shape)))
        if broadcast != self.shape:
            raise ShapeError("copy_", found=f"{new.shape} into {self.shape}",
                             expected="a value that broadcasts to the target")
        node = infer.cast(new._read(), self.dtype)
        node = infer.reshape(node, _strip(new.shape, len(self.shape)))
        self._write(infer.expand(node, self.shape), new)
        return self


def wrap_index(index: Node, n: int) -> Node:
    """Return int64 indices with negative ones counted from the end (once: -n-1 stays out)."""
    if index.op is Op.IOTA:
        return index
    zero = infer.full(index.shape, 0, dt.int64)
    moved = infer.elementwise(Op.ADD, index, infer.full(index.shape, n, dt.int64))
    return infer.elementwise(Op.WHERE, infer.elementwise(Op.LT, index, zero), moved, index)


def _symbolic_slice(n: Dim, bounds: Sequence[Any], operation: str) -> Any:
    """Return (start, size, step) of a slice where a size or a bound is symbolic.

    Raises
    ------
    UnsupportedError
        If it depends on the variables which elements there are.
    """
    start, stop, step = bounds
    step = 1 if step is None else infer.as_int(step, operation)
    if step == -1 and start is None and stop is None:
        return n - 1, n, -1
    if step != 1:
        raise needs_size(f"a step of {step} over the size {n!r}")

    def place(bound: Any, default: Dim) -> Dim:
        if bound is None:
            return default
        at: Dim = bound if isinstance(bound, Expr) else infer.as_int(bound, operation)
        if at < 0:
            at = n + at
        if at < 0:
            return 0
        return at if at <= n else n

    first, last = place(start, 0), place(stop, n)
    return (first, canonical(last - first), 1) if first < last else (0, 0, 1)


def _count(shape: Sequence[Dim]) -> int:
    total = 1
    for n in shape:
        total *= cast(int, n)
    return total


def _strip(shape: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """Drop leading axes of size 1 beyond `ndim`, which an assignment may have."""
    while len(shape) > ndim and shape[0] == 1:
        shape = shape[1:]
    return shape
