"""Child processes that compile and time candidates: one that dies or hangs loses only its own.

The two sides talk in frames over pipes: one line of JSON, then as many bytes as its ``sizes`` say.
Nothing is pickled, and what a child prints goes elsewhere. A child says first that it is ready, so
that the time of a request is that of its work. A watchdog inside the child ends it a moment after
its time is over even if its parent is gone, so that nothing hangs for ever.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Final, Self

from weft.errors import TuningError, WeftError

Blobs = Sequence[bytes]
Reply = tuple[dict[str, Any], list[bytes]]
Handler = Callable[[dict[str, Any], list[bytes]], tuple[Mapping[str, Any], Blobs]]

_START_S: Final = 60.0  # for a child to be ready, which is no candidate's fault
_GRACE_S: Final = 5.0  # that a watchdog inside a child waits longer than its parent


def _write(pipe: IO[bytes], head: Mapping[str, Any], blobs: Blobs) -> None:
    line = json.dumps({**head, "sizes": [len(b) for b in blobs]}).encode()
    pipe.write(b"".join((line, b"\n", *blobs)))
    pipe.flush()


def _read(pipe: IO[bytes]) -> Reply | None:
    """Return the next frame, None at the end of the pipe or of what makes sense."""
    line = pipe.readline()
    if not line.endswith(b"\n"):
        return None
    try:
        head = json.loads(line)
        blobs = [pipe.read(int(size)) for size in head.pop("sizes")]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return head, blobs


class Child:
    """One child process, started anew whenever the last one was lost.

    Parameters
    ----------
    command : sequence of str
        What to run; it calls `serve`.
    env : mapping of str to str, optional
        Its environment.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.command, self.env = list(command), None if env is None else dict(env)
        self.starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether a process is there that has not been lost."""
        return self._process is not None

    def ask(self, head: Mapping[str, Any], blobs: Blobs = (), timeout: float = 60.0) -> Reply:
        """Send one request and return the answer; what its handler raised is under ``error``.

        Raises
        ------
        TuningError
            If the child died, took longer than `timeout` seconds, or made no sense; it is gone
            then, and the next request starts another.
        """
        if self._process is None:
            self._start()
            self._exchange(None, (), max(timeout, _START_S))
        return self._exchange({**head, "timeout": timeout}, blobs, timeout)

    def _exchange(self, head: Mapping[str, Any] | None, blobs: Blobs, timeout: float) -> Reply:
        """Send a frame, if there is one, and wait for the next of the child."""
        process = self._process
        if process is None:  # closed by another thread
            raise TuningError("tuning", found="a child that was ended")
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout, end)
        timer.daemon = True
        timer.start()
        try:
            if head is not None:
                _write(process.stdin, head, blobs)
            reply = _read(process.stdout)
        except OSError:
            reply = None
        except BaseException:  # its answer would be taken for the next one's
            self.close()
            raise
        finally:
            timer.cancel()
        if reply is not None:
            return reply
        self.close()
        raise TuningError(
            "tuning",
            found="a candidate that hung" if late.is_set() else
            f"a candidate that ended its process with code {process.returncode}",
        )

    def _start(self) -> None:
        self.starts += 1
        # A session of its own: Ctrl-C reaches the parent alone, which then ends its children.
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=self.env, start_new_session=os.name == "posix",
        )

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what it did not take
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Crew:
    """Several children that share a list of requests.

    Parameters
    ----------
    command, env
        As for `Child`.
    size : int
        How many work at the same time.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None,
                 size: int = 1) -> None:
        self.children = [Child(command, env) for _ in range(max(size, 1))]

    def work(self, requests: Iterable[Mapping[str, Any]], timeout: float,
             ) -> Iterator[tuple[int, Reply | TuningError]]:
        """Yield the number of each request with its answer or its loss, as they come."""
        todo: queue.SimpleQueue[tuple[int, Mapping[str, Any]]] = queue.SimpleQueue()
        count = 0
        for number, request in enumerate(requests):
            todo.put((number, request))
            count += 1
        done: queue.SimpleQueue[tuple[int, Reply | TuningError]] = queue.SimpleQueue()

        def labour(child: Child) -> None:
            while True:
                try:
                    number, request = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    done.put((number, child.ask(request, timeout=timeout)))
                except TuningError as error:
                    done.put((number, error))
                except Exception as error:  # no thread to start it, no file: not this candidate's
                    done.put((number, TuningError("tuning", found=str(error))))

        for child in self.children[:count]:
            threading.Thread(target=labour, args=(child,), daemon=True).start()
        try:
            for _ in range(count):
                yield done.get()
        finally:
            with contextlib.suppress(queue.Empty):  # nobody waits for the rest
                while True:
                    todo.get_nowait()

    def close(self) -> None:
        """End all children."""
        for child in self.children:
            child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answer requests until the parent is gone: the other side of `Child`.

    A request names its handler under ``op``. What a handler raises as a WeftError is the answer.
    """
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # prints must not mix with answers
    _write(answers, {"ready": True}, ())
    with open(os.devnull, "w") as nowhere:
        while (frame := _read(requests)) is not None:
            head, blobs = frame
            faulthandler.dump_traceback_later(float(head.get("timeout", 60)) + _GRACE_S,
                                              exit=True, file=nowhere)
            try:
                reply, out = handlers[head["op"]](head, blobs)
            except WeftError as error:
                reply, out = {"error": f"{error.operation}: {error.found or error.message}"}, ()
            except (MemoryError, RecursionError) as error:
                reply, out = {"error": type(error).__name__}, ()
            faulthandler.cancel_dump_traceback_later()
            _write(answers, reply, out)


__all__ = ["Blobs", "Child", "Crew", "Handler", "Reply", "serve"]
