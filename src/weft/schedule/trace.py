"""A schedule: a kernel, the primitives applied to it, and their replayable text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final, Self

from weft.config import Debug, debug
from weft.errors import ParseError
from weft.imports import importing
from weft.ir.stmt import Kernel

Verify = Callable[[Kernel], object]


class Schedule:
    """Applies schedule primitives to a kernel and keeps their trace.

    Each method is one primitive, documented at the function it calls, and returns the schedule::

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

    def _apply(self, name: str, arguments: tuple[Any, ...], **named: Any) -> Self:
        made = _primitive(name)(self._kernel, *arguments, **named)
        if made is self._kernel:
            return self  # nothing to do leaves no trace
        self._kernel = made
        self.trace.append(_line(name, arguments, named))
        if self._verify is not None:
            self._verify(self._kernel)
        return self

    def split(self, loop: str, factor: int, tail: str = "mask") -> Self:
        """See `weft.schedule.split.split`."""
        return self._apply("split", (loop, factor), tail=tail)

    def peel(self, loop: str, count: int = 1) -> Self:
        """See `weft.schedule.split.peel`."""
        return self._apply("peel", (loop, count))

    def fuse(self, outer: str, inner: str) -> Self:
        """See `weft.schedule.loops.fuse`."""
        return self._apply("fuse", (outer, inner))

    def reorder(self, *names: str) -> Self:
        """See `weft.schedule.loops.reorder`."""
        return self._apply("reorder", names)

    def reverse(self, axis: str) -> Self:
        """See `weft.schedule.loops.reverse`."""
        return self._apply("reverse", (axis,))

    def tile(self, outer: str, inner: str, outer_factor: int, inner_factor: int,
             tail: str = "mask") -> Self:
        """See `weft.schedule.loops.tile`."""
        return self._apply("tile", (outer, inner, outer_factor, inner_factor), tail=tail)

    def sink(self, loop: str) -> Self:
        """See `weft.schedule.loops.sink`."""
        return self._apply("sink", (loop,))

    def unroll(self, loop: str) -> Self:
        """See `weft.schedule.loops.unroll`."""
        return self._apply("unroll", (loop,))

    def vectorize(self, loop: str) -> Self:
        """See `weft.schedule.loops.vectorize`."""
        return self._apply("vectorize", (loop,))

    def parallel(self, loop: str) -> Self:
        """See `weft.schedule.loops.parallel`."""
        return self._apply("parallel", (loop,))

    def contract(self, accumulator: str) -> Self:
        """See `weft.schedule.reduction.contract`."""
        return self._apply("contract", (accumulator,))

    def tensorize(self, accumulator: str, axis: str, operation: str, bias: str = "left",
                  multiple: int = 1) -> Self:
        """See `weft.schedule.tensorize.tensorize`."""
        return self._apply("tensorize", (accumulator, axis, operation), bias=bias,
                           multiple=multiple)

    def widen(self, accumulator: str, axis: str, multiple: int, side: str) -> Self:
        """See `weft.schedule.widen.widen`."""
        return self._apply("widen", (accumulator, axis, multiple, side))

    def separate(self, accumulator: str) -> Self:
        """See `weft.schedule.parts.separate`."""
        return self._apply("separate", (accumulator,))

    def sweep(self, accumulator: str) -> Self:
        """See `weft.schedule.parts.sweep`."""
        return self._apply("sweep", (accumulator,))

    def fork(self, loop: str) -> Self:
        """See `weft.schedule.parts.fork`."""
        return self._apply("fork", (loop,))

    def measure(self, panel: str, axis: int, high: int, loop: str = "") -> Self:
        """See `weft.schedule.parts.measure`."""
        return self._apply("measure", (panel, axis, high), loop=loop)

    def guard(self, loop: str, left: str, right: str, terms: int) -> Self:
        """See `weft.schedule.parts.guard`."""
        return self._apply("guard", (loop, left, right, terms))

    def matrix(self, loop: str) -> Self:
        """See `weft.schedule.matrix.matrix`."""
        return self._apply("matrix", (loop,))

    def refresh(self, loop: str, kept: str, target: str) -> Self:
        """See `weft.schedule.matrix.refresh`."""
        return self._apply("refresh", (loop, kept, target))

    def rfactor(self, axis: str) -> Self:
        """See `weft.schedule.reduction.rfactor`."""
        return self._apply("rfactor", (axis,))

    def cascade(self, axis: str) -> Self:
        """See `weft.schedule.cascade.cascade`."""
        return self._apply("cascade", (axis,))

    def promote(self, axis: str) -> Self:
        """See `weft.schedule.cascade.promote`."""
        return self._apply("promote", (axis,))

    def block_sums(self, memory: str, loop: str, block: int) -> Self:
        """See `weft.schedule.cascade.block_sums`."""
        return self._apply("block_sums", (memory, loop, block))

    def decompose_reduction(self, accumulator: str, loop: str, partial: tuple[str, ...] = (),
                            spill: bool = False, scope: str = "register") -> Self:
        """See `weft.schedule.reduction.decompose_reduction`."""
        return self._apply("decompose_reduction", (accumulator, loop), partial=tuple(partial),
                           spill=spill, scope=scope)

    def scan(self, loop: str, lanes: int, each: int = 1) -> Self:
        """See `weft.schedule.scan.scan`."""
        return self._apply("scan", (loop, lanes, each))

    def block_reduction(self, accumulator: str, loop: str, axis: str, factor: int,
                        partial: tuple[str, ...] = ()) -> Self:  # fmt: skip
        """See `weft.schedule.blocking.block_reduction`."""
        return self._apply("block_reduction", (accumulator, loop, axis, factor),
                           partial=tuple(partial))

    def share_reduction(self, accumulator: str, loop: str, axis: str, factor: int) -> Self:
        """See `weft.schedule.blocking.share_reduction`."""
        return self._apply("share_reduction", (accumulator, loop, axis, factor))

    def stage(self, memory: str, loop: str, layout: tuple[str, ...], scope: str = "local",
              skew: int = 0) -> Self:
        """See `weft.schedule.memory.stage`."""
        return self._apply("stage", (memory, loop), layout=tuple(layout), scope=scope, skew=skew)

    def precompute(self, name: str, loop: str, layout: tuple[str, ...], scope: str = "local",
                   skew: int = 0, written: str = "") -> Self:
        """See `weft.schedule.precompute.precompute`."""
        return self._apply("precompute", (name, loop), layout=tuple(layout), scope=scope,
                           skew=skew, written=written)

    def window(self, memory: str, loop: str, order: tuple[int, ...] = (), skew: int = 0) -> Self:
        """See `weft.schedule.window.window`."""
        return self._apply("window", (memory, loop), order=tuple(order), skew=skew)

    def strip(self, loop: str, memory: str) -> Self:
        """See `weft.schedule.strip.strip`."""
        return self._apply("strip", (loop, memory))

    def alias(self, memory: str, *names: str) -> Self:
        """See `weft.schedule.alias.alias`."""
        return self._apply("alias", (memory, *names))

    def unite(self) -> Self:
        """See `weft.schedule.alias.unite`."""
        return self._apply("unite", ())

    def layout(self, memory: str, order: tuple[int, ...]) -> Self:
        """See `weft.schedule.memory.layout`."""
        return self._apply("layout", (memory,), order=tuple(order))

    def pad(self, memory: str, dimension: int, multiple: int) -> Self:
        """See `weft.schedule.memory.pad`."""
        return self._apply("pad", (memory, dimension, multiple))

    def flatten(self, memory: str, room: int = 0) -> Self:
        """See `weft.schedule.memory.flatten`."""
        return self._apply("flatten", (memory, room))

    def stream(self, memory: str) -> Self:
        """See `weft.schedule.memory.stream`."""
        return self._apply("stream", (memory,))

    def prefetch(self, memory: str, loop: str, ahead: str, distance: int = 1) -> Self:
        """See `weft.schedule.prefetch.prefetch`."""
        return self._apply("prefetch", (memory, loop, ahead, distance))

    def prefetch_places(self, memory: str, loop: str, ahead: str, places: int = 4,
                        block: int = 1) -> Self:
        """See `weft.schedule.prefetch.prefetch_places`."""
        return self._apply("prefetch_places", (memory, loop, ahead, places, block))

    def prefetch_panel(self, memory: str, copy: str, loop: str, ahead: str) -> Self:
        """See `weft.schedule.prefetch.prefetch_panel`."""
        return self._apply("prefetch_panel", (memory, copy, loop, ahead))

    def prefetch_rows(self, memory: str, copy: str, tile: str, steps: str, ahead: str,
                      around: str = "") -> Self:
        """See `weft.schedule.prefetch.prefetch_rows`."""
        return self._apply("prefetch_rows", (memory, copy, tile, steps, ahead), around=around)

    def prefetch_lines(self, memory: str, copy: str, tile: str, steps: str, ahead: str,
                       around: str = "") -> Self:
        """See `weft.schedule.long_steps.prefetch_lines`."""
        return self._apply("prefetch_lines", (memory, copy, tile, steps, ahead), around=around)

    def prefetch_between(self, memory: str, rows: str, first: str, turns: str, ahead: str = "",
                         lines: int = 0) -> Self:  # fmt: skip
        """See `weft.schedule.between.prefetch_between`."""
        return self._apply("prefetch_between", (memory, rows, first, turns), ahead=ahead,
                           lines=lines)

    def copy_ahead(self, memory: str, copy: str, tile: str, steps: str, ahead: str,
                   around: str = "", distance: int = 8) -> Self:  # fmt: skip
        """See `weft.schedule.pipeline.copy_ahead`."""
        return self._apply("copy_ahead", (memory, copy, tile, steps, ahead), around=around,
                           distance=distance)

    def settle(self, nest: str, loop: str, into: str) -> Self:
        """See `weft.schedule.settle.settle`."""
        return self._apply("settle", (nest, loop, into))

    def inline(self, name: str) -> Self:
        """See `weft.schedule.memory.inline`."""
        return self._apply("inline", (name,))

    def hoist(self, name: str) -> Self:
        """See `weft.schedule.memory.hoist`."""
        return self._apply("hoist", (name,))

    def distribute(self, loop: str, count: int) -> Self:
        """See `weft.schedule.distribute.distribute`."""
        return self._apply("distribute", (loop, count))

    def lift(self, loop: str) -> Self:
        """See `weft.schedule.distribute.lift`."""
        return self._apply("lift", (loop,))

    def search(self, accumulator: str, lanes: int, steps: int) -> Self:
        """See `weft.schedule.search.search`."""
        return self._apply("search", (accumulator, lanes, steps))

    def omit(self, accumulator: str, *still: str, alone: bool = False,
             zero: bool = False) -> Self:  # fmt: skip
        """See `weft.schedule.omit.omit`."""
        return self._apply("omit", (accumulator, *still), alone=alone, zero=zero)

    def branch(self, loop: str) -> Self:
        """See `weft.schedule.omit.branch`."""
        return self._apply("branch", (loop,))

    def specialize(self, loop: str, position: str) -> Self:
        """See `weft.schedule.specialize.specialize`."""
        return self._apply("specialize", (loop, position))

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
                schedule._apply(name, arguments, **named)
            except TypeError as error:
                raise ParseError("schedule", found=line,
                                 expected=f"the arguments of {name}: {error}") from None
        return schedule


