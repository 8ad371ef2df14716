"""The interpreter device: kernels of threads in NumPy, on arrays of the host.

It needs no compiler. What runs there is in `weft.runtimes.lockstep`; arrays lie in the memory of
the host, and operations on whole arrays are those of the CPU.
"""

from __future__ import annotations

from typing import Final

from weft.backends import cpu
from weft.backends.registry import Backend

__all__ = ["BACKEND"]

BACKEND: Final = Backend(
    "interpreter", ("lockstep",), lambda: "", lambda: 1, lambda ordinal, pair: cpu.host_target(),
    lambda target, pair: cpu.renderer(target), cpu.BACKEND.compiler,
    lambda ordinal, pair: cpu.runtime(), is_native=True,
    description="kernels of threads, one statement at a time", is_asked_for=True,
)  # fmt: skip
