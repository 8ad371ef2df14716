"""The CPU: pool, threads, native executor and queue in one device."""

import contextlib
import ctypes
import platform
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from weft.background import Task
from weft.config import Debug, config, debug
from weft.errors import CompileError, CopyError, HandleError, LaunchError, WeftError
from weft.imports import importing
from weft.locks import in_child, mutex
from weft.runtimes import load
from weft.runtimes.base import (
    Event,
    Failure,
    Library,
    Loadable,
    ObjectCompiler,
    ObjectLoader,
    View,
    consume,
)
from weft.runtimes.cpu import interrupts, traced
from weft.runtimes.memory.buffer import Buffer
from weft.runtimes.memory.host_memory import usable_memory
from weft.runtimes.memory.pool import Pool, own
from weft.runtimes.native.executor import native, threads
from weft.runtimes.native.executor.native import (
    BufferRef,
    Executor,
    KernelStep,
    NativePlan,
    Step,
    VariableRef,
)
from weft.runtimes.native.executor.threads import ThreadPool
from weft.store import DiskCache, fingerprint

if TYPE_CHECKING:
    from weft.runtimes.native.calls.dispatch import Dispatcher, Host

__all__ = ["CpuProgram", "CpuQueue", "CpuRuntime"]


class CpuProgram:
    """One kernel, callable with any buffers from any number of threads.

    Parameters
    ----------
    name
        Name of the kernel, its symbol in ``library``.
    library
        Its code.
    nbuffers, nvariables
        Counts of its arguments.
    """

    __slots__ = ("name", "nbuffers", "nvariables", "plan")

    def __init__(
        self, executor: Executor, library: Library, name: str, nbuffers: int, nvariables: int
    ) -> None:
        self.name, self.nbuffers, self.nvariables = name, nbuffers, nvariables
        buffers = [BufferRef.input(i) for i in range(nbuffers)]
        variables = [VariableRef(i) for i in range(nvariables)]
        step = KernelStep(library[name], buffers, variables, name)
        self.plan = NativePlan(
            executor, [step], nbuffers, 0, nvariables=nvariables, release_gil=True, keep=(library,)
        )


class CpuEvent(Event):
    """A launch that is over, and what stopped it."""

    __slots__ = ("_failure",)

    def __init__(self, failure: Failure | None) -> None:
        super().__init__("cpu")
        self._failure = failure

    @property
    def failure(self) -> Failure | None:
        """What stopped the launch."""
        return self._failure

    def share(self) -> Event:
        """Return another event of the same launch."""
        return CpuEvent(self._failure)


class CpuQueue:
    """Work on the host, done by the time that a call returns."""

    __slots__ = ()

    def copy(
        self,
        destination: Buffer | View,
        source: Buffer | View,
        nbytes: int | None = None,
        wait: Iterable[Event] = (),
    ) -> Event:
        """Copy the first ``nbytes`` bytes, all of ``source`` by default; they may overlap.

        Raises
        ------
        CopyError
            If they do not fit or the destination is read-only.
        HandleError
            If a buffer was released, or an event used before.
        """
        target, to = own(destination)
        origin, start = own(source)
        count = origin.nbytes - start if nbytes is None else nbytes
        if target.readonly or not 0 <= count <= min(origin.nbytes - start, target.nbytes - to):
            kind = "read-only " if target.readonly else ""
            raise CopyError(
                "copy",
                found=f"{count} bytes from {origin.nbytes - start} to {kind}{target.nbytes - to}",
                expected="a writable destination, and no more bytes than both have",
            )
        consume(wait, "cpu")
        ctypes.memmove(target.address + to, origin.address + start, count)
        target.version += 1
        if debug(Debug.COPY):
            print(f"weft: copy of {count} bytes on cpu", file=sys.stderr)
        return Event("cpu")

    def fill(self, target: Buffer | View, nbytes: int, byte: int = 0,
             wait: Iterable[Event] = ()) -> Event:  # fmt: skip
        """Set the first ``nbytes`` bytes.

        Raises
        ------
        CopyError
            If there are fewer, or the memory is read-only.
        HandleError
            If it is no memory of this process.
        """
        buffer, offset = own(target)
        if buffer.readonly or not 0 <= nbytes <= buffer.nbytes - offset:
            raise CopyError("fill", found=f"{nbytes} bytes of {buffer.nbytes - offset}",
                            expected="writable memory with as many bytes")
        consume(wait, "cpu")
        ctypes.memset(buffer.address + offset, byte, nbytes)
        buffer.version += 1
        return Event("cpu")

    def launch(
        self,
        program: CpuProgram,
        buffers: Sequence[Buffer | View],
        variables: Sequence[int] = (),
        wait: Iterable[Event] = (),
        groups: Sequence[int] = (),
        threads: Sequence[int] = (),
    ) -> Event:
        """Run a kernel on buffers, in its parameter order; blocks of threads are its own loops.

        Raises
        ------
        LaunchError
            If counts or types are wrong.
        HandleError
            If a buffer was released, or an event used before.
        """
        if not isinstance(program, CpuProgram):
            raise HandleError("launch", found=type(program).__name__, expected="a program of cpu")
        parts = [b if isinstance(b, View) else View(b) for b in buffers]
        _check_arguments(program, [p.buffer for p in parts], variables)
        addresses = [buffer.address + offset for buffer, offset in parts]
        consume(wait, "cpu")
        failure = program.plan.call(*addresses, 0, *variables)
        if failure is None:
            return Event("cpu")
        code, _, _, index, bound = failure
        return CpuEvent(Failure(code, index, bound))

    def synchronize(self) -> None:
        """Return at once: nothing is ever pending."""


