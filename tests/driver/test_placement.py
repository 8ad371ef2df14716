"""``device="auto"``: work goes where it costs least, by load, memory and where the data is."""

import numpy as np
import pytest

import far_devices
import weft
from weft import nn
from weft.backends import registry
from weft.driver import placement
from weft.driver.context import context
from weft.driver.placement import Candidate, Work, cheapest
from weft.errors import DeviceError
from weft.runtimes import load

GB = 1 << 30


def device(name, flops=100.0, bandwidth=20.0, free=1.0, memory=8 * GB, link=10.0):
    return Candidate(name, flops, bandwidth, free, memory, link)


def test_A12_two_devices_under_uneven_load():
    """Work goes to the one that is free; under equal load to the first, again and again."""
    work = Work(1e9, GB // 64)
    for free, busy in ((1.0, 0.5), (0.5, 0.1), (0.2, 0.0)):
        assert cheapest([device("a", free=busy), device("b", free=free)], work) == "b"
        assert cheapest([device("a", free=free), device("b", free=busy)], work) == "a"
    for share in (0.0, 0.3, 1.0):
        pair = [device("a", free=share), device("b", free=share)]
        assert {cheapest(pair, work) for _ in range(10)} == {"a"}
        assert cheapest(pair[::-1], work) == "b"
    assert cheapest([device("a", free=0.9), device("b", free=1.0)], work) == "a"  # it may flicker


def test_A12_work_is_spread_as_loads_change():
    """Each piece that is placed takes a share; so two devices get about as much, by their rates."""
    calls = {"a": 0, "b": 0}
    rates = {"a": 100.0, "b": 300.0}
    for _ in range(40):
        pair = [device(n, flops=rates[n], bandwidth=1e9, free=1 / (1 + calls[n])) for n in calls]
        calls[cheapest(pair, Work(1e9))] += 1
    assert 8 <= calls["a"] <= 12
    assert sum(calls.values()) == 40


def test_memory_that_is_full_rules_a_device_out():
    fast, slow = device("fast", flops=1e4, memory=GB), device("slow", memory=4 * GB)
    assert cheapest([slow, fast], Work(1e12, GB)) == "fast"
    assert cheapest([slow, fast], Work(1e12, GB + 1)) == "slow"
    # operands that would have to come count, those that are there do not
    assert cheapest([slow, fast], Work(1e12, GB // 2, {"slow": GB})) == "slow"
    assert cheapest([slow, fast], Work(1e12, GB // 2, {"fast": GB})) == "fast"
    assert cheapest([slow, fast], Work(1e12, 64 * GB)) == "slow"  # it has most, and says no


def test_work_goes_to_the_data_unless_a_copy_pays():
    near, far = device("near", flops=100.0), device("far", flops=1000.0)
    data = {"near": GB}
    assert cheapest([far, near], Work(1e9, 0, data)) == "near"
    assert cheapest([near, far], Work(1e12, 0, data)) == "far"
    assert cheapest([near, far], Work(1e12, 0, {"near": GB, "far": 4 * GB})) == "far"
    assert cheapest([near, far._replace(link=0.01)], Work(1e11, 0, data)) == "near"
    small = Work(100.0, 0, {"near": 64})
    assert cheapest([far, near], small) == "near"


@pytest.fixture
def two(monkeypatch):
    """A device beside the processor that `auto` may choose, with what it tells of itself."""
    far_devices.register()
    there = context("late").runtime
    monkeypatch.setattr(there, "info", {"name": "late", "flops": 1e15, "bandwidth": 1e12})
    monkeypatch.setattr(load, "running_tasks", lambda: 0)
    registry.register(registry.backend("late").replace(is_asked_for=False, count=lambda: 1))
    yield context("late").runtime
    weft.set_default_device(None)
    far_devices.register()


def test_A12_tensors_go_to_the_device_with_most_to_give(two, monkeypatch):
    assert weft.ones(300, 300, device="auto").device == "late"
    assert weft.rand(300, 300, device="auto").device == "late"
    assert weft.arange(100_000, device="auto").device == "late"
    assert weft.ones(300, 300).device == "cpu"
    # few numbers are not worth a copy, many are
    assert weft.tensor([1.0, 2.0], device="auto").device == "cpu"
    x = weft.tensor(np.ones((1500, 1500), np.float32))
    moved = x.to("auto")
    assert moved.device == "late"
    assert moved.to("auto") is moved
    assert (moved.sum() + 1).item() == 1500 * 1500 + 1
    # which the device loses as it fills, or is busy
    monkeypatch.setattr(two, "free_compute", lambda: 0.0)
    monkeypatch.setattr(two, "info", {"flops": 1e9, "bandwidth": 1e9})
    assert weft.ones(300, 300, device="auto").device == "cpu"
    monkeypatch.undo()


def test_memory_of_devices_counts(two, monkeypatch):
    monkeypatch.setattr(two.pool, "limit", two.pool.bytes_in_use + 1000)
    assert weft.ones(300, 300, device="auto").device == "cpu"
    assert weft.ones(10, 10, device="auto").device == "late"


def test_modules_go_to_one_device(two):
    model = nn.Sequential(nn.Linear(1200, 1200), nn.LayerNorm(1200)).to("auto")
    assert {p.device for p in model.parameters()} == {"late"}
    assert {p.device for p in nn.Linear(2, 2).to(device="auto").parameters()} == {"cpu"}


def test_the_default_device_may_be_the_best_one(two):
    weft.set_default_device("auto")
    assert weft.get_default_device() == "late"
    assert weft.zeros(2).device == "late"
    weft.set_default_device(None)
    assert weft.get_default_device() == "cpu"


def test_arrays_are_shared_where_they_stay(two):
    array = np.zeros(3, np.float32)
    kept = weft.asarray(array, device="auto", copy=False)
    array[0] = 5
    assert kept.tolist() == [5, 0, 0]
    assert kept.device == "cpu"


def test_A12_auto_never_takes_what_has_to_be_asked_for():
    """That is declared (`Backend.is_asked_for`): no name is looked at."""
    far_devices.register()
    names = placement.devices()
    assert names
    assert not any(context(n).backend.is_asked_for for n in names)
    asked = {f for f in ("null", "interpreter", "late", "far") if registry.backend(f).is_asked_for}
    assert asked == {"null", "interpreter", "late", "far"}
    for name in sorted(asked):
        weft.set_default_device(name)
        try:
            assert weft.ones(2, device="auto").device == "cpu"
            assert weft.ones(2).to("auto").device == "cpu"
        finally:
            weft.set_default_device(None)


def test_auto_asks_no_driver_of_what_has_to_be_asked_for(two):
    """Probes start processes and load drivers: a second of time for devices that are not taken."""
    asked = []
    registry.register(registry.backend("far").replace(probe=lambda: asked.append(1) or ""))
    assert weft.tensor([1.0, 2.0], device="auto").device in ("cpu", "late")
    assert not asked
    assert "far" in weft.devices()
    assert asked


def test_a_device_that_fails_is_left_out(two, monkeypatch):
    def broken():
        raise DeviceError("driver", found="nothing")

    monkeypatch.setattr(two, "free_compute", broken)
    assert weft.ones(300, 300, device="auto").device == "cpu"
