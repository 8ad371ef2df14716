"""The typed errors of Weft.

Every error says what was being done, what was found, what was expected, what to do about it, and
which line of the user's program asked for it. Each class also inherits the built-in exception that
a Python programmer would catch there, so ``except IndexError`` works without importing Weft.
"""

import builtins
import contextlib
import functools
import itertools
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeVar

__all__ = [
    "AllocationError", "AxisError", "BoundsError", "CacheError", "CaptureError", "CheckError",
    "CompileError", "CopyError", "DTypeError", "DeallocationError", "DependenceWarning",
    "DeviceError", "EnumerationError", "GradientError", "HandleError", "InitializationError",
    "KernelError", "LaunchError", "LibraryNotFoundError", "Opened", "ParseError", "QueryError",
    "RangeError", "ScheduleError", "ShapeError", "SyncError", "TuningError", "UnsupportedError",
    "VariableError", "VerifyError", "WeftError", "Where", "opened", "outermost",
    "outermost_methods", "raised", "said", "shown_file", "trim", "user_line", "user_location",
]  # fmt: skip

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LEVELS = os.path.join(_PACKAGE, "ir", "")  # the IR, which has no functions of users
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = (os.path.join(_STDLIB, "site-packages"), os.path.join(_STDLIB, "dist-packages"))


class Where(NamedTuple):
    """A line of source: ``file``, ``line`` (from 1) and its ``text`` (empty when not readable)."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        """Return ``file:line: text``, which terminals and editors make clickable."""
        return f"{shown_file(self.file)}:{self.line}" + (f": {self.text}" if self.text else "")


def shown_file(file: str) -> str:
    """Return what users know a file as: the cells of notebooks have names that nobody sees."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    names = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)
    found = names(file)
    return " ".join(found) if found else file


def is_foreign(file: str) -> bool:
    """Tell whether no user wrote ``file``: ours, frozen, or the standard library.

    The library counts because a frame of contextlib or functools may stand between our code and
    the line that the user wrote; what is installed beside it is somebody's program and does not.
    """
    if file.startswith((_PACKAGE, "<frozen ")):
        return True
    return file.startswith(_STDLIB) and not file.startswith(_INSTALLED)


def user_location() -> tuple[str, int] | None:
    """Return (file, line) of the innermost frame that is the user's, or None if there is none.

    It reads no file and keeps no frame alive, so it may be called for every node that is built.
    """
    frame = sys._getframe(1)
    while is_foreign(frame.f_code.co_filename):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def entry_point(skipped: str = "") -> str | None:
    """Return the name of the public function of ours that is at work, None if there is none.

    A function that serves others passes its own name, which is skipped.
    """
    frame = sys._getframe(1)
    while is_foreign(frame.f_code.co_filename):
        code = frame.f_code
        if not code.co_filename.startswith(_LEVELS):
            name = code.co_name.strip("_") if code.co_name.endswith("__") else code.co_name
            if name != skipped and not name.startswith(("_", "<")):
                return name
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def user_line() -> Where | None:
    """Return the user's line with its text, or None if no frame is the user's."""
    return _user_part()[0]


def _user_part() -> tuple[Where | None, str]:
    """Return the user's line, and carets for the line below it, under what runs there."""
    frame = sys._getframe(1)
    while is_foreign(frame.f_code.co_filename):
        if frame.f_back is None:
            return None, ""
        frame = frame.f_back
    place = _with_text(frame.f_code.co_filename, frame.f_lineno)
    steps = itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    first, last, start, end = next(steps, (None, None, None, None))
    if first != frame.f_lineno or start is None or end is None or not place.text:
        return place, ""  # Python was told not to keep columns, or there is no source
    line = linecache.getline(place.file, place.line).rstrip()
    octets, indent = line.encode(), len(line) - len(place.text)
    start = len(octets[:start].decode(errors="replace")) - indent
    end = len(octets[:end].decode(errors="replace")) - indent if last == first else len(place.text)
    return place, underlined(place.text, start, end)


