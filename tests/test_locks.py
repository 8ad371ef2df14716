"""Locks that a forked child finds free, and the rule that all locks are made so."""

import ast
import os
import threading
from pathlib import Path

import pytest

from weft import locks

SOURCE = Path(locks.__file__).parent
MAKERS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier",
          "Timer", "allocate_lock", "Queue", "LifoQueue", "PriorityQueue", "ThreadPoolExecutor",
          "ProcessPoolExecutor", "register_at_fork", "cached_property"}  # fmt: skip
HOMES = {"threading", "_thread", "queue", "multiprocessing", "concurrent.futures", "os",
         "functools"}  # fmt: skip
# What is made otherwise, with the reason why a child is safe.
ELSEWHERE = {
    ("locks.py", "RLock"): "the one place",
    ("locks.py", "register_at_fork"): "the one place",
    ("imports.py", "register_at_fork"): "forks wait for imports",
    ("background.py", "allocate_lock"): "opened in the child by `_begin_anew`",
    ("driver/plans/tiers.py", "Event"): "made anew in the child by `_start_anew`",
    ("tuning/process.py", "Event"): "of one call in one thread",
    ("tuning/process.py", "Timer"): "of one call in one thread",
}


def made_in(text):
    """Yield the names of what makes a lock, as modules refer to it."""
    if not any(maker in text for maker in MAKERS):
        return
    tree = ast.parse(text)
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in HOMES:
            names.update({a.asname or a.name: a.name for a in node.names if a.name in MAKERS})
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in MAKERS and (
            ast.unparse(node.value) in HOMES
        ):
            yield node.attr
        elif isinstance(node, ast.Name) and node.id in names:
            yield names[node.id]


def test_every_lock_is_made_by_the_module_that_knows_of_forks():
    found = {(file.relative_to(SOURCE).as_posix(), name)
             for file in SOURCE.rglob("*.py") for name in made_in(file.read_text())}  # fmt: skip
    assert found == set(ELSEWHERE)


@pytest.mark.parametrize("text", [
    "import threading\nlock = threading.Lock()", "import _thread\nx = _thread.allocate_lock()",
    "from threading import RLock as R\nlock = R()", "import queue\nq = queue.Queue()",
    "import functools\n@functools.cached_property\ndef f(self): ...",
])  # fmt: skip
def test_the_rule_finds_other_locks(text):
    assert list(made_in(text))


def in_child(work):
    """Return the exit code of a child that runs `work`."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = 0 if work() else 71
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def held():
    """Yield a function that has another thread hold a lock until the end of the test."""
    leave, threads = threading.Event(), []

    def hold(lock):
        inside = threading.Event()

        def run():
            with lock:
                inside.set()
                leave.wait(60)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        assert inside.wait(60)

    yield hold
    leave.set()
    for thread in threads:
        thread.join(60)


@pytest.mark.requires("fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestFork:
    def test_a_lock_of_another_thread_is_free(self, held):
        renewed = []
        lock, other = locks.mutex(lambda: renewed.append(1)), locks.mutex(
            lambda: renewed.append(2))  # fmt: skip
        held(lock)
        assert in_child(lambda: lock.acquire(blocking=False) and renewed == [1]) == 0
        assert not lock.acquire(blocking=False)
        assert other.acquire(blocking=False)
        assert not renewed

    def test_a_lock_of_the_thread_that_forks_stays_its_own(self):
        lock = locks.mutex(lambda: os._exit(72))

        def work():
            lock.release()  # raises if it is not held
            taken = []
            thread = threading.Thread(target=lambda: taken.append(lock.acquire(timeout=5)))
            thread.start()
            thread.join()
            return taken == [True]

        with lock:
            assert in_child(work) == 0

    def test_locks_are_free_before_what_they_guard_is_renewed(self, held):
        first, second = [], []
        one = locks.mutex(lambda: first.append(two.acquire(blocking=False)))
        two = locks.mutex(lambda: second.append(one.acquire(blocking=False)))
        held(one)
        held(two)
        assert in_child(lambda: first == second == [True]) == 0


def test_locks_go_with_what_they_belong_to():
    before = len(locks._known)
    made = [locks.mutex() for _ in range(10)]
    assert len(locks._known) == before + 10
    del made
    assert len(locks._known) == before
