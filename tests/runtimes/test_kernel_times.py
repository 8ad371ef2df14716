"""Native code that times the kernels of plans: what runs, and what is left when it ends."""

import gc
import threading
from itertools import pairwise

import pytest

from weft.runtimes import trace
from weft.runtimes.native.executor import kernel_times
from weft.runtimes.native.executor.kernel_times import BANK
from weft.runtimes.native.executor.native import BufferRef, KernelStep, VariableRef


@pytest.fixture
def recorder():
    made = trace.start()
    yield made
    trace.stop()


def adding(runtime, kernels, name="add_variable", steps=1):
    step = KernelStep(kernels[name], [BufferRef.input(0), BufferRef.input(0)], [VariableRef(0)],
                      name)  # fmt: skip
    return runtime.plan([step] * steps, 1, 0, nvariables=1, keep=[kernels])


def ran(recorder):
    return [s for s in recorder.spans()[0] if s.kind == "kernel"]


def test_more_kernels_than_one_bank_of_stubs(runtime, kernels, words, recorder):
    """Each stub calls its own kernel, and every run has its row."""
    array, address = words(0)
    plans = [adding(runtime, kernels, steps=k % 3 + 1) for k in range(BANK)]
    for k, plan in enumerate(plans):
        assert plan.call(address, 0, k) is None
    assert array[0] == sum(k * (k % 3 + 1) for k in range(BANK))
    found = ran(recorder)
    assert len(found) == sum(k % 3 + 1 for k in range(BANK)) > BANK
    assert all(s.end >= s.start and s.name == "add_variable" for s in found)
    assert all(a.end <= b.start for a, b in pairwise(found))


def test_stubs_of_plans_that_are_gone_serve_others(runtime, kernels, words, recorder):
    _, address = words(0)
    adding(runtime, kernels).call(address, 0, 1)
    before = len(kernel_times._known._stubs)
    for _ in range(4 * BANK):
        adding(runtime, kernels).call(address, 0, 1)
        gc.collect(0)
    assert len(kernel_times._known._stubs) <= before + BANK


def test_code_that_is_switched_meanwhile(runtime, kernels, words):
    """Other code runs at once, is timed while that is asked for, and stays when it ends."""
    array, address = words(0)
    plan = adding(runtime, kernels)
    own = plan._tables.function(0)
    recorder = trace.start()
    try:
        assert plan._tables.function(0) != own
        plan.call(address, 0, 5)
        plan.switch(0, kernels["nothing"], kernels)
        plan.call(address, 0, 5)
        assert len(ran(recorder)) == 2
    finally:
        trace.stop()
    assert plan._tables.function(0) == kernels["nothing"]
    plan.switch(0, own, kernels)
    assert plan._tables.function(0) == own
    plan.call(address, 0, 5)
    assert array[0] == 10
    again = trace.start()
    try:
        plan.call(address, 0, 5)
        assert len(ran(again)) == 1
    finally:
        trace.stop()


def test_rows_that_later_ones_replace_are_counted(runtime, kernels, words, monkeypatch):
    _, address = words(0)
    plan = adding(runtime, kernels)
    recorder = trace.start()
    try:
        for _ in range(10):
            plan.call(address, 0, 1)
        times = kernel_times._known
        last = times.position()
        assert len(times.rows(last - 10, last)) == 10
        assert times.lost(0, kernel_times._ROWS + 7) == 7
        assert times.rows(last, last + 3) == []  # not there yet
        monkeypatch.setattr(trace, "_MOST", 0)
        recorder.add(trace.Span("copy", "", "", "", 0, 0))
        assert recorder.spans()[1] == 1
    finally:
        trace.stop()


def test_plans_run_while_profiles_come_and_go(runtime, kernels, words):
    """Runs find the kernel or its stub, never anything else."""
    stop, faults = threading.Event(), []

    def work():
        array, address = words(0)
        plan = adding(runtime, kernels, steps=3)
        count = 0
        while not stop.is_set():
            plan.call(address, 0, 2)
            count += 6
            if array[0] != count:
                faults.append((array[0], count))
                return

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        trace.start()
        adding(runtime, kernels)
        trace.stop()
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults


def test_kernels_at_the_same_time_are_timed_on_their_threads(runtime, kernels, words, recorder):
    """A group's steps are rows of one call each, whichever threads take them."""
    array, address = words(*[0] * 8)
    steps = [KernelStep(kernels["add_variable"], [BufferRef.input(0, 8 * i)] * 2, [VariableRef(0)],
                        f"step {i}") for i in range(8)]  # fmt: skip
    plan = runtime.plan(steps, 1, 0, nvariables=1, release_gil=True, keep=[kernels],
                        groups=[(1, 6, True)])  # fmt: skip
    for _ in range(50):
        assert plan.call(address, 0, 1) is None
    assert list(array) == [50] * 8
    found = ran(recorder)
    assert sorted(s.name for s in found) == sorted(f"step {i}" for i in range(8) for _ in range(50))
    for call in range(50):
        first, last = ([s for s in found if s.name == f"step {i}"][call] for i in (0, 7))
        inside = [s for s in found if first.end <= s.start and s.end <= last.start]
        assert len({s.name for s in inside}) == len(inside) == 6
    plans = [s for s in recorder.spans()[0] if s.kind == "plan"]
    assert [s.name for s in plans] == ["plan of 8 kernels"] * 50
