"""A schedule: a kernel, the primitives applied to it, and their replayable text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Self

from weft.config import Debug, debug
from weft.errors import ParseError
from weft.imports import Late, importing
from weft.ir.stmt import Kernel
from weft.schedule.primitive import PRIMITIVES, primitive

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.schedule.data import (
        alias,
        distribute,
        float32_parts,
        matrix,
        memory,
        precompute,
        prefetch,
        software_pipeline,
        strip,
        tensorize,
        unmask,
        widen,
        window,
    )
    from weft.schedule.loops import (
        blocking,
        cascade,
        fuse_prologue_epilogue,
        loops,
        omit,
        reduction,
        scan,
        search,
        specialize,
        split,
    )

    Verify = Callable[[Kernel], object]
else:
    alias = Late("weft.schedule.data.alias")
    distribute = Late("weft.schedule.data.distribute")
    float32_parts = Late("weft.schedule.data.float32_parts")
    matrix = Late("weft.schedule.data.matrix")
    memory = Late("weft.schedule.data.memory")
    precompute = Late("weft.schedule.data.precompute")
    prefetch = Late("weft.schedule.data.prefetch")
    software_pipeline = Late("weft.schedule.data.software_pipeline")
    strip = Late("weft.schedule.data.strip")
    tensorize = Late("weft.schedule.data.tensorize")
    unmask = Late("weft.schedule.data.unmask")
    widen = Late("weft.schedule.data.widen")
    window = Late("weft.schedule.data.window")
    blocking = Late("weft.schedule.loops.blocking")
    cascade = Late("weft.schedule.loops.cascade")
    fuse_prologue_epilogue = Late("weft.schedule.loops.fuse_prologue_epilogue")
    loops = Late("weft.schedule.loops.loops")
    omit = Late("weft.schedule.loops.omit")
    reduction = Late("weft.schedule.loops.reduction")
    scan = Late("weft.schedule.loops.scan")
    search = Late("weft.schedule.loops.search")
    specialize = Late("weft.schedule.loops.specialize")
    split = Late("weft.schedule.loops.split")


class Schedule:
    """Applies schedule primitives to a kernel and keeps their trace.

    Each method is a primitive, a function that takes the kernel, and returns the schedule::

        Schedule(kernel).split("i", 64).vectorize("i.i").parallel("i.o").kernel

    A primitive that is not legal raises `ScheduleError` and leaves the schedule as it was.

    Parameters
    ----------
    kernel : Kernel
        Where to start. Its own trace, if it has one, is continued.
    verify : callable, optional
        Called with the kernel after every primitive; by default the IR verifier, if ``WEFT_DEBUG``
        has the schedule bit.

    Attributes
    ----------
    start : Kernel
        The kernel before the first primitive.
    trace : list of str
        One line for each primitive.
    """

    def __init__(self, kernel: Kernel, verify: Verify | None = None) -> None:
        self.start = self._kernel = kernel
        self.trace: list[str] = list(kernel.meta.schedule)
        self._verify = verify if verify is not None else _debug_verifier()

    @property
    def kernel(self) -> Kernel:
        """The kernel as scheduled so far, its trace in ``meta.schedule``."""
        meta = self._kernel.meta.replace(schedule=tuple(self.trace))
        return self._kernel.replace(meta=meta)

    @property
    def bare(self) -> Kernel:
        """The kernel as scheduled so far, without its trace (cheaper to ask for)."""
        return self._kernel

    def mark(self) -> tuple[Kernel, int]:
        """Return the present state, for `reset`."""
        return self._kernel, len(self.trace)

    def reset(self, state: tuple[Kernel, int]) -> None:
        """Go back to a state that `mark` returned."""
        self._kernel = state[0]
        del self.trace[state[1] :]

    def apply(self, step: primitive[...], arguments: tuple[Any, ...],
              named: dict[str, Any]) -> Self:  # fmt: skip
        """Apply a primitive, and add its line to the trace."""
        made = step.function(self._kernel, *arguments, **named)
        if made is self._kernel:
            return self  # nothing to do leaves no trace
        self._kernel = made
        self.trace.append(step.line(arguments, named))
        if self._verify is not None:
            self._verify(self._kernel)
        return self

    split = primitive(lambda: split.split, "tail", always=True)
    peel = primitive(lambda: split.peel)
    fuse = primitive(lambda: loops.fuse)
    reorder = primitive(lambda: loops.reorder)
    reverse = primitive(lambda: loops.reverse)
    tile = primitive(lambda: loops.tile, "tail", always=True)
    sink = primitive(lambda: loops.sink)
    unroll = primitive(lambda: loops.unroll)
    vectorize = primitive(lambda: loops.vectorize)
    parallel = primitive(lambda: loops.parallel)
    bind = primitive(lambda: loops.bind)
    fuse_prologue_epilogue = primitive(
        lambda: fuse_prologue_epilogue.fuse_prologue_epilogue)
    omit = primitive(lambda: omit.omit, "alone", "zero")
    branch = primitive(lambda: omit.branch)
    specialize = primitive(lambda: specialize.specialize)

    contract = primitive(lambda: reduction.contract)
    rfactor = primitive(lambda: reduction.rfactor)
    decompose_reduction = primitive(lambda: reduction.decompose_reduction,
                                    "partial", "spill", "scope")  # fmt: skip
    block_reduction = primitive(lambda: blocking.block_reduction, "partial")
    share_reduction = primitive(lambda: blocking.share_reduction)
    cascade = primitive(lambda: cascade.cascade)
    promote = primitive(lambda: cascade.promote)
    block_sums = primitive(lambda: cascade.block_sums)
    scan = primitive(lambda: scan.scan)
    search = primitive(lambda: search.search)

    stage = primitive(lambda: memory.stage, "layout", "scope", "skew", "masked")
    layout = primitive(lambda: memory.layout, "order")
    pad = primitive(lambda: memory.pad)
    flatten = primitive(lambda: memory.flatten)
    stream = primitive(lambda: memory.stream)
    inline = primitive(lambda: memory.inline)
    hoist = primitive(lambda: memory.hoist)
    precompute = primitive(lambda: precompute.precompute, "layout", "scope", "skew", "written")
    window = primitive(lambda: window.window, "order", "skew")
    unmask = primitive(lambda: unmask.unmask)
    strip = primitive(lambda: strip.strip)
    alias = primitive(lambda: alias.alias)
    unite = primitive(lambda: alias.unite)
    distribute = primitive(lambda: distribute.distribute)
    lift = primitive(lambda: distribute.lift)

    tensorize = primitive(lambda: tensorize.tensorize, "bias", "multiple")
    widen = primitive(lambda: widen.widen)
    matrix = primitive(lambda: matrix.matrix)
    refresh = primitive(lambda: matrix.refresh)
    separate = primitive(lambda: float32_parts.separate)
    sweep = primitive(lambda: float32_parts.sweep)
    fork = primitive(lambda: float32_parts.fork)
    measure = primitive(lambda: float32_parts.measure, "loop")
    guard = primitive(lambda: float32_parts.guard)

    prefetch = primitive(lambda: prefetch.prefetch,
                         "granularity", "count", "read", "first", "around")  # fmt: skip
    software_pipeline = primitive(lambda: software_pipeline.software_pipeline,
                                  "read", "first", "around")  # fmt: skip

    @classmethod
    def replay(cls, kernel: Kernel, trace: Iterable[str], verify: Verify | None = None) -> Self:
        """Apply the lines of a trace, in order, to a kernel.

        Raises
        ------
        ParseError
            If a line is not ``primitive(arguments)``.
        ScheduleError
            If a primitive is not legal on this kernel.
        """
        schedule = cls(kernel, verify)
        for line in trace:
            name, arguments, named = parse_line(line)
            try:
                getattr(schedule, name)(*arguments, **named)
            except TypeError as error:
                raise ParseError("schedule", found=line,
                                 expected=f"the arguments of {name}: {error}") from None
        return schedule


def _debug_verifier() -> Verify | None:
    if not debug(Debug.SCHEDULE):
        return None
    with importing:
        from weft.ir.verify.verify import verify

    return verify


_LINE: Final = re.compile(r"\s*([a-z_]+)\((.*)\)\s*")
_SEQUENCES: Final = ("partial", "layout", "order")


def parse_line(line: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the name, positional and named arguments of one line of a trace.

    Raises
    ------
    ParseError
        If the line is malformed or names no primitive.
    """
    match = _LINE.fullmatch(line)
    if match is None or match[1] not in PRIMITIVES:
        raise ParseError("schedule", found=repr(line),
                         expected="one of " + ", ".join(f"{p}(...)" for p in PRIMITIVES))
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for part in match[2].split(",") if match[2].strip() else ():
        key, equals, text = part.strip().partition("=")
        if not equals:
            positional.append(_value(key))
        elif key in _SEQUENCES:
            named[key] = tuple(_value(t) for t in text.split("+") if t)
        else:
            named[key] = _value(text)
    return match[1], tuple(positional), named


def _value(text: str) -> int | bool | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text


__all__ = ["Schedule", "parse_line"]
