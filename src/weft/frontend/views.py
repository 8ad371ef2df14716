"""How a view relates to its base: each step reads part of an array, and can put it back.

A tensor that shares memory with another one is a path of these steps from its base. Reading applies
them in order; writing puts the new value back step by step, from the last to the first, which gives
the base's new value as a pure expression.
"""

from __future__ import annotations

from typing import Protocol

from weft.errors import ShapeError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Expr
from weft.ir.node import Dim, Node, Shape
from weft.ir.op import Op
from weft.ir.record import Record

__all__ = [
    "Detach", "Expand", "Layout", "Permute", "Reshape", "Slice", "Step", "Strided", "row_major",
    "steps_to", "strided",
]  # fmt: skip


class Layout(Record):
    """Where the elements lie in the base's memory, in elements."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Step(Protocol):
    """One step of a path."""

    def read(self, base: Node) -> Node:
        """Return the part of `base` that the step looks at."""
        ...

    def put(self, base: Node, value: Node) -> Node:
        """Return `base` with that part replaced by `value`."""
        ...

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout behind the step, None where strides cannot say it."""
        ...


def row_major(shape: Shape) -> Layout | None:
    """Return the layout of a whole array; None if a size is symbolic."""
    strides = []
    total = 1
    for dim in reversed(shape):
        if isinstance(dim, Expr):
            return None
        strides.append(total)
        total *= max(dim, 1)
    sizes = tuple(d for d in shape if not isinstance(d, Expr))
    return Layout(0, sizes, tuple(reversed(strides)))


class Detach(Record):
    """The same elements as a constant of differentiation."""

    def read(self, base: Node) -> Node:
        """Return the detached array."""
        return infer.detach(base)

    def put(self, base: Node, value: Node) -> Node:
        """Return the new value."""
        return value

    def move(self, layout: Layout) -> Layout | None:
        """Return the same layout."""
        return layout


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
        if any(isinstance(d, Expr) for d in self.shape):
            return None
        shape = tuple(int(d) for d in self.shape if not isinstance(d, Expr))
        if 0 in shape:
            return Layout(layout.offset, shape, (0,) * len(shape))
        old = [(n, s) for n, s in zip(layout.shape, layout.strides, strict=True) if n != 1]
        strides: list[int] = []
        while old or len(strides) < len(shape):
            if len(strides) == len(shape):
                return None
            want = shape[len(shape) - 1 - len(strides)]
            if want == 1:
                strides.append(1)
                continue
            if not old:
                return None
            n, s = old.pop()
            while n % want:  # merge with the axis before it, if memory runs on
                if not old or old[-1][1] != n * s:
                    return None
                outer, _ = old.pop()
                n *= outer
            strides.append(s)
            if n != want:
                old.append((n // want, s * want))
        return Layout(layout.offset, shape, tuple(reversed(strides)))


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
        """Raise: several elements would be one place in memory."""
        raise ShapeError(
            "in-place write", found=f"a view expanded from {base.shape} to {self.shape}",
            expected="one place in memory for each element", hint="clone() it first",
        )

    def move(self, layout: Layout) -> Layout | None:
        """Return the layout with stride 0 on the repeated axes."""
        if any(isinstance(d, Expr) for d in self.shape):
            return None
        shape = tuple(int(d) for d in self.shape if not isinstance(d, Expr))
        lead = len(shape) - len(layout.shape)
        strides = (0,) * lead + tuple(
            s if n == m else 0
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
                x = flip(x, axis)
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
        offset = layout.offset
        sizes, strides = [], []
        for start, n, step, stride in zip(self.starts, self.sizes, self.steps, layout.strides,
                                          strict=True):  # fmt: skip
            if isinstance(start, Expr) or isinstance(n, Expr):
                return None
            offset += start * stride
            sizes.append(n)
            strides.append(step * stride)
        return Layout(offset, tuple(sizes), tuple(strides))


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


def steps_to(shape: tuple[int, ...], offset: int, strides: tuple[int, ...]
             ) -> tuple[tuple[int, ...], list[Step]] | None:  # fmt: skip
    """Return the shape of a contiguous base, and the path from it to a strided array.

    An array without gaps is its base with axes reversed and permuted, which every kernel knows how
    to read and to write; one with gaps is `Strided` over a flat base. None if elements overlap.
    """
    order = sorted((a for a, n in enumerate(shape) if n != 1), key=lambda a: -abs(strides[a]))
    reach, dense = 1, True  # elements of the axes so far: from the first to behind the last
    for axis in reversed(order):
        width = abs(strides[axis])
        if width < reach:
            return None
        dense = dense and width == reach
        reach = (shape[axis] - 1) * width + reach
    if not dense:
        return (reach,), [Strided(shape, offset, strides)]
    base = tuple(shape[a] for a in order)
    path: list[Step] = []
    if any(strides[a] < 0 for a in order):
        path.append(Slice(tuple(shape[a] - 1 if strides[a] < 0 else 0 for a in order), base,
                          tuple(-1 if strides[a] < 0 else 1 for a in order)))  # fmt: skip
    if order != sorted(order):
        path.append(Permute(tuple(order.index(a) for a in sorted(order))))
    if len(order) < len(shape):
        path.append(Reshape(shape))
    return base, path


def strided(x: Node, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> Node:
    """Return the elements of a flat array at strides, as `steps_to` finds them."""
    found = steps_to(shape, offset, strides)
    if found is None:
        return infer.contiguous(infer.strided(x, shape, offset, strides))
    base, path = found
    out = infer.reshape(x, base)
    for step in path:
        out = step.read(out)
    return out


def flip(x: Node, axis: int) -> Node:
    """Return `x` reversed along an axis."""
    last: list[Dim] = [0] * x.ndim
    size = x.shape[axis]
    last[axis] = size - 1
    if not isinstance(size, Expr) and size == 0:
        return x
    steps = [1] * x.ndim
    steps[axis] = -1
    return infer.slice_(x, last, x.shape, steps)


def constant(shape: Shape, value: bool | int | float, dtype: dt.DType) -> Node:
    """Return a constant of a shape."""
    return infer.expand(nd.const(value, dtype), shape)
