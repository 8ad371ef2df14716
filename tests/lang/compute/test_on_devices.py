"""Compute functions on devices with memory of their own: what the processor gives, there."""

import numpy as np
import pytest

import far_devices
import weft
from weft.errors import BoundsError, DeviceError

DEVICES = [pytest.param("far", marks=pytest.mark.requires("cpu")),
           pytest.param("late:1", marks=pytest.mark.requires("cpu")),
           pytest.param("opencl:pocl", marks=pytest.mark.requires("opencl:pocl")),
           pytest.param("cpu/c", marks=pytest.mark.requires("cpu/c")),
           pytest.param("interpreter", marks=pytest.mark.requires("interpreter"))]  # fmt: skip

pytestmark = pytest.mark.usefixtures("compiled")

TABLE = np.array([3.0, -1.0, 7.0, 2.0])


@weft.compute
def weighted(a, x, y, out):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = a * x[i, j] + y[j] * TABLE[j % 4]


@weft.compute
def shifted(x, y):
    for i in range(y.shape[0]):
        y[i] = x[i] + 1


@weft.compute
def picked(table, at, out):
    for i in range(at.shape[0]):
        out[i] = table[at[i]]


@pytest.fixture(params=DEVICES)
def device(request):
    far_devices.register()
    return request.param


@pytest.fixture
def default(device):
    weft.set_default_device(device)
    yield device
    weft.set_default_device(None)


def arrays(rng):
    return (rng.standard_normal((5, 11)).astype(np.float32), rng.standard_normal(11),
            np.full((5, 11), np.nan))


def want(a, x, y):
    return a * x + y * TABLE[np.arange(11) % 4]


def test_tensors_stay_where_they_are(device, rng):
    x, y, out = arrays(rng)
    there = [weft.tensor(array, device=device) for array in (x, y, out)]
    weighted(2.5, *there)
    assert there[2].device == device
    np.testing.assert_allclose(there[2].numpy(), want(2.5, x, y), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(there[0].numpy(), x)


def test_arrays_of_the_host_come_back(default, rng):
    x, y, out = arrays(rng)
    weighted(-1, x, y, out)
    np.testing.assert_allclose(out, want(-1, x, y), rtol=1e-5, atol=1e-5)
    wide = np.zeros((5, 22))
    weighted(3, x, y, wide[:, ::2])
    np.testing.assert_allclose(wide[:, ::2], want(3, x, y), rtol=1e-5, atol=1e-5)
    assert not wide[:, 1::2].any()


def test_a_device_that_is_named_takes_arrays_of_the_host(device, rng):
    x, y, out = arrays(rng)
    weft.compute(device=device)(weighted.__weft_function__)(2, x, y, out)
    np.testing.assert_allclose(out, want(2, x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("a", "b"), [((0, 9), (1, 10)), ((1, 10), (0, 9)), ((0, 9), (0, 9)),
                                      ((0, 4), (6, 10))])  # fmt: skip
def test_views_that_overlap(default, a, b):
    expected = list(range(10))
    for i in range(b[1] - b[0]):
        expected[b[0] + i] = expected[a[0] + i] + 1
    tensor = weft.arange(10).realize()
    assert tensor.device == default
    shifted(tensor[a[0] : a[1]], tensor[b[0] : b[1]])
    assert tensor.tolist() == expected
    array = np.arange(10)
    shifted(array[a[0] : a[1]], array[b[0] : b[1]])
    assert array.tolist() == expected


@pytest.mark.parametrize("dtype", ["int8", "bool", "float16", "bfloat16", "uint64"])
def test_dtypes(device, dtype):
    kind = getattr(weft, dtype if dtype != "bool" else "bool_", None) or weft.bool
    table = weft.tensor([0, 1, 1, 0], dtype=kind, device=device)
    at = weft.tensor([3, 2, 0], device=device)
    out = weft.zeros(3, dtype=kind, device=device).realize()
    picked(table, at, out)
    assert [float(v) for v in out.tolist()] == [0, 1, 0]


def test_indices_out_of_range_are_errors_and_all_goes_on(device):
    table, at = weft.arange(4, device=device).realize(), weft.tensor([0, 9], device=device)
    out = weft.zeros(2, dtype=table.dtype, device=device).realize()
    with pytest.raises(BoundsError, match="9"):
        picked(table, at, out)
    picked(table, weft.tensor([0, 3], device=device), out)
    assert out.tolist() == [0, 3]


def test_tensors_of_two_devices_and_of_none_that_computes_are_refused(device):
    x = weft.arange(4, device=device).realize()
    y = weft.arange(4, device="cpu").realize()
    with pytest.raises(DeviceError, match="cpu"):
        shifted(x, y)
    with pytest.raises(DeviceError, match="computes"):
        weft.compute(device="disk")(shifted.__weft_function__)(np.arange(3), np.arange(3))
    assert x.tolist() == y.tolist() == [0, 1, 2, 3]


def test_nothing_is_computed_where_nothing_is():
    out = np.ones(3)
    weft.compute(device="null")(shifted.__weft_function__)(np.arange(3.0), out)
    assert not out.any()
