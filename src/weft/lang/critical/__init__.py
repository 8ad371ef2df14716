"""``@weft.critical``: functions for the critical path, from Python to proved machine code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from weft.errors import outermost
from weft.imports import importing

if TYPE_CHECKING:
    from weft.lang.critical.function import CriticalFunction

__all__ = ["critical"]


@overload
def critical(function: Callable[..., Any]) -> CriticalFunction: ...
@overload
def critical(*, no_allocation: bool = True, no_syscalls: bool = True, inline_always: bool = True,
             unchecked: bool = False, no_null_check: bool = False,
             target_latency_ns: float | None = None, cpu_affinity: Any = None,
             level: str = "Olatency") -> Callable[[Callable[..., Any]], CriticalFunction]: ...
@outermost
def critical(function: Callable[..., Any] | None = None, *, no_allocation: bool = True,
             no_syscalls: bool = True, inline_always: bool = True, unchecked: bool = False,
             no_null_check: bool = False, target_latency_ns: float | None = None,
             cpu_affinity: Any = None, level: str = "Olatency") -> Any:
    """Make a function for the critical path: one that computes, and does nothing else.

    ::

        @weft.critical(target_latency_ns=100)
        def risk(position: weft.float64, price: weft.float64, limit: weft.float64) -> weft.bool:
            return abs(position * price) < limit

    It takes and returns numbers, and tuples, named tuples and dataclasses of them; it takes
    arrays, too. Structs are values: what it changes in one, it returns. What the contract says is
    proved by reading the machine code that runs; a breach is an error that names the line and the
    chain of calls.

    Parameters
    ----------
    no_allocation, no_syscalls
        It calls nothing that allocates memory, or that may enter the operating system.
    inline_always
        Everything is inlined.
    unchecked
        Indices and addresses are not checked: what lies outside is undefined.
    no_null_check
        The C function does not look whether an address is 0.
    target_latency_ns
        What `latency` compares with; nothing is refused for it.
    cpu_affinity
        The CPU, or CPUs, for `pinned`.
    level
        How it is optimised: ``O0``, ``O1``, ``O2``, ``O3``, ``Os``, or ``Olatency`` (O3, heads of
        loops on 32 bytes, the first lines of arrays prefetched).
    """
    with importing:
        from weft.lang.critical.function import make

    return make(function, {
        "no_allocation": no_allocation, "no_syscalls": no_syscalls,
        "inline_always": inline_always, "unchecked": unchecked, "no_null_check": no_null_check,
        "target_latency_ns": target_latency_ns, "cpu_affinity": cpu_affinity, "level": level,
    })  # fmt: skip
