"""Asking a driver what is there: in a process of its own, with a time limit, remembered on disk.

A driver that is loaded into this process may hang, abort, call ``exit`` or write to the standard
streams. So a backend names an importable function, and a child process calls it. The child has a
process group of its own, which is killed in the end. What the driver writes to standard output is
dropped, the last lines on standard error become part of the reason, and the answer comes through a
file in a folder that nobody else can read.

Answers are kept in the disk cache. Their key holds the driver's files (path, size, time, inode),
the file of the function, the installed packages, the variables that the backend names and those of
the dynamic loader, the version of Weft and of Python, and the boot of the system. Kept are what the
function returned and that the driver ended the process; whatever may be otherwise the next time
(an exception, a time-out, no memory, a kill from outside) holds for this process only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Final, NamedTuple, TypeGuard

from weft.backends.names import GIVEN
from weft.compilers.c_process import end, output, private_folder, wait
from weft.compilers.c_trial import identity
from weft.imports import importing
from weft.ir.record import Record
from weft.store import cache, fingerprint

__all__ = ["PATIENCE", "Answer", "Probe", "ask", "ask_in_thread", "in_words", "key", "verified"]

PATIENCE: Final = 10.0  # seconds that a probe may take
_KIND: Final = "probe"
_MOST_DEVICES: Final = 1024
_MOST_ANSWER: Final = 64 << 10  # bytes
_MOST_REASON: Final = 400  # characters
_MOST_SAID: Final = 8 << 10  # bytes at the end of standard error that are read
_LINES: Final = 3  # of standard error that a reason quotes
_GRACE: Final = 5.0  # seconds for the rest of standard error, which another process may hold open
_INSIDE: Final = "_WEFT_PROBE"  # set in the child: a probe that probes would never end
_LOADER: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES",
                  "DYLD_FALLBACK_LIBRARY_PATH")  # fmt: skip
_PACKAGES: Final = ("site-packages", "dist-packages")
# By these a driver ends a process; others come from outside.
_CRASHES: Final = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS")
_PROGRAM: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe_child.py")


class Probe(Record):
    """What a child process is to ask, and what its answer depends on.

    Attributes
    ----------
    function : str
        ``module:function``. The function takes nothing and returns the number of devices, or a
        list of what it says of each, or why there is none. What it says of a device is a mapping
        of its ``name``, a ``description`` for people, and ``facts`` (JSON) for the backend.
    files : tuple of str
        Paths and glob patterns of the driver's files, device nodes and folders. Without any,
        answers are not kept beyond this process.
    environment : tuple of str
        Variables that the driver reads.
    """

    function: str
    files: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


Answer = str | int | list[dict[str, Any]]  # why there is no device, their number, or themselves


class _ProbeResult(NamedTuple):
    """An answer, and whether it is that of the next process, too."""

    answer: Answer
    is_lasting: bool = False


def ask(probe: Probe, seconds: float | None = None) -> Answer:
    """Return the devices, or why there is none; it never raises and prints nothing.

    Parameters
    ----------
    probe : Probe
        What to ask.
    seconds : float, optional
        The time limit of the child, `PATIENCE` by default.
    """
    try:
        if _INSIDE in os.environ:
            return "it is asked within a probe"
        name = key(probe) if probe.files else ""
        known = _remembered(name) if name else None
        if known is not None:
            return known
        result = _in_child(probe.function, PATIENCE if seconds is None else seconds)
        # A driver that was replaced meanwhile may be the old one or the new one.
        if name and result.is_lasting and key(probe) == name:
            _remember(name, result.answer)
        return result.answer
    except Exception as error:
        return in_words(error)


def ask_in_thread(function: Callable[[], object], name: str, seconds: float | None = None
                  ) -> Answer:  # fmt: skip
    """Return the answer of a function of this process; one that hangs is left behind.

    Parameters
    ----------
    function : callable
        Returns the number of devices, or why there is none. It may raise: that is a reason too.
    name : str
        Who is asked, for the name of the thread.
    seconds : float, optional
        The time limit, `PATIENCE` by default.
    """
    seconds = PATIENCE if seconds is None else seconds
    answers: list[Answer] = []

    def work() -> None:
        try:
            answers.append(verified(function()))
        except Exception as error:
            answers.append(in_words(error))

    thread = threading.Thread(target=work, name=f"weft-probe-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else _late(seconds)


def in_words(error: Exception) -> str:
    """Return an error as a reason: its type and what it says, in one line."""
    try:
        return _line(f"{type(error).__name__}: {error}")
    except Exception:  # its own text fails
        return type(error).__name__


def verified(answer: object) -> Answer:
    """Return an answer if it is a reason or tells the devices, else a reason that says so."""
    if _is_count(answer):
        return answer
    if _is_list(answer):
        return [device | {"description": _line(device.get("description", ""))} for device in answer]
    if isinstance(answer, str) and _line(answer):
        return _line(answer)
    return f"its probe answered {_line(repr(answer))[:80]}, not a reason or a number of devices"


def _is_count(answer: object) -> TypeGuard[int]:
    return type(answer) is int and 0 <= answer <= _MOST_DEVICES


def _is_list(answer: object) -> TypeGuard[list[dict[str, Any]]]:
    """Return whether an answer describes devices, each by a name of its own."""
    if not isinstance(answer, list) or len(answer) > _MOST_DEVICES:
        return False
    names = [_name_in(device) for device in answer]
    return all(names) and len(set(names)) == len(names)


def _name_in(device: object) -> str:
    """Return the name of a device that a probe describes, "" if that is no description."""
    if not isinstance(device, dict) or not set(device) <= {"name", "description", "facts"}:
        return ""
    name, words = device.get("name"), device.get("description", "")
    is_sound = (isinstance(name, str) and re.fullmatch(GIVEN, name) and isinstance(words, str)
                and isinstance(device.get("facts", {}), dict))
    return str(name) if is_sound else ""


def _is_answer(answer: object) -> bool:
    return (_is_count(answer) or _is_list(answer)
            or (isinstance(answer, str) and _line(answer) != ""))


def _line(text: str) -> str:
    """Return a text in one line that any terminal can show as it is."""
    whole = text.encode("utf-8", "replace").decode()
    shown = "".join(c if c.isprintable() else " " for c in whole)
    return " ".join(shown.split())[:_MOST_REASON].strip()


def _late(seconds: float) -> str:
    return f"its probe did not answer within {seconds:g} s"


# ---- what an answer depends on -------------------------------------------------------------------


def key(probe: Probe) -> str:
    """Return the key of an answer: it changes when the driver is replaced, comes or goes."""
    variables = [f"{name}={os.environ[name]}" if name in os.environ else f"{name} unset"
                 for name in (*_LOADER, *probe.environment)]  # fmt: skip
    packages = [_identity(entry) for entry in sys.path if isinstance(entry, str)
                and os.path.basename(os.path.normpath(entry)) in _PACKAGES]  # fmt: skip
    files = [seen for pattern in probe.files for seen in _identities(pattern)]
    lists = [json.dumps(part) for part in (variables, packages, files)]
    return fingerprint(_KIND, probe.function, _identity(_origin(probe.function)), sys.version,
                       _boot(), *lists)  # fmt: skip


def _identities(pattern: str) -> list[str]:
    """Return the identity of each file that a path or pattern names."""
    if os.path.lexists(pattern):
        return [_identity(pattern)]
    with importing:
        import glob

    return [_identity(path) for path in sorted(glob.glob(pattern))] or [f"{pattern} absent"]


def _identity(path: str) -> str:
    if not path:
        return "absent"
    try:
        return f"{path} {identity(path)}"
    except (OSError, ValueError):
        return f"{path} absent"


def _origin(function: str) -> str:
    """Return the file of the module of a function, "" where none is found; nothing is imported."""
    module = function.partition(":")[0]
    loaded = getattr(sys.modules.get(module), "__file__", None)
    if loaded:
        return str(loaded)
    origin, path, name = "", None, ""
    try:
        for part in module.split("."):
            name = f"{name}.{part}" if name else part
            spec = _spec(name, path)
            origin, path = spec.origin or "", spec.submodule_search_locations
    except Exception:  # it is not there, or its finder needs the package above it
        return ""
    return origin


def _spec(name: str, path: Any) -> Any:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(name, path) if find is not None else None
        if spec is not None:
            return spec
    return None


def _boot() -> str:
    """Return what is another after the system has started again, "" where it does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


