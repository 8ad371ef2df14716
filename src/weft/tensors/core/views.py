"""Steps of views: each reads part of an array, and writes an update back to the base.

A tensor that shares memory with another one is a path of these steps from its base. Reading applies
them in order; writing puts the new value back step by step, from the last to the first, which gives
the base's new value as a pure expression.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Final, Protocol, cast

from weft.errors import CaptureError, ShapeError
from weft.graph import movement
from weft.ir import dtype as dt
from weft.ir import history, infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Dim, Node, Shape
from weft.ir.op import Op
from weft.ir.record import Record
from weft.tensors.core.layouts import Layout, reshaped
from weft.tensors.core.source_positions import stamp
from weft.tensors.core.thread_state import state

__all__ = ["REALIZED", "Bits", "Detach", "Diagonal", "Expand", "Own", "Permute", "Picked",
           "Reshape", "Slice", "Step", "Strided", "Windows", "detached", "history_of", "moves",
           "own_place", "part_of", "record_of", "recorded_of"]  # fmt: skip

# What a version rises by where others are not to count as a write: the value was computed, or is
# overwritten by way of `data`.
REALIZED: Final = 1 << 32


def detached(node: Node) -> Node:
    """Return a value as a constant of differentiation.

    What was computed before is read without what it was computed from: each step of a state that
    is detached between steps would keep the step before it alive, and its arrays.
    """
    while type(node.attr) is history.History:  # which concerns gradients alone
        node = node.args[0]
    below = nd.base(node)
    if below.op is Op.BUFFER and below.attr.origin is not None and state.capture is None:
        node = infer.reshape(nd.buffer(below.attr.constant()), node.shape)
    return infer.detach(node)


def recorded_of(node: Node) -> Node:
    """Return what was recorded of a value: its node, unless it was realized or overwritten since.

    It is what all values that one operation gave a tensor have in common.
    """
    while True:
        attr, below = node.attr, node.args[0] if node.op is Op.RESHAPE else node
        if type(attr) is history.History and not attr.replaced:
            node = attr.node
        elif state.capture is None and below.op is Op.BUFFER and below.attr.origin is not None and (
            infer.same_shape(below.attr.origin.shape, node.shape)
        ):  # fmt: skip
            node = below.attr.origin
        else:
            return node


class Step(Protocol):
    """One step of a path."""

    def read(self, base: Node) -> Node:
        """Return the part of `base` that the step looks at."""
        ...

    def put(self, base: Node, value: Node) -> Node:
        """Return `base` with that part replaced by `value`."""
        ...

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout behind the step, None where strides cannot say it.

        Raises
        ------
        Undecided
            If it depends on the values of symbolic sizes.
        """
        ...


class _Same:
    """The same elements, of which something else is recorded."""

    __slots__ = ()

    def put(self, base: Node, value: Node) -> Node:
        """Return the new value."""
        return value

    def move(self, layout: Layout) -> Layout | None:
        """Return the same layout."""
        return layout


class Detach(_Same):
    """The same elements with a place of their own in the autograd graph: at first, none.

    `detach`, `data` and views made under no_grad begin with it, and so does a view that became a
    leaf. What was recorded of the base does not concern what lies behind the step, and conversely.

    Attributes
    ----------
    history : Node or None
        What was recorded of the elements by writes through here; the values are the base's.
    leaf : weakref to a tensor, or None
        Whose gradient is that of the elements.
    capture : weakref to a capture, or None
        In which it was made.
    counted : bool
        Whether writes through here count for other views of the same elements; not by ``data``.
    """

    __slots__ = ("_number", "capture", "counted", "history", "leaf")

    def __init__(self, capture: object = None, counted: bool = True) -> None:
        self._number = next(nd.serials)
        self.history: Node | None = None
        self.leaf: weakref.ref[Any] | None = None
        self.counted = counted
        self.capture = None if capture is None else weakref.ref(capture)

    @property
    def is_tracked(self) -> bool:
        """Whether gradients flow to the elements from here."""
        return self.history is not None or self.leaf is not None

    def __eq__(self, other: object) -> bool:
        """Whether the elements are the same for gradients, too: constants are."""
        return self is other or (isinstance(other, Detach)
                                 and not (self.is_tracked or other.is_tracked))

    def __hash__(self) -> int:
        return hash(Detach)

    def check_capture(self) -> None:
        """Refuse to record in a capture what concerns a tensor from outside."""
        capture = state.capture
        if capture is not None and (self.capture is None or self.capture() is not capture):
            raise CaptureError(
                "in-place write", found="a write that records gradients to a detached view from "
                "outside the captured function", expected="a view that is made inside it",
                hint="call detach() in the function",
            )

    def read(self, base: Node) -> Node:
        """Return the array as a constant, a leaf, or with what was recorded of it."""
        if self.leaf is not None:
            return nd.make(Op.DETACH, base.dtype, base.shape, (base,), self._number)
        return detached(base) if self.history is None else infer.overwritten(base, self.history)