def underlined(text: str, start: int, end: int) -> str:
    """Return carets that stand below some characters of a line, however wide it is shown."""
    before = "".join(c if c == "\t" else " " * _width(c) for c in text[:start].ljust(start))
    return before + "^" * sum(map(_width, text[start:end].ljust(end - start)))


def _width(c: str) -> int:
    """Return how many columns a character takes where each has the same width."""
    if c.isascii():
        return 1
    from unicodedata import combining, east_asian_width  # nothing else needs it

    return 0 if combining(c) else 2 if east_asian_width(c) in "FW" else 1


def _with_text(file: str, line: int) -> Where:
    return Where(file, line, linecache.getline(file, line).strip())


class _Count(threading.local):
    """How many errors a thread has made, for whoever asks whether a function caught some."""

    count = 0


made: Final = _Count()


class WeftError(Exception):
    """The root of all errors that Weft raises on purpose.

    Parameters
    ----------
    operation
        What was being done, e.g. ``"matmul"``; or a whole sentence when nothing else is given.
    found, expected
        What was met, and what would have been right.
    hint
        What the user can do about it.
    where
        The line to blame: ``(file, line)`` or ``(file, line, text)``. By default the first stack
        frame outside Weft at the time of construction.
    """

    def __init__(self, operation: object = "", *, found: object = None, expected: object = None,
                 hint: object = None, where: Where | tuple[str, int] | tuple[str, int, str] | None
                 = None) -> None:  # fmt: skip
        # args holds only the operation, so that copying an error through another process, which
        # calls type(error)(*args) and then restores the attributes, yields the same error.
        super().__init__(operation)
        made.count += 1
        self.operation = str(operation)
        self.found = None if found is None else str(found)
        self.expected = None if expected is None else str(expected)
        self.hint = None if hint is None else str(hint)
        self._carets = ""
        if where is None:
            self.where, self._carets = _user_part()
        elif len(where) == 2:
            self.where = _with_text(*where)
        else:
            self.where = Where(*where)

    @property
    def message(self) -> str:
        """The message in one line, without the place."""
        facts = [f"{name} {value}" for name, value in (
            ("found", self.found), ("expected", self.expected)) if value is not None]
        text = ": ".join(part for part in (self.operation, ", ".join(facts)) if part)
        text = text or type(self).__name__
        return f"{text} ({self.hint})" if self.hint is not None else text

    def __str__(self) -> str:
        """Return the message, then the user's line on a line of its own, with carets below."""
        if self.where is None:
            return self.message
        rows = [self.message, f"  at {self.where}"]
        if self._carets:
            rows.append(" " * (len(rows[1]) - len(self.where.text)) + self._carets)
        return "\n".join(rows)


class ShapeError(WeftError, ValueError):
    """Shapes do not fit each other, or a shape is impossible."""


class DTypeError(WeftError, TypeError):
    """An unknown dtype, or one that an operation does not take."""


class RangeError(WeftError, ValueError):
    """A value does not fit its dtype."""


class BoundsError(WeftError, IndexError):
    """An index lies outside its axis."""


class AxisError(WeftError, IndexError, ValueError):
    """An axis number that the array does not have, or one given twice."""


class ParseError(WeftError, ValueError):
    """Text that does not follow its grammar: IR, a schedule trace, a setting, a device name."""


class VerifyError(WeftError, ValueError):
    """A program that breaks a rule of its IR level."""


class ScheduleError(WeftError, ValueError):
    """A rewrite of a loop nest that is not legal, or names a loop that is not there."""


class UnsupportedError(WeftError, TypeError):
    """Something that the chosen device, dtype or mode cannot do."""

    line: tuple[str, int] | None = None  # of a kernel: file and line of what is not there
    split: tuple[str, int] | None = None  # a size, and the last value before another answer


class CompileError(WeftError, RuntimeError):
    """A compiler refused its input, or failed."""


