"""C to objects and shared libraries, by the compiler of the system.

Compilers are tried in order: ``clang-11``, ``clang``, ``gcc``, ``cc``, or those that ``WEFT_CC``
names. Each has to say its version and to translate a small file (`weft.compilers.c_trial`); the
first that does is used, and the others' reasons are told where none does. Every call runs in a
private folder with a time limit. `cache_key` holds the program's file, its version and the
arguments, so that what another compiler made is never taken.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from weft.compilers.c_flags import LEVELS, arguments
from weft.compilers.c_process import environment, output, private_folder, run
from weft.compilers.c_support import OPENMP, SUPPORT
from weft.compilers.c_trial import Trial, check_object, identity, ran, try_compiler, version_text
from weft.config import config
from weft.errors import CompileError, LibraryNotFoundError, WeftError
from weft.imports import importing
from weft.locks import mutex
from weft.store import DiskCache
from weft.target import Target

__all__ = ["COMPILERS", "CCompiler", "find_compiler", "missing"]

COMPILERS: Final = ("clang-11", "clang", "gcc", "cc")
_SECONDS: Final = 180.0  # for one kernel: machines may be busy
_MOST: Final = 256 << 20  # bytes of an object
_SAID: Final = 2000  # characters of a compiler's words in an error


class CCompiler:
    """One C compiler that was tried and serves.

    Parameters
    ----------
    path : str
        The program.
    target : Target
        What its code is for.
    cache : DiskCache, optional
        Where good trials are remembered.
    seconds : float
        Time limit of one call.

    Attributes
    ----------
    path : str
        The program.
    family : str
        ``clang`` or ``gcc``.
    version : tuple of int
        Major and minor.

    Raises
    ------
    CompileError
        If the program is no C compiler that serves, with the reason.
    """

    def __init__(self, path: str, target: Target, cache: DiskCache | None = None,
                 seconds: float = _SECONDS) -> None:  # fmt: skip
        self.path, self.target, self.seconds = path, target, seconds
        self._cache, self._arguments = cache, arguments(target)
        self._lock = mutex()
        self._openmp: bool | None = None
        self._file = self._words = ""
        self._trial = self._examine()

    def _examine(self) -> Trial:
        """Find out what the program is at the moment."""
        try:
            self._file = identity(self.path)
        except OSError as error:
            raise CompileError(self.path, found=error.strerror or error,
                               expected="a program") from None
        self._words = version_text(self.path)
        known = f"{self.path}\n{self._file}\n{self._words}"
        return try_compiler(self.path, self._arguments, self.target.arch, known, self._cache)

    @property
    def family(self) -> str:
        """``clang`` or ``gcc``, by its own macros."""
        return self._trial.family

    @property
    def version(self) -> tuple[int, int]:
        """Major and minor."""
        return self._trial.version

    @property
    def cache_key(self) -> str:
        """Identity: file, version and arguments. A program that was replaced is examined anew.

        Raises
        ------
        CompileError
            If it was replaced by something else than a compiler.
        """
        with self._lock:
            if self._changed():
                self._openmp = None
                self._trial = self._examine()
            return ";".join(("c", self.path, self._file, self._words, *self._arguments))

    def _changed(self) -> bool:
        try:
            return identity(self.path) != self._file
        except OSError:
            return True

    def compile(self, source: str, pipeline: str = "short") -> bytes:
        """Return the object of a kernel.

        Parameters
        ----------
        source : str
            C text.
        pipeline : str
            One of `weft.compilers.c_flags.LEVELS`.

        Raises
        ------
        CompileError
            If the text is refused, the compiler does not end in time or writes no object, or is
            another one than `cache_key` said.
        """
        return self._made({"kernel.c": source}, [self._level(pipeline), "-c"], "kernel.o")

    def shared(self, source: str, pipeline: str = "short", openmp: bool | None = None) -> bytes:
        """Return a shared library of C text, in which parallel loops run by themselves.

        Parameters
        ----------
        source : str
            What `CRenderer.library` (`weft.renderers.cstyle.c.renderer`) wrote, or kernels for
            native plans.
        pipeline : str
            One of `weft.compilers.c_flags.LEVELS`.
        openmp : bool, optional
            Whether by OpenMP; by default where that compiles. Results are the same either way.

        Raises
        ------
        CompileError
            As `compile`; also if OpenMP is asked for and not there.
        """
        sources = {"kernel.c": source, "support.c": SUPPORT}
        return self._made(sources, [self._level(pipeline), *self._linking(openmp)], "library.so")

    def link(self, objects: Sequence[bytes], openmp: bool | None = None) -> bytes:
        """Return a shared library of objects that `compile` made.

        Raises
        ------
        CompileError
            As `shared`.
        """
        sources: dict[str, str | bytes] = {f"{i}.o": data for i, data in enumerate(objects)}
        sources["support.c"] = SUPPORT
        return self._made(sources, ["-O2", *self._linking(openmp)], "library.so")

    @property
    def openmp(self) -> bool:
        """Whether OpenMP compiles and links, found out once."""
        with self._lock:
            if self._openmp is None:
                try:
                    self._made({"openmp.c": OPENMP}, ["-O1", "-shared", "-fopenmp"], "openmp.so")
                    self._openmp = True
                except CompileError:
                    self._openmp = False
            return self._openmp

    def _linking(self, openmp: bool | None) -> list[str]:
        wanted = self.openmp if openmp is None else openmp
        return ["-shared", *(["-fopenmp"] if wanted else [])]

    def _level(self, pipeline: str) -> str:
        level = LEVELS.get(pipeline)
        if level is None:
            raise CompileError("C compiler", found=f"pipeline {pipeline!r}", expected=list(LEVELS))
        return level

    def _made(self, sources: dict[str, str] | dict[str, str | bytes], options: Sequence[str],
              name: str) -> bytes:  # fmt: skip
        """Return the file that the compiler makes of some files."""
        who = f"{self.family} {'.'.join(map(str, self.version))}"
        with private_folder() as folder:
            paths = []
            for file, content in sources.items():
                paths.append(os.path.join(folder, file))
                with open(paths[-1], "wb") as out:
                    out.write(content.encode() if isinstance(content, str) else content)
            made = os.path.join(folder, name)
            libraries = ["-lm"] if "-shared" in options else []
            command = [self.path, *self._arguments, *options, *paths, "-o", made, *libraries]
            if self._changed():
                raise CompileError(who, found=f"{self.path} was replaced since it was tried",
                                   hint="compile again: it is examined then")
            done = run(command, folder, self.seconds, environment(folder))
            if done.code is None or done.code:
                found = ran(done, self.seconds) if done.code is None else (
                    f"exit status {done.code}: {done.err.replace(folder + os.sep, '')[:_SAID]}")
                raise CompileError(who, found=found.strip(), expected="C that compiles")
            data = output(made, _MOST)
        wrong = data if isinstance(data, str) else check_object(data, self.target.arch)
        if wrong or isinstance(data, str):
            raise CompileError(who, found=wrong, expected=f"a file {name}")
        return data


def _named() -> tuple[str, ...]:
    """Return the programs to try, in order."""
    return config().cc or COMPILERS


def _path(name: str) -> str | CompileError:
    """Return the file of a program, or why there is none.

    What lies in the working folder, which may be anybody's, is none.
    """
    with importing:
        import shutil

    if os.path.dirname(name) and not os.path.isabs(name):
        return CompileError(name, found="a path that depends on the working folder",
                            expected="a name on PATH, or a whole path")
    found = shutil.which(name)
    if found is None or not os.path.isabs(found):
        where = "is no program" if os.path.isabs(name) else "is not on PATH"
        return CompileError(f"{name} {where}")
    return found


_lock = mutex()
_found: dict[tuple[tuple[str, ...], str, str], CCompiler] = {}


def find_compiler(target: Target, names: Sequence[str] = (),
                  cache: DiskCache | None = None) -> CCompiler:  # fmt: skip
    """Return the first compiler that serves, tried once for the process and each target.

    Parameters
    ----------
    target : Target
        What code is for.
    names : sequence of str
        Programs to try in order, names on PATH or whole paths; by default those of ``WEFT_CC``,
        else `COMPILERS`.
    cache : DiskCache, optional
        Where good trials are remembered.

    Raises
    ------
    LibraryNotFoundError
        If none serves; it tells each one's reason.
    """
    tried = tuple(names) or _named()
    key = tried, os.environ.get("PATH", ""), target.fingerprint()
    with _lock:
        found = _found.get(key)
        if found is None:
            found = _found[key] = _first(tried, target, cache)
        return found


def _first(names: Sequence[str], target: Target, cache: DiskCache | None) -> CCompiler:
    reasons = []
    for name in names:
        path = _path(name)
        try:
            if isinstance(path, CompileError):
                raise path
            return CCompiler(path, target, cache)
        except CompileError as error:
            reasons.append(error.message)
    raise LibraryNotFoundError("cpu/c", found="no C compiler: " + "; ".join(reasons),
                               expected=f"one of {', '.join(names)}",
                               hint="install gcc or clang, or name one in WEFT_CC")


def missing(target: Target, names: Sequence[str] = (), cache: DiskCache | None = None) -> str:
    """Return why there is no compiler, an empty string if there is one: what a probe asks."""
    try:
        find_compiler(target, names, cache)
    except WeftError as error:
        return error.found or error.message
    return ""
