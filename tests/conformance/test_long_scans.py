"""Scans of long and of many rows, which devices cut into stretches or share among groups."""

import numpy as np
import pytest

from weft.ir import infer
from weft.kernelize.scans import scan_groups

LONG = 1_000_003
ROWS = {"sizes": [(n,) for n in (1, 2, 33, 255, 256, 257, 4099)],
        "many": [(70, 257), (1030, 33), (2, 3, 900)], "beside": [(3000, 3), (2, 700, 5)],
        "long": [(LONG,), (2, LONG // 2)]}  # fmt: skip
KINDS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "logsumexp": np.logaddexp}
# Of float32 by float64, or with what additions lost; products and logarithms round at each step
# where a device has no float64.
BOUNDS = {"sum": 3e-7, "prod": 2e-4, "max": 0, "logsumexp": 4e-6}


@pytest.fixture(params=["as chosen", "groups"])
def form(request, monkeypatch):
    """Have groups of threads scan rows even where threads would alone."""
    if request.param == "groups":
        monkeypatch.setattr(scan_groups, "_GROUPS", 1 << 30)
    return request.param


def taken(device, rows, form):
    """Return the shapes of a test: other ones for each form, since plans are kept by shapes."""
    shapes = ROWS[rows]
    if device.name == "interpreter":  # which takes milliseconds for each element
        shapes = {"long": [(2001,), (2, 999)], "sizes": shapes[:-1]}.get(rows, shapes)
    if form == "groups":
        return [(1, *d) if len(d) == 1 else (2 + d[0], *d[1:]) for d in shapes]
    return shapes


def values(rng, kind, shape, dtype=np.float32):
    if np.dtype(dtype).kind == "i":
        return rng.integers(-9, 9, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (1 + x / 2000 if kind == "prod" else x).astype(dtype)


def axis_of(rows, shape):
    return len(shape) - 1 - (rows == "beside")


@pytest.mark.grid
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_floats(kind, rows, form, device, rng):
    for shape in taken(device, rows, form):
        x, axis = values(rng, kind, shape), axis_of(rows, shape)
        node = infer.scan(device.leaf(x), kind, axis, rng.random() < 0.5)
        first, again = device.compute(node)[0], device.compute(node)[0]
        assert first.tobytes() == again.tobytes()
        turn = np.flip if node.attr.reverse else lambda a, _: a
        wanted = turn(KINDS[kind].accumulate(turn(x, axis), axis, dtype=np.float64), axis)
        np.testing.assert_allclose(first, wanted, rtol=BOUNDS[kind], atol=BOUNDS[kind] and 3e-6)


@pytest.mark.grid
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16, np.float16, np.float64])
def test_types(dtype, rows, form, device, rng):
    for shape in taken(device, rows, form):
        for kind in ("sum", "max"):
            x, axis = values(rng, kind, shape, "i4").astype(dtype), axis_of(rows, shape)
            (found,) = device.compute(infer.scan(device.leaf(x), kind, axis))
            with np.errstate(over="ignore"):
                wide = np.float64 if np.dtype(dtype).kind == "f" else dtype
                wanted = KINDS[kind].accumulate(x, axis, dtype=wide).astype(found.dtype)
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.grid
@pytest.mark.parametrize("rows", ["sizes", "many", "long"])
def test_recurrences(rows, form, device, rng):
    for shape in taken(device, rows, form):
        shape = (*shape[:-1], min(shape[-1], 100_003))
        a, b = rng.uniform(-0.9, 0.9, (2, *shape)).astype(np.float32)
        node = infer.recurrence(device.leaf(a), device.leaf(b), len(shape) - 1)
        first, again = device.compute(node)[0], device.compute(node)[0]
        assert first.tobytes() == again.tobytes()
        wanted, h = np.empty(shape), np.zeros(shape[:-1])
        for k in range(shape[-1]):
            h = wanted[..., k] = b[..., k] + a[..., k] * h
        np.testing.assert_allclose(first, wanted, rtol=1e-5, atol=2e-6)


def test_products_that_leave_their_range(form, device, rng):
    """A zero, an overflow and what dies away stay, in whatever stretch they begin."""
    n = 4001 if device.name == "interpreter" else 40_001
    for value in (0.0, np.inf, 1e38, 1e-38, np.nan):
        x = np.where(rng.random((1 + (form == "groups"), n)) < 0.5, -1, 1).astype(np.float32)
        at = int(rng.integers(n // 4, n))
        x[:, at:at + 20] = value
        (found,) = device.compute(infer.scan(device.leaf(x), "prod", 1))
        with np.errstate(all="ignore"):
            wanted = np.multiply.accumulate(x, 1, dtype=np.float64).astype(np.float32)
        if value == 1e-38:  # denormals
            np.testing.assert_allclose(found, wanted, atol=1e-37)
        else:
            np.testing.assert_array_equal(found, wanted)