class Own(_Same):
    """The same elements as one view records them: with a gradient, and hooks, of its own."""

    __slots__ = ("_number", "_record", "_start")

    def __init__(self) -> None:
        self._number = next(nd.serials)
        self._record: Node | None = None
        self._start: Node | None = None

    def keep(self, record: Node, start: Node | None) -> None:
        """Note what was recorded of the elements, behind a `history_of`, until they are written."""
        self._record, self._start = record, start

    def kept(self, path: tuple[Step, ...]) -> Node | None:
        """Return what was noted; None if nothing was, or writes were recorded along the path."""
        return self._record if self._start is history_of(path) else None

    def __eq__(self, other: object) -> bool:
        """Whether the elements are the same, whatever is recorded of them."""
        return isinstance(other, Own)

    def __hash__(self) -> int:
        return hash(Own)

    def read(self, base: Node) -> Node:
        """Return the array with a place of its own in the autograd graph."""
        return nd.make(Op.DETACH, base.dtype, base.shape, (base,), nd.OWN, self._number)


def part_of(base: Node, path: Iterable[Step]) -> Node:
    """Return what a path shows of a base."""
    for step in path:
        base = step.read(base)
    return base


def history_of(path: tuple[Step, ...]) -> Node | None:
    """Return what was recorded by writes through a detached view that a path leads through."""
    at = own_place(path)
    return cast(Detach, path[at - 1]).history if at else None


def record_of(value: Node, path: tuple[Step, ...]) -> Node | None:
    """Return what was recorded of the elements behind a path, None if it is their value alone."""
    at = own_place(path)
    start = cast(Detach, path[at - 1]).history if at else recorded_of(value)
    return None if start is None or start is value else part_of(start, path[at:])


def own_place(path: tuple[Step, ...]) -> int:
    """Return how many steps of a path lead to its own place in the autograd graph."""
    for i in range(len(path), 0, -1):
        if type(path[i - 1]) is Detach:
            return i
    return 0


def moves(path: Iterable[Step]) -> list[Step]:
    """Return the steps of a path that move elements; of reshapes in a row, the last."""
    found: list[Step] = []
    for step in path:
        if type(step) is Reshape and found and type(found[-1]) is Reshape:
            found[-1] = step
        elif type(step) is not Own:
            found.append(step)
    return found


