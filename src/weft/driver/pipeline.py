"""The compilation pipeline of one kernel, from loop nest to machine code."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from weft.config import Debug, config, debug
from weft.driver.context import Context
from weft.driver.optimisation_levels import LEVELS, style_of
from weft.imports import importing
from weft.ir.bounds import bounds
from weft.ir.linear import LinearKernel
from weft.ir.program import Program
from weft.ir.record import Record
from weft.ir.stmt import CHECK, PARALLEL, SERIAL, THREADS, For, Kernel
from weft.ir.traverse import Tally, walk
from weft.kernelize.special import attempt
from weft.passes.legalize import Legalizer, legalize
from weft.passes.linearize import linearize
from weft.passes.spmd.loop_fission import blocks_to_loops, has_threads, unroll_loops
from weft.passes.spmd.thread_block_coarsening import Room
from weft.passes.vector.extremes import splitter
from weft.passes.vector.vectorize import vectorize
from weft.strategies import choose
from weft.strategies.first_tier import FIRST, choose_first_tier
from weft.target import SIMT

if TYPE_CHECKING:
    from weft.passes.packed_weights import Panel

T = TypeVar("T")

_BLOCKS_OF_CACHE: Final = 4  # of the second cache, what blocks that run together may take
_OWN_TRAVERSALS: Final = 4  # the strategy, vectorise, linearise, render

verifying = False  # every level is verified: the test suite turns it on


FULL: Final = "full"  # the tiers: the code that is wanted in the end, and
QUICK: Final = "quick"  # code to begin with, scalar and hardly optimised
_PIPELINES: Final = {FULL: "short", QUICK: "quick"}


class Effort(NamedTuple):
    """What a kernel took to compile.

    Attributes
    ----------
    passes : int
        Passes over the whole kernel: lowering, rewrites, the strategy as one, vectorising,
        linearising, rendering.
    primitives : int
        Steps of the schedule, each of which rewrites the loops that it names.
    python, llvm : float
        Milliseconds of a processor in Weft and in LLVM, which may work at the same time.
    """

    passes: int
    primitives: int
    python: float
    llvm: float


class Built(Record):
    """A compiled kernel with what it was on the way.

    Attributes
    ----------
    context : Context
        The device that it is compiled for.
    nest, scheduled : Kernel
        The loop nest before and after its strategy.
    program : Program
        The kernel at program level: kernel-level list, source and binary.
    messages : list of (text, check)
        What a failure code (less 1) means, and the number of the check that failed or -1.
    pipeline : str
        The compiler's pass pipeline.
    tier : str
        ``full`` or ``quick``.
    effort : Effort
        What it took, without its lowering.
    panels : tuple of Panel
        Copies of arrays that it reads from parameters behind those of the nest.
    """

    context: Context
    nest: Kernel
    scheduled: Kernel
    program: Program
    messages: list[tuple[str, int]]
    pipeline: str
    tier: str
    effort: Effort
    panels: tuple[Panel, ...] = ()

    @property
    def linear(self) -> LinearKernel:
        """The kernel-level list."""
        return stage(self.program.linear)

    @property
    def source(self) -> str:
        """The text that was compiled."""
        return stage(self.program.source)

    @property
    def image(self) -> bytes:
        """The object file."""
        return stage(self.program.binary)

    @property
    def variables(self) -> list[str]:
        """Names of the symbolic variables in ABI order."""
        return [v.attr.name for v in self.linear.variables]

    @property
    def width(self) -> int:
        """How many threads the kernel can use at most."""
        extents = (s.extent for s in walk(self.scheduled.body)
                   if isinstance(s, For) and s.kind == PARALLEL)
        return max((bounds(extent, {}).hi for extent in extents), default=1)


def stage(held: T | None) -> T:
    """Return what a program that has been through `build` holds."""
    assert held is not None
    return held


class Rendered(NamedTuple):
    """A kernel as far as Weft takes it: what the compiler reads, and what it was on the way.

    Attributes
    ----------
    context : Context
        The device that it is rendered for.
    nest, scheduled : Kernel
        The loop nest before and after its strategy.
    program : Program
        The kernel-level list and its source.
    tier, pipeline : str
        The tier, and the compiler's pass pipeline.
    passes : int
        Passes over the whole kernel.
    python : float
        Milliseconds of this thread that it took.
    panels : tuple of Panel
        Copies that it reads from parameters of their own.
    """

    context: Context
    nest: Kernel
    scheduled: Kernel
    program: Program
    tier: str
    pipeline: str
    passes: int
    python: float
    panels: tuple[Panel, ...] = ()

    def compiled(self) -> tuple[bytes, float]:
        """Return the object file and the milliseconds of this thread that it took."""
        start = time.thread_time()
        image = self.context.compiler.compile(stage(self.program.source), self.pipeline)
        return image, (time.thread_time() - start) * 1e3

    def built(self, image: bytes, milliseconds: float) -> Built:
        """Return the kernel with its object file."""
        messages = [
            (text, place.line if place is not None and place.file == CHECK else -1)
            for text, place in stage(self.program.linear).messages
        ]
        effort = Effort(self.passes, len(self.scheduled.meta.schedule), self.python, milliseconds)
        return Built(self.context, self.nest, self.scheduled, self.program.compiled(image),
                     messages, self.pipeline, self.tier, effort, self.panels)


def _checked(flat: Kernel) -> Kernel:
    """Return a flat kernel with what `WEFT_POISON` and `WEFT_GUARD` ask for."""
    with importing:
        from weft.passes.memory_checks import assert_bounds, fill_private
        from weft.runtimes.memory.debug_pool import POISON

    if config().poison:
        flat = fill_private(flat, POISON[config().poison])
    return assert_bounds(flat) if config().guard else flat


def build(kernel: Kernel, name: str, context: Context, tier: str = FULL,
          chosen: tuple[Kernel, str] | None = None, resident: Sequence[int] = ()
          ) -> Built:  # fmt: skip
    """Compile a loop nest for a device under the symbol `name`.

    `chosen` is a schedule and the compiler's pipeline that tuning found for it; copies of the
    `resident` parameters, which are the same from call to call, are left to kernels of their own.
    """
    rendered = render(kernel, name, context, tier, chosen, resident)
    return rendered.built(*rendered.compiled())


def render(kernel: Kernel, name: str, context: Context, tier: str = FULL,
           chosen: tuple[Kernel, str] | None = None, resident: Sequence[int] = ()
           ) -> Rendered:  # fmt: skip
    """Take a loop nest to the text that the compiler reads: everything in `build` before LLVM.

    A nest that fails under a schedule of its own is rendered under the plainest one.
    """
    return attempt(lambda: _render(kernel, name, context, tier, chosen, resident),
                   lambda reason: _render(kernel, name, context, tier, None, (), reason), verifying)


def without_threads(kernel: Kernel, context: Context, plain: bool = False) -> Kernel:
    """Return a kernel of blocks of threads as the loops that are scheduled; another as it is.

    Loops of `plain` kernels are not for vectors. Targets with threads keep them.
    """
    if not has_threads(kernel):
        return kernel
    target, hints = context.target, dict(kernel.meta.hints)
    simt = target.style == SIMT
    vectors = not plain and not simt and hints.get("vectorizable", True)
    lanes = target.vector_bytes // 4 if vectors else 1
    if lanes > 1:
        lanes = hints.get("vector_width", lanes)
    room = Room(target.l2_bytes // _BLOCKS_OF_CACHE, context.threads) if lanes > 1 else None
    return blocks_to_loops(unroll_loops(kernel, hints.get("unroll", 1)), lanes, room,
                           THREADS if simt else SERIAL)  # fmt: skip


def _render(kernel: Kernel, name: str, context: Context, tier: str,
            chosen: tuple[Kernel, str] | None, resident: Sequence[int],
            failed: str = "") -> Rendered:  # fmt: skip
    """Render a nest; the plainest way, if it is known that its schedule `failed`, and why."""
    start, before = time.thread_time(), Tally.passes
    target, threads = context.target, context.threads
    nest, hints = kernel, dict(kernel.meta.hints)
    plain, simt = tier != FULL or bool(failed), target.style == SIMT
    kernel = without_threads(kernel, context, plain)
    if chosen is not None:
        scheduled = chosen[0]
    elif simt and failed:
        with importing:
            from weft.strategies.threads.choose import choose_for_threads

        scheduled = choose_for_threads(kernel, target, threads, why=failed)
    elif plain and not simt:
        why = f"scalar code, since a schedule failed ({failed})" if failed else FIRST
        scheduled = choose_first_tier(kernel, target, threads, why)
    else:
        scheduled = choose(kernel, target, threads)
    panels: tuple[Panel, ...] = ()
    if resident:
        with importing:
            from weft.passes.packed_weights import take_packed_weights

        scheduled, panels = take_packed_weights(
            scheduled, {kernel.params[i].name for i in resident}
        )
    by_primitives = Tally.passes - before
    flat = vectorize(legalize(scheduled, target, splitter(target)), Legalizer(target).one)
    if config().memory_mode:
        flat = _checked(flat)
    linear = linearize(flat)
    if verifying or config().memory_mode:
        with importing:
            from weft.ir.verify.verify import verify
            from weft.ir.verify.verify_linear import verify_linear
            from weft.ir.verify.verify_stores import verify_same_stores

        for stage in (kernel, scheduled, flat):
            verify(stage)
        verify_linear(linear)
        verify_same_stores(kernel, scheduled, "schedule")
    # Panels are parameters that the nest has not.
    program = Program(name, scheduled if panels else kernel).on(target.name, target.arch)
    program = program.linearized(linear)
    source = context.renderer(target).render(linear, name, style_of(hints.get("opt", "")))
    program = program.rendered(source.language, source.text)
    pipeline = _PIPELINES[tier] if chosen is None else chosen[1]
    pipeline = LEVELS.get(hints.get("opt", ""), pipeline)
    if debug(Debug.SCHEDULE):
        print("\n".join(scheduled.meta.schedule), file=sys.stderr)
    if debug(Debug.IR):
        from weft.ir.text.text import print_kernel
        from weft.ir.text.text_linear import print_linear

        print(print_kernel(scheduled), print_linear(linear), sep="\n", file=sys.stderr)
    if debug(Debug.SOURCE):
        print(program.source, file=sys.stderr)
    passes = Tally.passes - before - by_primitives + _OWN_TRAVERSALS
    return Rendered(context, nest, scheduled, program, tier, pipeline, passes,
                    (time.thread_time() - start) * 1e3, panels)  # fmt: skip
