"""LLVM: IR text to object bytes, and object bytes to addresses.

Loading LLVM costs about 10 ms, so it happens at the first use of `LLVMCompiler` or `JITSession`
and never at the import of this module. LLVM is built with assertions, and a module that breaks its
rules aborts the whole process: every module is parsed and verified first, each in a context of its
own, and what those two find becomes a `CompileError`.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from weft.compilers.llvm_library import (
    DirectLibrary,
    freeing,
    incomplete,
    library_path,
    package,
)
from weft.errors import CompileError, HandleError
from weft.imports import through_forks
from weft.locks import mutex
from weft.shortage import LLVM_BYTES, is_shortage, reporting_shortage, require, shortage

__all__ = ["HostCPU", "JITSession", "LLVMCompiler", "LoadedObject", "Pipeline", "compiler",
           "host_cpu", "session"]  # fmt: skip

Pipeline = Literal["none", "quick", "short", "O0", "O1", "O2", "O3", "Os"]

# Levels of the code generator, which are apart from the pass pipeline. Level 1 would save a
# quarter of the time but schedules for latency badly; explicit vectors need level 2.
_CODEGEN_LEVEL: Final = {
    "none": 0, "quick": 0, "short": 2, "O0": 0, "O1": 1, "O2": 2, "O3": 3, "Os": 2,
}  # fmt: skip

# What the pipelines do beyond LLVM's own names for them; part of the cache key.
_PASSES: Final = "quick,short=inline,sroa,instcombine,simplifycfg@2;Os=O2-vectors-unrolling"

# What each pipeline runs: passes by name, or LLVM's own pipeline of a level.
_SHORT: Final = ("AlwaysInliner", "SROA", "InstCombine", "SimplifyCFG")  # SROA sees through no call
_RUNS: Final[dict[str, tuple[str, ...] | int]] = {
    "none": (), "quick": _SHORT, "short": _SHORT, "O0": _SHORT[:1], "O1": 1, "O2": 2, "O3": 3,
    "Os": 2,
}  # fmt: skip

# What a kernel is mostly made of: vectors with masks, a loop with its tail, a failure.
_FIRST: Final = """
define void @first(ptr noalias %data, i64 %n, ptr %status) {
entry:
  %slot = alloca i64
  store i64 %n, ptr %slot
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %end ]
  %at = getelementptr float, ptr %data, i64 %i
  %bound = load i64, ptr %slot
  %left = sub i64 %bound, %i
  %one = insertelement <8 x i64> poison, i64 %left, i64 0
  %all = shufflevector <8 x i64> %one, <8 x i64> poison, <8 x i32> zeroinitializer
  %mask = icmp slt <8 x i64> <i64 0, i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7>, %all
  %bits = bitcast <8 x i1> %mask to i8
  %whole = icmp eq i8 %bits, -1
  br i1 %whole, label %full, label %part
full:
  %x = load <8 x float>, ptr %at, align 4
  %square = fmul <8 x float> %x, %x
  store <8 x float> %square, ptr %at, align 4
  br label %end
part:
  %y = call <8 x float> @llvm.masked.load.v8f32.p0(ptr %at, i32 4, <8 x i1> %mask,
                                                   <8 x float> zeroinitializer)
  %wide = fpext <8 x float> %y to <8 x double>
  %sum = fadd <8 x double> %wide, %wide
  %narrow = fptrunc <8 x double> %sum to <8 x float>
  call void @llvm.masked.store.v8f32.p0(<8 x float> %narrow, ptr %at, i32 4, <8 x i1> %mask)
  call void @fail(ptr %status, i64 %i)
  br label %end
end:
  %next = add nuw nsw i64 %i, 8
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}

define internal void @fail(ptr %status, i64 %index) noinline {
  %pair = cmpxchg ptr %status, i64 0, i64 %index acq_rel monotonic
  ret void
}

