"""Compile, load and launch users' kernels on memory that others own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.driver import counters, kernels
from weft.driver.context import Context, host_context, lock
from weft.errors import UnsupportedError
from weft.imports import importing
from weft.ir import expr as ex
from weft.ir.stmt import CHECK, For, Kernel, Location, While
from weft.ir.traverse import stores, walk
from weft.renderers.base import CUT, NO_MEMORY, STOPPED
from weft.renderers.primitives import PRIMITIVES, PrimitiveStmt, lacking, refuse
from weft.runtimes import trace
from weft.runtimes.base import Image, View, driving
from weft.runtimes.recorded import launched
from weft.schedule.analysis.space import constant
from weft.shortage import reporting_shortage
from weft.strategies.common.nest import work

if TYPE_CHECKING:
    from weft.runtimes.native.calls.launches import Launcher, Types

__all__ = ["Failed", "Loaded", "LoadedOnDevice", "launcher", "load_kernel", "load_on_device",
           "schedule", "texts"]  # fmt: skip

_LONG_WORK: Final = 40_000  # weighted operations above which other threads of Python may run


class Failed(NamedTuple):
    """What stopped a kernel: the message, its place in the source, and two numbers about it."""

    message: str
    place: Location | None
    value: int
    bound: int


class _Compiled:
    """One kernel as it was compiled for a device.

    Attributes
    ----------
    variables : tuple of str
        Names of its variables in the order in which a call gives them.
    nbuffers : int
        How many memories it takes.
    written : frozenset of str
        Names of the memories that it writes to.
    context : Context
        The device.
    """

    __slots__ = ("_code", "_messages", "_places", "context", "nbuffers", "variables",
                 "written")  # fmt: skip

    def __init__(self, code: kernels.Code, kernel: Kernel, places: list[Location | None],
                 context: Context) -> None:  # fmt: skip
        self.variables = tuple(code.variables)
        self.nbuffers = len(kernel.params)
        self.written = frozenset(m.name for m in stores(kernel.body))
        self.context = context
        self._code, self._messages, self._places = code, code.messages, places

    def failed(self, code: int, value: int, bound: int) -> Failed:
        """Return what a failure code means.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl-C stopped it, and the program's own handler raised nothing.
        """
        if code == STOPPED:
            raise KeyboardInterrupt(f"{self._code.name} was stopped in a loop")
        if code == NO_MEMORY:
            return Failed("no memory for local arrays", None, value, bound)
        if code == CUT:
            return Failed("the driver ended a loop before its last iteration", None, value, bound)
        if not 0 < code <= len(self._messages):
            return Failed(f"failure {code}", None, value, bound)
        message, number = self._messages[code - 1]
        place = self._places[number] if 0 <= number < len(self._places) else None
        return Failed(message, place, value, bound)

    @property
    def symbol(self) -> str:
        """What compiled code calls the kernel."""
        return self._code.name

    def codes(self, message: str) -> list[int]:
        """Return the codes of failures with a message."""
        return [1 + k for k, (text, _) in enumerate(self._messages) if text == message]

    def _timed(self, seconds: float) -> None:
        recording = counters.active()
        if recording is not None:
            recording.launches.setdefault(self._code.name, []).append(seconds)


class Loaded(_Compiled):
    """One kernel of a native device, ready to run.

    Attributes
    ----------
    constants : tuple of int
        Addresses of the last memories, which belong to the kernel.
    """

    __slots__ = ("_call", "_keep", "_serial", "_work", "constants")

    def __init__(self, code: kernels.Code, kernel: Kernel, places: list[Location | None],
                 constants: Sequence[Any], context: Context) -> None:  # fmt: skip
        super().__init__(code, kernel, places, context)
        nbuffers = self.nbuffers
        from weft.runtimes.native.executor.native import (
            BufferRef,
            KernelStep,
            NativePlan,
            VariableRef,
        )

        count = len(self.variables)
        step = KernelStep(code.address, [BufferRef.input(k) for k in range(nbuffers)],
                          [VariableRef(k) for k in range(count)], code.name)
        plan = NativePlan(context.native.executor, [step], nbuffers, 0, nvariables=count,
                          release_gil=True, keep=(code.library, *constants))
        self.constants = tuple(c.__array_interface__["data"][0] for c in constants)
        self._work = work_of_thread(kernel)
        self._keep = constants
        self._serial: Any = None
        self._call = plan.call

    def run(self, addresses: Sequence[int], values: Sequence[int]) -> Failed | None:
        """Run the kernel on memory at some addresses; return what stopped it, if anything did."""
        start = time.perf_counter()
        failure = self._call(*addresses, *self.constants, 0, *values)
        self._timed(time.perf_counter() - start)
        if failure is None:
            return None
        code, _, _, value, bound = failure
        return self.failed(code, value, bound)

    def native(self, launcher: Launcher, threads: int, blocks: int) -> tuple[int, bool]:
        """Return the address of the code for a launch, and whether others should run meanwhile.

        A launch of little work runs on the thread that makes it: waking others costs more.

        Parameters
        ----------
        launcher
            The native launches.
        threads, blocks
            Threads of all blocks, and how many blocks there are.
        """
        work = None if self._work is None else self._work * threads
        long = work is None or work > _LONG_WORK
        if work is None or work >= self.context.target.costs.parallel_work or blocks == 1:
            return self._code.address, long
        if self._serial is None:
            self._serial = self.context.native.loader.load(
                self._code.image, (self._code.name,),
                {"weft_parallel_for": launcher.serial, **self.context.native.stops()})
        found: int = self._serial[self._code.name]
        return found, long


class LoadedOnDevice(_Compiled):
    """One kernel of a device whose memory and code only its queues reach.

    Attributes
    ----------
    params : tuple of Memory
        Its memories, of which those that are not constants are given to a launch.
    """

    __slots__ = ("_constants", "_program", "params")

    def __init__(self, code: kernels.Code, kernel: Kernel, places: list[Location | None],
                 constants: Sequence[Any], context: Context) -> None:  # fmt: skip
        super().__init__(code, kernel, places, context)
        runtime = context.runtime
        self.params = kernel.params[: self.nbuffers - len(constants)]
        self._constants = []
        for array in constants:
            held = runtime.pool.allocate(max(array.nbytes, 1))
            runtime.pool.host_to_pool(array, held)
            self._constants.append(View(held))
        self._program = runtime.load(Image(code.name, code.image, self.variables, self.nbuffers))

    def run(self, memory: Sequence[View], values: Sequence[int]) -> Failed | None:
        """Run the kernel on parts of buffers of the device; return what stopped it, if any did."""
        start, begun = time.perf_counter(), trace.clock()
        views = [*memory, *self._constants]
        buffers = {id(v.buffer): v.buffer for v in views}.values()
        waits = [e.share() for b in buffers for e in getattr(b, "uses", ()) if not e.done]
        with driving(self.context.name):
            event = self.context.runtime.queue.launch(self._program, views, values, waits)
            launched(self.context.runtime, self.symbol, event, begun)
            event.wait()
        self._timed(time.perf_counter() - start)
        failure = event.failure
        return None if failure is None else self.failed(failure.code, failure.value, failure.bound)


def work_of_thread(kernel: Kernel) -> int | None:
    """Return the weighted operations of one thread, None if its loops depend on arguments."""
    body = kernel.body
    for stmt in walk(kernel.body):
        if isinstance(stmt, While):
            return None
        if isinstance(stmt, For):
            if stmt.kind.startswith(("block.", "thread.")):
                body = stmt.body
            elif constant(stmt.extent) is None:
                return None
    return work(body) + 1


_launchers: Final[dict[Types, Launcher | None]] = {}


def launcher(types: Types) -> Launcher | None:
    """Return the native launches; None where the interpreter allows none."""
    with lock:
        if types not in _launchers:
            with importing:
                from weft.runtimes.native.calls import launches

            made: Launcher | None = None
            with contextlib.suppress(launches.NotSupported, AttributeError, TypeError):
                code = launches.module(launches.layout(types))
                links = launches.imports(code.named("Py"))
                library = host_context().native.support(code.text, launches.SYMBOLS, links)
                made = launches.Launcher(library, types)
            _launchers[types] = made  # None: the API of this Python differs
        return _launchers[types]


def load_kernel(kernel: Kernel, context: Context, constants: Sequence[Any] = ()) -> Loaded:
    """Return a kernel compiled for a native device, from a cache if it is there.

    `constants` are NumPy arrays, the last of its parameters.
    """
    with lock, reporting_shortage("compile"):
        code, places = _compiled(kernel, context)
        kernels.load([code], context)
        return Loaded(code, kernel, places, constants, context)


def load_on_device(kernel: Kernel, context: Context,
                   constants: Sequence[Any] = ()) -> LoadedOnDevice:  # fmt: skip
    """Return a kernel compiled for a device with memory of its own; see `load_kernel`."""
    with lock, reporting_shortage("compile"):
        code, places = _compiled(kernel, context)
        return LoadedOnDevice(code, kernel, places, constants, context)


def _compiled(kernel: Kernel, context: Context) -> tuple[kernels.Code, list[Location | None]]:
    """Return the code of a kernel, and what the numbers of its checks mean.

    What is cached must not depend on the lines that the kernel stands on, so its checks are
    numbered, and this process keeps what the numbers mean.
    """
    places: list[Location | None] = []
    numbers: dict[object, Location] = {}
    primitives: list[tuple[PrimitiveStmt, tuple[str, int] | None]] = []
    for number, stmt in enumerate(walk(kernel.body)):
        place = kernel.locations.get(stmt)
        places.append(place)
        if isinstance(stmt, PRIMITIVES):
            where = (place.file, place.line) if place else None
            refuse(context.target, stmt, where=where)
            primitives.append((stmt, where))
        numbers[stmt] = Location(CHECK, number)
    try:
        code = kernels.compiled(kernel.replace(locations=numbers), context, tiers=False)
    except UnsupportedError as error:
        error.line = error.line or _line_of(error, kernel, primitives, context)
        raise
    code.label = kernel.name
    code.line = next(((p.file, p.line) for p in places if p is not None and p.file), code.line)
    return code, places


def _line_of(error: UnsupportedError, kernel: Kernel,
             primitives: Sequence[tuple[PrimitiveStmt, tuple[str, int] | None]], context: Context
             ) -> tuple[str, int] | None:  # fmt: skip
    """Return the line of a primitive whose value is asked for, as a renderer found out."""
    used = ex.free_vars(e for s in walk(kernel.body) for e in s.exprs())
    return next((where for stmt, where in primitives
                 if not used.isdisjoint(stmt.binds()) and error.found is not None
                 and (lacking(context.target, stmt, True) or ("",))[0] == error.found), None)


def texts(kernel: Kernel, context: Context, constants: Sequence[Any] = ()) -> tuple[str, str]:
    """Return the source and the assembly of a kernel, which is compiled once more for them."""
    with counters.record() as recording:
        load_kernel(kernel, context, constants)
    built = recording.built[-1]
    compiler: Any = context.compiler
    return built.source, compiler.assembly(built.source, built.pipeline)


def schedule(kernel: Kernel, context: Context) -> Kernel:
    """Return a kernel with the schedule that it gets on a device."""
    with importing:
        from weft.strategies import choose

    return choose(kernel, context.target, context.threads)
