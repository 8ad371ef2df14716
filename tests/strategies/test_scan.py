"""Scans: in lanes along memory, in lanes of columns across it."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_costs import WIDE, Cost
from schedule_nests import assert_replays, assert_same
from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import Meta
from weft.schedule import Schedule
from weft.strategies import choose

SHAPES = [((1,), 0), ((7,), 0), ((0,), 0), ((100,), 0), ((5, 33), 1), ((3, 64), 1), ((3, 1000), 1),
          ((40, 300), 0), ((4, 50, 6), 1), ((3, 0, 4), 1), ((2, 17, 5, 9), 1), ((33, 5), 0),
          ((1, 700), 0), ((2, 9, 700), 1)]  # fmt: skip
DTYPES = [np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint16]


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 40, 64, 101, 300])
@pytest.mark.parametrize("threads", [1, 2])
def test_lanes(size, threads, op):
    kernel = nests.carried(3, size, op)
    made = choose(kernel, WIDE, threads)
    assert_same(kernel, made, exact=op is Op.MAX)
    if size >= 32:  # lanes of several registers where the row is twice as long
        lanes = 64 if size >= 128 else 32 if size >= 64 else 16
        assert Cost(made).loads == 3 * (size // lanes + size % lanes)
    assert_replays(kernel, made)


@pytest.mark.parametrize("op", [Op.ADD, Op.MAX])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 33, 64, 101])
@pytest.mark.parametrize(("lanes", "each"), [(4, 2), (16, 2), (16, 4), (32, 8), (64, 4)])
def test_neighbours_in_one_lane(lanes, each, size, op):
    kernel = nests.carried(3, size, op)
    assert_same(kernel, Schedule(kernel).scan("k", lanes, each).kernel, exact=op is Op.MAX)


@pytest.mark.parametrize("each", [0, 3, 8, -1])
def test_neighbours_that_do_not_fit(each):
    with pytest.raises(ScheduleError, match="neighbours"):
        Schedule(nests.carried(2, 10)).scan("k", 8, each)


def test_symbolic_size():
    kernel = nests.carried(2, ex.Variable("n", 0, 100))
    made = choose(kernel, WIDE, 1)
    for size in (0, 5, 16, 37):
        assert Cost(made, sizes={"n": size}).loads == 2 * (size // 32 + size % 32)
        assert_same(kernel, made, exact=False, variables={"n": size})


@pytest.mark.parametrize(("lanes", "expected"), [(3, "power of two"), (128, "power of two")])
def test_scan_refuses_lanes(lanes, expected):
    with pytest.raises(ScheduleError, match=expected):
        Schedule(nests.carried(2, 10)).scan("k", lanes)


def test_scan_refuses_other_loops():
    with pytest.raises(ScheduleError, match="no recurrence"):
        Schedule(nests.chain(64)).scan("i", 4)
    with pytest.raises(ScheduleError, match="no recurrence"):
        Schedule(nests.carried(2, 10)).scan("r", 4)
    with pytest.raises(ScheduleError, match="serial"):
        Schedule(nests.chain(64).replace(meta=Meta())).parallel("i").scan("i", 4)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_against_numpy(shape, axis, dtype):
    rng = np.random.default_rng(1)
    is_float = np.dtype(dtype).kind == "f"
    a = (rng.standard_normal(shape) if is_float else rng.integers(0, 50, shape)).astype(dtype)
    x = weft.tensor(a)
    got = x.cumsum(axis).numpy()
    tolerance = 2e-2 if dtype is np.float16 else 1e-4
    np.testing.assert_allclose(
        got, np.cumsum(a, axis, dtype=np.float64 if is_float else got.dtype),
        rtol=tolerance, atol=tolerance * 10 if is_float else 0)
    got = x.cummax(axis)[0].numpy()
    np.testing.assert_array_equal(got, np.maximum.accumulate(a, axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_special_values(axis):
    a = np.ones((40, 70), np.float32)
    a[5, 40], a[30, 20], a[20, 33] = np.nan, np.inf, -0.0
    x = weft.tensor(a)
    np.testing.assert_array_equal(x.cumsum(axis).numpy(), np.cumsum(a, axis))
    np.testing.assert_array_equal(x.cummax(axis)[0].numpy(), np.maximum.accumulate(a, axis))
    np.testing.assert_array_equal(x.cummin(axis)[0].numpy(), np.minimum.accumulate(a, axis))
    a[:, :] = 1e30
    a[0, 0] = 0.0
    got = weft.tensor(a).cumprod(axis).numpy()
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, np.cumprod(a, axis))


@pytest.mark.parametrize(("shape", "axis"), [((30_000,), 0), ((3, 20_000), 1), ((9_000, 3), 0),
                                             ((2, 9_000, 20), 1)])  # fmt: skip
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_long_rows_do_not_drift(rng, name, shape, axis):
    x = rng.standard_normal(shape) if name == "cumsum" else rng.uniform(0.98, 1.02, shape)
    x = x.astype(np.float32)
    right = getattr(np, name)(x.astype(np.float64), axis=axis)
    found = getattr(weft.tensor(x), name)(axis).numpy()
    np.testing.assert_allclose(found, right, rtol=1.2e-7, atol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 7, 301])
def test_running_extremes_of_bools(n):
    """As bools, and where the last of equals stands."""
    a = np.random.default_rng(n).random((2, n)) < 0.2
    for found, wanted, hit in ((weft.tensor(a).cummax(1), np.maximum.accumulate(a, 1), a),
                               (weft.tensor(a).cummin(1), np.minimum.accumulate(a, 1), ~a)):
        assert found.values.dtype is weft.bool
        np.testing.assert_array_equal(found.values.numpy(), wanted)
        places = np.where(hit | (wanted == a), np.arange(n), 0)
        np.testing.assert_array_equal(found.indices.numpy(), np.maximum.accumulate(places, 1))
