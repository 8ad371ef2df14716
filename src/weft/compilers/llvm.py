"""LLVM through llvmlite: IR text to object bytes, and object bytes to addresses.

Importing llvmlite costs about 40 ms, so it happens at the first use of `LLVMCompiler` or
`JITSession` and never at the import of this module. LLVM is built with assertions, and a module
that breaks its rules aborts the whole process: every module is parsed and verified first, each in
a context of its own, and what those two find becomes a `CompileError`.
"""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, Literal

from weft.errors import CompileError, HandleError

__all__ = [
    "HostCPU",
    "JITSession",
    "LLVMCompiler",
    "LoadedObject",
    "Pipeline",
    "compiler",
    "host_cpu",
    "session",
]

Pipeline = Literal["none", "quick", "short", "O0", "O1", "O2", "O3", "Os"]

# Levels of the code generator, which are apart from the pass pipeline. Level 1 would save a
# quarter of the time but schedules for latency badly; explicit vectors need level 2.
_CODEGEN_LEVEL: Final = {
    "none": 0, "quick": 0, "short": 2, "O0": 0, "O1": 1, "O2": 2, "O3": 3, "Os": 2,
}  # fmt: skip

# What the pipelines do beyond LLVM's own names for them; part of the cache key.
_PASSES: Final = "quick,short=inline,sroa,instcombine,simplifycfg@2"

# Everything that touches LLVM holds this lock, so that no two compiles mix. llvmlite has one of its
# own for each call, which the collector takes too when it frees a module or a context. A fork
# during either would leave it locked for ever in the child: both are taken around a fork.
_lock = threading.RLock()


def _before_fork() -> None:
    _lock.acquire()
    if _binding is not None:
        _binding.ffi.lib._lock.__enter__()


def _after_fork() -> None:
    if _binding is not None:
        _binding.ffi.lib._lock.__exit__()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )

_binding: Any = None


def _load_library() -> None:
    """Let the system load LLVM's library; other threads run meanwhile.

    The import of llvmlite would do it with Python's lock held: ctypes keeps that while it loads a
    library, and lets it go while it calls a function of one.
    """
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return
    path = os.path.join(os.path.dirname(spec.origin), "binding", "libllvmlite.so")
    with contextlib.suppress(AttributeError, OSError):
        load = ctypes.CDLL(None).dlopen
        load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
        load(os.fsencode(path), os.RTLD_NOW)  # a file that is not there does nothing


def _llvm() -> Any:
    """Import llvmlite and register the native target, once."""
    global _binding
    if _binding is None:
        with _lock:
            _load_library()
            import llvmlite.binding

            llvmlite.binding.initialize_native_target()
            llvmlite.binding.initialize_native_asmprinter()
            _binding = llvmlite.binding
    return _binding


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
            features = llvm.get_host_cpu_features().flatten()
            _host = HostCPU(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)
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
                llvm.initialize_all_targets()
                llvm.initialize_all_asmprinters()
            try:
                self._target = llvm.Target.from_triple(self.triple)
            except RuntimeError as error:
                raise CompileError("LLVM target", found=self.triple, hint=error) from error
        self._machines: dict[int, Any] = {}
        import llvmlite

        version = ".".join(map(str, llvm.llvm_version_info))
        words = (llvmlite.__version__, version, _PASSES, self.triple, self.cpu, self.features)
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
        emit: bytes = self._run(
            source, pipeline, lambda machine, module: machine.emit_object(module)
        )
        return emit

    def assembly(self, source: str, pipeline: str = "short") -> str:
        """Return the assembly that `compile` would encode."""
        text: str = self._run(
            source, pipeline, lambda machine, module: machine.emit_assembly(module)
        )
        return text

    def optimised(self, source: str, pipeline: str = "short") -> str:
        """Return the IR text after the pass pipeline."""
        text: str = self._run(source, pipeline, lambda _, module: str(module))
        return text

    def _run(self, source: str, pipeline: str, emit: Callable[[Any, Any], Any]) -> Any:
        if pipeline not in _CODEGEN_LEVEL:
            raise CompileError(
                "LLVM", found=f"pipeline {pipeline!r}", expected=list(_CODEGEN_LEVEL)
            )
        llvm = _llvm()
        with _lock:
            machine = self._machine(_CODEGEN_LEVEL[pipeline])
            # A context for each module, or types and constants pile up for ever. The module holds
            # on to it and goes first: a Ctrl-C here must not leave it without its context.
            with _parse(llvm, source, llvm.create_context()) as module:
                module.triple = self.triple
                module.data_layout = str(machine.target_data)
                _optimise(llvm, machine, module, pipeline)
                return emit(machine, module)

    def _machine(self, level: int) -> Any:
        machine = self._machines.get(level)
        if machine is None:
            machine = self._target.create_target_machine(
                cpu=self.cpu, features=self.features, opt=level, reloc="pic", codemodel="small"
            )
            self._machines[level] = machine
        return machine


def _parse(llvm: Any, source: str, context: Any) -> Any:
    if "\0" in source:  # what follows it would be lost without a word
        raise CompileError("LLVM", found="IR with a NUL character", expected="text")
    try:
        module = llvm.parse_assembly(source, context)
    except RuntimeError as error:
        raise CompileError("LLVM", found=f"IR that does not parse: {error}") from error
    try:
        module.verify()
    except RuntimeError as error:
        module.close()
        raise CompileError("LLVM", found=f"IR that is not valid: {error}") from error
    return module


def _optimise(llvm: Any, machine: Any, module: Any, pipeline: str) -> None:
    if pipeline == "none":
        return
    small = pipeline == "Os"
    level = 2 if small else int(pipeline[1]) if pipeline[0] == "O" else 1
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    with llvm.create_pass_builder(machine, options) as builder:
        if pipeline == "O0":
            passes = llvm.create_new_module_pass_manager()
            passes.add_always_inliner_pass()
            passes.run(module, builder)
            return
        if pipeline not in ("quick", "short"):
            options.loop_vectorization = options.slp_vectorization = level > 1 and not small
            options.loop_unrolling = options.loop_interleaving = not small
            builder.getModulePassManager().run(module, builder)
            return
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()  # SROA cannot see through a call
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, builder)


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
        _pinned.append(self)
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._tracker))


_pinned: list[LoadedObject] = []


class JITSession:
    """Links objects into the process through ORC and JITLink; see `session` for the one to use."""

    def __init__(self) -> None:
        llvm = _llvm()
        host = host_cpu()
        with _lock:
            target = llvm.Target.from_triple(host.triple)
            machine = target.create_target_machine(
                cpu=host.cpu,
                features=host.features,
                opt=2,
                reloc="pic",
                codemodel="small",
                jit=True,
            )
            self._engine = llvm.create_lljit_compiler(machine, use_jit_link=True)
        self._count = 0

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
        llvm = _llvm()
        builder = llvm.JITLibraryBuilder()
        for image in (objects,) if isinstance(objects, bytes) else objects:
            builder.add_object_img(image)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        builder.add_current_process()
        names = tuple(symbols)
        for name in names:
            builder.export_symbol(name)
        with _lock:
            self._count += 1
            try:
                tracker = builder.link(self._engine, f"weft.{self._count}")
            except RuntimeError as error:
                raise CompileError("LLVM link", found=str(error).strip()) from error
        return LoadedObject({name: tracker[name] for name in names}, tracker, keep)


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