# The modules of `weft.schedule` that have the primitives, each imported when one is applied: a
# simple nest takes two or three of them.
_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "split": ("split", "peel"),
    "loops": ("fuse", "reorder", "reverse", "tile", "sink", "unroll", "vectorize", "parallel"),
    "reduction": ("contract", "rfactor", "decompose_reduction"),
    "blocking": ("block_reduction", "share_reduction"), "tensorize": ("tensorize",),
    "widen": ("widen",),
    "scan": ("scan",), "parts": ("separate", "sweep", "fork", "measure", "guard"),
    "memory": ("stage", "layout", "pad", "flatten", "stream", "inline", "hoist"),
    "alias": ("alias", "unite"), "precompute": ("precompute",),
    "matrix": ("matrix", "refresh"), "window": ("window",),
    "prefetch": ("prefetch", "prefetch_places", "prefetch_panel", "prefetch_rows"),
    "between": ("prefetch_between",), "pipeline": ("copy_ahead",),
    "long_steps": ("prefetch_lines",), "settle": ("settle",),
    "cascade": ("cascade", "promote", "block_sums"),
    "distribute": ("distribute", "lift"), "search": ("search",), "omit": ("omit", "branch"),
    "strip": ("strip",), "specialize": ("specialize",),
}
_HOME: Final = {name: module for module, names in _MODULES.items() for name in names}
_PRIMITIVES: Final[dict[str, Callable[..., Kernel]]] = {}  # those that were applied


