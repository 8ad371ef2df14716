"""The device ``disk``: tensors in files, which are read when they are copied to another device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from weft.backends.registry import Backend
from weft.errors import DeviceError
from weft.ir.dtype import DType
from weft.ir.linear import LinearKernel
from weft.ir.op import Operation
from weft.locks import mutex
from weft.renderers.base import PLAIN, Source, Style
from weft.runtimes.memory.disk_device import DiskDevice
from weft.target import Target

__all__ = ["BACKEND", "NAME"]

NAME: Final = "disk"
_TARGET: Final = Target(NAME, "none")

_lock = mutex()
_devices: dict[str, DiskDevice] = {}


class _Nothing:
    """Renderer and compiler of a device without compute: each refuses."""

    device = NAME
    cache_key = NAME

    def __init__(self, target: Target) -> None:
        self.target = target

    def render(self, kernel: LinearKernel, name: str | None = None, style: Style = PLAIN
               ) -> Source:  # fmt: skip
        _refuse(kernel.name)

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        _refuse("a kernel")

    def decompositor(self) -> Callable[[Operation, DType], bool]:
        return lambda op, dtype: False


def _refuse(what: str) -> NoReturn:
    raise DeviceError("compile", found=f"{what} for {NAME}", expected="a device that computes",
                      hint="copy what it reads to another device, as in x.to('cpu')")


def _open(ordinal: int, pair: str) -> DiskDevice:
    with _lock:
        if NAME not in _devices:
            _devices[NAME] = DiskDevice(NAME)
        return _devices[NAME]


BACKEND: Final = Backend(
    NAME, ("none",), lambda: "", lambda: 1, lambda ordinal, pair: _TARGET,
    lambda target, pair: _Nothing(target), lambda target, pair: _Nothing(target), _open,
    description="tensors in files, read when they are copied to another device",
    is_asked_for=True, computes=False,
)  # fmt: skip
