"""Kernels and their launches: ``k[grid, block](*args)``."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, cast

from weft.config import config, watchers
from weft.driver.context import context, host_context
from weft.driver.lru_table import room
from weft.errors import (
    KernelError,
    LaunchError,
    UnsupportedError,
    VariableError,
    outermost,
    raised,
    trim,
)
from weft.imports import importing
from weft.lang.core.intrinsics import MOST_BLOCKS, MOST_SHARED, MOST_THREADS
from weft.lang.launch.options import Options, Size, sizes_of
from weft.lang.launch.resources import check_cluster
from weft.lang.launch.streams import check_stream
from weft.lang.launch.variants import failure, place_of, translated, translated_function
from weft.lang.source.texts import keep
from weft.runtimes import trace
from weft.runtimes.native.calls.callables import native_class, set_code, takes_code
from weft.tensors.core.devices import get_default_device
from weft.tensors.core.fusion_scope import active
from weft.tensors.core.thread_state import state
from weft.weak import Living

if TYPE_CHECKING:
    from weft.driver.context import Context
    from weft.driver.launch import Loaded, LoadedOnDevice
    from weft.ir.module import Module
    from weft.ir.stmt import Kernel
    from weft.lang.launch.marshal import Host
    from weft.lang.launch.protocol import Launched
    from weft.lang.launch.signature import Signature
    from weft.lang.values.types import KernelType
    from weft.runtimes.lockstep.run import Outcome
    from weft.runtimes.native.calls.launches import Context as NativeLaunch
    from weft.runtimes.native.calls.launches import Launcher

__all__ = ["Configured", "KernelFunction", "load_at", "native_launcher"]

_MOST_CONFIGURED: Final = 256  # shapes of launches that a kernel keeps ready
_MOST_VARIANTS: Final = 512  # kinds of arguments and blocks whose code it keeps
_MOST_SEEN: Final = 64  # kinds of arguments that one of them counts


class KernelFunction:
    """A kernel: ``k[grid, block](*args)`` launches it.

    Made by `weft.kernel`. It is compiled at its first launch with arguments of some types and a
    block of some size, and kept: in memory, and on disk for other processes.
    """

    __slots__ = ("__dict__", "__weakref__", "_configured")

    __name__: str
    __qualname__: str
    _configured: dict[Any, Configured]
    waits = False  # for the whole grid, so that it is compiled for each size of it
    functions: tuple[str, ...] = ()  # device functions that it was last seen to call

    def __init__(self, function: Callable[..., Any], options: Options,
                 wanted: Mapping[str, Any] | None = None) -> None:  # fmt: skip
        self.options = options
        functools.update_wrapper(self, function)
        self.__weft_function__ = function
        keep(function)
        self._given = wanted
        self._known: Signature | None = None
        self._begin()

    def _begin(self) -> None:
        """Begin without code; settings that change make launches that are kept ready void."""
        self._loaded: dict[Any, Loaded | LoadedOnDevice] = {}
        self._configured = {}
        _kernels.add(self)

    @property
    def _signature(self) -> Signature:
        if self._known is None:
            context().prepare()
            with importing:
                from weft.driver import launch, pipeline  # noqa: F401 - what comes next
                from weft.lang.launch import marshal as host  # noqa: F401
                from weft.lang.launch.signature import Signature
                from weft.lang.reader import translate  # noqa: F401

            self._known = Signature(self.__weft_function__, self._given, takes_rest=True)
        return self._known

    def __getitem__(self, configuration: Any) -> Configured:
        """Return the kernel with the shape of a launch: ``grid, block[, stream[, shared]]``."""
        try:
            found = self._configured.get(configuration)
        except TypeError:  # sizes in a list
            found = None
        try:
            return self._configure(configuration) if found is None else found
        except Exception as error:
            trim(error)
            raise

    @outermost  # native code calls it, too
    def _configure(self, configuration: Any) -> Configured:
        parts = configuration if isinstance(configuration, tuple) else (configuration,)
        if not (1 if self.options.workgroup else 2) <= len(parts) <= 4:
            count = f"{len(parts)} value{'' if len(parts) == 1 else 's'}"
            raise LaunchError(f"launch of {self.__name__}", found=f"{count} in []",
                              expected="grid, block, and perhaps stream and shared bytes")
        made = self._made(*parts)
        if len(self._configured) >= _MOST_CONFIGURED:
            self._configured.clear()
        with contextlib.suppress(TypeError):
            self._configured[configuration] = made
        return made

    def _made(self, grid: Size, block: Size | None = None, stream: Any = None,
              shared: int | None = None) -> Configured:  # fmt: skip
        made: Configured = Native(self, grid, block, stream, shared)
        return made

    @outermost
    def launch(self, *args: Any, grid: Size, block: Size | None = None, shared: int | None = None,
               stream: Any = None) -> None:  # fmt: skip
        """Run the kernel on `grid` blocks of `block` threads each."""
        self._made(grid, block, stream, shared)(*args)

    @outermost
    def compile(self, block: Size | None = None, *args: Any, ndim: int = 1,
                shared: int | None = None) -> Self:  # fmt: skip
        """Compile the kernel now, for a block of some size and a grid of `ndim` axes; return it.

        Arguments, which are not used, tell the types of parameters without an annotation.

        Raises
        ------
        VariableError
            If there are neither annotations nor arguments.
        """
        configured, types = self._typed("compile", block, args, ndim, shared)
        configured._variant(types)
        return self

    @outermost
    def metadata(self, block: Size | None = None, *args: Any, ndim: int = 1,
                 shared: int | None = None) -> Module:  # fmt: skip
        """Return what a module with this kernel tells of itself; printed, a line for each fact.

        Parameters are those of `compile`, and so are errors. ``a.metadata(...) |
        b.metadata(...)`` is that of a module with both.

        Returns
        -------
        Module
            Architectures, the version of PTX for them, what the device must be able to do, kernels
            with parameters, sizes and annotations, device functions, constant memory.
        """
        from weft.ir.module import described

        configured, types = self._typed("metadata", block, args, ndim, shared)
        nest, constants = translated(self, types, configured)
        return described(nest, self.functions, len(constants))

    def _typed(self, what: str, block: Size | None, args: tuple[Any, ...], ndim: int,
               shared: int | None) -> tuple[Configured, dict[str, KernelType]]:  # fmt: skip
        """Return a launch, and the types of parameters by arguments, else by annotations."""
        signature = self._signature
        configured = self._made((2,) * ndim, block, None, shared)
        if args:
            return configured, configured.take(args).types
        if not signature.is_complete:
            missing = [name for name, kind in signature.wanted.items()
                       if kind is None or name == signature.rest]
            raise VariableError(f"{what} {self.__name__}", where=signature.where,
                                found=f"no annotation of {', '.join(missing) or 'constants'}",
                                expected="annotations, or arguments like those of a launch")
        types = cast("dict[str, KernelType]", signature.wanted)
        with importing:
            from weft.lang.values.types import dense

        return configured, {n: dense(k) for n, k in types.items()}

    @outermost
    def check(self, *args: Any, grid: Size, block: Size | None = None, shared: int | None = None,
              warp: int = 32) -> None:  # fmt: skip
        """Raise what is wrong in the kernel for such a launch, without running it.

        Parameters
        ----------
        *args, grid, block, shared
            As for a launch.
        warp
            Threads of a warp of the device that the kernel is meant for: 32, or 64 as on some of
            AMD's, where masks of 32 bits leave out half of the threads.

        Raises
        ------
        KernelError
            With all that is wrong.
        LaunchError
            If the arguments do not fit.
        """
        if warp not in (32, 64):
            raise LaunchError("check", found=f"warps of {warp!r} threads", expected="32 or 64")
        configured = self._made(grid, block, None, shared)
        translated(self, configured.take(args).types, configured, warp)

    def _nest_of(self, types: dict[str, KernelType], launch: Launched,
                 warp: int, sanitised: bool = False) -> tuple[Kernel, list[Any]]:  # fmt: skip
        """Return the loop-level kernel of a launch, and the arrays that it knows from outside."""
        return translated_function(self, types, launch, warp, sanitised)

    def __reduce__(self) -> str:
        """Return the name under which copies and pickles find the kernel again."""
        return self.__qualname__

    @outermost
    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: a launch needs its shape."""
        raise raised("ValueError")(f"launch of {self.__name__}", found="a call without a grid",
                                   expected=f"{self.__name__}[grid, block](...)")

    def __repr__(self) -> str:
        return f"<weft.kernel {self.__name__}>"