class KernelError(CompileError, TypeError):
    """A kernel that cannot be compiled: ``problems`` tells everything that is wrong with it."""

    problems: tuple[object, ...] = ()


class LaunchError(WeftError, RuntimeError):
    """A kernel could not be launched, or reported a failure while it ran."""


_RAISED: Final = frozenset((
    "ArithmeticError", "AssertionError", "FloatingPointError", "IndexError", "KeyError",
    "LookupError", "MemoryError", "NotImplementedError", "OverflowError", "StopIteration",
    "TypeError", "ValueError", "ZeroDivisionError"))  # fmt: skip
ASSERTED: Final = "AssertionError"  # what the messages of failed assertions begin with
OUTSIDE: Final = "index out of range of the array"  # by assertions that `WEFT_GUARD` adds


def raised(message: str, known: Mapping[str, object] = MappingProxyType({})) -> type[LaunchError]:
    """Return the class of the error of a kernel that was stopped.

    It is `LaunchError`, and also the exception whose name comes first in the message: one of
    Python's, or one among the names that the kernel knows.
    """
    kind = message.partition(" ")[0].removesuffix(":")
    found = known.get(kind, getattr(builtins, kind) if kind in _RAISED else None)
    own = isinstance(found, type) and issubclass(found, Exception)
    return _raised(found) if own else LaunchError


def strayed(message: str, value: int, bound: int,
            where: tuple[str, int] | None = None) -> VerifyError | None:  # fmt: skip
    """Return the error of a kernel that `WEFT_GUARD` stopped, None if the message is another one.

    That names the kernel, the access and the array, and then `OUTSIDE`; `value` and `bound` are the
    index and the size of the array in elements, `where` is the user's line of a user's kernel.
    """
    access, _, reason = message.partition(": ")
    if not reason.startswith(OUTSIDE):
        return None
    return VerifyError(access, found=f"index {value}", expected=f"0 to {bound - 1}", where=where,
                       hint="WEFT_GUARD stopped the kernel before the access; unless the line is "
                       "wrong, this is a fault of the compiler: please report it")


def said(message: str) -> str:
    """Return what a kernel that was stopped says: without the kind where an ``assert`` failed."""
    return message.removeprefix(f"{ASSERTED}: ")


@functools.lru_cache(64)
def _raised(base: type[Exception]) -> type[LaunchError]:
    def __reduce__(error: LaunchError) -> tuple[Any, ...]:
        return _raised_again, (base, error.args, vars(error))

    try:
        made: type[LaunchError] = type(LaunchError.__name__, (LaunchError, base), {
            "__doc__": LaunchError.__doc__, "__module__": __name__, "__reduce__": __reduce__})
    except TypeError:  # of a kind that no other class can be, too
        return LaunchError
    return made


def _raised_again(base: Any, args: tuple[Any, ...], state: dict[str, Any]) -> LaunchError:
    error = _raised(base)(*args)
    vars(error).update(state)
    return error


class VariableError(WeftError, ValueError):
    """A symbolic size without a value, or with one outside its bounds."""


class CheckError(WeftError, RuntimeError):
    """A result that ``WEFT_CHECK=1`` found to be wrong: a fault of Weft, which it names."""


class CaptureError(WeftError, RuntimeError):
    """A value was read, or an effect made, that a captured function cannot replay."""


class GradientError(WeftError, RuntimeError):
    """A gradient was asked for where there is none."""


class CacheError(WeftError, RuntimeError):
    """A cache entry or folder is unusable and cannot be bypassed."""


class TuningError(WeftError, RuntimeError):
    """A search for a schedule that cannot go on, or a candidate that was lost on the way."""


class AllocationError(WeftError, MemoryError):
    """Memory is exhausted, or a size is past what can be addressed."""


class DeviceError(WeftError, RuntimeError):
    """An unknown or absent device, mixed devices, or a failure that a device reports."""


class InitializationError(DeviceError):
    """A device or its library is there but does not start."""


