"""Programs run for their output files: in a private folder, with a time limit, leaving nothing."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.errors import CompileError
from weft.imports import importing
from weft.shortage import is_shortage, shortage

if TYPE_CHECKING:
    import subprocess

__all__ = ["Finished", "end", "environment", "output", "private_folder", "run", "wait"]

_WORDS: Final = 64 << 10  # bytes that are read of what a program says
_GRACE: Final = 5.0  # seconds in which a killed program has to be gone
# What changes the code that compilers make, or where they look, beside their arguments.
_DROPPED: Final = ("CPATH", "C_INCLUDE_PATH", "COMPILER_PATH", "LIBRARY_PATH", "GCC_EXEC_PREFIX",
                   "GCC_COMPARE_DEBUG", "CCC_OVERRIDE_OPTIONS", "CCC_ADD_ARGS", "CL", "_CL_",
                   "SOURCE_DATE_EPOCH", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES",
                   "CLANG_CONFIG_FILE_SYSTEM_DIR", "CLANG_CONFIG_FILE_USER_DIR")  # fmt: skip


class Finished(NamedTuple):
    """How a program ended.

    Attributes
    ----------
    code : int or None
        Its exit status (negative: a signal); None if it was killed at the time limit.
    out, err : str
        What it said, the beginning of it.
    """

    code: int | None
    out: str
    err: str


@contextlib.contextmanager
def private_folder(prefix: str = "weft-cc-") -> Iterator[str]:
    """Yield a new folder that nobody else may read, with a name that nobody can guess.

    It is gone afterwards. A child that is forked meanwhile leaves it alone.
    """
    with importing:
        import shutil
        import tempfile

    owner = os.getpid()
    path = tempfile.mkdtemp(prefix=prefix)
    try:
        yield path
    finally:
        if os.getpid() == owner:
            shutil.rmtree(path, ignore_errors=True)


def environment(folder: str) -> dict[str, str]:
    """Return the environment for a compiler: what users set to change its output is left out."""
    kept = {k: v for k, v in os.environ.items() if k not in _DROPPED}
    return {**kept, "LC_ALL": "C", "TMPDIR": folder, "TMP": folder, "TEMP": folder}


def run(command: Sequence[str], folder: str, seconds: float,
        env: Mapping[str, str] | None = None) -> Finished:  # fmt: skip
    """Run a program in a folder and wait for its end, which comes at the time limit at the latest.

    It has no input, and a process group of its own, all of which is killed when the program does
    not end in time or something is raised here (Ctrl-C).

    Raises
    ------
    CompileError
        If it does not start.
    AllocationError
        If there is no memory for another process.
    """
    with importing:
        import subprocess

    names = [os.path.join(folder, f"said.{stream}") for stream in ("out", "err")]
    # Files, since the end of a pipe may be with a program that nobody knows of.
    with open(names[0], "wb") as out, open(names[1], "wb") as err:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder,
                env=dict(env or environment(folder)), start_new_session=os.name == "posix",
            )  # fmt: skip
        except (OSError, ValueError) as error:
            if is_shortage(error):
                raise shortage("compile", error) from None
            raise CompileError(f"run {command[0]}", found=f"it does not start: {error}") from error
        try:
            code = wait(process, seconds)
        finally:
            end(process)
    return Finished(code, *(_read(name) for name in names))


def wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Return the exit status of a program, None if it goes on at the time limit.

    Where the system tells of the end by a descriptor, nothing is asked again and again meanwhile.
    """
    import subprocess

    if hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:  # it needs a kernel that has it, and a free descriptor
            pass
        else:
            try:
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                if not poll.poll(seconds * 1e3):
                    return None
            finally:
                os.close(handle)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program and all that it started, and take its exit status."""
    import subprocess

    if os.name == "posix":
        with contextlib.suppress(OSError):  # nobody is left in its group
            os.killpg(process.pid, signal.SIGKILL)
    elif process.returncode is None:
        with contextlib.suppress(OSError):
            process.kill()
    if process.returncode is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)


def _read(name: str) -> str:
    try:
        with open(name, "rb") as file:
            return file.read(_WORDS).decode(errors="replace")
    except OSError:
        return ""


def output(path: str, most: int) -> bytes | str:
    """Return the bytes of an output file, or what is wrong with it."""
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return "it wrote no file"
    except OSError as error:
        return f"its file cannot be read ({error.strerror})"
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):  # a folder, too, can be opened
        os.close(handle)
        return "what it wrote is no file"
    with os.fdopen(handle, "rb") as file:
        if not status.st_size:
            return "it wrote an empty file"
        if status.st_size > most:
            return f"it wrote {status.st_size} bytes, and {most} are the most"
        return file.read(most)