def _primitive(name: str) -> Callable[..., Kernel]:
    found = _PRIMITIVES.get(name)
    if found is None:
        with importing:  # a child without this thread would wait for its end for ever
            found = getattr(import_module(f"weft.schedule.{_HOME[name]}"), name)
        _PRIMITIVES[name] = found
    return found


_DEFAULTS: Final[dict[tuple[str, str], Any]] = {
    ("decompose_reduction", "partial"): (), ("decompose_reduction", "spill"): False,
    ("decompose_reduction", "scope"): "register", ("block_reduction", "partial"): (),
    ("stage", "scope"): "local", ("stage", "skew"): 0,
    ("window", "order"): (), ("window", "skew"): 0, ("precompute", "scope"): "local",
    ("precompute", "skew"): 0, ("precompute", "written"): "",
    ("measure", "loop"): "", ("prefetch_rows", "around"): "", ("prefetch_lines", "around"): "",
    ("prefetch_between", "ahead"): "", ("prefetch_between", "lines"): 0,
    ("copy_ahead", "around"): "", ("copy_ahead", "distance"): 8,
    ("omit", "alone"): False, ("omit", "zero"): False, ("tensorize", "bias"): "left",
    ("tensorize", "multiple"): 1,
}


def _debug_verifier() -> Verify | None:
    if not debug(Debug.SCHEDULE):
        return None
    with importing:
        from weft.ir.verify import verify

    return verify


def _line(name: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    shown = [_show(a) for a in arguments]
    shown += [f"{key}={_show(value)}" for key, value in named.items()
              if (name, key) not in _DEFAULTS or _DEFAULTS[name, key] != value]
    return f"{name}({', '.join(shown)})"


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)


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
    if match is None or match[1] not in _HOME:
        raise ParseError("schedule", found=repr(line),
                         expected="one of " + ", ".join(f"{p}(...)" for p in _HOME))
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