declare <8 x float> @llvm.masked.load.v8f32.p0(ptr, i32, <8 x i1>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr, i32, <8 x i1>)
"""

# Everything that touches LLVM holds this lock, so that no two compiles mix, but for the collector
# when it frees code: that holds a lock of the library. A fork during either would leave it locked
# for ever in the child: both are taken around a fork.
_lock = mutex()
_library: Any = None  # a DirectLibrary or a BoundLibrary
_freeing: Any = freeing


def _hold() -> Callable[[], None]:
    _lock.acquire()
    library = _freeing
    library.__enter__()  # llvmlite's can only be entered

    def release() -> None:
        library.__exit__(None, None, None)
        _lock.release()

    return release


through_forks(_hold)


def _direct(path: str) -> DirectLibrary | None:
    """Return LLVM called without llvmlite's Python; None if the file is not what it seemed."""
    try:
        return DirectLibrary(path)
    except OSError as error:
        if is_shortage(error):
            raise
        return None


def _llvm() -> Any:
    """Load LLVM and register the native target, once.

    Raises
    ------
    LibraryNotFoundError
        If llvmlite is not installed, or not as a whole.
    """
    global _library, _freeing
    if _library is None:
        with _lock:
            if _library is None:
                path = library_path()
                with reporting_shortage("load LLVM"), contextlib.suppress(AttributeError):
                    _library = _direct(path) if path else None
            if _library is None:
                from weft.compilers.llvm_binding import BoundLibrary

                try:
                    library = BoundLibrary()
                except (ImportError, OSError, AttributeError) as error:
                    if is_shortage(error):
                        raise shortage("load LLVM", error) from None
                    raise incomplete(error) from None
                _freeing, _library = library.lock, library
    return _library


class HostCPU:
    """The processor of this machine, as LLVM names it.

    Parameters
    ----------
    triple, cpu, features
        Target triple, CPU name and the comma separated feature string (``+avx2,-sse4a``).
    """

    __slots__ = ("cpu", "features", "triple")

    def __init__(self, triple: str, cpu: str, features: str) -> None:
        self.triple, self.cpu, self.features = triple, cpu, features

    @property
    def enabled(self) -> frozenset[str]:
        """Names of the features that are there, without their sign."""
        return frozenset(word[1:] for word in self.features.split(",") if word.startswith("+"))


_host: HostCPU | None = None


def host_cpu() -> HostCPU:
    """Return this machine's CPU, asked once."""
    global _host
    if _host is None:
        llvm = _llvm()
        with _lock:
            # A CPU name alone says nothing of what the operating system or a hypervisor masks.
            _host = HostCPU(*llvm.host())
    return _host


class LLVMCompiler:
    """Compiles LLVM IR text to objects.

    Parameters
    ----------
    triple, cpu, features
        The target; by default this machine with every feature that it has. A foreign target
        makes objects and assembly that `JITSession` cannot load.

    Notes
    -----
    Pipelines: ``none``; ``short`` is SROA, InstCombine, SimplifyCFG, for code that is already
    vectorised and blocked; ``O1`` to ``O3`` are LLVM's own; ``Os`` is O2 without vectors
    and copies of loops, for functions with the attribute ``optsize``; ``O0`` inlines what must be
    inlined and nothing else.
    """

    def __init__(
        self, triple: str | None = None, cpu: str | None = None, features: str | None = None
    ) -> None:
        llvm = _llvm()
        host = host_cpu()
        self.triple = triple or host.triple
        is_host = self.triple == host.triple and cpu is None
        self.cpu = host.cpu if is_host else cpu or ""
        self.features = features if features is not None else host.features if is_host else ""
        with _lock:
            if self.triple != host.triple:
                llvm.register_all_targets()
            self._machines: dict[int, Any] = {}
            self._worked = False
            self._machine(_CODEGEN_LEVEL["short"])  # raises where there is no such target
        words = (package().__version__, llvm.version, _PASSES, self.triple, self.cpu, self.features)
        self._key = "llvm;" + ";".join(words)

    @property
    def cache_key(self) -> str:
        """Identity: llvmlite and LLVM versions, triple, CPU and features."""
        return self._key

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the object made of LLVM IR text.

        Raises
        ------
        CompileError
            If the text does not parse or breaks a rule of LLVM IR.
        """
        return self._run(source, pipeline, "object")

    def warm_up(self) -> None:
        """Translate something, unless this was done: LLVM's first module takes 6 ms longer."""
        with _lock:
            if not self._worked:
                self.compile(_FIRST)

    def assembly(self, source: str, pipeline: str = "short") -> str:
        """Return the assembly that `compile` would encode."""
        return self._run(source, pipeline, "assembly").decode()

    def optimised(self, source: str, pipeline: str = "short") -> str:
        """Return the IR text after the pass pipeline."""
        return self._run(source, pipeline, "text").decode()

    def _run(self, source: str, pipeline: str, product: str) -> bytes:
        if pipeline not in _CODEGEN_LEVEL:
            raise CompileError(
                "LLVM", found=f"pipeline {pipeline!r}", expected=list(_CODEGEN_LEVEL)
            )
        if "\0" in source:  # what follows it would be lost without a word
            raise CompileError("LLVM", found="IR with a NUL character", expected="text")
        require("compile", LLVM_BYTES)
        with _lock:
            machine = self._machine(_CODEGEN_LEVEL[pipeline])
            self._worked = True
            made: bytes = _llvm().translate(machine, source, _RUNS[pipeline], pipeline == "Os",
                                            product)  # fmt: skip
            return made

    def _machine(self, level: int) -> Any:
        machine = self._machines.get(level)
        if machine is None:
            machine = _llvm().machine(self.triple, self.cpu, self.features, level, jit=False)
            self._machines[level] = machine
        return machine


