"""Functions in WGSL that reach the words of one array, which a kernel names after the array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["accessors", "is_atomic"]

_PLAIN: Final = {
    "load": "(i: u32) -> u32 { return {words}[i]; }",
    "store": "(i: u32, x: u32) { {words}[i] = x; }",
}
_ATOMIC: Final = {
    "load": "(i: u32) -> u32 { return atomicLoad(&{words}[i]); }",
    "store": "(i: u32, x: u32) { atomicStore(&{words}[i], x); }",
    "exch": "(i: u32, x: u32) -> u32 { return atomicExchange(&{words}[i], x); }",
    **{name: f"(i: u32, x: u32) -> u32 {{ return atomic{name.title()}(&{{words}}[i], x); }}"
       for name in ("add", "sub", "and", "or", "xor", "min", "max")},
    # The exchange of the language may fail though the word was the old one.
    "cas": "(i: u32, old: u32, x: u32) -> u32 {\n"
           "  var found = old;\n"
           "  for (var done = false; !done;) {\n"
           "    let seen = atomicCompareExchangeWeak(&{words}[i], old, x);\n"
           "    found = seen.old_value;\n"
           "    done = seen.exchanged || (found != old);\n"
           "  }\n"
           "  return found;\n"
           "}",
}  # fmt: skip


def is_atomic(uses: Iterable[str]) -> bool:
    """Whether an array that is used so consists of atomic words."""
    return any(use not in _PLAIN for use in uses)


def accessors(name: str, words: str, uses: Iterable[str], atomic: bool) -> list[str]:
    """Return the functions, each by its text.

    Parameters
    ----------
    name : str
        How the names of the functions end.
    words : str
        The variable that the words are in.
    uses : iterable of str
        ``load``, ``store``, ``cas``, ``exch`` and other operations of the language.
    atomic : bool
        Whether the variable has atomic words.
    """
    table = _ATOMIC if atomic else _PLAIN
    return [f"fn weft_{use}_{name}{table[use].replace('{words}', words)}" for use in uses]