class LibraryNotFoundError(DeviceError):
    """The library that a device needs is not installed."""


class EnumerationError(DeviceError):
    """Devices could not be listed."""


class QueryError(DeviceError):
    """A property of a device could not be read."""


class DeallocationError(DeviceError):
    """Memory could not be given back."""


class CopyError(DeviceError):
    """A copy to, from or between devices failed."""


class SyncError(DeviceError):
    """Waiting for a device or an event failed."""


class HandleError(DeviceError):
    """A handle that is stale, was consumed, or belongs to another pool or device."""


class DependenceWarning(UserWarning):
    """A loop that was said to have independent iterations may not have them, and runs in order."""


# --- what users see of an error

_OWN = ("__init_subclass__", "__class_getitem__", "__repr__", "__reduce__")
_P = ParamSpec("_P")
_Given = TypeVar("_Given")
_Made = TypeVar("_Made", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


def trim(error: BaseException) -> None:
    """Drop our frames from the traceback of an error that goes to the user's code now.

    To be called in an ``except`` clause that ends in a bare ``raise``, which is what adds no frame
    of its own. Errors of users' functions keep theirs; one that arose in our code and is none of
    `WeftError` is a mistake of ours and keeps all.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    if isinstance(error, WeftError):
        kept = [t for t in frames if not is_foreign(t.tb_frame.f_code.co_filename)]
        error.__cause__, error.__suppress_context__ = None, False
        context = error.__context__
        while context is not None and _is_internal(context):
            context = context.__context__
        error.__context__ = context
    elif frames and not is_ours(frames[-1].tb_frame.f_code.co_filename):
        kept = [t for t in frames if not is_ours(t.tb_frame.f_code.co_filename)]
    else:
        return
    trace = None
    for entry in reversed(kept):
        entry.tb_next = trace
        trace = entry
    error.__traceback__ = trace


def is_ours(file: str) -> bool:
    """Tell whether a file is of this package."""
    return file.startswith(_PACKAGE)


def _is_internal(error: BaseException) -> bool:
    """Whether an error was caught by our code, and so is of no use to users."""
    trace = error.__traceback__
    return trace is None or is_foreign(trace.tb_frame.f_code.co_filename)


def outermost(function: _Made) -> _Made:
    """Make a function that users call one whose errors show none of our frames."""

    @functools.wraps(function)
    def _call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            trim(error)
            raise

    return _call  # type: ignore[return-value]


def outermost_methods(kind: _Class) -> _Class:
    """Make all methods of a class that users call such functions: public ones and operators.

    Native code that stands for one calls ``_miss``.
    """
    for name, value in list(vars(kind).items()):
        public = name == "_miss" or not name.startswith("_") or (
            name.endswith("__") and name not in _OWN)
        if public and callable(value) and hasattr(value, "__code__"):
            setattr(kind, name, outermost(value))
    return kind


class Opened(Generic[_Given]):
    """What a ``with`` statement holds open, as `contextlib` makes it of a generator.

    Attributes
    ----------
    entered : bool
        Whether a ``with`` statement got it.
    """

    __slots__ = ("_manager", "entered")

    def __init__(self, manager: contextlib.AbstractContextManager[_Given]) -> None:
        self._manager = manager
        self.entered = False

    def __enter__(self) -> _Given:
        self.entered = True
        try:
            return self._manager.__enter__()
        except Exception as error:
            trim(error)
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        try:
            return self._manager.__exit__(kind, error, trace)
        except Exception as found:
            trim(found)
            raise


def opened(function: Callable[_P, Iterator[_Given]]) -> Callable[_P, Opened[_Given]]:
    """Make a generator function one for ``with``, whose errors show none of our frames."""
    manager = contextlib.contextmanager(function)

    @functools.wraps(function)
    def make(*args: _P.args, **kwargs: _P.kwargs) -> Opened[_Given]:
        return Opened(manager(*args, **kwargs))

    return make
