"""Programs of `weft.build` run where their tensors are, or say what the device lacks."""

from contextlib import contextmanager

import numpy as np
import pytest

import weft
from weft import build
from weft.driver import counters
from weft.errors import BoundsError, DeviceError, KernelError, LaunchError, UnsupportedError

NAMES = ("opencl:pocl", "opencl:pocl/threads", "vulkan:lavapipe")
DEVICES = ["interpreter", pytest.param("cpu/c", marks=pytest.mark.requires("cpu/c")),
           *[pytest.param(n, marks=pytest.mark.requires(n)) for n in NAMES],
           pytest.param("webgpu", marks=pytest.mark.requires("webgpu"))]  # fmt: skip
FILE = "photo.img"


@pytest.fixture
def default():
    """Set the default device, and take that back."""
    yield weft.set_default_device
    weft.set_default_device(None)


def scale(dtype=weft.float32, shift=0):
    """Return a function of two launches, of which the second reads what the first wrote."""
    with build.function("scale", at=(FILE, 1)) as f:
        n = f.size("n")
        x = f.array("x", dtype, (n,))
        y = f.array("y", dtype, (n,), writable=True)
        z = f.array("z", dtype, (n,), writable=True)
        a = f.scalar("a", dtype)
        with f.parallel(n, at=(FILE, 2)) as (i,):
            f.store(y, i, f.load(x, i + shift, at=(FILE, 3)) * a, at=(FILE, 3))
        with f.parallel(n, at=(FILE, 4)) as (i,):
            with f.if_(x[i] < 1):
                z[i] = y[n - 1 - i] + 1
            with f.else_():
                z[i] = y[i]
    return f.program


def reverse():
    """Return a kernel whose threads meet in memory of their block."""
    with build.kernel("reverse", at=(FILE, 1)) as k:
        n = k.size("n")
        x = k.array("x", weft.float32, (n,))
        y = k.array("y", weft.float32, (n,), writable=True)
        held = k.shared("held", weft.float32, 32)
        thread, i = k.thread(), k.grid(1)
        with k.if_(i < n):
            held[thread] = x[i]
        k.barrier()
        with k.if_(i < n):
            y[i] = held[31 - thread]
    return k.program


def turned(x):
    return np.ascontiguousarray(x.reshape(-1, 32)[:, ::-1]).reshape(-1)


@pytest.mark.parametrize("n", [0, 1, 37, 1009])
@pytest.mark.parametrize("device", DEVICES)
def test_functions_run_where_their_tensors_are(device, n, rng):
    data = rng.integers(-3, 4, n).astype(np.float32)
    y = data * np.float32(3)
    z = np.where(data < 1, y[::-1] + 1, y)
    program = scale()
    for _ in range(3):
        there = weft.tensor(data, device=device)
        out, last = weft.zeros(n, device=device), weft.full((n,), 9.0, device=device)
        program(there, out, last, 3.0)
        assert out.device == last.device == there.device != "cpu"
        np.testing.assert_array_equal(out.numpy(), y)
        np.testing.assert_array_equal(last.numpy(), z)
    host = [data, np.zeros_like(data), np.zeros_like(data)]
    for _ in range(3):  # which go to native code
        program(*host, 3.0)
    np.testing.assert_array_equal(host[2], z)
    np.testing.assert_array_equal(last.numpy(), z)


@pytest.mark.parametrize("device", DEVICES)
def test_kernels_run_where_their_tensors_are(device, rng):
    program = reverse()
    data = rng.normal(size=96).astype(np.float32)
    here = np.zeros_like(data)
    for _ in range(3):
        program[3, 32](data, here)
    out = weft.zeros(96, device=device)
    program[3, 32](weft.tensor(data, device=device), out)
    np.testing.assert_array_equal(here, turned(data))
    np.testing.assert_array_equal(out.numpy(), turned(data))


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_of_the_host_go_to_the_default_device(device, default, rng):
    function, kernel = scale(), reverse()
    data = rng.integers(-3, 4, 64).astype(np.float32)
    y, z, r = np.zeros((3, 64), np.float32)
    function(data, y, z, 2.0)
    kernel[2, 32](data, r)  # a shape of a launch that is kept ready for the processor
    default(device)
    y[:], z[:], r[:] = 0, 0, 0
    with counters.record() as recording:
        function(data, y, z, 2.0)
        kernel[2, 32](data, r)
    assert device == "interpreter" or len(recording.launches) == 3
    np.testing.assert_array_equal(y, 2 * data)
    np.testing.assert_array_equal(z, np.where(data < 1, y[::-1] + 1, y))
    np.testing.assert_array_equal(r, turned(data))


