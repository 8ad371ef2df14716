"""One kernel from loop nest to machine code: the only place that knows the order of the stages."""

from __future__ import annotations

import sys

from weft.backends import cpu
from weft.config import Debug, debug
from weft.driver import device
from weft.ir.linear import LinearKernel
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

verifying = False  # every level is verified: the test suite turns it on


class Built(Record):
    """A kernel at every level of its way."""

    nest: Kernel
    scheduled: Kernel
    linear: LinearKernel
    source: str
    image: bytes
    messages: list[tuple[str, int]]
    variables: list[str]
    pipeline: str


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
    source = cpu.renderer(target).render(linear, name)
    pipeline = "short"
    if debug(Debug.SCHEDULE):
        print("\n".join(scheduled.meta.schedule), file=sys.stderr)
    if debug(Debug.IR):
        print(print_kernel(scheduled), print_linear(linear), sep="\n", file=sys.stderr)
    if debug(Debug.SOURCE):
        print(source.text, file=sys.stderr)
    image = device.runtime().compiler.compile(source.text, pipeline)
    messages = [
        (text, place.line if place is not None and place.file == CHECK else -1)
        for text, place in linear.messages
    ]
    variables = [v.attr.name for v in linear.variables]
    return Built(kernel, scheduled, linear, source.text, image, messages, variables, pipeline)
