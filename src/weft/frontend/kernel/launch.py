"""``@weft.kernel``: a function that runs once for each thread of a grid of blocks."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, overload

from weft.errors import BoundsError, KernelError, LaunchError
from weft.frontend.devices import get_default_device
from weft.frontend.kernel.fused import active
from weft.ir.record import Record

if TYPE_CHECKING:
    from weft.driver.launch import Failed, Loaded
    from weft.frontend.kernel.host import Host
    from weft.frontend.kernel.types import KernelType
    from weft.ir.stmt import Kernel
    from weft.runtimes.lockstep.run import Outcome

__all__ = ["Configured", "DeviceFunction", "KernelFunction", "Options", "cdiv", "func", "kernel"]

_MOST_THREADS: Final = 1024  # of a block
_MOST_SHARED: Final = 227 << 10  # bytes, as much as the largest devices give one block
_MOST_BLOCKS: Final = ((1 << 31) - 1, 65535, 65535)

Size = int | tuple[int, ...]
Maker = Callable[[Callable[..., Any]], "KernelFunction"]


def cdiv(a: int, b: int) -> int:
    """Return ``a / b`` rounded up: how many blocks of `b` hold `a` elements. For kernels, too."""
    return -(-a // b)


class Options(Record):
    """How a kernel is compiled.

    Attributes
    ----------
    wraps : bool
        Whether negative indices count from the end of an axis.
    checked : bool
        Whether every access is checked against the bounds of its array.
    fastmath : bool
        Whether products and sums may be fused and added in another order.
    max_threads : int
        Most threads of a block that it is launched with.
    hints : tuple of (str, value)
        What is kept with the kernel for other devices.
    fma : bool or None
        Whether a product and the sum that it goes into are rounded once; None: in accumulations.
    """

    wraps: bool = False
    checked: bool = True
    fastmath: bool = False
    max_threads: int = 1024
    hints: tuple[tuple[str, Any], ...] = ()
    fma: bool | None = None


class KernelFunction:
    """A kernel: ``k[grid, block](*args)`` launches it.

    Made by `weft.kernel`. It is compiled at its first launch with arguments of some types and a
    block of some size, and kept: in memory, and on disk for other processes.
    """

    __name__: str

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.options = options
        functools.update_wrapper(self, function)
        self.__weft_function__ = function
        self._signature = inspect.signature(function)
        self._loaded: dict[Any, Loaded] = {}

    def __getitem__(self, configuration: Any) -> Configured:
        """Return the kernel with the shape of a launch: ``grid, block[, stream[, shared]]``."""
        parts = configuration if isinstance(configuration, tuple) else (configuration,)
        if not 2 <= len(parts) <= 4:
            raise LaunchError(f"launch of {self.__name__}", found=f"{len(parts)} values in []",
                              expected="grid, block, and perhaps stream and shared bytes")
        return Configured(self, *parts)

    def launch(self, *args: Any, grid: Size, block: Size, shared: int = 0,
               stream: Any = None) -> None:  # fmt: skip
        """Run the kernel on `grid` blocks of `block` threads each."""
        Configured(self, grid, block, stream, shared)(*args)

    def __call__(self, *args: Any) -> None:
        """Refuse: a launch needs its shape."""
        raise LaunchError(f"launch of {self.__name__}", found="a call without a grid",
                          expected=f"{self.__name__}[grid, block](...)")

    def __repr__(self) -> str:
        return f"<weft.kernel {self.__name__}>"


class Configured:
    """A kernel and the shape of its launch, which may be called any number of times.

    It runs on the device that is the default when it is made.
    """

    __slots__ = ("block", "grid", "interpreted", "kernel", "ndim", "shared")

    def __init__(self, kernel: KernelFunction, grid: Size, block: Size, stream: Any = None,
                 shared: int = 0) -> None:  # fmt: skip
        name = f"launch of {kernel.__name__}"
        self.kernel = kernel
        self.grid = _sizes(grid, "grid", name, _MOST_BLOCKS)
        self.block = _sizes(block, "block", name, (_MOST_THREADS,) * 3)
        threads = self.block[0] * self.block[1] * self.block[2]
        most = kernel.options.max_threads
        if threads > most:
            raise LaunchError(name, found=f"a block of {self.block}, {threads} threads",
                              expected=f"at most {most}")
        if not isinstance(shared, int) or not 0 <= shared <= _MOST_SHARED:
            raise LaunchError(name, found=f"{shared!r} bytes of shared memory",
                              expected=f"0 to {_MOST_SHARED}")
        del stream  # on the CPU a launch is finished when it returns
        self.shared = shared
        self.interpreted = get_default_device().startswith("interpreter")
        self.ndim = max(k for k in range(3) if k == 0 or self.grid[k] > 1) + 1

    def __call__(self, *args: Any) -> None:
        """Run the kernel; it is finished when this returns.

        Raises
        ------
        KernelError
            With all that is wrong in the kernel, at its first launch with such arguments.
        LaunchError
            If the arguments do not fit, or the kernel reported a failure.
        BoundsError
            If it accessed an element that is not there.
        """
        if active.fusion is not None:
            active.fusion.note(self, args)
            return
        if self.interpreted:
            self.carry_out(args)
            return
        kernel = self.kernel
        host, types = self.take(args)
        key = (tuple(types.values()), self.block, self.ndim, self.shared)
        loaded = kernel._loaded.get(key)
        if loaded is None:
            loaded = kernel._loaded[key] = _load(kernel, types, self)
        values = host.variables
        failed = loaded.run(host.addresses, [values[name] for name in loaded.variables])
        if host.copies:
            host.finish()
        if failed is not None:
            raise failure(kernel.__name__, failed)

    def carry_out(self, args: tuple[Any, ...], *, sanitise: bool = False, seed: int | None = None,
                  steps: int | None = None) -> Outcome:  # fmt: skip
        """Run the launch on the interpreter device."""
        from weft.frontend.kernel.interpreter import run

        return run(self, args, sanitise=sanitise, seed=seed, steps=steps)

    def take(self, args: tuple[Any, ...]) -> tuple[Host, dict[str, KernelType]]:
        """Return what a launch with some arguments passes, and the types of the arguments."""
        from weft.frontend.kernel.host import Host

        kernel = self.kernel
        if len(args) != len(kernel._signature.parameters):
            args = _bound(kernel, args)
        host = Host(kernel.__name__)
        types = {name: host.take(name, value) for name, value in
                 zip(kernel._signature.parameters, args, strict=True)}
        for axis, count in zip("xyz", self.grid, strict=True):
            host.variables[f"grid.{axis}"] = count
        return host, types


def _load(kernel: KernelFunction, types: dict[str, KernelType], launch: Configured) -> Loaded:
    from weft.driver.launch import load_kernel

    nest, constants = translated(kernel, types, launch)
    return load_kernel(nest, constants)


def translated(kernel: KernelFunction, types: dict[str, KernelType],
               launch: Configured) -> tuple[Kernel, list[Any]]:  # fmt: skip
    """Return the loop-level kernel of a launch, and the arrays that it knows from outside."""
    from weft.frontend.kernel.translate import Launch, translate

    options = kernel.options
    shape = Launch(launch.block, launch.ndim, launch.shared)
    constants: list[Any] = []
    nest = translate(kernel.__weft_function__, types, shape, wraps=options.wraps,
                     checked=options.checked, fma=options.fma, constants=constants)
    meta = nest.meta.replace(fastmath=options.fastmath,
                             hints=(*nest.meta.hints, *options.hints))
    return nest.replace(meta=meta), constants


def _bound(kernel: KernelFunction, args: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        bound = kernel._signature.bind(*args)
    except TypeError as error:
        raise LaunchError(f"launch of {kernel.__name__}", found=str(error),
                          expected=f"{kernel.__name__}{kernel._signature}") from None
    bound.apply_defaults()
    return tuple(bound.arguments.values())


def _sizes(given: Any, what: str, operation: str, most: tuple[int, ...]) -> tuple[int, int, int]:
    """Return three sizes of a grid or a block."""
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    sizes = []
    for part in parts:
        try:
            sizes.append(part.__index__())
        except AttributeError:
            raise LaunchError(operation, found=f"a {what} of {given!r}",
                              expected="an int or a tuple of up to 3") from None
    sizes += [1] * (3 - len(sizes))
    if len(sizes) > 3 or any(not 1 <= n <= m for n, m in zip(sizes, most, strict=False)):
        raise LaunchError(operation, found=f"a {what} of {given!r}",
                          expected=f"up to 3 sizes from 1 to {most}")
    return sizes[0], sizes[1], sizes[2]


def failure(name: str, failed: Failed) -> Exception:
    place = failed.place
    where = None if place is None else (place.file, place.line)
    if failed.message == "index out of bounds":
        return BoundsError(name, found=f"index {failed.value}",
                           expected=f"an index from 0 to {failed.bound - 1}", where=where)
    return LaunchError(name, found=failed.message, where=where)


@overload
def kernel(function: Callable[..., Any]) -> KernelFunction: ...
@overload
def kernel(*, fastmath: bool = ..., unchecked: bool = ..., max_threads: int = ...,
           max_registers: int | None = ..., fma: bool | None = ...) -> Maker: ...  # fmt: skip
def kernel(function: Callable[..., Any] | None = None, *, fastmath: bool = False,
           unchecked: bool = False, max_threads: int = _MOST_THREADS,
           max_registers: int | None = None, fma: bool | None = None) -> Any:  # fmt: skip
    """Make a kernel of a function: it runs once for each thread of a launch.

    ::

        @weft.kernel
        def saxpy(a, x, y):
            i = gpu.grid(1)
            if i < x.size:
                y[i] += a * x[i]

        saxpy[weft.cdiv(n, 256), 256](2.0, x, y)

    Inside, `weft.gpu` has the operations of the device. Arguments are NumPy arrays, or anything
    with the buffer protocol or DLPack, and numbers. Arithmetic follows numba's types.

    Parameters
    ----------
    fastmath
        Let products and sums be fused, and sums be added in another order.
    unchecked
        Do not check indices: an index that is out of bounds may do anything.
    max_threads
        Most threads of a block that the kernel is launched with, at most 1024.
    max_registers
        Most registers of a thread, for devices where that can be chosen.
    fma
        Whether a product and the sum it goes into become one operation, rounded once. By default
        that is so where a name or an element is added to (``total += a * b``, ``y = y - a * b``),
        as in every contraction, and all else follows IEEE 754 operation by operation; True does
        it wherever a product is written as an operand of a sum (`fastmath` does, too), False
        nowhere. All devices give the same bits.
    """
    if not 1 <= max_threads <= _MOST_THREADS:
        raise KernelError("kernel", found=f"max_threads={max_threads}",
                          expected=f"1 to {_MOST_THREADS}")
    hints: tuple[tuple[str, Any], ...] = ()
    if max_threads != _MOST_THREADS:
        hints += (("max_threads", max_threads),)
    if max_registers is not None:
        hints += (("max_registers", max_registers),)
    if fma is None and fastmath:
        fma = True
    options = Options(False, not unchecked, fastmath, max_threads, hints, fma)

    def make(given: Callable[..., Any]) -> KernelFunction:
        if not inspect.isfunction(given):
            raise KernelError("kernel", found=repr(given), expected="a function")
        return KernelFunction(given, options)

    return make if function is None else make(function)


class DeviceFunction:
    """A function for kernels to call; called from Python it is the function itself."""

    __name__: str

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.__weft_function__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the Python function."""
        return self.__weft_function__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<weft.func {self.__name__}>"


def func(function: Callable[..., Any]) -> DeviceFunction:
    """Make a device function: its body takes the place of each call in a kernel.

    Plain Python functions can be called from kernels, too; this says what one is for.
    """
    if not inspect.isfunction(function):
        raise KernelError("func", found=repr(function), expected="a function")
    return DeviceFunction(function)
