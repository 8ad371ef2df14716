"""Finished programs: called, interpreted, sanitised, printed, hashed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, cast

from weft.config import watchers
from weft.driver.context import context, host_context
from weft.driver.lru_table import room
from weft.errors import LaunchError, UnsupportedError, outermost_methods
from weft.imports import importing
from weft.ir import expr as ex
from weft.ir.expr import Expr
from weft.ir.stmt import Barrier, For, Kernel, Stmt
from weft.ir.traverse import walk
from weft.lang.builder.grids import (
    Launch,
    launches,
    specialised,
    without_marks,
    without_reductions,
)
from weft.lang.builder.parameters import Signature, value_of
from weft.lang.builder.quick_calls import comes_again, quicken
from weft.lang.launch.launch import Configured, KernelFunction, load_at
from weft.lang.launch.options import Options, Size
from weft.lang.launch.variants import failure, place_of
from weft.passes.spmd.early_exit import may_exit_early
from weft.runtimes.native.calls.callables import native_class, set_code
from weft.tensors.core.devices import get_default_device
from weft.tensors.core.fusion_scope import active
from weft.weak import Living

if TYPE_CHECKING:
    from weft.driver.context import Context
    from weft.driver.launch import Loaded, LoadedOnDevice
    from weft.lang.launch.marshal import Host
    from weft.lang.launch.sanitizer_report import Report
    from weft.runtimes.native.calls.launches import Context as NativeContext

__all__ = ["BuiltFunction", "BuiltKernel", "NativeFunction"]

_MOST_VARIANTS: Final = 512  # shapes of launches whose code a program keeps
_LEVELS: Final = ("loop", "schedule", "kernel", "source")


@outermost_methods
class BuiltFunction:
    """A finished function: calling it runs it.

    Attributes
    ----------
    name : str
        What it is called.
    signature : Signature
        Its parameters.
    """

    def __init__(self, kernel: Kernel, signature: Signature,
                 parallel: Sequence[tuple[Expr, ...]]) -> None:  # fmt: skip
        self.name = kernel.name
        self._kernel, self.signature, self._parallel = kernel, signature, tuple(parallel)
        self._native: list[tuple[Launch, Loaded]] | None = None
        self._elsewhere: dict[str, list[tuple[Launch, LoadedOnDevice]]] = {}  # by device
        self._launches: list[Launch] | None = None
        self._contexts: list[NativeContext] = []
        self._seen: dict[Any, int] = {}
        _functions.add(self)

    def __call__(self, *args: Any, **named: Any) -> None:
        """Run the function where its tensors are; it is finished when this returns.

        Without any tensor that is the default device, to which arrays of the host are copied.

        Raises
        ------
        LaunchError, DTypeError, ShapeError, RangeError
            If the arguments are not what was declared, or the function reported a failure.
        BoundsError
            If it accessed an element that is not there.
        DeviceError
            If its tensors are on several devices, or on one that computes nothing.
        UnsupportedError
            If it asks for something that the device does not have, with its line.
        """
        if context(get_default_device()).interprets:
            self.interpret(*args, **named)
            return
        host = self._passed(args, named)
        place = place_of(host, "auto")
        if not place.is_native:
            if place.interprets:
                self.interpret(*args, **named)
            else:
                self._run_elsewhere(host, place)
            return
        if self._native is None:
            with importing:
                from weft.driver.launch import load_kernel

            self._native = [(part, load_kernel(part.kernel, place)) for part in self.launches]
        values = host.variables
        with host.turn(self.signature.written) as host.alone, host:
            self.signature.resolve(self.name, host, True)
            if len(self._native) == 1 and not named:
                self._quicken(*self._native[0], host, args)
            try:
                for part, loaded in self._native:
                    if any(value_of(n, values) < 1 for n in part.blocks):
                        continue
                    failed = loaded.run(host.addresses, [values[v] for v in loaded.variables])
                    if failed is not None:
                        raise failure(self.name, failed)
            finally:
                host.finish()

    _miss = __call__  # what native code calls with arguments that it does not know

    def _run_elsewhere(self, host: Host, place: Context) -> None:
        """Run the function on a device with memory of its own."""
        with importing:
            from weft.lang.launch.device_launch import device_memory
            from weft.lang.launch.tensors import Distant

        parts = self._elsewhere.get(place.name)
        if parts is None:
            parts = self._elsewhere[place.name] = [
                (part, cast("LoadedOnDevice", _loaded_at(place, part.kernel, "function")))
                for part in self.launches]
        host.distant, values = Distant(), host.variables
        with host.turn(self.signature.written) as host.alone, host:
            self.signature.resolve(self.name, host, True)
            try:
                with device_memory(host, host.addresses, self._kernel.params,
                                   self.signature.written, place) as memory:
                    for part, loaded in parts:
                        if any(value_of(n, values) < 1 for n in part.blocks):
                            continue
                        failed = loaded.run(memory, [values[v] for v in loaded.variables])
                        if failed is not None:
                            break
                    else:
                        failed = None
            finally:
                host.finish()
        if failed is not None:
            raise failure(self.name, failed)

    def _quicken(self, part: Launch, loaded: Loaded, host: Host, args: tuple[Any, ...]) -> None:
        """Let calls on arrays of such sizes run in native code, from the second of them on."""
        blocks = [value_of(n, host.variables) for n in part.blocks]
        many = math.prod(blocks)
        if many and comes_again(self._seen, self.signature, host, args):
            quicken(self, self._contexts, loaded, self.signature, host, args,
                    lambda failed: failure(self.name, failed), many * part.threads, many, True)

    def _passed(self, args: tuple[Any, ...], named: dict[str, Any]) -> Host:
        if active.fusion is not None:
            raise LaunchError(f"call of {self.name}", found="a block of weft.fuse",
                              expected="a call outside of it: only kernels can wait")
        return self.signature.take(self.name, args, named)

    @property
    def launches(self) -> list[Launch]:
        """The kernels that a call runs, one after another, before they are scheduled."""
        if self._launches is None:
            found = launches(self._kernel, self._parallel, False)
            self._launches = [part.replace(kernel=without_reductions(part.kernel))
                              if part.blocks else part for part in found]
        return self._launches

    def interpret(self, *args: Any, seed: int | None = None, steps: int | None = None,
                  **named: Any) -> None:
        """Run the function on the interpreter device; see `weft.interpret`."""
        self._carry_out(args, named, False, seed, steps)

    def sanitize(self, *args: Any, seed: int | None = None, steps: int | None = None,
                 **named: Any) -> Report:
        """Run the function on the interpreter device and report what it does wrong.

        The turns of its parallel loops are threads; findings have the places of ``at=``.
        """
        from weft.lang.launch.sanitizer_report import Report

        outcomes = self._carry_out(args, named, True, seed, steps)
        return Report(tuple(f for o in outcomes for f in o.findings),
                      sum(o.dropped for o in outcomes), sum(o.instructions for o in outcomes))

    def _carry_out(self, args: tuple[Any, ...], named: dict[str, Any], sanitise: bool,
                   seed: int | None, steps: int | None) -> list[Any]:  # fmt: skip
        with importing:
            from weft.runtimes.lockstep.run import STEPS, Grid, run

        host = self._passed(args, named)
        found = []
        with host.turn(self.signature.written) as host.alone, host:
            self.signature.resolve(self.name, host, True)
            try:
                for part in launches(self._kernel, self._parallel, True):
                    blocks = [value_of(n, host.variables) for n in part.blocks] or [1, 1, 1]
                    if min(blocks) < 1:
                        continue
                    grid = Grid((blocks[0], blocks[1], blocks[2]), (part.threads, 1, 1))
                    found.append(run(without_reductions(part.kernel), host.addresses,
                                     host.variables, grid, sanitise=sanitise, seed=seed,
                                     steps=STEPS if steps is None else steps))
            finally:
                host.finish()
        return found

    def text(self, level: str = "loop") -> str:
        """Return the program as text: ``loop``, ``schedule``, ``kernel`` or ``source``."""
        return _text([part.kernel for part in self.launches], self._kernel, level)

    @property
    def key(self) -> str:
        """A digest that is equal for programs that do the same, wherever their lines stand."""
        return _key(self._kernel)

    def __repr__(self) -> str:
        return f"<weft.build function {self.name}>"


_functions: Final = Living[BuiltFunction]()
NativeFunction: Final = native_class(BuiltFunction)


def _reconsider() -> None:
    """Take the native code away: the default device, or a setting, may be another one."""
    for function in _functions:
        if isinstance(function, NativeFunction):
            set_code(function, BuiltFunction, 0)
            function._seen.clear()


watchers.append(_reconsider)


@outermost_methods
class BuiltKernel(KernelFunction):
    """A finished kernel of threads: ``k[grid, block](*args)`` launches it.

    `weft.sanitize` and `weft.interpret` take it as they take a function under `weft.kernel`.

    Attributes
    ----------
    name : str
        What it is called.
    signature : Signature
        Its parameters.
    """

    def __init__(self, kernel: Kernel, shared: tuple[Stmt, ...], signature: Signature,
                 specials: Mapping[str, Expr]) -> None:  # fmt: skip
        self.name = self.__name__ = kernel.name
        self.options = Options(fastmath=kernel.meta.fastmath)
        self._kernel, self._shared, self.signature = kernel, shared, signature
        self._specials = dict(specials)
        self._begin()
        self.waits = any(isinstance(s, Barrier) and s.scope == "grid" for s in walk(kernel.body))

    def _nest_of(self, types: Any, launch: Any,
                 warp: int, sanitised: bool = False) -> tuple[Kernel, list[Any]]:  # fmt: skip
        return self.nest(launch.block, launch.ndim, sanitised, launch.grid), []

    def _made(self, grid: Size, block: Size | None = None, stream: Any = None,
              shared: int | None = None) -> BuiltLaunch:  # fmt: skip
        made: BuiltLaunch = NativeLaunch(self, grid, block, stream, shared)
        return made

    def compile(self, block: Size | None = None, *args: Any, ndim: int = 1,
                shared: int | None = None) -> Self:  # fmt: skip
        """Compile the kernel now, for a block of some size and a grid of `ndim` axes."""
        del args
        self._made((2,) * ndim, block, None, shared).loaded(context())
        return self

    def _typed(self, what: str, block: Size | None, args: tuple[Any, ...], ndim: int,
               shared: int | None) -> tuple[Configured, dict[str, Any]]:  # fmt: skip
        del what, args  # types are part of the program
        return self._made((2,) * ndim, block, None, shared), {}

    def nest(self, block: tuple[int, int, int], ndim: int, sanitised: bool = False,
             grid: tuple[int, int, int] | None = None) -> Kernel:  # fmt: skip
        """Return the kernel at loop level, for blocks of a size and grids of some axes.

        One whose blocks wait for each other is made for one size of the `grid`.
        """
        values: dict[Expr, Expr] = {}
        inner, outer = [], []
        for k in (2, 1, 0):
            axis = "xyz"[k]
            thread, blocks = self._specials[f"thread.{axis}"], self._specials[f"block.{axis}"]
            values[self._specials[f"blockDim.{axis}"]] = ex.index(block[k])
            if block[k] > 1:
                inner.append((thread, ex.index(block[k])))
            else:
                values[thread] = ex.index(0)
            if k < ndim:
                count = self._specials[f"gridDim.{axis}"]
                if self.waits and grid is not None:
                    values[count] = ex.index(grid[k])
                outer.append((blocks, values.get(count, count)))
            else:
                values[blocks] = ex.index(0)
                values[self._specials[f"gridDim.{axis}"]] = ex.index(1)
        made = without_reductions(specialised(self._kernel, values))
        if not sanitised:
            made = _marked(made)
        body = made.body
        for index, extent in reversed(inner):
            body = (For(index, extent, str(index.attr), body),)
        body = (*self._shared, *body)
        for index, extent in reversed(outer):
            body = (For(index, extent, str(index.attr), body),)
        return made.replace(body=body)

    def text(self, level: str = "loop", block: Any = 256) -> str:
        """Return the program as text: ``loop``, ``schedule``, ``kernel`` or ``source``."""
        launch = BuiltLaunch(self, 1, block)
        nest = self.nest(launch.block, 3)
        return _text([nest], nest, level)

    @property
    def key(self) -> str:
        """A digest that is equal for programs that do the same, wherever their lines stand."""
        return _key(self.nest((256, 1, 1), 3))

    def __repr__(self) -> str:
        return f"<weft.build kernel {self.name}>"


@outermost_methods
class BuiltLaunch(Configured):
    """A built kernel and the shape of its launch."""

    __slots__ = ()

    kernel: BuiltKernel

    def __call__(self, *args: Any, **named: Any) -> None:
        """Run the kernel; it is finished when this returns.

        Raises
        ------
        LaunchError, DTypeError, ShapeError, RangeError
            If the arguments are not what was declared, or the kernel reported a failure.
        BoundsError
            If it accessed an element that is not there.
        """
        kernel = self.kernel
        args = kernel.signature.bound(f"launch of {kernel.name}", args, named)
        if self.goes_elsewhere(args):
            return
        host = self.take(args)
        place = place_of(host, "auto")
        if place.interprets:
            self.carry_out(args)
            return
        if not place.is_native:
            with importing:
                from weft.lang.launch.device_launch import launch_on_device

            launch_on_device(self, host, cast("LoadedOnDevice", self.loaded(place)))
            return
        loaded = cast("Loaded", self.loaded(place))
        values = host.variables
        with host.turn(kernel.signature.written) as host.alone, host:
            kernel.signature.resolve(kernel.name, host, False)
            failed = loaded.run(host.addresses, [values[v] for v in loaded.variables])
            host.finish()
        if failed is not None:
            raise failure(kernel.name, failed, self)
        if comes_again(self._seen, kernel.signature, host, args):
            blocks = math.prod(self.grid)
            quicken(self, self._launches, loaded, kernel.signature, host, args,
                    lambda failed: failure(kernel.name, failed, self),
                    blocks * math.prod(self.block), blocks, False)

    _miss = __call__  # what native code calls with arguments that it does not know

    def loaded(self, place: Context) -> Loaded | LoadedOnDevice:
        """Return the code for a device, compiling it if this is the first such launch there."""
        kernel = self.kernel
        key = (self.block, self.ndim, self.grid if kernel.waits else None,
               "" if place.is_native else place.name)
        found = kernel._loaded.get(key)
        if found is None:
            nest = kernel.nest(self.block, self.ndim, grid=self.grid)
            found = _loaded_at(place, nest, "kernel")
            room(kernel._loaded, _MOST_VARIANTS)[key] = found
        return found

    def take(self, args: tuple[Any, ...]) -> Host:
        """Return what a launch with some arguments passes."""
        host = self.kernel.signature.take(self.kernel.name, args, {})
        for axis, count in zip("xyz", self.grid, strict=True):
            host.variables[f"grid.{axis}"] = count
        return host

    def carry_out(self, args: tuple[Any, ...], *, sanitise: bool = False,
                  seed: int | None = None, steps: int | None = None) -> Any:  # fmt: skip
        """Run the launch on the interpreter device; return its outcome."""
        with importing:
            from weft.runtimes.lockstep.run import STEPS, Grid, run

        host = self.take(args)
        with host.turn(self.kernel.signature.written) as host.alone, host:
            self.kernel.signature.resolve(self.kernel.name, host, False)
            try:
                nest = self.kernel.nest(self.block, self.ndim, sanitise, self.grid)
                return run(nest, host.addresses, host.variables, Grid(self.grid, self.block),
                           sanitise=sanitise, seed=seed, steps=STEPS if steps is None else steps)
            finally:
                host.finish()


NativeLaunch: Final = native_class(BuiltLaunch)


def _loaded_at(place: Context, kernel: Kernel, kind: str) -> Loaded | LoadedOnDevice:
    """Return a program, or a part of it, compiled for a device; errors tell its own line."""
    placed = (kernel.locations.get(s) for s in walk(kernel.body))
    where = next(((p.file, p.line) for p in placed if p is not None and p.file), None)
    return load_at(place, kernel, (), f"{kind} {kernel.name}", where)


def _marked(kernel: Kernel) -> Kernel:
    """Return a kernel with the marks that compiled code needs."""
    return kernel if may_exit_early(kernel.body) else without_marks(kernel)


def _key(kernel: Kernel) -> str:
    with importing:
        from weft.ir.text.text import canonical_text
    from weft.store import fingerprint

    return str(fingerprint("built", canonical_text(_marked(kernel))))


def _text(parts: Sequence[Kernel], whole: Kernel, level: str) -> str:
    with importing:
        from weft.ir.text.text import print_kernel
        from weft.ir.text.text_linear import print_linear

    if level == "loop":
        return print_kernel(whole)
    if level not in _LEVELS:
        raise UnsupportedError(f"text of {whole.name}", found=f"the level {level!r}",
                               expected=", ".join(_LEVELS))
    with importing:
        from weft.driver.pipeline import build

    made = [build(part, f"weft_{whole.name}", host_context()) for part in parts]
    if level == "schedule":
        return "\n".join(print_kernel(b.scheduled) for b in made)
    return "\n".join(print_linear(b.linear) if level == "kernel" else b.source for b in made)
