"""Arguments of a compute function: their types, and which of them share memory.

The compiler takes it that two arrays do not overlap. So arrays that do are made one: arguments that
are the same array become two names of one memory, and arrays that overlap otherwise become views of
one flat memory, of which dependence analysis knows what it may assume: nothing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft.errors import LaunchError
from weft.exchange import host as exchange
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.record import Record
from weft.ir.stmt import Memory
from weft.lang.core.values import View, ViewAxis
from weft.lang.launch.marshal import Host
from weft.lang.values.types import (
    ArrayType,
    GroupType,
    KernelType,
    Parameters,
    ScalarType,
)

if TYPE_CHECKING:
    from weft.lang.launch.signature import Signature
    from weft.tensors.core.layouts import Layout
    from weft.tensors.core.lazy_tensor import TensorCore

__all__ = ["LARGEST", "Arguments", "Declared", "Sharing", "span_of"]

LARGEST: Final = 1 << 47  # integers below it cannot overflow an index that fits an array


_UNKNOWN: Final = np.zeros(0)  # the memory of a tensor before `resolve`


class Sharing(Record):
    """Arguments that share memory.

    ``same`` are sets of names of one and the same array, ``mixed`` sets of names of arrays of one
    type that overlap otherwise.
    """

    same: tuple[tuple[str, ...], ...] = ()
    mixed: tuple[tuple[str, ...], ...] = ()


class Arguments(Host):
    """Takes the arguments of a call apart, and sees which of them overlap."""

    takes_views = True

    __slots__ = ("_views", "arrays", "integers", "numbers")

    def __init__(self, kernel: str, signature: Signature) -> None:
        super().__init__(kernel, signature)
        self.arrays: list[tuple[str, np.ndarray[Any, Any]]] = []
        self._views: dict[int, np.ndarray[Any, Any]] = {}  # of tensors, by place
        self.numbers: set[str] = set()  # names of all numbers, and of the integers among them
        self.integers: set[str] = set()

    def bind(self, signature: Signature, args: tuple[Any, ...]) -> None:
        """Take all arguments of a call."""
        super().bind(signature, args)
        stack: list[tuple[str, Any]] = list(self.types.items())
        while stack:
            name, kind = stack.pop()
            if isinstance(kind, GroupType):
                names = kind.names or tuple(map(str, range(len(kind.items))))
                stack += [(f"{name}.{n}", k) for n, k in zip(names, kind.items, strict=True)]
            elif isinstance(kind, ScalarType):
                self.numbers.add(name)
                if kind.dtype.is_integer and not kind.dtype.is_bool:
                    self.integers.add(name)

    def resolve(self, written: Container[str]) -> None:
        """Look up the memory of tensors, as arrays; `written` names those that are written to."""
        super().resolve(written)
        for name, index, tensor in self.tensors:
            array = self._views.get(index)
            if array is None:
                array = self._seen(index, tensor.dtype, tensor.shape)
            place = next(k for k, (n, _) in enumerate(self.arrays) if n == name)
            self.arrays[place] = name, array

    def _placed(self, index: int, buffer: Any, layout: Layout, tensor: TensorCore) -> None:
        super()._placed(index, buffer, layout, tensor)
        self._views[index] = self._seen(index, tensor.dtype, layout.shape, layout.strides)

    def _seen(self, index: int, dtype: DType, shape: tuple[int, ...],
              strides: tuple[int, ...] | None = None) -> np.ndarray[Any, Any]:  # fmt: skip
        """Return the memory of a tensor as an array, of which only the place is looked at."""
        return exchange.located(self.addresses[index], dtype, shape, strides)

    def _tensor(self, name: str, tensor: TensorCore,
                shape: tuple[int | None, ...] = ()) -> KernelType:  # fmt: skip
        kind = super()._tensor(name, tensor, shape)
        if isinstance(kind, ArrayType):
            self.arrays.append((name, _UNKNOWN))
        return kind

    def _array(self, name: str, array: np.ndarray[Any, Any],
               shape: tuple[int | None, ...] = ()) -> KernelType:  # fmt: skip
        kind = super()._array(name, array, shape)
        if isinstance(kind, ArrayType):
            self.arrays.append((name, array))
        return kind

    def sharing(self) -> Sharing | None:
        """Return which arrays overlap, None if none do."""
        if len(self.arrays) < 2 and not self._views:
            return None
        spans = sorted((span_of(a), k) for k, (_, a) in enumerate(self.arrays))
        end = -1
        groups: list[list[int]] = []
        for (low, high), k in spans:
            if low >= end or not groups:
                groups.append([k])
            elif high > low:
                groups[-1].append(k)
            end = max(end, high)
        if len(groups) == len(self.arrays) and not self._views:
            return None
        same: list[tuple[str, ...]] = []
        mixed: list[tuple[str, ...]] = []
        for group in groups:
            if len(group) < 2 and (
                    not self._views or self.arrays[group[0]][1].flags.c_contiguous):
                continue
            names = tuple(self.arrays[k][0] for k in sorted(group))
            first = self.arrays[min(group)][1]
            one = all(_is_same(first, self.arrays[k][1]) for k in group)
            # A view of a tensor counts as whole, but not its strides: those are of mixed arrays.
            one = one and (not self._views or first.flags.c_contiguous)
            (same if one else mixed).append(names)
        return Sharing(tuple(same), tuple(mixed)) if same or mixed else None

    def passes(self, sharing: Sharing | None) -> list[int]:
        """Return the addresses that a call passes, after noting where mixed arrays begin."""
        if sharing is None:
            return self.addresses
        left = {names[0]: names for names in (*sharing.same, *sharing.mixed)}
        others = {n for names in left.values() for n in names[1:]}
        addresses = []
        for (name, array), address in zip(self.arrays, self.addresses, strict=True):
            if name in others:
                continue
            if name in left and left[name] in sharing.mixed:
                address = self._merge(left[name], array.dtype.itemsize)
            addresses.append(address)
        return addresses

    def _merge(self, names: tuple[str, ...], item: int) -> int:
        held = {n: a for n, a in self.arrays if n in names}
        if len({a.dtype for a in held.values()}) > 1:
            raise LaunchError(f"call of {self.kernel}", found=f"{' and '.join(names)}, which share "
                              "memory and have different types", expected="arrays of one type, "
                              "or arrays that do not overlap")
        spans = [span_of(a) for a in held.values()]
        low, high = min(s[0] for s in spans), max(s[1] for s in spans)
        for name, array in held.items():
            at = int(array.__array_interface__["data"][0])
            if (at - low) % item:
                raise LaunchError(f"call of {self.kernel}", found=f"{' and '.join(names)}, which "
                                  "overlap by a part of an element", expected="whole elements")
            self.variables[f"{name}.first"] = (at - low) // item
            for k, (n, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
                self.variables[f"{name}.step{k}"] = stride // item if n > 1 else 0
        self.variables[f"{names[0]}.span"] = (high - low) // item
        return low


class Declared(Parameters):
    """The memories and variables of a compute function, those that overlap made one.

    Parameters
    ----------
    sharing
        Which arguments overlap.
    static
        Values of the variables that the function is compiled for; of arrays all or none.
    negative
        Names of the integers that are negative. Integers are variables of their sign, small enough
        that indices do not overflow.
    exact
        Whether integers are variables of all values of their type instead.
    flat
        Whether memories have one axis, which what reshapes an array needs.
    """

    def __init__(self, sharing: Sharing | None, static: Mapping[str, int],
                 negative: frozenset[str], exact: bool, flat: bool = False) -> None:  # fmt: skip
        super().__init__(flat)
        shared = sharing or Sharing()
        self._twins = {n: names[0] for names in shared.same for n in names[1:]}
        self._mixed = {n: names[0] for names in shared.mixed for n in names}
        self._views: dict[str, View] = {}
        self._flat: dict[str, Memory] = {}
        self._static, self._negative, self._exact = static, negative, exact

    def variable(self, name: str, low: int, high: int) -> Expr:
        """Declare a variable, or return its value where that is known."""
        known = self._static.get(name)
        return super().variable(name, low, high) if known is None else ex.index(known)

    def _scalar(self, name: str, d: DType) -> Expr:
        if self._exact or d.is_float or d.is_bool or d is dt.uint64:
            return super()._scalar(name, d)
        low = max(int(d.min), -LARGEST) if name in self._negative else 0
        return ex.cast(self.variable(name, low, min(int(d.max), LARGEST)), d)

    def _array(self, name: str, kind: ArrayType) -> View:
        if name in self._twins:
            view = self._views[self._twins[name]]
        elif name in self._mixed:
            view = self._overlapping(name, kind)
        else:
            view = self._alone(name, kind)
        self._views[name] = view
        return view

    def _alone(self, name: str, kind: ArrayType) -> View:
        if kind.order == "C" or self.flat or f"{name}.span" not in self._static:
            return super()._array(name, kind)
        static = self._static
        sizes = [static[f"{name}.{k}"] for k in range(kind.ndim)]
        steps = [static[f"{name}.step{k}"] for k in range(kind.ndim)]
        found = _nested(sizes, steps)
        if found is None:
            return super()._array(name, kind)
        shape, axes, starts = found
        memory = Memory(name, kind.dtype, tuple(map(ex.index, shape)))
        self.memories.append(memory)
        return View(memory, tuple(map(ex.index, starts)), tuple(axes), kind.readonly)

    def _overlapping(self, name: str, kind: ArrayType) -> View:
        root = self._mixed[name]
        if root not in self._flat:
            span = self.variable(f"{root}.span", 0, LARGEST)
            memory = self._flat[root] = Memory(f"{root}_all", kind.dtype, (span,))
            self.memories.append(memory)
        sizes = [self.variable(f"{name}.{k}", 0, LARGEST) for k in range(kind.ndim)]
        first = self.variable(f"{name}.first", 0, LARGEST)
        steps = [self.variable(f"{name}.step{k}", -LARGEST, LARGEST) for k in range(kind.ndim)]
        axes = tuple(ViewAxis(n, 0, step) for n, step in zip(sizes, steps, strict=True))
        return View(self._flat[root], (first,), axes, kind.readonly)


def _nested(sizes: list[int], steps: list[int]
            ) -> tuple[list[int], list[ViewAxis], list[int]] | None:  # fmt: skip
    """Return an array of known strides as a part of a row-major memory of as many axes.

    None if its axes do not lie inside each other. Gives the shape of the memory, the axes of the
    view, and where it starts.
    """
    order = sorted(range(len(sizes)), key=lambda k: -abs(steps[k]))
    if any(steps[k] == 0 and sizes[k] != 1 for k in order) or 0 in sizes:
        return None
    order = [k for k in order if steps[k]] + [k for k in order if not steps[k]]
    wide = [k for k in order if steps[k]]
    shape: list[int] = []
    axes: dict[int, ViewAxis] = {}
    starts: list[int] = []
    for place, k in enumerate(wide):
        step = abs(steps[k])
        last = place == len(wide) - 1
        inner = 1 if last else abs(steps[wide[place + 1]])
        if step % inner or (not last and sizes[wide[place + 1]] * inner > step):
            return None
        shape.append(sizes[k] if place == 0 else abs(steps[wide[place - 1]]) // (
            1 if last else step))
        scale = step if last else 1
        if place == 0 and last:
            shape[-1] = (sizes[k] - 1) * step + 1
        starts.append((sizes[k] - 1) * scale if steps[k] < 0 else 0)
        axes[k] = ViewAxis(ex.index(sizes[k]), place, ex.index(scale if steps[k] > 0 else -scale))
    for k in order:
        if not steps[k]:
            axes[k] = ViewAxis(ex.index(1), 0, ex.index(0))
    if not wide:
        shape, starts = [1], [0]
    return shape, [axes[k] for k in range(len(sizes))], starts


def span_of(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the addresses between which the elements of an array lie."""
    low = high = int(array.__array_interface__["data"][0])
    if not array.size:
        return low, low
    for n, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (n - 1) * stride)
        high += max(0, (n - 1) * stride)
    return low, high + array.dtype.itemsize


def _is_same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return (a.__array_interface__["data"] == b.__array_interface__["data"] and a.dtype == b.dtype
            and a.shape == b.shape and a.strides == b.strides)
