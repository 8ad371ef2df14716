"""The device that pages are planned for: a browser, known by what every WebGPU adapter has.

It is a backend of its own and no device of this machine, so that exports need no adapter and are
the same everywhere: code is written for the limits that WebGPU guarantees, and nothing runs here.
"""

from __future__ import annotations

from typing import Any, Final

from weft.backends import registry
from weft.backends.registry import Backend
from weft.driver.context import Context, context
from weft.locks import mutex
from weft.renderers.cstyle.wgsl.renderer import WGSLRenderer
from weft.renderers.cstyle.wgsl.target import webgpu_target
from weft.runtimes.memory.null_device import NullDevice
from weft.target import Target

__all__ = ["BROWSER", "browser"]

BROWSER: Final = "browser"
_lock = mutex()
_devices: dict[str, NullDevice] = {}


class _Compiler:
    """Takes the text as it is: the browser compiles it."""

    cache_key = "wgsl"

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the bytes of the text."""
        return source.encode()


def _target(ordinal: int, pair: str) -> Target:
    return webgpu_target()


def _open(ordinal: int, pair: str) -> Any:
    with _lock:
        if BROWSER not in _devices:
            _devices[BROWSER] = NullDevice(BROWSER)
        return _devices[BROWSER]


_BACKEND: Final = Backend(
    BROWSER, ("wgsl",), lambda: "", lambda: 1, _target,
    lambda target, pair: WGSLRenderer(target), lambda target, pair: _Compiler(), _open,
    description="pages are planned for it, and nothing runs", is_asked_for=True,
)  # fmt: skip


def browser() -> Context:
    """Return the context of the device, which is registered when it is first asked for."""
    with _lock:
        if BROWSER not in registry.families():
            registry.register(_BACKEND)
    return context(BROWSER)
