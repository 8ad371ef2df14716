"""Row E30: two devices at work at a time, each of unequal ones chosen for what it does better, and
one value on several."""

import threading

import numpy as np
import pytest

import far_devices
import weft
from weft import gpu
from weft.backends import registry
from weft.driver.context import context
from weft.errors import CaptureError, DeviceError, GradientError
from weft.runtimes import load

DEVICES = ["interpreter", pytest.param("cpu/c", marks=pytest.mark.requires("cpu/c")),
           *[pytest.param(n, marks=pytest.mark.requires(n))
             for n in ("opencl:pocl", "opencl:pocl/threads", "vulkan:lavapipe")],
           pytest.param("webgpu", marks=pytest.mark.requires("webgpu"))]  # fmt: skip


@pytest.fixture
def late():
    far_devices.register()
    yield
    registry.reset()


def busy(spans):
    """Return the time of several spans together, and the time in which there is at least one."""
    whole = merged = 0
    end = 0
    for start, stop in sorted((s.start, s.end) for s in spans):
        whole += stop - start
        merged += max(stop - max(start, end), 0)
        end = max(end, stop)
    return whole, merged


@pytest.mark.slow
def test_E30_two_devices_do_real_kernels_in_two_thirds_of_the_time(late, rng):
    """Devices have a thread each. What others take of the processor makes both slower, so what is
    compared is the time in which kernels run with the sum of their times, one after another."""
    data = rng.random((256, 1 << 13)).astype(np.float32)
    x, y = (weft.tensor(data, device=name) for name in ("late", "late:1"))

    def work(x):
        for _ in range(4):
            x = weft.log1p(weft.sin(x) * weft.cos(x) + weft.exp(-x * x)).cumsum(1) * 1e-3
        return x.sum(1)

    @weft.jit
    def both(x, y):
        return work(x), work(y)

    for _ in range(3):
        expected = [t.tolist() for t in both(x, y)]
    assert expected[0] == expected[1]
    shares = []
    for _ in range(20):
        with weft.profile() as p:
            both(x, y)
        spans = [s for s in p.spans if s.kind == "kernel" and s.device.startswith("late")]
        assert {s.device for s in spans} == {"late", "late:1"}
        whole, merged = busy(spans)
        shares.append(whole / merged)
        if shares[-1] >= 1.5:
            return
    pytest.fail(f"two devices did {max(shares):.2f} times what one does in the time")


def test_E30_branches_of_a_program_run_at_the_same_time(late, monkeypatch):
    """Each device waits until the other has begun, so that one after the other would never end."""
    @weft.jit
    def both(x, y):
        return (x * 2).sum(), (y * 3).sum()

    x, y = (weft.ones(100, device=name) for name in ("late", "late:1"))
    for _ in range(3):
        [t.item() for t in both(x, y)]
    weft.synchronize()
    meeting, met = threading.Barrier(2), set()

    def before(queue):
        if queue is queue.device.queue and queue.device.name not in met:
            met.add(queue.device.name)
            meeting.wait(60)

    monkeypatch.setattr(far_devices.LateQueue, "before", before)
    assert [t.item() for t in both(x, y)] == [200.0, 300.0]
    assert met == {"late", "late:1"}


def test_E30_each_of_two_unequal_devices_wins_a_workload_under_auto(late, monkeypatch, rng):
    """One device has the compute, the other the data: small products stay, large ones go."""
    monkeypatch.setattr(context("late").runtime, "info", {"flops": 1e14, "bandwidth": 1e12})
    monkeypatch.setattr(load, "running_tasks", lambda: 0)
    registry.register(registry.backend("late").replace(is_asked_for=False, count=lambda: 1))
    found = {}
    for n in (4, 1500):
        a = rng.integers(-2, 3, (n, n)).astype(np.float32)
        x = weft.tensor(a).to("auto")
        found[n] = x.device
        np.testing.assert_array_equal((x @ x).numpy(), a @ a)
    assert found == {4: "cpu", 1500: "late"}


@pytest.mark.parametrize("device", DEVICES)
def test_E30_one_value_on_two_devices_is_copied_on_demand(device, rng):
    data = rng.integers(-5, 6, (3, 37)).astype(np.float32)
    value = weft.unified(weft.tensor(data))
    here, there = value.on("cpu"), value.on(device)
    name = there.device
    assert (value.devices, value.shape) == (("cpu", name), (3, 37))
    assert value.on(device) is there
    assert value.on("cpu") is here
    np.testing.assert_array_equal(there.numpy(), data)
    assert value.devices == ("cpu", name)  # reading changes nothing

    @weft.kernel
    def double(x):
        i, j = gpu.grid(2)
        x[i, j] *= 2

    double[(3, 37), 1](there)
    assert value.devices == (name,)
    np.testing.assert_array_equal(value.on("cpu").numpy(), 2 * data)
    assert value.devices == ("cpu", name)
    here[1] = 7
    here += 1
    assert value.devices == ("cpu",)
    expected = 2 * data
    expected[1] = 7
    np.testing.assert_array_equal(value.on(device).numpy(), expected + 1)
    np.testing.assert_array_equal(there.numpy(), expected + 1)  # whoever holds it sees it


def test_E30_nothing_is_copied_that_is_there():
    value = weft.unified(weft.arange(1000.0))
    with weft.profile() as p:
        for _ in range(5):
            total = value.on("interpreter").sum() + value.on("interpreter").amax()
            assert total.item() == 500499
            assert value.on("cpu").sum().item() == 499500
    assert sum(c.calls for c in p.copies() if c.nbytes >= 4000) <= 1


def test_E30_writes_on_two_devices_are_no_value():
    value = weft.unified(weft.zeros(3))
    a, b = value.on("cpu"), value.on("interpreter")
    a[0], b[1] = 1, 1
    with pytest.raises(DeviceError, match="writes on cpu and on interpreter"):
        value.on("cpu")
    value = weft.unified(weft.zeros(3))
    a, b = value.on("cpu"), value.on("interpreter")
    a += 1
    assert value.devices == ("cpu",)
    b += 1  # over a value that is no more
    with pytest.raises(DeviceError, match="writes on interpreter"):
        value.on("cpu")


def test_E30_what_cannot_be_one_value_is_refused():
    with pytest.raises(TypeError):
        weft.unified(np.zeros(3))
    with pytest.raises(DeviceError, match="a view"):
        weft.unified(weft.zeros(3)[1:])
    with pytest.raises(GradientError, match="requires a gradient"):
        weft.unified(weft.zeros(3, requires_grad=True))
    with pytest.raises(DeviceError, match="NumPy or another library shares"):
        weft.unified(weft.asarray(np.zeros(3), copy=False))
    value = weft.unified(weft.zeros(3))
    with pytest.raises(DeviceError, match="nonsense"):
        value.on("nonsense")
    with pytest.raises(CaptureError, match="as an argument"):
        weft.jit(lambda x: value.on("interpreter").to("cpu") + x)(weft.zeros(3))
    assert value.on("interpreter").tolist() == [0, 0, 0]


@pytest.mark.parametrize("asked", ["float16", weft.float16, 3])
def test_a_unified_value_is_asked_for_by_devices_alone(asked):
    with pytest.raises(DeviceError, match="found the device"):
        weft.unified(weft.zeros(3)).on(asked)