_kernels: Final = Living[KernelFunction]()


def _reconsider() -> None:
    """Forget configured kernels: the default device, or a setting, may be another one."""
    for kernel in _kernels:
        for configured in kernel._configured.values():
            if takes_code(type(configured)):
                set_code(configured, Configured, 0)
            configured._seen.clear()
        kernel._configured.clear()


watchers.append(_reconsider)


class Configured:
    """A kernel and the shape of its launch, which may be called any number of times.

    It runs on the device that is the default when it is made.
    """

    __slots__ = ("_launches", "_seen", "block", "device", "grid", "interpreted", "kernel", "ndim",
                 "shared")  # fmt: skip

    def __init__(self, kernel: KernelFunction, grid: Size, block: Size | None, stream: Any = None,
                 shared: int | None = None) -> None:  # fmt: skip
        name = f"launch of {kernel.__name__}"
        options = kernel.options
        self.kernel = kernel
        self.grid = sizes_of(grid, "grid", name, MOST_BLOCKS)
        if options.hints:
            check_cluster(name, self.grid, dict(options.hints))
        if block is None:
            block = options.workgroup
        if not block:
            raise LaunchError(name, found="no block", expected="threads of a block: "
                              f"{kernel.__name__}[grid, block]")
        self.block = sizes_of(block, "block", name, (MOST_THREADS,) * 3)
        if options.workgroup and self.block != options.workgroup:
            raise LaunchError(name, found=f"a block of {self.block}",
                              expected=f"{options.workgroup}, the workgroup of the kernel")
        threads = self.block[0] * self.block[1] * self.block[2]
        most = options.max_threads
        if threads > most:
            raise LaunchError(name, found=f"a block of {self.block}, {threads} threads",
                              expected=f"at most {most}")
        if shared is None:
            shared = options.shared
        if not isinstance(shared, int) or not 0 <= shared <= MOST_SHARED:
            raise LaunchError(name, found=f"{shared!r} bytes of shared memory",
                              expected=f"0 to {MOST_SHARED}")
        check_stream(stream, name)
        self.shared = shared
        device = get_default_device() if options.device == "auto" else options.device
        self.device, self.interpreted = device, context(device).interprets
        self.ndim = max(k for k in range(3) if k == 0 or self.grid[k] > 1) + 1
        self._launches: list[NativeLaunch] = []
        self._seen: dict[Any, int] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run the kernel; it is finished when this returns.

        Raises
        ------
        KernelError
            With all that is wrong in the kernel, at its first launch with such arguments.
        LaunchError
            If the arguments do not fit, or the kernel reported a failure.
        DTypeError, ShapeError, RangeError
            If an argument is not what the annotation of its parameter says.
        BoundsError
            If it accessed an element that is not there.
        """
        try:
            self._launch(args, kwargs)
        except Exception as error:  # the way through the compiler is of no use to anybody
            trim(error)
            raise

    _miss = __call__  # what native code calls with arguments that it does not know

    def _launch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if kwargs or not self.kernel._signature.fits(len(args)):
            args = self.kernel._signature.in_order(args, kwargs)
        if not self.goes_elsewhere(args):
            self.run_compiled(args)

    def run_compiled(self, args: tuple[Any, ...]) -> None:
        """Run the compiled kernel, by way of Python."""
        host = self.take(args)
        place = place_of(host, self.kernel.options.device)
        if place.interprets:
            with trace.timed("kernel", self.kernel.__name__, place.name):
                self.carry_out(args)
            return
        if not place.is_native:
            with importing:
                from weft.lang.launch.device_launch import launch_on_device

            there = cast("LoadedOnDevice", self.on_device(host.types, place))
            launch_on_device(self, host, there)
            return
        loaded = self._variant(host.types)
        values = host.variables
        with host.turn(loaded.written) as host.alone, host:
            host.resolve(loaded.written)
            failed = loaded.run(host.addresses, [values[name] for name in loaded.variables])
            host.finish()
        if failed is not None:
            raise failure(self.kernel.__name__, failed, self)
        self._quicken(loaded, args, host.types)

    def goes_elsewhere(self, args: tuple[Any, ...]) -> bool:
        """Launch in another way if one is asked for, and tell whether it was.

        Captured functions and launches that are to be one note it, the interpreter device carries
        it out, and code that checks itself is code of its own.
        """
        if state.capture is not None:
            with importing:
                from weft.lang.launch.captured import belongs, launch_captured

            if belongs(args):
                launch_captured(self, args)
                return True
        if active.fusion is not None:
            active.fusion.note(self, args)
        elif self.interpreted:
            with trace.timed("kernel", self.kernel.__name__, self.device):
                self.carry_out(args)
        elif self.kernel.options.check or config().sanitize == "native":
            with importing:
                from weft.lang.launch.checked_launch import checked_launch, raise_first

            raise_first(self, checked_launch(self, args))
        elif config().check:
            with importing:
                from weft.lang.launch.compared_launch import compared_launch

            compared_launch(self, args)
        else:
            return False
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how copies and pickles are made: by the kernel."""
        return operator.getitem, (self.kernel, (self.grid, self.block, None, self.shared))

    def take(self, args: tuple[Any, ...]) -> Host:
        """Return what a launch with some arguments passes."""
        with importing:
            from weft.lang.launch.marshal import Host

        kernel = self.kernel
        if not kernel._signature.fits(len(args)):
            args = kernel._signature.in_order(args, {})
        host = Host(kernel.__name__, kernel._signature)
        host.bind(kernel._signature, args)
        for axis, count in zip("xyz", self.grid, strict=True):
            host.variables[f"grid.{axis}"] = count
        return host

    def _variant(self, types: dict[str, KernelType]) -> Loaded:
        """Return the native code for arguments of some types."""
        return cast("Loaded", self.on_device(types, host_context()))

    def on_device(self, types: dict[str, KernelType], place: Context) -> Loaded | LoadedOnDevice:
        """Return the code for arguments of some types on a device."""
        kernel = self.kernel
        key = (tuple(types.values()), self.block, self.ndim, self.shared,
               self.grid if kernel.waits else None, "" if place.is_native else place.name)
        loaded = kernel._loaded.get(key)
        if loaded is None:
            loaded = room(kernel._loaded, _MOST_VARIANTS)[key] = _load(kernel, types, self, place)
        return loaded

    def carry_out(self, args: tuple[Any, ...], *, sanitise: bool = False, seed: int | None = None,
                  steps: int | None = None) -> Outcome:  # fmt: skip
        """Run the launch on the interpreter device."""
        with importing:
            from weft.lang.launch.interpreter import run

        return run(self, args, sanitise=sanitise, seed=seed, steps=steps)

    def _quicken(self, loaded: Loaded, args: tuple[Any, ...],
                 types: dict[str, KernelType]) -> None:  # fmt: skip
        """Let launches like this one run in native code from now on."""
        key = tuple(map(type, args)), tuple(types.values())
        count = self._seen[key] = self._seen.get(key, 0) + 1
        if (count > 1 or len(self._seen) > _MOST_SEEN or not takes_code(type(self))
                or config().check):
            return
        from weft.driver import counters

        if counters.active() is not None:  # native launches are not recorded
            return
        with importing:
            from weft.lang.launch.native_launch import native_launch

        found = native_launcher()
        if found is None:
            return
        name = self.kernel.__name__

        @outermost
        def fail(code: int, _: int, __: int, value: int, bound: int) -> None:
            raise failure(name, loaded.failed(code, value, bound), self)

        native = native_launch(self, found, loaded, args, types, fail)
        if native is not None:
            found.attach(self, self._launches, native)
        found.quicken(self.kernel)


