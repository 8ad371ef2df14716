"""Tasks beside the caller: they begin, end before the process does, and leave no trace."""

import _thread
import gc
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import weft
from weft import background
from weft.background import Task, turns, unvisited
from weft.driver.plans import host_program


def test_a_task_is_called_once_and_waited_for():
    calls, may_end = [], threading.Event()
    task = Task(lambda: (may_end.wait(10), calls.append(threading.get_ident())))
    assert task.start()
    assert not calls
    may_end.set()
    task.wait()
    task.wait()
    assert len(calls) == 1
    assert calls[0] != threading.get_ident()


def test_a_task_can_be_called_here():
    calls = []
    task = Task(lambda: calls.append(threading.get_ident()))
    task.run()
    task.wait()
    assert calls == [threading.get_ident()]


def test_without_a_thread_nothing_is_done(monkeypatch):
    def refused(function, arguments):
        raise RuntimeError("can't start new thread")

    before, calls = sys.getswitchinterval(), []
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refused)
        assert not Task(lambda: calls.append(1)).start()
    assert not calls
    assert sys.getswitchinterval() == before
    background.drain()


def test_nobody_waits_for_a_thread_that_ended_before_it_began(monkeypatch):
    """Where no memory is left for the call of its function, Python only prints that."""
    start, calls, before = _thread.start_new_thread, [], sys.getswitchinterval()
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", lambda function, arguments: start(int, ()))
        lost = Task(lambda: calls.append(1))
        assert lost.start()
    lost.wait()
    lost.wait()
    assert not calls
    assert sys.getswitchinterval() == before
    background.drain()


def test_nobody_waits_for_a_task_whose_start_was_interrupted(monkeypatch):
    class Interrupted(set):
        def add(self, task):
            super().add(task)
            raise KeyboardInterrupt

    background.drain()
    before = sys.getswitchinterval()
    monkeypatch.setattr(background, "_running", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        Task(lambda: None).start()
    assert not background._running
    assert sys.getswitchinterval() == pytest.approx(before)


def test_turns_are_short_meanwhile_however_blocks_overlap():
    background.drain()
    before, inside, may_end = sys.getswitchinterval(), threading.Event(), threading.Event()

    def other():
        with turns:
            inside.set()
            may_end.wait(10)

    thread = threading.Thread(target=other)
    with turns:
        thread.start()
        assert inside.wait(10)
        assert sys.getswitchinterval() == pytest.approx(1e-4)
    assert sys.getswitchinterval() == pytest.approx(1e-4)
    may_end.set()
    thread.join()
    assert sys.getswitchinterval() == pytest.approx(before)


@pytest.mark.parametrize("wanted", [0.02, 5e-5])
def test_what_a_program_asks_for_meanwhile_stays(wanted):
    background.drain()
    before = sys.getswitchinterval()
    try:
        with turns:
            sys.setswitchinterval(wanted)
            asked = sys.getswitchinterval()
        after = asked if wanted > 1e-4 else before
        assert sys.getswitchinterval() == pytest.approx(after)
    finally:
        sys.setswitchinterval(before)


def test_turns_that_are_shorter_stay():
    background.drain()
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(5e-5)
        short = sys.getswitchinterval()
        with turns:
            assert sys.getswitchinterval() == short
        assert sys.getswitchinterval() == short
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize(("daemon", "ends"), [(False, "ended\n"), (True, "")])
def test_a_process_ends_after_its_tasks(daemon, ends):
    code = (
        "import time\n"
        "from weft.background import Task\n"
        "def work():\n"
        "    time.sleep(0.2)\n"
        "    print('ended', flush=True)\n"
        f"assert Task(work, daemon={daemon}).start()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (ends, "")


def test_there_are_no_new_tasks_at_the_end():
    code = (
        "import atexit\n"
        "def late():\n"
        "    assert not Task(lambda: print('called')).start()\n"
        "    print('here')\n"
        "atexit.register(late)\n"
        "from weft.background import Task\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("here\n", "")


@pytest.mark.requires("fork")
def test_a_forked_child_waits_for_no_task():
    background.drain()
    before, may_end = sys.getswitchinterval(), threading.Event()
    task = Task(lambda: may_end.wait(30))
    assert task.start()
    child = os.fork()
    if child == 0:
        good = abs(sys.getswitchinterval() - before) < 1e-6
        begun = time.monotonic()
        background.drain()
        os._exit(0 if good and time.monotonic() - begun < 10 else 1)
    may_end.set()
    assert os.waitpid(child, 0)[1] == 0
    task.wait()
    background.drain()
    assert sys.getswitchinterval() == pytest.approx(before)


def test_the_collector_rests_meanwhile_however_blocks_overlap():
    inside, may_end = threading.Event(), threading.Event()

    def other():
        with unvisited:
            inside.set()
            may_end.wait(10)

    assert gc.isenabled()
    thread = threading.Thread(target=other)
    with unvisited:
        thread.start()
        assert inside.wait(10)
        assert not gc.isenabled()
    assert not gc.isenabled()
    may_end.set()
    thread.join()
    assert gc.isenabled()


def test_a_collector_that_is_switched_off_stays_off():
    gc.disable()
    try:
        with unvisited:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_of_a_forked_child_works():
    with unvisited:
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert gc.isenabled()


def test_graphs_are_compiled_without_the_collector(monkeypatch):
    seen = []
    monkeypatch.setattr(host_program, "make", lambda *_: seen.append(gc.isenabled()) or 1 / 0)
    sizes = np.random.default_rng(5).integers(300, 4000, 2)  # which no other test compiles
    with pytest.raises(ZeroDivisionError):
        (weft.zeros(*map(int, sizes)).sum(1) * 3.7531).realize()
    assert seen == [False]
    assert gc.isenabled()
