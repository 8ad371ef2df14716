"""Functions in WGSL that kernels call, each written into the text of a kernel that needs it.

What WGSL leaves to drivers (quotients, roots, fused multiply-adds and conversions need not be
rounded correctly) and what it lacks (64 bits) is computed in integers of 32 bits.
`needed` returns functions with those that they call, in an order in which they may be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from weft.renderers.cstyle.wgsl.doubles import DOUBLES
from weft.renderers.cstyle.wgsl.integers import INTEGERS
from weft.renderers.cstyle.wgsl.singles import SINGLES

__all__ = ["needed"]

_NAME: Final = re.compile(r"\bweft_\w+")


@cache
def _functions() -> dict[str, str]:
    """Return the functions by name."""
    parts = (INTEGERS + SINGLES + DOUBLES).split("\nfn ")[1:]
    return {part.partition("(")[0]: f"fn {part.strip()}" for part in parts}


@cache
def _calls(name: str) -> tuple[str, ...]:
    """Return the other functions that a function calls."""
    found = dict.fromkeys(_NAME.findall(_functions()[name]))
    return tuple(n for n in found if n in _functions() and n != name)


def needed(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of functions and of all that they call, those first."""
    seen: set[str] = set()
    pending = list(names)[::-1]
    while pending:
        name = pending[-1]
        before = [] if name in seen else [n for n in _calls(name) if n not in seen]
        if before:
            pending += before
            continue
        pending.pop()
        if name not in seen:
            seen.add(name)
            yield name, _functions()[name]
