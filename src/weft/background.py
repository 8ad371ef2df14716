"""Work in other threads that begins at once and gets its turns, while the caller goes on.

`threading.Thread.start` waits until the new thread runs Python code, and who computes keeps the
interpreter from the others for 5 ms at a time. Loading LLVM is a chain of a hundred short calls:
with both, the caller stood still until nearly all of it was done.
"""

import _thread
import atexit
import gc
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final

from weft.locks import in_child, mutex

__all__ = ["Task", "drain", "turns", "unvisited"]

# How long a thread may keep the interpreter while another waits for it, in seconds. LLVM is called
# some thirty times a kernel, and by default each of these calls would wait 5 ms for its return.
_TURN: Final = 1e-4


class _Turns:
    """A block in which threads take short turns; blocks may overlap, in one thread or several."""

    def __init__(self) -> None:
        self._lock = mutex()
        self._inside, self._usual = 0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._usual = sys.getswitchinterval()
                if self._usual > _TURN:
                    sys.setswitchinterval(_TURN)
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        with self._lock:
            self._inside = max(self._inside - 1, 0)  # a forked child begins anew
            if not self._inside:
                self._restore()

    def _restore(self) -> None:
        if self._usual > _TURN >= sys.getswitchinterval() - 1e-6:  # nobody changed it meanwhile
            sys.setswitchinterval(self._usual + 5e-7)  # what is not a microsecond is cut off

    def begin_anew(self) -> None:
        """Forget blocks of threads that are not in this process."""
        if self._inside:
            self._inside = 0
            self._restore()


turns: Final = _Turns()


class _Unvisited:
    """A block without visits of the garbage collector; blocks may overlap.

    What compiling a large graph makes stays until the end, and the collector would look through
    all of it, and all that the program had before, three or four times: a seventh of the time.
    """

    def __init__(self) -> None:
        self._lock = mutex()
        self._inside, self._collects = 0, False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._collects = gc.isenabled()
                gc.disable()
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        with self._lock:
            self._inside = max(self._inside - 1, 0)  # a forked child begins anew
            if self._collects and not self._inside:
                gc.enable()

    def begin_anew(self) -> None:
        """Forget blocks of threads that are not in this process."""
        if self._inside:
            self._inside = 0
            if self._collects:
                gc.enable()


unvisited: Final = _Unvisited()


class Task:
    """A function that is called once, here or in a thread of its own.

    The process does not end before it does: code of LLVM's must not run while the process tears
    down what that code uses.

    Parameters
    ----------
    function
        What is called.
    daemon : bool
        Whether the end of the process is not to wait: the caller does.
    """

    def __init__(self, function: Callable[[], object], daemon: bool = False) -> None:
        self._function, self.daemon = function, daemon
        self._done = _thread.allocate_lock()
        self._done.acquire()
        self._thread: int | None = None
        self._is_over = False

    def start(self) -> bool:
        """Call the function in a thread; False if there can be none, and nothing was done."""
        if _ending:
            return False
        turns.__enter__()
        try:
            _running.add(self)  # an interrupt here must not leave a task that nobody ends
            self._thread = _thread.start_new_thread(self._run, ())
        except BaseException as error:
            _running.discard(self)
            turns.__exit__(None, None, None)
            if isinstance(error, RuntimeError):  # the system gives no more threads
                return False
            raise
        return True

    def run(self) -> None:
        """Call the function here."""
        try:
            self._function()
        finally:
            self.end()

    def end(self) -> None:
        """Let those go on who wait: the function was called, or its thread is not here."""
        if self._done.locked():
            self._done.release()

    def _run(self) -> None:
        try:
            self._function()
        finally:
            self._over()

    def _over(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        try:
            turns.__exit__(None, None, None)
        finally:
            self.end()
            _running.discard(self)

    def wait(self) -> None:
        """Wait until the function was called, or its thread has ended without.

        Where no memory is left, a thread ends before it calls anything, and tells nobody.
        """
        while not self._done.acquire(timeout=_LOOK):
            if self._thread is not None and self._thread not in sys._current_frames():
                self._over()
        self._done.release()


_LOOK: Final = 0.5  # seconds after which who waits looks whether the thread is there
_running: Final[set[Task]] = set()
_ending: bool = False


def drain() -> None:
    """Wait for all tasks."""
    for task in list(_running):
        if not task.daemon:
            task.wait()


def _end() -> None:
    global _ending
    _ending = True
    drain()


def _begin_anew() -> None:
    lost = list(_running)
    _running.clear()
    for task in lost:  # whoever waits for one finds that its work is not done
        task.end()
    turns.begin_anew()
    unvisited.begin_anew()


atexit.register(_end)
in_child(_begin_anew)
