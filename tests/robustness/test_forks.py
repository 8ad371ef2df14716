"""Processes that are forked at any moment: the child can do all that the parent can."""

import importlib
import os
import random
import signal
import threading
import time

import pytest

import torture
import weft
from weft import background, imports
from weft.tensors.core import fusion_scope
from weft.tuning.records import Records, Trial

pytestmark = [
    pytest.mark.requires("fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]


@pytest.fixture
def meanwhile():
    """Yield a function that runs another in a thread up to where that calls ``pause()``."""
    leave, threads = threading.Event(), []

    def run(work):
        inside = threading.Event()

        def pause():
            inside.set()
            leave.wait(60)

        threads.append(threading.Thread(target=work, args=(pause,), daemon=True))
        threads[-1].start()
        assert inside.wait(60)
        return threads[-1]

    yield run
    leave.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.grid
@pytest.mark.parametrize("activity", torture.ACTIVITIES, ids=lambda a: a.__name__)
def test_fork_while_another_thread_captures(activity, meanwhile):
    captured = []

    @weft.jit
    def f(x, pause):
        pause()
        return x + 1

    thread = meanwhile(lambda pause: captured.append(f(weft.ones(3), pause)))
    assert thread.is_alive()
    assert torture.child_of(lambda: activity(random.Random(1))) == ""


def test_what_a_lost_capture_noted_on_tensors_is_taken_back(meanwhile):
    weight = weft.ones(3)
    launches = fusion_scope.watched[0]

    @weft.jit
    def f(x, pause):
        weight.requires_grad_()
        weft.rand(5)
        pause()
        return x * weight

    def first(pause):
        f(weft.ones(3), pause)

    def child():
        assert not weight.requires_grad
        assert fusion_scope.watched[0] == launches
        weft.manual_seed(3)
        other = weft.jit(lambda: weft.rand(4))
        found = other().tolist()
        weft.manual_seed(3)
        assert found == weft.rand(4).tolist()

    meanwhile(first)
    assert weight.requires_grad
    assert fusion_scope.watched[0] == launches + 1
    assert torture.child_of(child) == ""


def test_fork_inside_a_capture():
    """Both processes go on with it."""
    codes = []

    @weft.jit
    def f(x):
        codes.append(os.fork())
        return x + weft.rand(1) * 0

    made = f(weft.ones(2)).tolist()
    if codes == [0]:
        signal.alarm(60)
        try:
            good = made == [1, 1] and f(weft.zeros(2)).tolist() == [0, 0]
            torture.captures(random.Random(2))
            os._exit(0 if good else 71)
        finally:
            os._exit(70)
    assert os.waitstatus_to_exitcode(os.waitpid(codes[0], 0)[1]) == 0
    assert made == [1, 1]


def test_random_numbers_while_another_thread_captures_are_drawn_once(meanwhile):
    """A capture takes none of a stream's numbers, and gives none back that others took."""

    @weft.jit
    def f(pause):
        weft.rand(3)
        pause()
        return weft.rand(3)

    weft.manual_seed(11)
    want = [weft.rand(4).tolist() for _ in range(2)]
    weft.manual_seed(11)
    thread = meanwhile(f)
    found = [weft.rand(4).tolist() for _ in range(2)]
    assert thread.is_alive()
    assert found == want


def test_a_capture_gives_back_no_numbers_that_others_drew():
    inside, leave = threading.Event(), threading.Event()

    @weft.jit
    def f():
        inside.set()
        leave.wait(60)
        return weft.rand(3)

    weft.manual_seed(11)
    want = [weft.rand(3).tolist() for _ in range(3)]
    weft.manual_seed(11)
    found = []
    thread = threading.Thread(target=lambda: found.append(f().tolist()))
    thread.start()
    assert inside.wait(60)
    drawn = weft.rand(3).tolist()
    leave.set()
    thread.join(60)
    assert [drawn, *found, weft.rand(3).tolist()] == want


def test_who_waits_for_a_task_of_the_parent_goes_on(meanwhile):
    tasks = []

    def run(pause):
        tasks.append(background.Task(pause))
        tasks[0].start()

    meanwhile(run)
    assert torture.child_of(lambda: tasks[0].wait()) == ""


@pytest.mark.slow
def test_fork_while_other_threads_are_in_sqlite(tmp_path):
    """Its own locks are free in the child: connections are opened and closed all the time."""

    def opens(rng):
        records = Records(str(tmp_path))
        records.tried("key", Trial("digest", "short", {"a": rng.randrange(9)}, "ok", 1.0))
        assert records.trials("key")
        records.forget()

    rng = random.Random(7)
    with torture.Workers([opens] * 4, 3):
        said = [torture.child_of(lambda: opens(rng)) for _ in range(60)]
    assert said == [""] * 60


def test_forks_wait_for_imports_of_single_modules(monkeypatch, tmp_path):
    """As by an import statement in a function; the child would wait for the module for ever."""
    (tmp_path / "weft_slow.py").write_text("import time\ntime.sleep(0.3)\nvalue = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def imports_it():
        importlib.import_module("weft_slow")

    def child():
        assert importlib.import_module("weft_slow").value == 7

    threading.Thread(target=imports_it, daemon=True).start()
    time.sleep(0.1)
    assert torture.child_of(child) == ""


def test_forks_take_outer_locks_first(monkeypatch):
    taken = []

    def holder(name):
        return lambda: taken.append(name) or (lambda: taken.append(f"no {name}"))

    monkeypatch.setattr(imports, "_holders", [])
    monkeypatch.setattr(imports, "_outer", 0)
    imports.through_forks(holder("pool"))
    imports.through_forks(holder("records"), outer=True)
    imports.through_forks(holder("compiler"))
    imports.importing.hold()
    imports.importing.release()
    assert taken == ["records", "compiler", "pool", "no pool", "no compiler", "no records"]


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(3))
def test_fork_at_random_moments(seed):
    rng = random.Random(f"{seed} {os.getpid()}")
    chosen = rng.sample(torture.ACTIVITIES, 3)
    assert torture.forked(chosen, rng, seconds=3, children=12) == [], chosen