# ---- answers that are kept -----------------------------------------------------------------------


def _remembered(name: str) -> Answer | None:
    """Return the answer that is kept under a key, None for none that makes sense."""
    try:
        data = cache().get(_KIND, name)
        found = None if data is None else json.loads(data)
    except Exception:  # a broken entry, or a warning about the folder that is an error
        return None
    if not isinstance(found, dict) or set(found) != {"answer"}:
        return None
    answer = found["answer"]
    return verified(answer) if _is_answer(answer) else None


def _remember(name: str, answer: Answer) -> None:
    try:
        cache().put(_KIND, name, json.dumps({"answer": answer}).encode())
    except Exception:  # as in _remembered: the next process asks again
        return


# ---- the child -----------------------------------------------------------------------------------


def _in_child(function: str, seconds: float) -> _ProbeResult:
    """Return what a child process answers, or how it ended."""
    with importing:
        import subprocess

    if not sys.executable or getattr(sys, "frozen", False):
        return _ProbeResult("there is no Python program that could ask its driver")
    with private_folder("weft-probe-") as folder:
        request = {"function": function, "path": _path(), "seconds": seconds}
        with open(os.path.join(folder, "request"), "w", encoding="utf-8") as file:
            json.dump(request, file)
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", _PROGRAM, folder], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                env={**os.environ, _INSIDE: "1"}, start_new_session=os.name == "posix",
            )  # fmt: skip
        except (OSError, ValueError) as error:
            return _ProbeResult(f"its probe does not start: {_line(str(error))}")
        try:
            assert process.stderr is not None
            said = _Tail(process.stderr)
            code = wait(process, seconds)
        finally:
            end(process)
        return _result_of(folder, code, said.text(), seconds)


