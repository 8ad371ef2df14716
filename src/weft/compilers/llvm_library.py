"""LLVM's library as llvmlite ships it, called without the Python of llvmlite.

What Weft needs of LLVM are some forty functions of that library. llvmlite's own `binding` declares
ten times as many and imports much of the standard library to find the file, which takes 26 ms of
every process that runs a kernel; this module takes one. The functions are llvmlite's and not a
promise to others: they are called directly for the versions whose sources were compared, and
through `llvmlite.binding` for all others, see `weft.compilers.llvm_binding`.
"""

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from weft.errors import CompileError, LibraryNotFoundError
from weft.locks import mutex
from weft.shortage import reporting_shortage

__all__ = ["DirectLibrary", "freeing", "incomplete", "library_path", "package"]

# The first version with these functions, and the first that nobody has looked at.
_KNOWN: Final = ((0, 45), (0, 51))

_POINTER, _STRING, _INT, _BOOL, _SIZE = (
    ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_bool, ctypes.c_size_t
)  # fmt: skip

# Result and parameters of each function, whose names go on after "LLVMPY_".
_FUNCTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "GetVersionInfo": (ctypes.c_uint,),
    "InitializeNativeTarget": (None,),
    "InitializeNativeAsmPrinter": (None,),
    "InitializeAllTargetInfos": (None,),
    "InitializeAllTargets": (None,),
    "InitializeAllTargetMCs": (None,),
    "InitializeAllAsmPrinters": (None,),
    "GetProcessTriple": (None, _POINTER),
    "GetHostCPUName": (None, _POINTER),
    "GetHostCPUFeatures": (_INT, _POINTER),
    "DisposeString": (None, _POINTER),
    "GetTargetFromTriple": (_POINTER, _STRING, _POINTER),
    "CreateTargetMachine": (_POINTER, _POINTER, _STRING, _STRING, _STRING, _INT, _STRING, _STRING,
                            _INT, _INT, _STRING),
    "DisposeTargetMachine": (None, _POINTER),
    "CreateTargetMachineData": (_POINTER, _POINTER),
    "CopyStringRepOfTargetData": (None, _POINTER, _POINTER),
    "DisposeTargetData": (None, _POINTER),
    "ContextCreate": (_POINTER,),
    "ContextDispose": (None, _POINTER),
    "ParseAssembly": (_POINTER, _POINTER, _STRING, _POINTER),
    "VerifyModule": (_INT, _POINTER, _POINTER),
    "SetTarget": (None, _POINTER, _STRING),
    "SetDataLayout": (None, _POINTER, _STRING),
    "PrintModuleToString": (None, _POINTER, _POINTER),
    "DisposeModule": (None, _POINTER),
    "CreatePipelineTuningOptions": (_POINTER,),
    "PTOSetLoopVectorization": (None, _POINTER, _BOOL),
    "PTOSetSLPVectorization": (None, _POINTER, _BOOL),
    "PTOSetLoopUnrolling": (None, _POINTER, _BOOL),
    "PTOSetLoopInterleaving": (None, _POINTER, _BOOL),
    "DisposePipelineTuningOptions": (None, _POINTER),
    "CreatePassBuilder": (_POINTER, _POINTER, _POINTER),
    "DisposePassBuilder": (None, _POINTER),
    # Up to version 0.47 there is a level for the size as well; a caller may pass one too many.
    "buildPerModuleDefaultPipeline": (_POINTER, _POINTER, _INT, _INT),
    "CreateNewModulePassManager": (_POINTER,),
    "module_AddAlwaysInlinerPass": (None, _POINTER),
    "module_AddSROAPass": (None, _POINTER),
    "module_AddInstCombinePass": (None, _POINTER),
    "module_AddSimplifyCFGPass": (None, _POINTER),
    "RunNewModulePassManager": (None, _POINTER, _POINTER, _POINTER),
    "DisposeNewModulePassManger": (None, _POINTER),  # so they spell it
    "TargetMachineEmitToMemory": (_POINTER, _POINTER, _POINTER, _INT, _POINTER),
    "GetBufferStart": (_POINTER, _POINTER),
    "GetBufferSize": (_SIZE, _POINTER),
    "DisposeMemoryBuffer": (None, _POINTER),
    "CreateLLJITCompiler": (_POINTER, _POINTER, _BOOL, _BOOL, _POINTER),
    "LLJITDispose": (None, _POINTER),
    "LLJIT_Link": (_POINTER, _POINTER, _STRING, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _SIZE,
                   _POINTER),
    "LLJIT_Dylib_Tracker_Dispose": (_BOOL, _POINTER, _POINTER),
}  # fmt: skip

