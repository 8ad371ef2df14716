"""Parameters of a program: what they declare, and what a call passes for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from weft.errors import LaunchError, ShapeError
from weft.imports import importing
from weft.ir import expr as ex
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.ir.record import Record
from weft.ir.stmt import Memory
from weft.lang.builder.lowering import Lowering
from weft.lang.builder.places import Place
from weft.lang.values.types import ArrayType, KernelType, Parameters, ScalarType
from weft.locks import computed_once

if TYPE_CHECKING:
    from weft.lang.launch.marshal import Host

__all__ = ["ArrayParameter", "ScalarParameter", "Signature", "value_of"]

_EXTENT: Final = 1 << 47  # elements along an axis of any array there can be


class ArrayParameter(Record):
    """An array: its memory, and whether the program writes to it."""

    name: str
    memory: Memory
    writable: bool

    @property
    def kind(self) -> ArrayType:
        """What an argument for it must be."""
        sizes = tuple(int(n.attr) if n.op is Op.CONST else None for n in self.memory.shape)
        return ArrayType(self.memory.dtype, len(sizes), "C", False, sizes)


class ScalarParameter(Record):
    """A number."""

    name: str
    dtype: DType

    @property
    def kind(self) -> ScalarType:
        """What an argument for it must be."""
        return ScalarType(self.dtype)


class Signature:
    """The parameters of a program, in order.

    Attributes
    ----------
    parameters : list of (ArrayParameter or ScalarParameter)
        What a call passes.
    memories : list of Memory
        The arrays.
    sizes : dict of str to Expr
        Declared sizes, which a call takes from the arrays.
    """

    def __init__(self, low: Lowering) -> None:
        self._low = low
        self._made = Parameters()
        self.parameters: list[ArrayParameter | ScalarParameter] = []
        self.sizes: dict[str, tuple[Expr, Place]] = {}

    @property
    def memories(self) -> list[Memory]:
        """The arrays, in order."""
        return self._made.memories

    def _claim(self, name: str, place: Place) -> None:
        """Take a name, of which nothing else is made."""
        if self._low.name(name) != name:
            raise self._low.wrong(place, f"the name {name!r} is used already")

    def size(self, name: str, place: Place) -> Expr:
        """Declare a size."""
        self._claim(name, place)
        made = self._made.variable(name, 0, _EXTENT)
        self.sizes[name] = made, place
        return made

    def scalar(self, name: str, d: DType, place: Place) -> Expr:
        """Declare a number."""
        if d.is_storage_only:
            raise self._low.wrong(place, f"a parameter of {d.name}", "pass it as a float32")
        self._claim(name, place)
        self.parameters.append(ScalarParameter(name, d))
        found = self._made.value(name, ScalarType(d))
        assert isinstance(found, Expr)
        return found

    def array(self, name: str, d: DType, sizes: Sequence[Expr | None], writable: bool,
              place: Place) -> Memory:  # fmt: skip
        """Declare an array; an axis without a size gets one of its own."""
        self._claim(name, place)
        for n in sizes:
            if n is not None and ex.free_vars([n]):
                raise self._low.wrong(place, "a size that is known only inside of the program",
                                      "sizes are ints, size() and expressions of them")
            if n is not None and n.op is Op.CONST and not 0 <= n.attr < _EXTENT:
                raise self._low.wrong(place, f"a size of {n.attr}")
        shape = tuple(self._made.variable(f"{name}.{k}", 0, _EXTENT) if n is None else n
                      for k, n in enumerate(sizes))
        memory = Memory(name, d, shape)
        self._made.memories.append(memory)
        self.parameters.append(ArrayParameter(name, memory, writable))
        return memory

    def check(self, place: Place) -> None:
        """Refuse sizes that no array has."""
        axes = {n for m in self.memories for n in m.shape}
        for name, (variable, where) in self.sizes.items():
            if variable not in axes:
                raise self._low.wrong(where, f"no array has the size {name}",
                                      "a number that is no size is a scalar()")

    # --- calls

    def take(self, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Host:
        """Return what a call passes; memory of tensors is known once it is resolved.

        Raises
        ------
        LaunchError
            If arguments are missing or too many, or one that is written to is read-only.
        DTypeError, ShapeError, RangeError
            If one is not what was declared.
        """
        with importing:
            from weft.lang.launch.marshal import Host

        title = f"launch of {name}"
        args = self.bound(title, args, named)
        host = Host(name)
        for (param, wanted), value in zip(self._wanted, args, strict=True):
            kind = host.types[param] = host.take(param, value, wanted)
            if param in self.written and getattr(kind, "readonly", False):
                raise LaunchError(title, found=f"{param}, which is read-only",
                                  expected="an array that can be written to")
        self._sizes(title, host.variables)
        return host

    @computed_once
    def _wanted(self) -> list[tuple[str, KernelType]]:
        return [(p.name, p.kind) for p in self.parameters]

    @computed_once
    def _arrays(self) -> list[ArrayParameter]:
        return [p for p in self.parameters if isinstance(p, ArrayParameter)]

    @computed_once
    def _axes(self) -> list[tuple[ArrayParameter, int, Expr, str]]:
        return [(p, k, n, f"{p.name}.{k}") for p in self._arrays
                for k, n in enumerate(p.memory.shape) if n.op is not Op.CONST]

    @computed_once
    def _numbers(self) -> frozenset[str]:
        return frozenset(p.name for p in self.parameters if isinstance(p, ScalarParameter))

    def sizes_of(self, host: Host) -> dict[str, int]:
        """Return the variables of a call that are sizes."""
        return {k: v for k, v in host.variables.items() if k not in self._numbers}

    @computed_once
    def written(self) -> frozenset[str]:
        """Names of the arrays that the program writes to."""
        return frozenset(p.name for p in self._arrays if p.writable)

    def resolve(self, name: str, host: Host, disjoint: bool) -> None:
        """Look up the memory of tensors; arrays that are written must not overlap others."""
        host.resolve(self.written)
        if not disjoint:
            return
        spans = []
        for p, address in zip(self._arrays, host.addresses, strict=True):
            count = math.prod(host.variables[f"{p.name}.{k}"] if n.op is not Op.CONST
                              else int(n.attr) for k, n in enumerate(p.memory.shape))
            if count:
                spans.append((address, address + count * p.memory.dtype.itemsize, p))
        _check_overlap(f"launch of {name}", spans)

    def bound(self, title: str, args: tuple[Any, ...],
              named: dict[str, Any]) -> tuple[Any, ...]:  # fmt: skip
        """Return the arguments of a call in order."""
        names = [name for name, _ in self._wanted]
        if len(args) == len(names) and not named:
            return args
        expected = f"({', '.join(names)})"
        if len(args) > len(names):
            raise LaunchError(title, found=f"{len(args)} arguments", expected=expected)
        given = dict(zip(names, args, strict=False))
        for name, value in named.items():
            if name not in names or name in given:
                raise LaunchError(title, found=f"the argument {name!r}", expected=expected)
            given[name] = value
        absent = [name for name in names if name not in given]
        if absent:
            raise LaunchError(title, found=f"no {', '.join(absent)}", expected=expected)
        return tuple(given[name] for name in names)

    def _sizes(self, title: str, variables: dict[str, int]) -> None:
        for p, k, n, own in self._axes:
            size = variables[own]
            if n.op is Op.VARIABLE and variables.setdefault(n.attr.name, size) != size:
                raise ShapeError(title, found=f"{size} along axis {k} of {p.name}",
                                 expected=f"{n.attr.name} = {variables[n.attr.name]}")
        for p, k, n, own in self._axes:
            size = variables[own]
            if n.op is not Op.VARIABLE and value_of(n, variables) != size:
                raise ShapeError(title, found=f"{size} along axis {k} of {p.name}",
                                 expected=value_of(n, variables))


def value_of(e: Expr, variables: dict[str, int]) -> int:
    """Return the value of an expression of sizes."""
    if e.op is Op.CONST:
        return int(e.attr)
    with importing:
        from weft.ir.interpret.interpret import evaluate

    return int(evaluate(e, {v: variables[v.attr.name] for v in ex.variables([e])}))


def _check_overlap(title: str, spans: list[tuple[int, int, ArrayParameter]]) -> None:
    spans.sort(key=lambda s: s[:2])
    for k, (_, end, p) in enumerate(spans):
        for start, _, q in spans[k + 1:]:
            if start >= end:
                break
            if p.writable or q.writable:
                raise LaunchError(title, found=f"{p.name} and {q.name} in the same memory",
                                  expected="arrays that do not overlap what is written",
                                  hint="copy one of them")
