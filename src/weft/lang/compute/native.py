"""Native calls of compute functions: `weft.lang.launch.native_launch`, for loops over arrays.

A compiled function is for sizes and strides, for arrays that do not overlap, and for the signs of
its integers; the rows of a call ask for all of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.ir import dtype as dt
from weft.ir.dtype import DType
from weft.lang.compute.arguments import LARGEST
from weft.lang.launch.native_launch import Python, Rows
from weft.lang.values.types import ConstantType, ScalarType

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from weft.driver.launch import Loaded
    from weft.lang.compute.arguments import Arguments
    from weft.lang.values.types import KernelType
    from weft.runtimes.native.calls.launches import Context, Launcher

__all__ = ["native_call"]

_MOST_CODES = 64


def native_call(launcher: Launcher, loaded: Loaded, fallback: str, args: tuple[Any, ...],
                named: Mapping[str, Any], host: Arguments, annotated: Container[str],
                written: Container[str], fail: Any) -> Context | None:  # fmt: skip
    """Return the native form of calls like one that went well, None if there is none.

    Parameters
    ----------
    launcher, loaded
        What calls it, and what is called: code for the sizes and strides of that call.
    fallback
        What a failure says after which the function has to run as it was written.
    args, named, host
        The arguments of the call by place and by name, without those that are left to their
        defaults, and what it passed.
    annotated, written
        Names of the parameters with annotations, and of those that are written to.
    fail
        Raises what the function reported.
    """
    again = loaded.codes(fallback)
    if again and max(again) >= _MOST_CODES:
        return None
    try:
        kinds, given = list(host.types.items()), [*args, *named.values()]
        parameters = list(host.types)
        places = [*range(len(args)), *map(parameters.index, named)]
        order = sorted(range(len(given)), key=places.__getitem__)
        rows = _Rows(loaded, given, host, written)
        for k, at in enumerate(order):
            name, kind = kinds[places[at]]
            rows.take(1 + k, name, kind, given[at], name in annotated)
        left = set(range(len(kinds))) - set(places)
        rows.constants(known=_defaults(host, [kinds[k] for k in sorted(left)]))
    except Python:
        return None
    if order == sorted(order):
        order = []
    return rows.assemble(launcher, fail, 1, 1, sum(1 << code for code in again), tuple(named),
                         order)


def _defaults(host: Arguments, kinds: list[tuple[str, KernelType]]) -> dict[str, int]:
    """Return the numbers that calls leave to their defaults, which are always the same."""
    if not all(isinstance(kind, ScalarType | ConstantType) for _, kind in kinds):
        raise Python
    return {name: host.variables[name] for name, _ in kinds if name in host.variables}


class _Rows(Rows):
    """The rows of one call."""

    def __init__(self, loaded: Loaded, args: Sequence[Any], host: Arguments,
                 written: Container[str]) -> None:  # fmt: skip
        variables = host.variables
        fixed = {k: v for k, v in variables.items() if k not in host.numbers}
        super().__init__(loaded, len(args), fixed)
        self.written = written
        self._signs = {name: variables[name] < 0 for name in host.integers}

    def _number(self, word: int, name: str, d: DType, value: Any) -> None:
        if d is dt.uint64:
            raise Python
        if name not in self._signs:
            super()._number(word, name, d, value)
            return
        low = -LARGEST if self._signs[name] else 0
        high = -1 if self._signs[name] else LARGEST
        if type(value) is int:
            self.program.check("integer", word, self.place(name), max(low, int(d.min)),
                               min(high, int(d.max)))
            return
        if not self.place(name):  # it is checked all the same
            self._places[name] = self.program.words(1)
        super()._number(word, name, d, value)
        self.program.read("between", self.place(name), low, high)