class Reshape(Record):
    """The same elements in another shape."""

    shape: Shape

    def read(self, base: Node) -> Node:
        """Return the reshaped array."""
        return infer.reshape(base, self.shape)

    def put(self, base: Node, value: Node) -> Node:
        """Return the value in the base's shape."""
        return infer.reshape(value, base.shape)

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout if every new axis lies within runs of equal stride."""
        return reshaped(layout, self.shape)


class Permute(Record):
    """The axes in another order."""

    axes: tuple[int, ...]

    def read(self, base: Node) -> Node:
        """Return the permuted array."""
        return infer.permute(base, self.axes)

    def put(self, base: Node, value: Node) -> Node:
        """Return the value in the base's order."""
        inverse = sorted(range(len(self.axes)), key=self.axes.__getitem__)
        return infer.permute(value, inverse)

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout with its axes reordered."""
        return Layout(layout.offset, tuple(layout.shape[a] for a in self.axes),
                      tuple(layout.strides[a] for a in self.axes))  # fmt: skip


class Expand(Record):
    """Axes of size 1 repeated."""

    shape: Shape

    def read(self, base: Node) -> Node:
        """Return the broadcast array."""
        return infer.expand(base, self.shape)

    def put(self, base: Node, value: Node) -> Node:
        """Return the value in the base's shape; elements must not share memory."""
        if nd.size(base.shape) == nd.size(self.shape):
            return infer.reshape(value, base.shape)
        raise ShapeError(
            "in-place write", found=f"a view expanded from {base.shape} to {self.shape}",
            expected="one place in memory for each element", hint="clone() it first",
        )

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout with stride 0 on the repeated axes."""
        shape = cast("tuple[int, ...]", tuple(self.shape))
        lead = len(shape) - len(layout.shape)
        strides = (0,) * lead + tuple(
            s if infer.same_dim(n, m) else 0
            for n, m, s in zip(shape[lead:], layout.shape, layout.strides, strict=True)
        )
        return Layout(layout.offset, shape, strides)


class Slice(Record):
    """``out[i] = base[start + i * step]`` on each axis."""

    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    def read(self, base: Node) -> Node:
        """Return the part."""
        return infer.slice_(base, self.starts, self.sizes, self.steps)

    def put(self, base: Node, value: Node) -> Node:
        """Return ``where(inside, value spread over the base's shape, base)``."""
        if infer.same_shape(base.shape, self.sizes) and all(s == 1 for s in self.steps):
            return value
        if any(not isinstance(n, Expr) and n == 0 for n in self.sizes):
            return base
        inside = infer.full(value.shape, True, dt.bool_)
        return infer.elementwise(Op.WHERE, self._spread(base.shape, inside),
                                 self._spread(base.shape, value), base)  # fmt: skip

    def _spread(self, shape: Shape, x: Node) -> Node:
        """Return `x` at its places in an array of zeros of `shape`."""
        before: list[Dim] = []
        after: list[Dim] = []
        for axis, (start, step) in enumerate(zip(self.starts, self.steps, strict=True)):
            n = x.shape[axis]
            if step < 0:
                x = movement.flip(x, axis)
                start = start + (n - 1) * step if not isinstance(n, Expr) else n * step + start
                step = -step
            if step != 1 and not isinstance(n, Expr) and n > 0:
                length = (n - 1) * step + 1
                wide = infer.unwindow(infer.reshape(x, (*x.shape, 1)), axis, step, 1, length)
                x = infer.reshape(wide, wide.shape[:-1])
            end = start + x.shape[axis] if not isinstance(x.shape[axis], Expr) else (
                x.shape[axis] + start)
            whole = shape[axis]
            before.append(start)
            after.append(whole - end if isinstance(whole, Expr) else -(end - whole))
        return infer.pad(x, before, after, False if x.dtype.is_bool else 0)

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout of the part."""
        offset: Any = layout.offset
        for start, stride in zip(self.starts, layout.strides, strict=True):
            offset = start * stride + offset
        return Layout(offset, cast("tuple[int, ...]", tuple(self.sizes)),
                      tuple(a * b for a, b in zip(self.steps, layout.strides, strict=True)))


class Diagonal(Record):
    """``out[.., i] = base[.., top + i, left + i]``: a diagonal of `n` elements, not empty."""

    top: int
    left: int
    n: int

    def _steps(self, shape: Shape) -> tuple[Slice, Reshape, Slice]:
        lead, n = shape[:-2], self.n
        zeros, ones = (0,) * len(lead), (1,) * len(lead)
        square = Slice((*zeros, self.top, self.left), (*lead, n, n), (*ones, 1, 1))
        picked = Slice((*zeros, 0), (*lead, n), (*ones, n + 1))
        return square, Reshape((*lead, n * n)), picked

    def read(self, base: Node) -> Node:
        """Return the diagonal."""
        for step in self._steps(base.shape):
            base = step.read(base)
        return base

    def put(self, base: Node, value: Node) -> Node:
        """Return the base with another diagonal."""
        square, flat, picked = self._steps(base.shape)
        part = square.read(base)
        return square.put(base, flat.put(part, picked.put(flat.read(part), value)))

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout of the diagonal."""
        rows, columns = layout.strides[-2:]
        return Layout(layout.offset + self.top * rows + self.left * columns,
                      (*layout.shape[:-2], self.n), (*layout.strides[:-2], rows + columns))


class Windows(Record):
    """Sliding windows of an axis, appended as the last one."""

    axis: int
    size: int
    step: int

    def read(self, base: Node) -> Node:
        """Return the windows."""
        return infer.window(base, self.axis, self.size, self.step)

    def put(self, base: Node, value: Node) -> Node:
        """Return the base with other windows; raise if they overlap."""
        if self.step < self.size and value.shape[self.axis] != 1:
            raise ShapeError(
                "in-place write", found=f"windows of {self.size} at steps of {self.step}",
                expected="one place in memory for each element", hint="clone() it first",
            )
        total = nd.size(base.shape)
        places = self.read(infer.reshape(infer.iota(total), base.shape))
        flat = (nd.size(value.shape),)
        out = infer.scatter(infer.reshape(base, (total,)), infer.reshape(places, flat),
                            infer.reshape(value, flat), 0)  # fmt: skip
        return infer.reshape(out, base.shape)

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout of the windows."""
        shape, strides = list(layout.shape), list(layout.strides)
        stride = strides[self.axis]
        shape[self.axis] = (shape[self.axis] - self.size) // self.step + 1
        strides[self.axis] = stride * self.step
        return Layout(layout.offset, (*shape, self.size), (*strides, stride))


class Picked(Record):
    """One place of some axes, which are dropped: the place is data (in captures alone)."""

    axes: tuple[int, ...]
    place: Node  # in row-major order over these axes, an int64

    def _order(self, base: Node) -> tuple[list[int], int, int]:
        """Return the axes with these in front, and how many places and elements of each are."""
        order = [*self.axes, *(a for a in range(base.ndim) if a not in self.axes)]
        sizes = [base.shape[a] for a in order]
        first = nd.size(tuple(sizes[: len(self.axes)]))
        return order, cast(int, first), cast(int, nd.size(tuple(sizes[len(self.axes) :])))

    def read(self, base: Node) -> Node:
        """Return what lies at the place."""
        order, count, width = self._order(base)
        x = infer.reshape(infer.permute(base, order), (count, width))
        index = infer.expand(infer.reshape(self.place, (1, 1)), (1, width))
        shape = [base.shape[a] for a in order[len(self.axes) :]]
        return infer.reshape(stamp(infer.gather(x, index, 0, "index")), shape)

    def put(self, base: Node, value: Node) -> Node:
        """Return the base with something else at the place."""
        order, count, width = self._order(base)
        x = infer.permute(base, order)
        index = infer.expand(infer.reshape(self.place, (1, 1)), (1, width))
        out = stamp(infer.scatter(infer.reshape(x, (count, width)), index,
                                  infer.reshape(value, (1, width)), 0, "set", "index"))  # fmt: skip
        inverse = sorted(range(len(order)), key=order.__getitem__)
        return infer.permute(infer.reshape(out, x.shape), inverse)

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout of the place, as if it were the first: where it begins is data."""
        kept = [a for a in range(len(layout.shape)) if a not in self.axes]
        return Layout(layout.offset, tuple(layout.shape[a] for a in kept),
                      tuple(layout.strides[a] for a in kept))  # fmt: skip


class Bits(Record):
    """The bits of the same elements as another type of the same width."""

    dtype: dt.DType

    def read(self, base: Node) -> Node:
        """Return the elements as the type."""
        return infer.bitcast(base, self.dtype)

    def put(self, base: Node, value: Node) -> Node:
        """Return the value as the base's type."""
        return infer.bitcast(value, base.dtype)

    def move(self, layout: Layout) -> Layout | None:
        """Return the same layout."""
        return layout


class Strided(Record):
    """Elements of a flat base at strides, each place at most once."""

    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    def read(self, base: Node) -> Node:
        """Return the elements, gathered in memory of their own for whoever computes with them.

        Products read each of them many times, and are at their best on whole rows.
        """
        return infer.contiguous(infer.strided(base, self.shape, self.offset, self.strides))

    def put(self, base: Node, value: Node) -> Node:
        """Return the base with the value scattered over it."""
        ndim = len(self.shape)
        index = infer.full(self.shape, self.offset, dt.int64)
        for axis, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = infer.elementwise(Op.MUL, infer.iota(n), infer.full((n,), stride, dt.int64))
            wide = infer.reshape(steps, [n if a == axis else 1 for a in range(ndim)])
            index = infer.elementwise(Op.ADD, index, infer.expand(wide, self.shape))
        flat = (nd.size(self.shape),)
        return infer.scatter(base, infer.reshape(index, flat), infer.reshape(value, flat), 0)

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout of the elements."""
        step = layout.strides[0] if layout.strides else 1
        return Layout(layout.offset + self.offset * step, self.shape,
                      tuple(s * step for s in self.strides))  # fmt: skip
