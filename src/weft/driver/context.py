"""What compiling for a device and running on it takes: target, renderer, compiler, runtime, keys.

A `Context` is passed along from what knows the device, a graph or a launch, to what compiles and
runs. Nothing above `weft.backends` names a family of devices: what only some devices can do is a
capability that it asks the context for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from weft.backends import registry
from weft.config import Config, config
from weft.errors import (
    DeviceError,
    InitializationError,
    QueryError,
    UnsupportedError,
    WeftError,
)
from weft.imports import importing
from weft.ir.op import storage_only
from weft.locks import mutex
from weft.store import DiskCache, cache
from weft.store import fingerprint as digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from weft.compilers.base import Compiler
    from weft.renderers.base import Renderer
    from weft.runtimes.native.runtime import NativeRuntime
    from weft.target import Target

__all__ = ["Context", "context", "disk", "host_context", "lock"]

lock: Final = mutex()  # compiling and loading; realized plans run without it


class Context:
    """One device, and one of its (renderer, compiler) pairs.

    Attributes
    ----------
    name : str
        The device as the user writes it, its default pair left out.
    backend : weft.backends.registry.Backend
        What joins its parts.
    ordinal : int
        Which device of the family.
    pair : str
        The (renderer, compiler) pair.
    """

    __slots__ = ("_compiler", "_digest", "_runtime", "_target", "backend", "name", "ordinal",
                 "pair")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.backend, parsed = registry.lookup(name)
        self.ordinal, self.pair = parsed.ordinal, parsed.pair
        self.name = registry.canonical(self.backend, parsed)
        if not self.backend.computes:
            storage_only.add(self.name)
        self._runtime: Any = None
        self._target: Target | None = None
        self._compiler: Compiler | None = None
        self._digest: tuple[Target, str, str] | None = None

    def __repr__(self) -> str:
        return f"<Context {self.name}>"

    @property
    def runtime(self) -> Any:
        """The running device (`weft.runtimes.base.Device`)."""
        if self._runtime is None:
            self._runtime = self._asked(InitializationError, self.backend.open)
        return self._runtime

    @property
    def target(self) -> Target:
        """What the device can do."""
        if self._target is None:
            self._target = self._asked(QueryError, self.backend.target)
        return self._target

    @property
    def compiler(self) -> Compiler:
        """What turns the source of its kernels into what its runtime loads."""
        if self._compiler is None:
            self._compiler = self.backend.compiler(self.target, self.pair)
        return self._compiler

    def renderer(self, target: Target | None = None) -> Renderer:
        """Return what writes the source of its kernels, for another target if one is given."""
        made: Renderer = self.backend.renderer(target or self.target, self.pair)
        return made

    def _asked(self, error: type[DeviceError], ask: Callable[[int, str], Any]) -> Any:
        """Ask the driver; what it throws is an error of the device, never that of its own."""
        try:
            found = ask(self.ordinal, self.pair)
        except WeftError:
            raise
        except Exception as wrong:
            raise error(self.name, found=f"{type(wrong).__name__}: {wrong}",
                        expected="a driver that works") from wrong
        if found is None:
            raise error(self.name, found="no answer of its driver", expected="a driver that works")
        return found

    @property
    def threads(self) -> int:
        """The host threads that its kernels share, for which schedules are made."""
        found: int = getattr(self.runtime, "thread_count", 1)
        return found

    @property
    def is_native(self) -> bool:
        """Whether its kernels are machine code of this process, which plans call by address."""
        return self.backend.is_native and self.pair == self.backend.pairs[0]

    @property
    def is_tunable(self) -> bool:
        """Whether the time of its launches is what a search for schedules may go by."""
        found: bool = self.backend.is_tunable
        return found

    @property
    def interprets(self) -> bool:
        """Whether kernels of threads run there in lockstep."""
        found: bool = self.backend.interprets
        return found

    @property
    def native(self) -> NativeRuntime:
        """The runtime of a native device.

        Raises
        ------
        UnsupportedError
            If kernels of the device are not machine code of this process.
        """
        if not self.is_native:
            raise UnsupportedError(self.name, found="a device whose kernels this process cannot "
                                   "call", expected="a native device, such as " + registry.HOST)
        found: NativeRuntime = self.runtime
        return found

    def fingerprint(self) -> str:
        """Return the fingerprint of device, pair, target and memory mode: every key holds it."""
        now, mode = self.target, config().memory_mode
        if self._digest is None or self._digest[0] is not now or self._digest[1] != mode:
            text = f"{self.backend.family}/{self.pair} {now.fingerprint()} {mode}".rstrip()
            self._digest = now, mode, text
        return self._digest[2]

    def key(self, kind: str, *parts: str | bytes | int) -> str:
        """Return the cache key of something made for this device by its compiler.

        Devices of one architecture share what is compiled: their ordinals are not in it.
        """
        return digest(kind, *parts, self.fingerprint(), self.compiler.cache_key, self.threads)

    def prepare(self) -> None:
        """Have the compiler and the runtime loaded on the side, where the backend can."""
        if self.backend.prepare is not None:
            self.backend.prepare()

    def preparing(self) -> AbstractContextManager[bool]:
        """Have the runtime's code made on the side; inside, import what compiles."""
        if self.is_native:
            self.native.prepare()
        return importing


_contexts: Final[dict[str, Context]] = {}
_generation = 0  # of the registry, when these were made
_default: tuple[Config, str | None, Context] | None = None  # by settings and choice


def context(name: str = "") -> Context:
    """Return the context of a device; that of the default device without a name.

    Raises
    ------
    DeviceError
        If the device is unknown or absent.
    """
    global _default, _generation
    if _generation != registry.generation():
        _generation, _default = registry.generation(), None
        _contexts.clear()
    if not name:
        if _default is None or _default[0] is not config() or _default[1] != registry.chosen():
            _default = config(), registry.chosen(), context(registry.default())
        return _default[2]
    found = _contexts.get(name)
    if found is None:
        made = Context(name)
        found = _contexts[name] = _contexts.setdefault(made.name, made)
    return found


def host_context() -> Context:
    """Return the context of the device whose memory is that of this process."""
    return context(registry.HOST)


def disk() -> DiskCache:
    """Return the cache directory."""
    return cache()
