"""The interpreter device: it needs no compiler, and checks each access.

Kernels of tensors run at kernel level, one instruction after another; kernels of threads run in
lockstep, on the same memory (`weft.runtimes.lockstep`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.backends.registry import Backend
from weft.ir.dtype import DType
from weft.ir.linear import LinearKernel
from weft.ir.op import Operation
from weft.ir.text.text_linear import print_linear
from weft.locks import mutex
from weft.renderers.base import PLAIN, Source, Style
from weft.runtimes.lockstep.interpreter import InterpreterDevice
from weft.target import Target, native_operations

__all__ = ["BACKEND"]

_TARGET: Final = Target("interpreter", "python", operations=native_operations())

_lock = mutex()
_devices: dict[str, InterpreterDevice] = {}


class _Renderer:
    """Writes kernels in the text form of kernel level."""

    device = "interpreter"

    def __init__(self, target: Target) -> None:
        self.target = target

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        """Return the text, in which the messages of failures are their numbers."""
        numbers = tuple((str(1 + k), None) for k in range(len(kernel.messages)))
        numbered = kernel.replace(name=name or kernel.name, messages=numbers)
        return Source("weft", numbered.name, print_linear(numbered))

    def decompositor(self) -> Callable[[Operation, DType], bool]:
        """Return a function that wants nothing decomposed."""
        return lambda op, dtype: False


class _Compiler:
    """Takes the text as it is."""

    cache_key = "interpreter"

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the bytes of the text."""
        return source.encode()


def _open(ordinal: int, pair: str) -> InterpreterDevice:
    with _lock:
        if "interpreter" not in _devices:
            _devices["interpreter"] = InterpreterDevice("interpreter")
        return _devices["interpreter"]


BACKEND: Final = Backend(
    "interpreter", ("lockstep",), lambda: "", lambda: 1, lambda ordinal, pair: _TARGET,
    lambda target, pair: _Renderer(target), lambda target, pair: _Compiler(), _open,
    description="kernels in Python: one instruction after another, or threads in lockstep",
    is_asked_for=True, interprets=True,
)  # fmt: skip
