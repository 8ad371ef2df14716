"""The place of an extreme by its block: every dtype, NaN, the first of equals."""

import numpy as np
import pytest

import weft
from schedule_nests import assert_same, loop, memory, total, v
from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.op import Op
from weft.ir.stmt import Axis, Kernel, Load, Reduce, Store
from weft.kernelize.lower import arg_accumulators
from weft.schedule import Schedule


def places(kind, size, dtype=dt.float32, both=False, place=None):
    """at[r] = where the first extreme of |x[r, :]| is; with `both`, the extreme too."""
    x, y, k = memory("x", 3, size, dtype=dtype), memory("y", 3, dtype=dt.int64), v("k")
    a, best = v("a", dtype), v("best", dtype)
    value = ex.unary(Op.ABS, a)
    pair = arg_accumulators(kind, best, v("at"), value, k if place is None else place(k))
    nest = [Reduce((Axis(k, ex.index(size)),), pair, (Load(a, x, (v("r"), k)),)),
            Store(y, (v("r"),), v("at"))]
    params = [x, y]
    if both:
        params.append(memory("z", 3, dtype=dtype))
        nest.append(Store(params[-1], (v("r"),), best))
    return Kernel("places", tuple(params), (loop("r", 3, *nest),))


@pytest.mark.grid
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.int8, dt.int64, dt.float16])
def test_the_meaning_is_kept(dtype, kind, both):
    for size, lanes, steps in ((8, 4, 2), (13, 4, 3), (21, 2, 1), (16, 4, 2)):
        kernel = places(kind, size, dtype, both)
        done = Schedule(kernel).search("best", lanes, steps)
        assert_same(kernel, done.kernel)
        for suffix in "zlhj":
            done.vectorize(f"k.{suffix}")
        assert_same(kernel, done.kernel)
        assert_same(kernel, Schedule.replay(kernel, done.trace).kernel)


def test_places_with_an_offset():
    kernel = places("max", 12, place=lambda k: k + 100)
    assert_same(kernel, Schedule(kernel).search("best", 4, 2).kernel)


def test_refusals():
    with pytest.raises(ScheduleError, match="at least the 16"):
        Schedule(places("max", 12)).search("best", 8, 2)
    with pytest.raises(ScheduleError, match="a value and its place"):
        Schedule(places("max", 12, place=lambda k: 11 - k)).search("best", 4, 2)
    x, k = memory("x", 3, 12), v("k")
    summed = Reduce((Axis(k, ex.index(12)),), (total("s", value=v("a", dt.float32)),),
                    (Load(v("a", dt.float32), x, (v("r"), k)),))
    plain = Kernel("sum", (x,), (loop("r", 3, summed),))
    with pytest.raises(ScheduleError, match="a value and its place"):
        Schedule(plain).search("s", 4, 2)
    assert isinstance(summed, st.Reduce)


POOLS = {
    "numbers": None,
    "few": [0, 1, 2],
    "one": [1],
    "zeros": [0.0, -0.0],
    "infinite": [-np.inf],
    "nan": [np.nan, np.inf, -np.inf, 0.0],
    "all nan": [np.nan],
}


@pytest.mark.grid
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int16",
                                   "int32", "int64"])  # fmt: skip
def test_places_of_long_rows(dtype, pool):
    draw = np.random.default_rng(7)
    values = POOLS[pool]
    if values is not None and not dtype.startswith("float") and not np.isfinite(values).all():
        values = [5, 5, 3]
    for shape in ((2, 64), (3, 130), (2, 1031), (1, 70_001)):
        if values is None:
            data = (draw.standard_normal(shape) * 40).astype(dtype)
        else:
            data = draw.choice(np.array(values, dtype), shape)
        if pool == "nan":  # one, late
            data[0] = 1
            data[0, -3] = np.nan if dtype.startswith("float") else 2
        x = weft.from_numpy(data)
        for got, want in ((x.argmax(1), np.argmax(data, 1)), (x.argmin(1), np.argmin(data, 1)),
                          (x.argmax(), np.argmax(data))):
            np.testing.assert_array_equal(got.numpy(), want)
        best, at = x.max(1)
        np.testing.assert_array_equal(at.numpy(), np.argmax(data, 1))
        np.testing.assert_array_equal(best.numpy(), data.max(1))