Native: Final = native_class(Configured)


class UnsupportedKernelError(UnsupportedError, KernelError):
    """A kernel that asks for something that its device does not have."""


def native_launcher() -> Launcher | None:
    """Return the native launches; None where the interpreter allows none."""
    with importing:
        from weft.driver.launch import launcher
    from weft.tensors.api.tensor import Tensor
    with importing:
        from weft.runtimes.native.calls.launches import Types

    return launcher(Types(Configured, KernelFunction, Tensor))


def _load(kernel: KernelFunction, types: dict[str, KernelType], launch: Configured,
          place: Context) -> Loaded | LoadedOnDevice:  # fmt: skip
    nest, constants = translated(kernel, types, launch)
    code = kernel.__weft_function__.__code__
    return load_at(place, nest, constants, f"kernel {kernel.__name__}",
                   (code.co_filename, code.co_firstlineno))


def load_at(place: Context, nest: Kernel, constants: Sequence[Any], what: str,
            where: tuple[str, int] | None) -> Loaded | LoadedOnDevice:  # fmt: skip
    """Return a kernel compiled for a device.

    Raises
    ------
    UnsupportedKernelError
        If it asks for something that the device does not have: with the device, `what` it is part
        of, and its line, or `where` that stands.
    """
    with importing:
        from weft.driver.launch import load_kernel, load_on_device

    try:
        return (load_kernel if place.is_native else load_on_device)(nest, place, constants)
    except UnsupportedError as error:  # of the device
        raise UnsupportedKernelError(f"{what} on {place.name}",
                                     found=error.found or error.operation, expected=error.expected,
                                     hint=error.hint, where=error.line or where) from None
