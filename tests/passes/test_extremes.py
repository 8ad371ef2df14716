"""Running maxima and minima in three values: NaN, infinities, and the signs of zeros."""

import numpy as np
import pytest

import weft
from schedule_nests import assert_same, biggest, f, loop, memory, v
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.kernelize.lower import arg_accumulators
from weft.passes.vector.extremes import split_extremes
from weft.target import Target, native_operations

CPU = Target("cpu", "x86_64")
NUMBERS = CPU.replace(operations=native_operations(numbers=True))
POOLS = {
    "special": [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-45],
    "zeros": [0.0, -0.0],
    "minus zero": [-0.0],
    "none above zero": [-0.0, -1.0],
    "zeros and below": [0.0, -0.0, -2.0],
    "zeros and above": [0.0, -0.0, 2.0],
    "minus infinity": [-np.inf],
    "plus infinity": [np.inf],
    "nan and infinity": [np.nan, -np.inf],
}


def nest(size, extra=()):
    x, y, k = memory("x", 3, size), memory("y", 3), v("k")
    read = st.Load(f("a"), x, (v("r"), k))
    reduce = st.Reduce((st.Axis(k, ex.index(size)),), (biggest("m", f("a")), *extra), (read,))
    return st.Kernel("k", (x, y), (loop("r", 3, reduce, st.Store(y, (v("r"),), f("m"))),))


@pytest.mark.parametrize("size", [4, 5, 33])
@pytest.mark.parametrize(("target", "kept"), [(CPU, ["m.t", "m.n", "m.s"]),
                                              (NUMBERS, ["m.t", "m.n"])], ids=["plain", "numbers"])
def test_the_pass_keeps_the_meaning(size, target, kept):
    kernel = nest(size)
    made = split_extremes(kernel, target)
    reduce = made.body[0].body[0]
    assert [a.var.attr for a in reduce.accumulators] == kept
    assert_same(kernel, made)


def test_what_is_left_alone():
    assert split_extremes(nest(3), CPU).body[0].body[0].accumulators[0].var.attr == "m"
    native = CPU.replace(ieee_extremes=True)
    kernel = nest(8)
    assert split_extremes(kernel, native) is kernel
    watching = st.Accumulator(f("s"), ex.const(0.0, f("s").dtype), f("s") + f("m"),
                              st.lhs(f("s")) + st.rhs(f("s")))
    kernel = nest(8, (watching,))
    assert split_extremes(kernel, CPU) is kernel


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (5, 17), (40, 70), (2, 300)])
def test_special_values(pool, shape, dtype):
    draw = np.random.default_rng(3)
    data = draw.choice(np.array(POOLS[pool], dtype), shape)
    x = weft.from_numpy(data)
    for axis in (0, 1, (0, 1)):
        both = ((x.amax(axis), np.max, all), (x.amin(axis), np.min, any))
        for got, function, takes_minus in both:
            got = got.numpy()
            with np.errstate(invalid="ignore"):
                want = function(data, axis=axis)
            np.testing.assert_array_equal(got, want)
            for place in zip(*np.nonzero(np.atleast_1d(want == 0)), strict=True):
                line = data.ravel() if axis == (0, 1) else np.moveaxis(data, axis, 0)[:, place[0]]
                signs = np.signbit(line[line == 0])
                assert np.signbit(np.atleast_1d(got)[place]) == takes_minus(signs)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (5, 17), (70, 40), (2, 300), (1, 70_001)])
def test_places(pool, shape, dtype):
    data = np.random.default_rng(3).choice(np.array(POOLS[pool], dtype), shape)
    x = weft.from_numpy(data)
    for axis in (0, 1, None):
        np.testing.assert_array_equal(x.argmax(axis).numpy(), np.argmax(data, axis))
        np.testing.assert_array_equal(x.argmin(axis).numpy(), np.argmin(data, axis))


def test_the_first_of_equals():
    data = np.random.default_rng(4).integers(0, 3, (50, 333)).astype(np.float32)
    x = weft.from_numpy(data)
    np.testing.assert_array_equal(x.argmax(1).numpy(), np.argmax(data, 1))
    np.testing.assert_array_equal(x.argmin(0).numpy(), np.argmin(data, 0))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_the_pass_keeps_places(kind):
    x, y, k = memory("x", 3, 40), memory("y", 3, dtype=dt.int64), v("k")
    pair = arg_accumulators(kind, f("best"), v("at"), f("a"), k)
    read = st.Load(f("a"), x, (v("r"), k))
    reduce = st.Reduce((st.Axis(k, ex.index(40)),), pair, (read,))
    kernel = st.Kernel("k", (x, y), (loop("r", 3, reduce, st.Store(y, (v("r"),), v("at"))),))
    made = split_extremes(kernel, CPU)
    assert len(made.body[0].body[0].accumulators) == 3
    assert_same(kernel, made)
    turned = st.Reduce(reduce.axes, arg_accumulators(kind, f("best"), v("at"), f("a"), 39 - k),
                       (read,))
    kernel = st.Kernel("k", (x, y), (loop("r", 3, turned, st.Store(y, (v("r"),), v("at"))),))
    assert split_extremes(kernel, CPU) is kernel  # places that shrink


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
@pytest.mark.parametrize("columns", [16, 21, 40, 64])
def test_rows_that_are_written_out(columns, dtype):
    """Every partial result takes one element: the initial value is not compared with."""
    data = (np.random.default_rng(6).standard_normal((5, columns)) * 50).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        data[1] = -np.inf
        data[2, -1] = np.nan
        data[3] = np.where(np.arange(columns) % 2, 0.0, -0.0)
    x = weft.from_numpy(data)
    for got, want in ((x.amax(1), data.max(1)), (x.amin(1), data.min(1))):
        np.testing.assert_array_equal(got.numpy(), want)
    if np.issubdtype(dtype, np.floating):
        assert not np.signbit(x.amax(1).numpy()[3])
        assert np.signbit(x.amin(1).numpy()[3])
