"""Indexing: slices, integers, masks, integer tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

import numpy as np

from weft.errors import BoundsError, DTypeError, ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr, needs_size
from weft.ir.node import Dim, Node
from weft.ir.op import Op
from weft.ir.size import canonical
from weft.tensors.core import literals, views
from weft.tensors.core.arguments import items_of
from weft.tensors.core.lazy_tensor import TensorCore
from weft.tensors.core.promotion import CATEGORY, broadcast_shapes
from weft.tensors.core.runtime_scalars import constant
from weft.tensors.core.source_positions import stamp
from weft.tensors.core.thread_state import later, state
from weft.tensors.core.write_lock import changing
from weft.tensors.docs.documented import documented
from weft.tensors.docs.movement_sections import INDEXING
from weft.tensors.ops.arithmetic import as_operand
from weft.tensors.ops.reduction import Reduction

__all__ = ["Advanced", "Indexing", "wrap_index"]

_PLAIN: Final = frozenset({int, slice})  # keys that are often of an axis alone
T = TypeVar("T", bound=TensorCore)


class Advanced(NamedTuple):
    """An index that is data: the axis of the sliced view that it replaces."""

    axis: int
    places: Node


class _Masked(NamedTuple):
    """One axis of a boolean mask: where it holds, and the size it was made for."""

    places: TensorCore
    size: int


class _Flag(NamedTuple):
    """A single bool as an index, which takes no axis: it adds one of size 1 or 0."""

    value: bool


class Indexing(Reduction):
    """Reading and writing parts of a tensor."""

    __slots__ = ()

    # x[...]

    def __getitem__(self, key: Any) -> Self:
        part = self._part(key) if type(key) in _PLAIN else None
        if part is not None:
            return part
        mask = self._whole_mask(key)
        if mask is not None:
            if state.capture is not None:
                state.capture.refuse("x[mask]")
            if self._chosen_at_once(mask):
                return cast(Self, later.counted.chosen(self, mask))
        steps, advanced = self._parse(key, "getitem")
        out = self._view(*steps) if steps else self
        if advanced and not any(a.places.shape for a in advanced):  # in a capture: one place
            _, _, place, _ = out._front(advanced, "index")
            return out._view(views.Picked(tuple(a.axis for a in advanced), place))
        return out._take(advanced) if advanced else (out if steps else out._view(
            views.Reshape(self.shape)))  # fmt: skip

    @changing
    def __setitem__(self, key: Any, value: object) -> None:
        value = literals.source(self, value, "setitem")
        mask = self._whole_mask(key)
        if isinstance(key, TensorCore) and key.dtype.is_bool and not key.shape:
            mask = cast(Self, key)  # whose value need not be known
        if mask is not None:
            return self._put_mask(mask, value)
        steps, advanced = self._parse(key, "setitem")
        target = self._view(*steps) if steps else self
        if advanced:
            target._put_at(advanced, value)
        else:
            target.copy_(value)
        self._follow()

    def _part(self, key: Any) -> Self | None:
        """Return what an int or a slice picks of the first axis; None if `_parse` is to see it."""
        n = self.shape[0] if self.shape else None
        if type(n) is not int:
            return None
        if type(key) is int:
            if n == 1 or not -n <= key < n:
                return None
            return self._slice(0, key % n, 1, 1, views.Reshape(self.shape[1:]))
        bounds = key.start, key.stop, key.step
        if key.step == 0 or not all(b is None or type(b) is int for b in bounds):
            return None
        start, stop, step = key.indices(n)
        count = len(range(start, stop, step))
        if count == n and step == 1:
            return None
        return self._slice(0, start if count else 0, count, step)

    def _whole_mask(self, key: Any) -> Self | None:
        if not isinstance(key, TensorCore):
            if not isinstance(key, np.ndarray) or key.dtype != np.bool_ or not key.shape:
                return None
            key = as_operand(self, key)
        if key.dtype is not dt.bool_ or not key.shape:
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
        new = self._brought(as_operand(self, value))
        inner = len(self.shape) - len(mask.shape)
        lead = new.shape[: max(len(new.shape) - inner, 0)]
        fits = len(new.shape) <= len(self.shape) and all(n == 1 for n in lead)
        if not fits and state.capture is None:  # one value for each true element, in order
            count = int(cast(Any, mask.sum()))
            if len(new.shape) != inner + 1 or new.shape[0] != count:
                raise ShapeError("setitem", found=f"values of {new.shape} for {count} elements",
                                 expected=f"one, or one of {self.shape[len(mask.shape):]} for each "
                                 "element where the mask is true")
            if not count:
                return
        if not fits:
            rank = mask.ravel().cumsum(0).sub(1).clamp(0)
            taken = new._take([Advanced(0, rank._read())], "index_select")
            new = taken.reshape(*mask.shape, *new.shape[1:])
        old = self._read()
        chosen = infer.expand(infer.cast(new._read(), self.dtype), self.shape)
        node = infer.elementwise(Op.WHERE, wide._read(), chosen, old)
        self._write(node, new)

    def _brought(self, value: Self) -> Self:
        """Return what is to be written to this tensor on its device."""
        node, home = value._read(), self.device
        return value if node.device in ("", home) else value._wrap(infer.copy(node, home))

    def _parse(self, key: Any, operation: str) -> tuple[list[views.Step], list[Advanced]]:
        items = self._normal_items(key, operation)
        starts: list[Dim] = []
        sizes: list[Dim] = []
        strides: list[int] = []
        shape: list[int] = []
        advanced: list[Advanced] = []
        axis = 0
        for item in items:
            if item is None:
                shape.append(1)
                continue
            if isinstance(item, _Flag):  # an axis of its own, of which it takes one or none
                none = infer.full((int(item.value),), 0, dt.int64)
                advanced.append(Advanced(len(shape), none))
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
                advanced.append(Advanced(len(shape), item._read()))
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
        used = sum(1 for i in items if not (i is None or i is Ellipsis or isinstance(i, _Flag)))
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
        if isinstance(item, np.ndarray) and not item.shape and item.dtype.kind in "biu":
            item = item[()]
        if isinstance(item, bool | np.bool_):
            return [_Flag(bool(item))]
        if isinstance(item, TensorCore) and not item.shape:
            if item.dtype.is_bool:
                return [_Flag(bool(item))]
            if item.dtype.is_integer and state.capture is None:  # a view, as with an int
                return [int(cast(Any, item))]
        if isinstance(item, int | np.integer):
            return [int(item)]
        if isinstance(item, Expr):
            return [item]
        if isinstance(item, list | tuple | np.ndarray | range):
            item = self._places_of(item, operation)
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

    def _places_of(self, item: Any, operation: str) -> Self:
        """Return a sequence that is an index as a tensor.

        Raises
        ------
        DTypeError, ShapeError
            If it holds other things than integers or bools, or is ragged.
        """
        if isinstance(item, list | tuple):
            array, _ = literals.of_list(item, None, operation)
        else:
            array = np.asarray(item)
        if array.size == 0 and not isinstance(item, np.ndarray):
            array = array.astype(np.int64)
        return as_operand(self, array)

    # data as index

    def _front(self, advanced: list[Advanced], what: str
               ) -> tuple[list[int], int, Node, tuple[Dim, ...]]:  # fmt: skip
        """Return the order with indexed axes in front, their sizes' product, one flat index."""
        axes = [a.axis for a in advanced]
        order = axes + [a for a in range(len(self.shape)) if a not in axes]
        shape = broadcast_shapes(what, *(a.places.shape for a in advanced))
        flat: Node | None = None
        for a in advanced:
            n = self.shape[a.axis]
            index = infer.cast(a.places, dt.int64)
            if what in nd.FROM_THE_END:
                index = wrap_index(index, n)
            index = infer.expand(index, shape)
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

    def _place(self, advanced: list[Advanced]) -> int:
        """Return where the index's axes go in the result, as NumPy does."""
        axes = [a.axis for a in advanced]
        return axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0

    def _take(self, advanced: list[Advanced], what: str = "index") -> Self:
        order, total, flat, shape = self._front(advanced, what)
        rest = [self.shape[a] for a in order[len(advanced) :]]
        count, width = _count(shape), _count(rest)
        x = infer.reshape(infer.permute(self._read(), order), (total, width))
        index = infer.expand(infer.reshape(flat, (count, 1)), (count, width))
        taken = infer.reshape(stamp(infer.gather(x, index, 0, what)), (*shape, *rest))
        place, k = self._place(advanced), len(shape)
        back = [*range(k, k + place), *range(k), *range(k + place, k + len(rest))]
        return self._wrap(infer.permute(taken, back))

    def _put_at(self, advanced: list[Advanced], value: object, kind: str = "set",
                what: str = "index") -> None:  # fmt: skip
        order, total, flat, shape = self._front(advanced, what)
        rest = [self.shape[a] for a in order[len(advanced) :]]
        count, width = _count(shape), _count(rest)
        place, k = self._place(advanced), len(shape)
        result = (*rest[:place], *shape, *rest[place:])
        new = as_operand(self, value)
        if kind == "set":
            new = self._brought(new)
        updates = infer.expand(infer.cast(new._read(), self.dtype), result)
        updates = infer.permute(
            updates, [*range(place, place + k), *range(place), *range(place + k, len(result))])
        x = infer.permute(self._read(), order)
        index = infer.expand(infer.reshape(flat, (count, 1)), (count, width))
        out = stamp(infer.scatter(infer.reshape(x, (total, width)), index,
                                  infer.reshape(updates, (count, width)), 0, kind, what))
        inverse = sorted(range(len(order)), key=order.__getitem__)
        self._write(infer.permute(infer.reshape(out, x.shape), inverse), new)

    @changing
    def index_put_(self, indices: Sequence[Any], values: object, accumulate: bool = False) -> Self:
        """Write (or add, with `accumulate`) `values` at integer indices, in order."""
        indices = items_of(indices, "index_put_")
        steps, advanced = self._parse(tuple(indices), "index_put_")
        if steps or not advanced:
            raise ShapeError("index_put_", found=f"{len(indices)} indices that are not all tensors",
                             expected="a tensor of integers for each of the first axes")
        values = self._of_own_type(values, "index_put_")
        self._put_at(advanced, values, "add" if accumulate else "set")
        return self

    # writes

    def _of_own_type(self, value: object, name: str) -> Self:
        """Return what is written at indices as a tensor of this one's type.

        Lists, NumPy's arrays and numbers are converted where every number fits; of tensors, only
        those without axes that are of no higher kind, as if they were numbers.

        Raises
        ------
        DTypeError
            If a tensor has another type.
        RangeError
            If a number does not fit the type.
        """
        found = literals.source(self, value, name)
        if not isinstance(found, TensorCore):
            found = self._coerce(found, name)
        if not isinstance(found, TensorCore):
            found = literals.whole(found, self.dtype)
            return self._make_scalar(dt.check_value(found, self.dtype, name), self.dtype)
        same = found.dtype is self.dtype
        if not same and (found.shape or CATEGORY[found.dtype.kind] > CATEGORY[self.dtype.kind]):
            raise DTypeError(name, found=f"{found.dtype.name} into {self.dtype.name}",
                             expected="values of the tensor's own type",
                             hint=f"convert them with .to(weft.{self.dtype.name})")
        return cast(Self, found).astype(self.dtype)

    def copy_(self, source: object) -> Self:
        """Replace the elements by those of `source`, broadcast and converted."""
        source = literals.source(self, source, "copy_")
        new = (None if isinstance(source, int | float)
               else self._brought(as_operand(self, source)))  # fmt: skip
        if new is None:
            value = constant(literals.whole(source, self.dtype), self.dtype, "copy_")
            self._write(infer.expand(value, self.shape), replaces=True)
            return self
        broadcast = broadcast_shapes("copy_", self.shape, _strip(new.shape, len(self.shape)))
        if broadcast != self.shape:
            raise ShapeError("copy_", found=f"{new.shape} into {self.shape}",
                             expected="a value that broadcasts to the target")
        node = infer.cast(new._read(), self.dtype)
        node = infer.reshape(node, _strip(new.shape, len(self.shape)))
        self._write(infer.expand(node, self.shape), new, replaces=True)
        return self


documented(Indexing, INDEXING)


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