# Held while the collector frees something of LLVM's, whenever that is, and around a fork: else the
# child might find a lock of LLVM's held. Nothing else is waited for inside.
freeing: Final = mutex()

_IMAGE, _PROCESS = 2, 3  # kinds of what is linked: bytes of an object; the running program


class _Element(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_uint8), ("value", _STRING), ("nbytes", _SIZE))


class _Address(ctypes.Structure):
    _fields_ = (("name", _STRING), ("address", ctypes.c_uint64))


def incomplete(error: Exception) -> LibraryNotFoundError:
    """Return the error of an installation that is there but does not load."""
    return LibraryNotFoundError("cpu", found=f"llvmlite does not load: {error}",
                                expected="a whole installation",
                                hint="python -m pip install --force-reinstall llvmlite")


def package() -> Any:
    """Return the package llvmlite.

    Raises
    ------
    LibraryNotFoundError
        If it is not installed, or its Python does not run.
    """
    try:
        with reporting_shortage("import llvmlite"):
            import llvmlite
    except ModuleNotFoundError:
        raise LibraryNotFoundError("cpu", found="no package llvmlite",
                                   expected="the one that Weft compiles with",
                                   hint="python -m pip install llvmlite") from None
    except ImportError as error:
        raise incomplete(error) from None
    return llvmlite


def library_path() -> str:
    """Return the library's file if its functions are known, else an empty string."""
    llvmlite = package()
    digits = llvmlite.__version__.split(".")[:2]
    if not all(word.isdigit() for word in digits) or os.name != "posix":
        return ""
    if not _KNOWN[0] <= tuple(map(int, digits)) < _KNOWN[1] or llvmlite.__file__ is None:
        return ""
    end = "dylib" if sys.platform == "darwin" else "so"
    path = os.path.join(os.path.dirname(llvmlite.__file__), "binding", f"libllvmlite.{end}")
    return path if os.path.exists(path) else ""


class _Handle:
    """An object of LLVM's, freed with the last reference to it."""

    __slots__ = ("_free", "pointer", "words")

    def __init__(self, pointer: int, free: Callable[[int], object],
                 words: Sequence[bytes] = ()) -> None:  # fmt: skip
        self.pointer, self._free, self.words = pointer, free, words

    def close(self) -> None:
        """Free it now; a second call does nothing."""
        with freeing:
            pointer, self.pointer = self.pointer, 0
            if pointer:
                self._free(pointer)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # the process frees all that it has
            self.close()


class _Engine(_Handle):
    """What links objects into the process; it is freed once no library that it linked is left.

    The order in which the collector frees things does not matter, therefore.
    """

    __slots__ = ("_is_left", "_living")

    def __init__(self, pointer: int, free: Callable[[int], object]) -> None:
        super().__init__(pointer, free)
        self._living, self._is_left = 0, False

    def close(self) -> None:
        """Free it once the last library is gone; nothing is linked any more."""
        with freeing:
            self._is_left = True
            if not self._living:
                super().close()

    def linked(self) -> None:
        """Count one more library."""
        with freeing:
            self._living += 1

    def unlinked(self) -> None:
        """Count one less."""
        with freeing:
            self._living -= 1
            if self._is_left and not self._living:
                super().close()


