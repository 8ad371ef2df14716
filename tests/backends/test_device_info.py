"""What `weft.device_info` says of each device is true, and launches are held to it."""

import numpy as np
import pytest

import weft
from weft import gpu
from weft.cli import group
from weft.driver.report.profile import peaks
from weft.errors import DeviceError, KernelError, LaunchError
from weft.ir import dtype as dt
from weft.lang.device.device_info import DeviceInfo, Figure

SOURCES = {"reported", "measured", "assumed", "defined"}
DRIVERS = ("opencl:pocl", "opencl:pocl/threads", "vulkan:lavapipe")
COMPUTING = ["cpu", "interpreter", pytest.param("cpu/c", marks=pytest.mark.requires("cpu/c")),
             *[pytest.param(n, marks=pytest.mark.requires(n)) for n in DRIVERS],
             pytest.param("webgpu", marks=pytest.mark.requires("webgpu"))]  # fmt: skip


@pytest.mark.parametrize("device", [*COMPUTING, "null", "disk"])
def test_A4_every_device_fills_all(device):
    found = weft.device_info(device)
    runs = device not in ("null", "disk")
    figures = {name: getattr(found, name) for name in DeviceInfo.__annotations__}
    assert figures.pop("name").startswith(device)
    for name, figure in figures.items():
        assert isinstance(figure, Figure), name
        assert figure.source in SOURCES, name
    assert found.compute.source == ("measured" if runs else "defined")
    for name in ("units", "memory_bytes", "vector_bytes", "register_bytes", "group_threads",
                 "group_bytes", "warp_size"):
        assert figures[name].value > 0, name
    assert (found.compute.value > 0) is runs
    assert (found.max_threads.value > 0) is (device != "disk")
    assert set(found.dtypes.value) == {d.name for d in dt.ALL}
    assert all("storage" in uses for uses in found.dtypes.value.values())


def test_A4_the_default_device_is_meant():
    assert weft.device_info().name == weft.get_default_device()
    with pytest.raises(DeviceError, match="nonsense"):
        weft.device_info("nonsense")
    with pytest.raises(DeviceError, match="found 3, expected the name of a device"):
        weft.device_info(3)


@pytest.mark.slow
def test_A4_compute_is_within_2x_of_the_peak():
    """Others use the processor, too, so that one measurement may be of any size."""
    ratios = []
    for _ in range(8):
        ratios.append(weft.device_info("cpu").compute.value / (peaks.__wrapped__().flops * 1e9))
        if 0.5 <= ratios[-1] <= 2:
            return
    pytest.fail(f"shares of the peak: {ratios}")


@pytest.mark.parametrize("device", COMPUTING)
def test_A4_limits_hold_when_compiling_and_when_launching(device):
    info = weft.device_info(device)
    most, blocks = info.max_threads.value, info.max_blocks.value

    @weft.kernel
    def count(out):
        gpu.atomic.add(out, 0, 1)

    @weft.kernel
    def shared(out, n: weft.constexpr):
        held = gpu.shared.array(n, weft.uint8)
        t = gpu.threadIdx.x
        held[t] = t
        gpu.syncthreads()
        out[0] = held[7 - t]

    out = weft.zeros(1, dtype=weft.int32, device=device)
    count[1, most](out)
    assert out.item() == most
    for grid, block in ((1, most + 1), (1, (most, 2)), (blocks[0] + 1, 1), ((1, blocks[1] + 1), 1),
                        ((1, 1, blocks[2] + 1), 1), (1, (1, 1, most + 1))):  # fmt: skip
        with pytest.raises(LaunchError):
            count[grid, block](out)
    shared[1, 8](out, info.max_local_bytes.value)
    assert out.item() in range(8)
    with pytest.raises(KernelError, match="a block has at most"):
        shared[1, 8](out, info.max_local_bytes.value + 1)


@pytest.mark.grid
@pytest.mark.parametrize("device", COMPUTING)
def test_A4_dtypes_do_what_they_are_said_to(device, rng):
    @weft.kernel
    def add(out, x):
        gpu.atomic.add(out, 0, x[gpu.threadIdx.x])

    for name, uses in weft.device_info(device).dtypes.value.items():
        d = dt.as_dtype(name)
        x = (rng.permutation(16) < 4).astype(d.numpy)  # sums that every float holds
        there = weft.tensor(x, dtype=d, device=device)
        np.testing.assert_array_equal(np.asarray(there.numpy()), x, name)
        if "compute" in uses or "emulated" in uses:
            found = (there | there) if d.is_bool else there + there
            expected = x if d.is_bool else (x.astype(np.float64) * 2).astype(d.numpy)
            np.testing.assert_array_equal(np.asarray(found.numpy()), expected, name)
        if "atomics" in uses and not d.is_bool:
            out = weft.zeros(1, dtype=d, device=device)
            add[1, 16](out, there)
            assert float(out.item()) == float(x.astype(np.float64).sum()), name


def test_A4_the_command_shows_a_device():
    from click.testing import CliRunner

    done = CliRunner().invoke(group, ["devices", "cpu"])
    assert done.exit_code == 0, done.output
    for name in DeviceInfo.__annotations__:
        assert name == "name" or name in done.output
    assert "measured" in done.output
