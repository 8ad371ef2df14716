"""Kernels in OpenCL C, built by the driver; what it made is kept in the disk cache.

An image is OpenCL C behind a line that describes it (`weft.runtimes.launches.header`). Arguments of
each entry are, for each buffer, a pointer and an offset in bytes; the variables; the status record;
the scratch memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from weft.background import Task
from weft.errors import CompileError
from weft.runtimes.base import Loadable
from weft.runtimes.launches.header import Header, header_of
from weft.runtimes.launches.programs import DriverProgram, DriverPrograms
from weft.store import cache, fingerprint

if TYPE_CHECKING:
    from weft.runtimes.opencl.session import Session

__all__ = ["MOST_SCRATCH", "OpenCLProgram", "Programs"]

MOST_SCRATCH: Final = 256 << 20  # bytes of scratch memory of a launch
_KIND: Final = "opencl"
_STANDARD: Final = "-cl-std=CL1.2"
_QUIET: Final = "-w"  # drivers count warnings on the user's screen
_FORBIDDEN: Final = frozenset(("-cl-fast-relaxed-math", "-cl-unsafe-math-optimizations",
                               "-cl-finite-math-only"))  # fmt: skip
_SAID: Final = 4000  # characters of a driver's words in an error
_MOST_GROUPS: Final = 1 << 16  # of a launch on a device that is no processor
_GROUPS: Final = 4  # work-groups of a launch for each unit: some end sooner than others


class _Built(NamedTuple):
    """Entries that a driver has built, each with its kernel."""

    program: Any
    header: Header
    kernels: tuple[Any, ...]


class OpenCLProgram(DriverProgram):
    """A kernel on a device.

    Attributes
    ----------
    launches : tuple
        Each entry's kernel, the work-items that it is launched with, and those of a group.
    """

    __slots__ = ("_built", "launches")

    def __init__(self, session: Session, code: Loadable, built: _Built) -> None:
        few = _GROUPS * int(session.facts["units"]) if session.facts["is_cpu"] else _MOST_GROUPS
        super().__init__(session, code, built.header, few, few, MOST_SCRATCH)
        self._built = built
        session.programs.add(self)
        self.launches = tuple([(kernel, (count * entry.items,), (entry.items,))
                               for kernel, entry, count in zip(
                                   built.kernels, built.header.entries, self.counts, strict=True)])


class Programs(DriverPrograms):
    """The programs of a device."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._session = session

    def program(self, code: Loadable, built: _Built) -> OpenCLProgram:
        """Return a program of what the driver has built.

        Raises
        ------
        CompileError
            If an entry takes other arguments.
        """
        wanted = 2 * code.nbuffers + len(code.variables) + 2
        for kernel in built.kernels:
            if kernel.num_args != wanted:
                raise CompileError(code.name, found=f"an entry of {kernel.num_args} arguments",
                                   expected=f"{wanted}: two a buffer, the variables, status, "
                                   "scratch")
        return OpenCLProgram(self._session, code, built)

    def built(self, name: str, image: bytes) -> _Built:
        """Return the entries of an image, by its binary in the disk cache if there is one."""
        body, header = header_of(name, image, _FORBIDDEN)
        try:
            text = "\n" + body.decode()  # so that lines are counted from the first of the image
        except UnicodeDecodeError as error:
            raise CompileError(name, found=f"an image of which {error}", expected="text") from error
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
            kernels = tuple([session.core.Kernel(program, entry.name)
                             for entry in header.entries])
        except session.errors as error:
            raise CompileError(name, found=f"{error} of {[e.name for e in header.entries]}",
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
