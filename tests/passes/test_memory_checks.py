"""Assertions of bounds fail where, and only where, an access leaves its array; fills come first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nests import F32, I64, check, kernel, loop, memory, nests, random_arrays, var, vector

from weft.errors import OUTSIDE, BoundsError, strayed
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret import run, run_linear
from weft.ir.linear import AssertInst
from weft.ir.stmt import Alloc, Assert, Load, Store
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.passes.linearize import linearize
from weft.passes.memory_checks import assert_bounds, fill_private, pattern
from weft.passes.vector.vectorize import vectorize

o, i = var("o"), var("i")
x = ex.var("x", F32)


def _accesses(draw):
    """Draw a nest with one access that may leave its array, and the indices that it uses."""
    turns, lanes = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 4, 8, 16]))
    size, low = draw(st.integers(1, 80)), draw(st.integers(-40, 40))
    a, b, c = (draw(st.integers(-3, 20)), draw(st.sampled_from([0, 1, 1, 1, 2, -1, 3])), low)
    index = o * a + i * b + c
    cut = draw(st.sampled_from([None, (0, size), (5, 30), (0, 0)]))
    clipped = draw(st.booleans())
    if clipped:  # what no range of a loop tells: a gather
        index = ex.maximum(ex.minimum(index, ex.index(size)), ex.index(-1))
    mask = None if cut is None else ex.index(cut[0]).le(index) & index.lt(cut[1])
    used = []
    for turn in range(turns):
        for lane in range(lanes):
            at = turn * a + lane * b + c
            at = max(min(at, size), -1) if clipped else at
            if cut is None or cut[0] <= at < cut[1]:
                used.append(at)
    array, other = memory("array", size), memory("other", turns, lanes)
    if draw(st.booleans()):
        inside = (Load(x, array, (index,), mask), Store(other, (o, i), x))
    else:
        inside = (Load(x, other, (o, i)), Store(array, (index,), x, mask))
    nest = loop(o, turns, vector(i, lanes, *inside) if lanes > 1 else loop(i, 1, *inside))
    return kernel([array, other], nest), used, size


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_stops_exactly_where_an_index_is_outside(data):
    nest, used, size = _accesses(data.draw)
    checked = assert_bounds(vectorize(nest))
    verify(checked)
    arrays = random_arrays(nest)
    if all(0 <= at < size for at in used):
        expected = {name: a.copy() for name, a in arrays.items()}
        run_linear(linearize(vectorize(nest)), expected)
        run_linear(linearize(checked), arrays)
        for name, values in expected.items():
            np.testing.assert_array_equal(arrays[name], values)
        return
    for execute, form in ((run, checked), (run_linear, linearize(checked))):
        with pytest.raises(BoundsError, match=OUTSIDE) as caught:
            execute(form, {name: a.copy() for name, a in arrays.items()})
        assert int(caught.value.found) in used
        assert not 0 <= int(caught.value.found) < size or _counts_up(checked)


def _counts_up(checked):
    """Whether a failing access is a whole vector, of which the first index is told."""
    return any(isinstance(s, Load | Store) and s.index[0].lanes == 1 for s in walk(checked.body))


@settings(deadline=None, max_examples=40)
@given(nest=nests())
def test_kernels_without_a_fault_compute_the_same(nest):
    arrays, made = check(nest)
    again = random_arrays(nest)
    run_linear(linearize(assert_bounds(fill_private(made, 0xAB))), again)
    for name, values in arrays.items():
        np.testing.assert_array_equal(again[name], values)


def test_what_loops_prove_is_not_asserted():
    a, b = memory("a", 64), memory("b", 64)
    at = o * 16 + i
    nest = kernel([a, b], loop(o, 4, vector(i, 16, Load(x, a, (at,)), Store(b, (at,), x))))
    checked = assert_bounds(vectorize(nest))
    assert not [s for s in walk(checked.body) if isinstance(s, Assert)]


def test_a_private_array_is_filled_before_it_is_read():
    row, out, k = memory("row", 6, scope="local"), memory("out", 6), var("k")
    nest = kernel([out], Alloc(row), loop(o, 3, Store(row, (o,), ex.const(1, F32))),
                  loop(k, 6, Load(x, row, (k,)), Store(out, (k,), x)))  # fmt: skip
    arrays = random_arrays(nest)
    run_linear(linearize(fill_private(vectorize(nest), 0xFF)), arrays)
    np.testing.assert_array_equal(arrays["out"], [1, 1, 1, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("byte", [0xAB, 0xFF])
@pytest.mark.parametrize("dtype", [dt.bool_, dt.uint8, dt.int32, dt.uint64, dt.float16, dt.float32,
                                   dt.float64, dt.bfloat16])
def test_patterns_are_the_bytes(dtype, byte):
    value = pattern(dtype, byte)
    if dtype.is_float and byte == 0xFF:
        assert np.isnan(value)
    elif dtype is dt.bool_:
        assert value is True
    elif dtype is not dt.bfloat16:
        assert dtype.numpy.type(value).tobytes() == bytes([byte]) * dtype.itemsize


def test_the_error_names_kernel_access_and_array():
    a, at = memory("a", 8), ex.var("at", I64)
    places = memory("places", 1, dtype=I64)
    nest = kernel([a, places], Load(at, places, (ex.index(0),)), Store(a, (at,), ex.const(1, F32)))
    linear = linearize(assert_bounds(vectorize(nest)))
    (check_,) = [c for c in linear.code if isinstance(c, AssertInst)]
    error = strayed(linear.messages[check_.message][0], -3, 8)
    assert error is not None
    assert "custom kernel k, store to a" in str(error)
    assert "found index -3, expected 0 to 7" in str(error)
    assert strayed("gather: index out of range", 1, 1) is None
