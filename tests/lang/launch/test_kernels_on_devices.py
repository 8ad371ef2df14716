"""Kernels run where their tensors are, and host arrays go to the default device."""

import numpy as np
import pytest

import far_devices
import weft
from weft import gpu
from weft.errors import BoundsError, DeviceError, LaunchError

pytestmark = pytest.mark.usefixtures("compiled")
PLACES = ("far", "late", "late:1", pytest.param("cpu/c", marks=pytest.mark.requires("cpu/c")),
          pytest.param("opencl:pocl", marks=pytest.mark.requires("opencl:pocl")))
TABLE = np.array([10, 20, 30, 40], np.int32)


@pytest.fixture(autouse=True)
def _devices():
    far_devices.register()
    yield
    weft.set_default_device(None)


@weft.kernel
def saxpy(a, x, y, out):
    i = gpu.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@weft.kernel
def running(x, out):
    tile = gpu.shared.array(64, np.float32)
    t = gpu.threadIdx.x
    tile[t] = x[t]
    gpu.syncthreads()
    total = np.float32(0)
    for k in range(t + 1):
        total += tile[k]
    out[t] = total
    gpu.atomic.add(out, 64, x[t])


@weft.kernel
def looked_up(index, out):
    i = gpu.grid(1)
    if i < out.size:
        out[i] = TABLE[index[i]]


@pytest.mark.parametrize("place", PLACES)
def test_tensors_stay_where_they_are(place, rng):
    a, b = rng.random((2, 1000)).astype(np.float32)
    x, y = weft.tensor(a, device=place), weft.tensor(b, device=place) * 1
    out = weft.zeros(1000, device=place)
    for factor in (2.0, 3.0, 4.0):
        saxpy[8, 128](factor, x, y, out)
        assert out.device == place
        np.testing.assert_allclose(out.numpy(), factor * a + b, rtol=1e-6)
    saxpy[8, 128](1.0, x, out, out)
    np.testing.assert_allclose((out + 1).numpy(), 5 * a + b + 1, rtol=1e-6)


@pytest.mark.parametrize("place", PLACES)
def test_views_are_written_in_place(place, rng):
    base = weft.zeros(4, 8, device=place)
    other = base * 1
    row = base[1]
    x = weft.tensor(rng.random(8).astype(np.float32), device=place)
    saxpy[1, 8](2.0, x, row, row)
    want = np.zeros((4, 8), np.float32)
    want[1] = 2 * x.numpy()
    np.testing.assert_array_equal(base.numpy(), want)
    assert not other.numpy().any()


@pytest.mark.parametrize("place", PLACES)
def test_shared_memory_barriers_and_atomics(place, rng):
    x = rng.random(64).astype(np.float32)
    out = weft.zeros(65, device=place)
    running[1, 64](weft.tensor(x, device=place), out)
    np.testing.assert_allclose(out.numpy()[:64], np.cumsum(x), rtol=1e-5)
    np.testing.assert_allclose(out.numpy()[64], x.sum(), rtol=1e-5)


@pytest.mark.parametrize("place", PLACES)
def test_arrays_of_the_host_are_copied_to_the_default_device(place, rng):
    weft.set_default_device(place)
    a, b = rng.random((2, 100)).astype(np.float32)
    out = np.zeros(200, np.float32)
    saxpy[1, 128](2.0, a, b, out[::2])
    np.testing.assert_allclose(out[::2], 2 * a + b, rtol=1e-6)
    assert not out[1::2].any()
    empty = np.zeros(0, np.float32)
    saxpy[1, 32](1.0, empty, empty, empty)
    index = np.array([3, 0, 2], np.int64)
    found = np.zeros(3, np.int32)
    looked_up[1, 32](index, found)
    assert found.tolist() == [40, 10, 30]


@pytest.mark.parametrize("place", PLACES)
def test_arrays_that_overlap_are_one_copy(place):
    @weft.kernel
    def through(x, y):
        if gpu.grid(1) == 0:
            x[3] = 7
            y[1] = x[1] + y[0] * 100

    weft.set_default_device(place)
    memory = np.arange(8)
    through[1, 1](memory, memory[3:])
    assert memory.tolist() == [0, 1, 2, 7, 701, 5, 6, 7]


