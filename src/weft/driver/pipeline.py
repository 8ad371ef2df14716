"""One kernel from loop nest to machine code: the only place that knows the order of the stages."""

from __future__ import annotations

import sys
from typing import TypeVar

from weft.backends import cpu
from weft.config import Debug, debug
from weft.driver import device
from weft.ir.linear import LinearKernel
from weft.ir.program import Program
from weft.ir.record import Record
from weft.ir.stmt import Kernel
from weft.ir.text import print_kernel, print_linear
from weft.ir.verify import verify
from weft.ir.verify_linear import verify_linear
from weft.kernelize.emit import CHECK
from weft.passes.legalize import legalize
from weft.passes.linearize import linearize
from weft.passes.vectorize import vectorize
from weft.strategies import choose

T = TypeVar("T")

verifying = False  # every level is verified: the test suite turns it on


class Built(Record):
    """A compiled kernel with what it was on the way.

    Attributes
    ----------
    nest, scheduled : Kernel
        The loop nest before and after its strategy.
    program : Program
        The kernel at program level: kernel-level list, source and binary.
    messages : list of (text, check)
        What a failure code (less 1) means, and the number of the check that failed or -1.
    pipeline : str
        The compiler's pass pipeline.
    """

    nest: Kernel
    scheduled: Kernel
    program: Program
    messages: list[tuple[str, int]]
    pipeline: str

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


def stage(held: T | None) -> T:
    """Return what a program that has been through `build` holds."""
    assert held is not None
    return held


def build(kernel: Kernel, name: str) -> Built:
    """Compile a loop nest for the host under the symbol `name`."""
    target = device.target()
    threads = device.runtime().threads.threads
    scheduled = choose(kernel, target, threads)
    flat = vectorize(legalize(scheduled, target))
    linear = linearize(flat)
    if verifying:
        for stage in (kernel, scheduled, flat):
            verify(stage)
        verify_linear(linear)
    program = Program(name, kernel).on(target.name, target.arch).linearized(linear)
    source = cpu.renderer(target).render(linear, name)
    program = program.rendered(source.language, source.text)
    pipeline = "short"
    if debug(Debug.SCHEDULE):
        print("\n".join(scheduled.meta.schedule), file=sys.stderr)
    if debug(Debug.IR):
        print(print_kernel(scheduled), print_linear(linear), sep="\n", file=sys.stderr)
    if debug(Debug.SOURCE):
        print(source.text, file=sys.stderr)
    program = program.compiled(device.runtime().compiler.compile(source.text, pipeline))
    messages = [
        (text, place.line if place is not None and place.file == CHECK else -1)
        for text, place in linear.messages
    ]
    return Built(kernel, scheduled, program, messages, pipeline)
