"""The share of each device that is free: it falls while work is under way, and comes back."""

import ctypes
import threading

import pytest

import far_devices
from weft.driver.context import context
from weft.runtimes import load
from weft.runtimes.base import Event

WAIT = 60


class Gate(Event):
    """An event that happens when the test says so."""

    def __init__(self):
        super().__init__("a test")
        self.asked, self.opened = threading.Event(), threading.Event()

    @property
    def done(self):
        return self.opened.is_set()

    def wait(self):
        self.asked.set()
        assert self.opened.wait(WAIT)


@pytest.mark.parametrize("name", ["interpreter", "null", "far", "late", "late:1",
                                  pytest.param("cpu/c", marks=pytest.mark.requires("cpu/c"))])
def test_A8_free_compute_falls_with_each_call_under_way(name, monkeypatch):
    monkeypatch.setattr(load, "running_tasks", lambda: 0)
    far_devices.register()
    device = context(name).runtime
    assert device.free_compute() == 1
    gates = [Gate() for _ in range(3)]
    buffers = [device.pool.allocate(64) for _ in gates]
    shares, threads = [], []
    for gate, buffer in zip(gates, buffers, strict=True):
        call = threading.Thread(target=device.queue.fill, args=(buffer, 64, 0, [gate]))
        call.start()
        threads.append(call)
        if name.startswith("late"):
            call.join()  # the queue has it
        else:
            assert gate.asked.wait(WAIT)
        shares.append(device.free_compute())
    assert 1 > shares[0] > shares[1] > shares[2] >= 0
    for gate in gates:
        gate.opened.set()
    for call in threads:
        call.join()
    device.queue.synchronize()
    assert device.free_compute() == 1


def test_A8_a_parallel_region_has_the_processor(runtime, monkeypatch):
    monkeypatch.setattr(load, "running_tasks", lambda: 0)
    assert runtime.free_compute() == 1
    inside, leave = threading.Event(), threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    def body(env, begin, end):
        inside.set()
        leave.wait(WAIT)

    region = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        runtime.threads.address)
    call = threading.Thread(target=region, args=(ctypes.cast(body, ctypes.c_void_p), None, 8))
    call.start()
    assert inside.wait(WAIT)
    assert runtime.threads.busy
    during = runtime.free_compute()
    leave.set()
    call.join()
    assert during < 1
    assert not runtime.threads.busy
    assert runtime.free_compute() == 1


def test_A8_what_other_programs_run_counts(runtime, monkeypatch):
    monkeypatch.setattr(load.os, "cpu_count", lambda: 8)
    found = []
    for tasks in (0, 4, 6, 8, 100):
        monkeypatch.setattr(load, "running_tasks", lambda tasks=tasks: tasks)
        found.append(load.idle_share(4))
    assert found == [1, 1, 0.5, 0, 0]


def test_tasks_are_counted_or_nobody_says(monkeypatch):
    assert load.running_tasks() >= 0
    monkeypatch.setattr(load, "open", lambda *a, **k: (_ for _ in ()).throw(OSError()),
                        raising=False)
    monkeypatch.setattr(load.os, "getloadavg", lambda: (2.5, 0, 0))
    assert load.running_tasks() == 2.5
    monkeypatch.delattr(load.os, "getloadavg")
    assert load.running_tasks() == 0