@pytest.mark.parametrize("place", PLACES)
def test_failures_name_the_kernel_and_harm_nothing_else(place):
    out = weft.zeros(3, dtype=weft.int32, device=place)
    bad = weft.tensor([0, 9, 1], device=place)
    with pytest.raises(BoundsError, match="9"):
        looked_up[1, 32](bad, out)

    @weft.kernel
    def stops(x):
        assert x[gpu.grid(1)] < 2, "too large"

    with pytest.raises(LaunchError, match="too large"):
        stops[1, 3](bad)
    looked_up[1, 32](weft.tensor([0, 1, 2], device=place), out)
    assert out.tolist() == [10, 20, 30]


def test_tensors_of_several_devices_are_refused():
    x, y = weft.ones(4, device="late"), weft.ones(4, device="late:1")
    with pytest.raises(DeviceError, match="late and late:1"):
        saxpy[1, 4](1.0, x, x, y)
    pinned = weft.kernel(device="cpu")(saxpy.__weft_function__)
    with pytest.raises(DeviceError, match="late and cpu"):
        pinned[1, 4](1.0, x, x, x)
    weft.set_default_device("far")
    with pytest.raises(DeviceError, match="far and cpu"):
        pinned[1, 4](1.0, weft.ones(4), weft.ones(4), weft.ones(4))
    out = np.zeros(4, np.float32)
    pinned[1, 4](1.0, out + 1, out, out)
    assert out.tolist() == [1.0] * 4


@pytest.mark.parametrize("place", PLACES)
def test_launches_in_captured_functions(place, rng):
    @weft.jit
    def step(x, y):
        out = weft.zeros_like(x)
        index = (x > 0.5).long()
        found = weft.zeros(x.shape[0], dtype=weft.int32, device=place)
        saxpy[1, 128](2.0, x, y * 2, out)
        looked_up[1, 128](index, found)
        return out + 1, found

    for _ in range(3):
        a, b = rng.random((2, 100)).astype(np.float32)
        out, found = step(weft.tensor(a, device=place), weft.tensor(b, device=place))
        assert out.device == found.device == place
        np.testing.assert_allclose(out.numpy(), 2 * a + 2 * b + 1, rtol=1e-6)
        np.testing.assert_array_equal(found.numpy(), np.where(a > 0.5, 20, 10))


@pytest.mark.parametrize("place", ["far", "late"])
def test_launches_write_where_the_tensor_is_unless_a_graph_knows_its_value(place):
    x, out = (weft.full((64,), 3.0).to(place).realize() for _ in range(2))
    saxpy[1, 64](2.0, x, x, out)
    handle = out._buffer.handle
    saxpy[1, 64](2.0, x, out, out)
    assert out._buffer.handle is handle
    before = out + 0
    saxpy[1, 64](2.0, x, out, out)
    assert out._buffer.handle is not handle
    np.testing.assert_array_equal(before.numpy(), np.full(64, 15.0))
    np.testing.assert_array_equal(out.numpy(), np.full(64, 21.0))


def test_what_runs_on_the_host_alone_refuses_memory_of_devices():
    @weft.compute
    def twice(x: weft.float32[:]):
        for i in range(x.shape[0]):
            x[i] = 2 * x[i]

    x = weft.ones(4, device="late").realize()
    twice(x)
    assert x.tolist() == [2.0] * 4
    with pytest.raises(DeviceError, match="memory of late"):
        weft.sanitize(saxpy, 1, 4)(1.0, x, x, x)
    with pytest.raises(DeviceError, match="memory of late"):
        weft.interpret(saxpy, 1, 4)(1.0, x, x, x)


def test_launches_on_the_first_device_stay_native():
    x = np.ones(4, np.float32)
    for _ in range(3):
        saxpy[1, 4](1.0, x, x, x)
    weft.set_default_device("late")
    saxpy[1, 4](1.0, x, x, x)
    saxpy[1, 4](1.0, *[weft.tensor(x, device="cpu")] * 3)
    weft.set_default_device(None)
    saxpy[1, 4](1.0, x, x, x)
    assert x.tolist() == [32.0] * 4