class DirectLibrary:
    """LLVM's library, its functions declared and the native target registered.

    Parameters
    ----------
    path
        The file.

    Attributes
    ----------
    version
        LLVM's version.
    room
        After how many libraries an engine should be left for a new one: what is unloaded leaves
        9 KB in it.
    """

    room: Final = 64

    def __init__(self, path: str) -> None:
        _load(path)
        library = ctypes.CDLL(path)
        self._functions: dict[str, Callable[..., Any]] = {}
        for name, (result, *parameters) in _FUNCTIONS.items():
            function = getattr(library, "LLVMPY_" + name)
            function.restype, function.argtypes = result, parameters
            self._functions[name] = function
        number = self._call("GetVersionInfo")
        self.version = f"{number >> 16}.{number >> 8 & 255}.{number & 255}"
        self._call("InitializeNativeTarget")
        self._call("InitializeNativeAsmPrinter")

    def host(self) -> tuple[str, str, str]:
        """Return the triple of this process, the CPU's name and its features, sorted."""
        names = ("GetProcessTriple", "GetHostCPUName", "GetHostCPUFeatures")
        triple, cpu, features = (self._text(name) for name in names)
        words = sorted(filter(None, features.split(",")), key=lambda word: word[1:])
        return triple, cpu, ",".join(words)

    def register_all_targets(self) -> None:
        """Register the targets of other machines."""
        for what in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
            self._call(f"InitializeAll{what}")

    def machine(self, triple: str, cpu: str, features: str, level: int, jit: bool) -> _Handle:
        """Return what generates code for a target.

        Raises
        ------
        CompileError
            If LLVM does not know the triple.
        """
        words = triple.encode(), cpu.encode(), features.encode()
        error = ctypes.c_void_p()
        target = self._call("GetTargetFromTriple", words[0], ctypes.byref(error))
        if not target:
            raise CompileError("LLVM target", found=triple, hint=self._taken(error))
        pointer = self._call("CreateTargetMachine", target, *words, level, b"pic", b"small", 0,
                             jit, b"")  # fmt: skip
        if not pointer:
            raise CompileError("LLVM target", found=f"{cpu} of {triple}")
        data = self._call("CreateTargetMachineData", pointer)
        layout = self._text("CopyStringRepOfTargetData", data).encode()
        self._call("DisposeTargetData", data)
        return _Handle(pointer, self._functions["DisposeTargetMachine"], (words[0], layout))

    def translate(self, machine: _Handle, source: str, passes: Sequence[str] | int,
                  small: bool, product: str) -> bytes:  # fmt: skip
        """Return an ``object``, ``assembly`` or ``text`` made of LLVM IR; see `llvm_binding`."""
        # A context for each module, or types and constants pile up for ever.
        context = self._call("ContextCreate")
        try:
            module = self._parsed(source, context)
            try:
                self._call("SetTarget", module, machine.words[0])
                self._call("SetDataLayout", module, machine.words[1])
                self._optimise(machine, module, passes, small)
                return self._product(machine, module, product)
            finally:
                self._call("DisposeModule", module)
        finally:
            self._call("ContextDispose", context)

    def engine(self, machine: _Handle) -> _Engine:
        """Return what links objects into the process.

        Raises
        ------
        CompileError
            If LLVM cannot on this system.
        """
        error = ctypes.c_void_p()
        pointer = self._call("CreateLLJITCompiler", machine.pointer, False, True,
                             ctypes.byref(error))  # fmt: skip
        if not pointer:
            raise CompileError("LLVM link", found=self._taken(error).strip())
        return _Engine(pointer, self._functions["LLJITDispose"])

    def link(self, engine: _Engine, name: str, images: Sequence[bytes],
             imports: Mapping[str, int],
             exports: Iterable[str]) -> tuple[_Handle, dict[str, int]]:  # fmt: skip
        """Return what holds a new library in memory, and the addresses of its exported symbols.

        Raises
        ------
        CompileError
            If an object is not loadable or a symbol is missing.
        """
        elements = (_Element * (len(images) + 1))()
        for element, image in zip(elements, images, strict=False):
            element.kind, element.value, element.nbytes = _IMAGE, image, len(image)
        elements[-1].kind, elements[-1].value = _PROCESS, b""
        given = (_Address * len(imports))()
        for place, (symbol, address) in zip(given, imports.items(), strict=True):
            place.name, place.address = symbol.encode(), address
        names = list(dict.fromkeys(exports))
        wanted = (_Address * len(names))()
        for place, symbol in zip(wanted, names, strict=True):
            place.name = symbol.encode()
        error = ctypes.c_void_p()
        pointer = self._call("LLJIT_Link", engine.pointer, name.encode(), elements, len(elements),
                             given, len(given), wanted, len(wanted),
                             ctypes.byref(error))  # fmt: skip
        if not pointer:
            raise CompileError("LLVM link", found=self._taken(error).strip())
        addresses = {symbol: place.address for symbol, place in zip(names, wanted, strict=True)}
        engine.linked()
        return _Handle(pointer, functools.partial(self._dispose_tracker, engine)), addresses

    def _dispose_tracker(self, engine: _Engine, pointer: int) -> None:
        error = ctypes.c_void_p()
        failed = self._call("LLJIT_Dylib_Tracker_Dispose", pointer, ctypes.byref(error))
        found = self._taken(error)
        engine.unlinked()
        if failed:
            raise CompileError("LLVM unload", found=found.strip())

    def _call(self, name: str, *arguments: object) -> Any:
        return self._functions[name](*arguments)

    def _text(self, name: str, *arguments: object) -> str:
        """Return the string that a function writes behind its arguments."""
        out = ctypes.c_void_p()
        self._call(name, *arguments, ctypes.byref(out))
        return self._taken(out)

    def _taken(self, out: ctypes.c_void_p) -> str:
        """Return a string of LLVM's and free it."""
        if not out.value:
            return ""
        text = ctypes.string_at(out.value).decode(errors="replace")  # names may be no text
        self._call("DisposeString", out)
        return text

    def _parsed(self, source: str, context: int) -> int:
        error = ctypes.c_void_p()
        module: int = self._call("ParseAssembly", context, source.encode(), ctypes.byref(error))
        if not module:
            found = f"IR that does not parse: {self._taken(error)}"
            raise CompileError("LLVM", found=found)
        wrong = self._call("VerifyModule", module, ctypes.byref(error))
        found = self._taken(error)
        if wrong:
            self._call("DisposeModule", module)
            raise CompileError("LLVM", found=f"IR that is not valid: {found}")
        return module

    def _optimise(self, machine: _Handle, module: int, passes: Sequence[str] | int,
                  small: bool) -> None:  # fmt: skip
        if not isinstance(passes, int) and not passes:
            return
        call = self._call
        options = call("CreatePipelineTuningOptions")
        try:
            if isinstance(passes, int):
                for kind in ("LoopVectorization", "SLPVectorization"):
                    call("PTOSet" + kind, options, passes > 1 and not small)
                for kind in ("LoopUnrolling", "LoopInterleaving"):
                    call("PTOSet" + kind, options, not small)
            builder = call("CreatePassBuilder", machine.pointer, options)
            try:
                if isinstance(passes, int):
                    manager = call("buildPerModuleDefaultPipeline", builder, passes, 0)
                else:
                    manager = call("CreateNewModulePassManager")
                    for name in passes:
                        call(f"module_Add{name}Pass", manager)
                try:
                    call("RunNewModulePassManager", manager, module, builder)
                finally:
                    call("DisposeNewModulePassManger", manager)
            finally:
                call("DisposePassBuilder", builder)
        finally:
            call("DisposePipelineTuningOptions", options)

    def _product(self, machine: _Handle, module: int, product: str) -> bytes:
        if product == "text":
            return self._text("PrintModuleToString", module).encode()
        error = ctypes.c_void_p()
        buffer = self._call("TargetMachineEmitToMemory", machine.pointer, module,
                            product == "object", ctypes.byref(error))  # fmt: skip
        if not buffer:
            raise CompileError("LLVM", found=f"no code: {self._taken(error)}")
        try:
            start = self._call("GetBufferStart", buffer)
            return ctypes.string_at(start, self._call("GetBufferSize", buffer))
        finally:
            self._call("DisposeMemoryBuffer", buffer)


def _load(path: str) -> None:
    """Let the system load LLVM's library; other threads run meanwhile.

    `ctypes.CDLL` would do it with Python's lock held: ctypes keeps that while it loads a library,
    and lets it go while it calls a function of one. What fails here, fails there with a message.
    """
    load = getattr(ctypes.CDLL(None), "dlopen", None)
    if load is not None:
        load.argtypes, load.restype = (_STRING, _INT), _POINTER
        load(os.fsencode(path), os.RTLD_NOW)
