"""The device ``null``: programs are planned for the processor, and nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft.backends import cpu
from weft.backends.registry import Backend
from weft.ir.dtype import DType
from weft.ir.linear import LinearKernel
from weft.ir.op import Operation
from weft.locks import mutex
from weft.renderers.base import PLAIN, Source, Style
from weft.runtimes.memory.null_device import LIMIT, NullDevice
from weft.target import ASSUMED, Target

__all__ = ["BACKEND"]

# A processor of a server, so that plans are the same on every machine.
_CACHES: Final = {"line_bytes": 64, "l1_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 32 << 20}
_TARGET: Final = cpu.target_from(
    "x86_64", "x86-64-v3", ("+avx2", "+f16c", "+fma"), _CACHES, ASSUMED, 8, LIMIT
).replace(name="null")

_lock = mutex()
_devices: dict[str, NullDevice] = {}


class _Renderer:
    """Writes no text."""

    device = "null"

    def __init__(self, target: Target) -> None:
        self.target = target

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        return Source("null", name or kernel.name, "")

    def decompositor(self) -> Callable[[Operation, DType], bool]:
        return lambda op, dtype: False


class _Compiler:
    """Makes nothing of it."""

    cache_key = "null"

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        return b"null"


def _open(ordinal: int, pair: str) -> NullDevice:
    with _lock:
        if "null" not in _devices:
            _devices["null"] = NullDevice("null")
        return _devices["null"]


BACKEND: Final = Backend(
    "null", ("none",), lambda: "", lambda: 1, lambda ordinal, pair: _TARGET,
    lambda target, pair: _Renderer(target), lambda target, pair: _Compiler(), _open,
    description="programs are planned, and nothing runs", is_asked_for=True,
)  # fmt: skip