class LoadedObject:
    """Machine code in memory, alive as long as this object is.

    Parameters
    ----------
    addresses
        Address of each exported symbol.
    """

    __slots__ = ("_tracker", "addresses", "keep")

    def __init__(
        self, addresses: dict[str, int], tracker: Any, keep: tuple[object, ...] = ()
    ) -> None:
        self.addresses = addresses
        self.keep = keep
        self._tracker = tracker

    def __getitem__(self, name: str) -> int:
        """Return the address of the symbol ``name``."""
        if self._tracker is None:
            raise HandleError("symbol", found=f"{name} of an unloaded object")
        return self.addresses[name]

    def unload(self) -> None:
        """Free the code. The addresses must not be used afterwards; a second call does nothing."""
        tracker, self._tracker = self._tracker, None
        if tracker is not None:
            with _lock:
                tracker.close()

    def pin(self) -> None:
        """Keep the code until the process ends, whatever becomes of this object.

        For code that other threads may still be running while the interpreter shuts down.
        """
        import ctypes  # the list alone would go at the end of the interpreter

        _pinned.append(self)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))


_pinned: list[LoadedObject] = []


class JITSession:
    """Links objects into the process through ORC and JITLink; see `session` for the one to use."""

    def __init__(self) -> None:
        self._count = 0
        with _lock:
            self._engine = self._new_engine()

    def _new_engine(self) -> Any:
        llvm, host = _llvm(), host_cpu()
        machine = llvm.machine(host.triple, host.cpu, host.features, 2, jit=True)
        return llvm.engine(machine)

    def load(
        self,
        objects: bytes | Sequence[bytes],
        symbols: Iterable[str],
        imports: Mapping[str, int] | None = None,
        keep: tuple[object, ...] = (),
    ) -> LoadedObject:
        """Link one object, or several into one library, and return the addresses of ``symbols``.

        Parameters
        ----------
        objects
            What `LLVMCompiler.compile` returned, now or in an earlier process.
        symbols
            Names to look up.
        imports
            Addresses of symbols that the objects refer to. What is not named here is looked up
            in the process (libc, libm).
        keep
            Whatever has to live as long as the code does.

        Raises
        ------
        CompileError
            If an object is not loadable or a symbol is missing.
        """
        images = (objects,) if isinstance(objects, bytes) else tuple(objects)
        require("link", LLVM_BYTES // 4)
        with _lock:
            self._count += 1
            if self._count % _llvm().room == 0:
                self._engine = self._new_engine()
            tracker, addresses = _llvm().link(
                self._engine, f"weft.{self._count}", images, imports or {}, symbols
            )
        return LoadedObject(addresses, tracker, keep)


_compiler: LLVMCompiler | None = None
_session: JITSession | None = None


def compiler() -> LLVMCompiler:
    """Return the process's compiler for this machine."""
    global _compiler
    with _lock:
        if _compiler is None:
            _compiler = LLVMCompiler()
        return _compiler


def session() -> JITSession:
    """Return the process's JIT session."""
    global _session
    with _lock:
        if _session is None:
            _session = JITSession()
        return _session