def _check_arguments(
    program: CpuProgram, buffers: Sequence[Buffer], variables: Sequence[int]
) -> None:
    for what, given, wanted in (
        ("buffers", len(buffers), program.nbuffers),
        ("variables", len(variables), program.nvariables),
    ):
        if given != wanted:
            raise LaunchError(program.name, found=f"{given} {what}", expected=f"{wanted}")
    for number, buffer in enumerate(buffers):
        if not isinstance(buffer, Buffer):
            raise LaunchError(
                program.name,
                found=f"{type(buffer).__name__} for buffer {number}",
                expected="a buffer of cpu",
            )
    for number, value in enumerate(variables):
        if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
            raise LaunchError(
                program.name,
                found=f"{value!r} for variable {number}",
                expected="an integer of 64 bits",
            )


class CpuRuntime:
    """The host as a device.

    Parameters
    ----------
    compiler, loader
        What turns LLVM IR into code in this process; the backend provides them.
    cache
        Where the objects of the thread pool and the executor are kept, or None.
    thread_count
        Threads of the pool, the caller included; by default ``WEFT_NUM_THREADS`` or all CPUs.
    limit
        Most bytes of memory.
    """

    name = "cpu"

    def __init__(
        self,
        compiler: ObjectCompiler,
        loader: ObjectLoader,
        cache: DiskCache | None = None,
        thread_count: int | None = None,
        limit: int | None = None,
    ) -> None:
        self.compiler, self.loader, self.cache = compiler, loader, cache
        self.pool = _pool(limit)
        self.queue = CpuQueue()
        self._thread_count = thread_count
        self._lock = mutex()
        self._stops: dict[str, int] = {}
        self._native: tuple[ThreadPool, Executor] | None = None
        self._maker: Task | None = None
        self._made: Library | None = None
        self._dispatchers: dict[Host, Dispatcher | None] = {}
        _runtimes.add(self)

    @property
    def threads(self) -> ThreadPool:
        """The thread pool."""
        return self._start()[0]

    @property
    def thread_count(self) -> int:
        """Threads that the pool uses at most, or will once it is started."""
        if self._native is not None:
            return self._native[0].threads
        return threads.allowed(self._thread_count)

    def prepare(self, here: bool = False) -> None:
        """Make the code of the pool and the executor on the side, if no cache has it.

        Who is about to compile for the first time calls this: LLVM works while the caller, in
        Python, imports and runs what comes before its own code. A thread that is on the side
        already does it `here`.
        """
        if self._native is None and self._maker is None:
            if self.cache is not None:
                self.cache.folder()  # what is wrong with it is told to the caller, not to a thread
            maker = None
            with self._lock:
                if self._native is None and self._maker is None:
                    maker = Task(self._make)
                    if here or maker.start():
                        self._maker = maker
            if here and maker is not None:
                maker.run()

    @property
    def executor(self) -> Executor:
        """The executor of native plans."""
        return self._start()[1]

    @property
    def info(self) -> Mapping[str, object]:
        """Processor, usable CPUs, threads in use and usable memory in bytes."""
        return {
            "name": platform.processor() or platform.machine(),
            "cpus": threads.usable_cpus(),
            "threads": self.threads.threads,
            "memory": usable_memory(),
        }

    def free_compute(self) -> float:
        """Return the share of the CPUs that is idle at this moment, from 0 to 1.

        A parallel region has all threads of the pool. Other work is what the system says that runs.
        """
        usable = threads.usable_cpus()
        pool = None if self._native is None else self._native[0]
        taken = pool.threads if pool is not None and pool.busy else 0
        return min(load.idle_share(usable), max(1.0 - taken / usable, 0.0))

    def load(self, code: Loadable) -> CpuProgram:
        """Return a compiled kernel ready to be launched."""
        return self.program(code.image, code.name, code.nbuffers, len(code.variables))

    def link(
        self,
        objects: bytes | Sequence[bytes],
        symbols: Iterable[str],
        keep: tuple[object, ...] = (),
    ) -> Library:
        """Link kernel objects, whose parallel regions run on the thread pool."""
        links = {"weft_parallel_for": self.threads.address, **self.stops()}
        return self.loader.load(objects, symbols, links, keep)

    def stops(self) -> dict[str, int]:
        """Return what kernels with loops that may never end are linked with."""
        self._start()
        return self._stops

    def program(self, binary: bytes, name: str, nbuffers: int, nvariables: int = 0) -> CpuProgram:
        """Load one kernel."""
        library = self.link(binary, (name,))
        return CpuProgram(self.executor, library, name, nbuffers, nvariables)

    def plan(
        self,
        steps: Sequence[Step],
        ninputs: int,
        noutputs: int,
        arena_bytes: int = 0,
        nvariables: int = 0,
        release_gil: bool = False,
        keep: Sequence[object] = (),
        interruptible: int | None = None,
        groups: Sequence[tuple[int, int, bool]] = (),
    ) -> NativePlan:
        """Return a plan that runs ``steps`` by one native call, see `NativePlan`."""
        return NativePlan(
            self.executor, steps, ninputs, noutputs, arena_bytes, nvariables, release_gil, keep,
            interruptible, groups,
        )

    def dispatcher(self, host: "Host") -> "Dispatcher | None":
        """Return the code that calls captured functions natively; None where it cannot be."""
        if self.pool.checks:
            return None  # native calls take memory from the lists of an ordinary pool
        with importing:
            from weft.runtimes.native.calls import (
                dispatch,  # only a function that is called again needs it
            )

        executor = self.executor
        with self._lock:
            if host not in self._dispatchers:
                made: Dispatcher | None = None
                with contextlib.suppress(dispatch.NotSupported, AttributeError, TypeError):
                    code = dispatch.module(dispatch.layout(host))
                    links = dispatch.imports(host, executor.library["weft_run"], code.named("Py"))
                    library = self._load_support([(code.text, "short")], dispatch.SYMBOLS, links)
                    made = dispatch.Dispatcher(library)
                self._dispatchers[host] = made  # None: the API of this Python differs
            return self._dispatchers[host]

    def support(self, text: str, symbols: Sequence[str], imports: Mapping[str, int]) -> Library:
        """Load code that serves the front end, compiled or from the cache."""
        return self._load_support([(text, "short")], symbols, imports)

    def _start(self) -> tuple[ThreadPool, Executor]:
        """Load the thread pool and the executor, once and when they are first needed."""
        if self._native is None:
            with self._lock:
                if self._native is None:
                    if self._maker is not None:
                        self._maker.wait()
                    library = self._made or self._linked()
                    self._made = None
                    asks = {name: library[name] for name in interrupts.SYMBOLS}
                    self._stops = interrupts.imports() | asks
                    library.pin()  # workers live in this code until the process ends
                    pool = ThreadPool(library, self._thread_count)
                    self._native = pool, Executor(library)
                    traced.started(self)
        return self._native

    def _make(self) -> None:
        """Compile the pool and the executor; whoever needs them finds out what went wrong."""
        with contextlib.suppress(WeftError, OSError, RuntimeError):
            self._made = self._linked()

    def _linked(self) -> Library:
        symbols = (*threads.SYMBOLS, *native.SYMBOLS, *interrupts.SYMBOLS)
        # The pool waits far longer than it computes, and a full code generator takes three times as
        # long for it; the executor is on the path of every call.
        executor = native.source()
        sources = [(threads.source(), "quick"), (executor.text, "short"),
                   (interrupts.module().text, "quick")]  # fmt: skip
        imports = native.imports(executor.named("Py")) | interrupts.imports()
        return self._load_support(sources, symbols, imports)

    def _load_support(self, sources: Sequence[tuple[str, str]], symbols: Sequence[str],
                      imports: Mapping[str, int]) -> Library:  # fmt: skip
        """Return code of the runtime itself, each text compiled by its pipeline, or cached."""
        found = self._cached(sources)
        if found:
            with contextlib.suppress(CompileError):  # whole, but not for this linker: compile anew
                return self.loader.load(found, symbols, imports)
        return self.loader.load(self._compiled(sources), symbols, imports)

    def _cached(self, sources: Sequence[tuple[str, str]]) -> list[bytes]:
        """Return what the cache has if that is all of it, else nothing."""
        if self.cache is None:
            return []
        found = [self.cache.get("runtime", key) for key in self._keys(sources)]
        return [image for image in found if image is not None] if None not in found else []

    def _compiled(self, sources: Sequence[tuple[str, str]]) -> list[bytes]:
        images = [self.compiler.compile(*job) for job in sources]
        if self.cache is not None:
            for key, image in zip(self._keys(sources), images, strict=True):
                self.cache.put("runtime", key, image)
        return images

    def _keys(self, sources: Sequence[tuple[str, str]]) -> list[str]:
        return [fingerprint("runtime", text, self.compiler.cache_key) for text, _ in sources]


def _pool(limit: int | None) -> Pool:
    """Return the pool that the settings ask for."""
    poison, guard = config().poison, config().guard
    if not poison and not guard:
        return Pool(limit)
    with importing:
        from weft.runtimes.memory.debug_pool import DebugPool

    return DebugPool(limit, poison, guard)


_runtimes: "weakref.WeakSet[CpuRuntime]" = weakref.WeakSet()


def _start_anew() -> None:
    """Forget the threads of the parent that were starting a runtime."""
    for runtime in _runtimes:
        runtime._maker = None


in_child(_start_anew)