def _path() -> list[str]:
    """Return where the child looks for modules: what depends on the folder of work comes last."""
    entries = [entry for entry in sys.path if isinstance(entry, str)]
    try:
        here = os.getcwd()
    except OSError:  # it is gone
        return [entry for entry in entries if os.path.isabs(entry)]
    return sorted((os.path.join(here, entry) for entry in entries),
                  key=lambda entry: entry not in entries)  # fmt: skip


def _result_of(folder: str, code: int | None, said: str, seconds: float) -> _ProbeResult:
    stderr = f"; stderr: {said}" if said else ""
    if code is None:
        return _ProbeResult(_late(seconds) + stderr)
    if code:
        how, is_crash = _ending(code)
        was_driver = (os.path.exists(os.path.join(folder, "began"))
                      and not os.path.exists(os.path.join(folder, "returned")))  # fmt: skip
        return _ProbeResult(_line(f"its driver ended the probe by {how}{stderr}"),
                            is_crash and was_driver)  # fmt: skip
    data = output(os.path.join(folder, "answer"), _MOST_ANSWER)
    if isinstance(data, str):
        return _ProbeResult(_line(f"its probe ended without an answer: {data}{stderr}"))
    try:
        reply = json.loads(data)
    except (ValueError, RecursionError):
        reply = {}
    if isinstance(reply, dict) and "error" in reply:
        return _ProbeResult(_line(f"{reply['error']}{stderr}"))
    answer = reply.get("answer") if isinstance(reply, dict) else reply
    if _is_answer(answer):
        return _ProbeResult(verified(answer), True)
    return _ProbeResult(_line(f"{verified(answer)}{stderr}"))


def _ending(code: int) -> tuple[str, bool]:
    """Return how a process ended, and whether by what it did itself."""
    if code > 0:
        return f"exit status {code}", True
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return name, name in _CRASHES


class _Tail:
    """Reads a pipe to its end on a thread, closes it, and keeps the last of what came."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._kept = b""
        self._thread = threading.Thread(target=self._read, args=(pipe,), name="weft-probe-said",
                                        daemon=True)  # fmt: skip
        self._thread.start()

    def _read(self, pipe: IO[bytes]) -> None:
        with pipe, contextlib.suppress(OSError):
            while data := os.read(pipe.fileno(), 1 << 16):
                self._kept = (self._kept + data)[-_MOST_SAID:]

    def text(self) -> str:
        """Return its last lines as one; a process that outlives its group may keep it open."""
        self._thread.join(_GRACE)
        lines = self._kept.decode(errors="replace").splitlines()
        shown = [line for line in map(_line, lines) if line]
        return " | ".join(shown[-_LINES:])[-_MOST_REASON // 2 :].strip()
