"""Kernels in OpenCL C, built by the driver; what it made is kept in the disk cache.

The first line of an image is ``// weft`` and a JSON object: the entries in the order in which a
launch runs them, each with its number of work-groups (0 where that is not known); bytes of scratch
memory, shared and of each work-group; whether a launch may fail; options of the driver's compiler;
lines that it prints, and room for their values behind the status record. Arguments of each entry
are, for each buffer, a pointer and an offset in bytes; the variables; the status record; the
scratch memory.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.background import Task
from weft.errors import CompileError
from weft.locks import mutex
from weft.runtimes.base import Loadable
from weft.runtimes.opencl.printing import Lines, lines_of
from weft.store import cache, fingerprint

if TYPE_CHECKING:
    from weft.runtimes.opencl.session import Session

__all__ = ["MOST_SCRATCH", "Header", "OpenCLProgram", "Programs", "header_of"]

MOST_SCRATCH: Final = 256 << 20  # bytes of scratch memory of a launch
_KIND: Final = "opencl"
_MARK: Final = "// weft "
_STANDARD: Final = "-cl-std=CL1.2"
_QUIET: Final = "-w"  # drivers count warnings on the user's screen
_FORBIDDEN: Final = ("-cl-fast-relaxed-math", "-cl-unsafe-math-optimizations",
                     "-cl-finite-math-only")  # fmt: skip
_SAID: Final = 4000  # characters of a driver's words in an error
_KEPT: Final = 128  # programs that stay loaded
_GROUPS: Final = 4  # work-groups of a launch for each unit: some end sooner than others


class Header(NamedTuple):
    """What the first line of an image says."""

    entries: tuple[tuple[str, int], ...]
    shared: int
    own: int
    fails: bool
    options: tuple[str, ...]
    lines: Lines = ()
    room: int = 0


class _Built(NamedTuple):
    """Entries that a driver has built: kernels, and how many work-groups each has."""

    program: Any
    header: Header
    kernels: tuple[tuple[Any, int], ...]


class OpenCLProgram:
    """A kernel on a device.

    Attributes
    ----------
    name : str
        Of the kernel.
    launches : tuple
        Each entry's kernel, and the number of work-groups that it is launched with.
    scratch : int
        Bytes of scratch memory of a launch.
    header : Header
        What the image says of it.
    """

    __slots__ = ("__weakref__", "_built", "header", "launches", "name", "nbuffers", "nvariables",
                 "scratch", "session")  # fmt: skip

    def __init__(self, session: Session, code: Loadable, built: _Built) -> None:
        self.session, self.name, self._built = session, code.name, built
        session.programs.add(self)
        self.nbuffers, self.nvariables = code.nbuffers, len(code.variables)
        header = built.header
        most = _GROUPS * int(str(session.facts["units"]))
        if header.own:
            most = max(min(most, (MOST_SCRATCH - header.shared) // header.own), 1)
        counts = [min(groups or most, most) for _, groups in built.kernels]
        self.launches = tuple([(kernel, (count,)) for (kernel, _), count
                               in zip(built.kernels, counts, strict=True)])  # fmt: skip
        self.scratch = header.shared + header.own * max(counts)
        self.header = header


class Programs:
    """The programs of a device; those used last stay loaded."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = mutex()
        self._kept: OrderedDict[bytes, _Built] = OrderedDict()

    def load(self, code: Loadable) -> OpenCLProgram:
        """Return a kernel ready to be launched.

        Raises
        ------
        CompileError
            If the image is not what its first line says, or the driver does not build it.
        """
        self._session.check()
        image = bytes(code.image)
        with self._lock:
            built = self._kept.get(image)
            if built is not None:
                self._kept.move_to_end(image)
        if built is None:
            built = self._build(code.name, image)
            with self._lock:
                built = self._kept.setdefault(image, built)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        wanted = 2 * code.nbuffers + len(code.variables) + 2
        for kernel, _ in built.kernels:
            if kernel.num_args != wanted:
                raise CompileError(code.name, found=f"an entry of {kernel.num_args} arguments",
                                   expected=f"{wanted}: two a buffer, the variables, status, "
                                   "scratch")
        return OpenCLProgram(self._session, code, built)

    def _build(self, name: str, image: bytes) -> _Built:
        text, header = header_of(name, image)
        session = self._session
        named = any(option.startswith(_STANDARD.partition("=")[0]) for option in header.options)
        said = (_QUIET, str(session.facts["options"]), *header.options)
        options = " ".join((*(() if named else (_STANDARD,)), *said)).strip().encode()
        key = fingerprint(_KIND, session.identity, text, options)
        held = cache().get(_KIND, key)
        program = self._from_binary(held, options)
        if program is None:
            program = self._from_source(name, text, options)
            if held is None and session.facts["keeps_builds"]:
                cache().put(_KIND, key, b"")  # the next process finds what the driver has kept
            else:
                Task(lambda: self._keep(key, program)).start()
        try:
            kernels = tuple([(session.core.Kernel(program, entry), groups)
                             for entry, groups in header.entries])
        except session.errors as error:
            raise CompileError(name, found=f"{error} of {[e for e, _ in header.entries]}",
                               expected="the entries that its first line names") from error
        return _Built(program, header, kernels)

    def _from_binary(self, binary: bytes | None, options: bytes) -> Any:
        """Return the program of a binary, or None if the driver does not take it."""
        if not binary:
            return None
        session = self._session
        try:
            program = session.core._Program(session.context, [session.device], [binary])
            program._build(options, [session.device])
        except session.errors:
            return None
        return program

    def _from_source(self, name: str, text: str, options: bytes) -> Any:
        session = self._session
        program = None
        try:
            program = session.core._Program(session.context, text)
            program._build(options, [session.device])
        except session.errors as error:
            log = self._log(program) or str(error)
            raise CompileError(
                name, found=f"OpenCL C that the driver of {session.name} refuses: {log}",
                expected="OpenCL C 1.2 and the extensions that the driver reports") from error
        return program

    def _log(self, program: Any) -> str:
        """Return what the driver's compiler has said."""
        if program is None:
            return ""
        session = self._session
        try:
            said = program.get_build_info(session.device, session.cl.program_build_info.LOG)
        except session.errors:
            return ""
        return "\n".join(line.rstrip() for line in said.strip().splitlines())[:_SAID]

    def _keep(self, key: str, program: Any) -> None:
        """Keep the binary of a program; drivers may compile more to tell it, so it is a task."""
        session = self._session
        try:
            session.check()
            binaries: Sequence[bytes] = program.get_info(session.cl.program_info.BINARIES)
        except Exception:  # a driver that has none: the next process builds it from its source
            return
        if len(binaries) == 1 and binaries[0]:
            cache().put(_KIND, key, bytes(binaries[0]))


def header_of(name: str, image: bytes) -> tuple[str, Header]:
    """Return the text of an image, and what its first line says.

    Raises
    ------
    CompileError
        If it says anything else than it should.
    """
    try:
        text = image.decode()
        line = text.partition("\n")[0]
        if not line.startswith(_MARK):
            raise ValueError(f"its first line is {line[:80]!r}")
        said = json.loads(line.removeprefix(_MARK))
        header = Header(tuple([(e["name"], e["groups"]) for e in said["entries"]]),
                        said["shared"], said["own"], said["fails"], tuple(said["options"]),
                        lines_of(said.get("prints", ())), said.get("room", 0))
        if not _is_sound(header):
            raise ValueError(f"its first line says {line[:200]!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CompileError(name, found=f"an image for OpenCL of which {error}",
                           expected="OpenCL C behind a line that describes it") from error
    return text, header


def _is_sound(header: Header) -> bool:
    counts = [header.shared, header.own, header.room, *(groups for _, groups in header.entries)]
    return (bool(header.entries) and all(isinstance(entry, str) for entry, _ in header.entries)
            and all(type(n) is int and n >= 0 for n in counts) and type(header.fails) is bool
            and all(isinstance(o, str) and o not in _FORBIDDEN for o in header.options))
