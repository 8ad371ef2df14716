"""Calls of finished programs in native code, from the second on with arrays of the same sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.errors import outermost
from weft.imports import importing
from weft.lang.launch.launch import native_launcher
from weft.runtimes.native.calls.callables import takes_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.driver.launch import Failed, Loaded
    from weft.lang.builder.parameters import Signature
    from weft.lang.launch.marshal import Host
    from weft.runtimes.native.calls.launches import Context

__all__ = ["comes_again", "quicken"]

_AGAIN: Final = 2  # calls with arrays of the same sizes, after which they go to native code
_MOST_SEEN: Final = 64  # kinds of calls that are counted


def comes_again(seen: dict[Any, int], signature: Signature, host: Host,
                args: tuple[Any, ...]) -> bool:  # fmt: skip
    """Count a call; whether calls like it, with arrays of these sizes, are worth native code."""
    key = tuple(map(type, args)), tuple(host.types.values()), *signature.sizes_of(host).values()
    seen[key] = seen.get(key, 0) + 1
    if seen[key] < _AGAIN:
        native_launcher()  # its own code is compiled by the first call, which takes long anyway
    return seen[key] == _AGAIN and len(seen) <= _MOST_SEEN


def quicken(instance: Any, contexts: list[Context], loaded: Loaded, signature: Signature,
            host: Host, args: tuple[Any, ...], error: Callable[[Failed], Exception], threads: int,
            blocks: int, apart: bool) -> None:  # fmt: skip
    """Let calls like one that went well, on arrays of the same sizes, run in native code.

    Parameters
    ----------
    instance, contexts
        What is called, and its list of native launches.
    loaded, signature, host, args
        What it runs, what it takes, and what that call passed.
    error
        Returns the error that a failure is.
    threads, blocks
        How many there are in all.
    apart
        Whether its arrays must not overlap.
    """
    from weft.driver import counters
    with importing:
        from weft.lang.launch.native_launch import Python, Rows

    launcher = None if counters.active() is not None else native_launcher()
    if launcher is None or not takes_code(type(instance)):  # or calls are recorded
        return

    @outermost
    def fail(code: int, _: int, __: int, value: int, bound: int) -> None:
        raise error(loaded.failed(code, value, bound))

    sizes = signature.sizes_of(host)
    rows = Rows(loaded, len(args), {**host.variables, **sizes})
    rows.written = signature.written
    try:
        for k, (value, (param, kind)) in enumerate(zip(args, host.types.items(), strict=True)):
            rows.take(1 + k, param, kind, value, True)
    except Python:
        return
    rows.constants(known=sizes, apart=apart)
    context = rows.assemble(launcher, fail, threads, blocks)
    if context is not None:
        launcher.attach(instance, contexts, context)
