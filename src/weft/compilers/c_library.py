"""Shared libraries of C kernels in this process, where there is no LLVM to link objects.

`SharedLoader` has the interface of `weft.compilers.llvm.JITSession`: it links objects to a library
by the compiler that made them and loads that with `dlopen`. Parallel loops of such a library run by
OpenMP or one after the other (`weft.compilers.c_support`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from weft.compilers.c import CCompiler
from weft.compilers.c_process import private_folder
from weft.errors import CompileError, HandleError

__all__ = ["LoadedLibrary", "SharedLoader", "load_library"]

# What libraries bring themselves: addresses of others for these are not needed.
_OWN: Final = frozenset(("weft_parallel_for", "weft_stop", "weft_turns", "weft_turned"))


class LoadedLibrary:
    """A library in memory, alive as long as this object is.

    Parameters
    ----------
    handle : ctypes.CDLL
        The library.
    symbols : iterable of str
        Functions that it has to have.
    keep : tuple, optional
        Whatever has to live as long as the code does.

    Attributes
    ----------
    addresses : dict
        Address of each function.

    Raises
    ------
    CompileError
        If one of them is missing.
    """

    def __init__(self, handle: ctypes.CDLL, symbols: Iterable[str],
                 keep: tuple[object, ...] = ()) -> None:  # fmt: skip
        self._handle: ctypes.CDLL | None = handle
        self._pinned = False
        self.keep = keep
        self.addresses: dict[str, int] = {}
        try:
            for name in symbols:
                function = ctypes.cast(getattr(handle, name), ctypes.c_void_p)
                self.addresses[name] = function.value or 0
        except AttributeError:
            self.unload()
            raise CompileError("load library", found=f"no symbol {name}") from None

    def __getitem__(self, name: str) -> int:
        """Return the address of the symbol ``name``."""
        if self._handle is None:
            raise HandleError("symbol", found=f"{name} of an unloaded library")
        return self.addresses[name]

    def unload(self) -> None:
        """Free the code. The addresses must not be used afterwards; a second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None and not self._pinned and os.name == "posix":
            import _ctypes

            _ctypes.dlclose(handle._handle)

    def pin(self) -> None:
        """Keep the code until the process ends, whatever becomes of this object."""
        self._pinned = True


def load_library(data: bytes, symbols: Iterable[str],
                 keep: tuple[object, ...] = ()) -> LoadedLibrary:  # fmt: skip
    """Load the bytes of a shared library; no file of them is left.

    Raises
    ------
    CompileError
        If the system does not load them or a symbol is missing.
    """
    with private_folder() as folder:
        path = os.path.join(folder, "library.so")
        with open(path, "wb") as file:
            file.write(data)
        try:
            handle = ctypes.CDLL(path, mode=os.RTLD_NOW if hasattr(os, "RTLD_NOW") else 0)
        except OSError as error:
            raise CompileError("load library", found=str(error).replace(path, "it")) from error
    return LoadedLibrary(handle, symbols, keep)


class SharedLoader:
    """Links objects into the process by the compiler that made them.

    Parameters
    ----------
    compiler : CCompiler
        Which links.
    openmp : bool, optional
        Whether parallel loops run by OpenMP; by default where it compiles.
    """

    def __init__(self, compiler: CCompiler, openmp: bool | None = None) -> None:
        self.compiler, self.openmp = compiler, openmp

    def load(self, objects: bytes | Sequence[bytes], symbols: Iterable[str],
             imports: Mapping[str, int] | None = None,
             keep: tuple[object, ...] = ()) -> LoadedLibrary:  # fmt: skip
        """Link one object, or several into one library, and load it.

        Parameters
        ----------
        objects : bytes or sequence of bytes
            What `CCompiler.compile` returned, now or in an earlier process.
        symbols : iterable of str
            Names to look up.
        imports : mapping, optional
            Addresses of symbols: only those that libraries bring themselves may be there.
        keep : tuple, optional
            Whatever has to live as long as the code does.

        Raises
        ------
        CompileError
            If an object does not link, a symbol is missing, or an address is given that a library
            cannot be told.
        """
        foreign = sorted(set(imports or ()) - _OWN)
        if foreign:
            raise CompileError("link", found=f"addresses of {', '.join(foreign)}",
                               expected="symbols of the process, for a library that is a file")
        images = (objects,) if isinstance(objects, bytes) else tuple(objects)
        return load_library(self.compiler.link(images, self.openmp), symbols, keep)