@pytest.mark.parametrize("device", DEVICES)
def test_captured_functions_launch_kernels_there(device, rng):
    program = reverse()

    @weft.jit
    def step(x):
        y = weft.zeros_like(x)
        program[2, 32](x, y)
        return y + 1

    for _ in range(3):
        x = weft.tensor(rng.normal(size=64).astype(np.float32), device=device)
        np.testing.assert_array_equal(step(x).numpy(), turned(x.numpy()) + np.float32(1))


@pytest.mark.parametrize("device", DEVICES)
def test_views_and_arrays_beside_tensors(device, rng):
    x = weft.tensor(rng.integers(0, 9, 64).astype(np.float32), device=device)
    whole, out = weft.zeros(128, device=device), np.zeros(64, np.float32)
    scale()(x, whole[::2], out, 2.0)
    np.testing.assert_array_equal(whole.numpy()[::2], 2 * x.numpy())
    np.testing.assert_array_equal(whole.numpy()[1::2], 0)
    y = 2 * x.numpy()
    np.testing.assert_array_equal(out, np.where(x.numpy() < 1, y[::-1] + 1, y))


@pytest.mark.parametrize("device", DEVICES)
def test_failures_name_the_line_of_the_program(device):
    x, y, z = (weft.ones(8, device=device) for _ in range(3))
    with pytest.raises(BoundsError, match="index 8, expected an index from 0 to 7") as caught:
        scale(shift=1)(x, y, z, 1.0)
    assert f"{FILE}:3" in str(caught.value)
    with pytest.raises(LaunchError, match="x and y in the same memory"):
        scale()(x, x, z, 1.0)
    scale()(x, y, z, 5.0)
    assert y.tolist() == [5.0] * 8


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_of_several_devices_are_refused(device):
    x, y = weft.ones(32, device=device), weft.zeros(32)
    with pytest.raises(DeviceError, match=f"launch of scale: found memory of {device}.* and cpu"):
        scale()(x, y, x + 1, 1.0)
    with pytest.raises(DeviceError, match=f"launch of reverse: found memory of {device}.* and cpu"):
        reverse()[1, 32](x, y)
    assert y.tolist() == [0.0] * 32


@pytest.mark.requires("webgpu")
@pytest.mark.parametrize("threads", [True, False])
def test_what_a_device_lacks_names_device_program_and_line(threads):
    kind = build.kernel if threads else build.function
    with kind("ticket", at=(FILE, 1)) as k:
        x = k.array("x", weft.int64, (64,), writable=True)
        with nest(k, threads) as i:
            x[i] = k.atomic("add", x, 0, 1, at=(FILE, 7))
    x = weft.zeros(64, dtype=weft.int64, device="webgpu")
    with pytest.raises(UnsupportedError, match="found atomic add of int64") as caught:
        (k.program[1, 64] if threads else k.program)(x)
    what = "kernel ticket" if threads else "function ticket"
    assert f"{what} on {x.device}" in str(caught.value)
    assert f"{FILE}:7" in str(caught.value)
    assert isinstance(caught.value, KernelError)


@contextmanager
def nest(builder, threads):
    """Give the index of a thread, or that of a parallel loop."""
    if threads:
        yield builder.grid(1)
        return
    with builder.parallel(64, at=(FILE, 6)) as (i,):
        yield i


def test_programs_on_a_device_that_stores_values_alone(tmp_path):
    path = tmp_path / "x.safetensors"
    weft.save({"x": weft.ones(4)}, path)
    x = weft.load(path, device="disk")["x"]
    with pytest.raises(DeviceError, match="tensors on a device that computes"):
        scale()(x, np.zeros(4, np.float32), np.zeros(4, np.float32), 1.0)
