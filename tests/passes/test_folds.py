"""Folds of several vectors side by side: the same bits, in fewer steps."""

import numpy as np
import pytest

from schedule_nests import assert_same, f, loop, memory, n, total, v
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.ir.stmt import (
    Accumulator,
    Axis,
    Kernel,
    Let,
    Load,
    Meta,
    Reduce,
    Store,
    lhs,
    rhs,
)
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.passes.vector.vectorize import vectorize
from weft.schedule import Schedule

ROWS = Meta(kind="rowwise")


def folded(op, dtype, init, rows, lanes, meta=ROWS):
    """y[r] = the fold of x[r, :], rows written out one after the other."""
    x, y = memory("x", rows, lanes, dtype=dtype), memory("y", rows, dtype=dtype)
    a, s = v("a", dtype), v("s", dtype)
    accumulator = Accumulator(s, ex.const(init, dtype), ex.binary(op, s, a),
                              ex.binary(op, lhs(s), rhs(s)))
    row = (v("r"), v("k"))
    reduce = Reduce((Axis(v("k"), n(lanes)),), (accumulator,), (Load(a, x, row),))
    body = loop("r", rows, reduce, Store(y, (v("r"),), s))
    return Kernel("folded", (x, y), (body,), meta)


def flat_of(kernel, copies=True):
    made = Schedule(kernel).vectorize("k")
    flat = vectorize((made.unroll("r") if copies else made).kernel)
    verify(flat)
    return flat


def shuffles(kernel):
    return [e for s in walk(kernel.body) if isinstance(s, Let)
            for e in ex.toposort([s.value]) if e.op is Op.SHUFFLE]


def scalar_stores(kernel):
    return [s for s in walk(kernel.body) if isinstance(s, Store) and s.value.lanes == 1]


CASES = [(Op.ADD, dt.float32, 0.0), (Op.ADD, dt.float64, 0.0), (Op.ADD, dt.int32, 0),
         (Op.ADD, dt.float32, -0.0), (Op.MUL, dt.float32, 1.0),
         (Op.MAX, dt.float32, float("-inf")), (Op.MIN, dt.float64, float("inf")),
         (Op.MAX, dt.int8, -128), (Op.AND, dt.int16, -1), (Op.OR, dt.uint32, 0),
         (Op.XOR, dt.int64, 0)]


@pytest.mark.grid
@pytest.mark.parametrize(("op", "dtype", "init"), CASES,
                         ids=[f"{o.name}-{d.name}-{i}" for o, d, i in CASES])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("rows", [2, 3, 7, 16, 25, 37])
def test_rows_written_out_share_their_steps(rows, lanes, op, dtype, init):
    kernel = folded(op, dtype, init, rows, lanes)
    flat = flat_of(kernel)
    assert_same(Schedule(kernel).vectorize("k").kernel, flat)
    assert shuffles(flat)
    left, groups = 0, rows
    while groups:  # each group is a power of two of rows; one alone is stored alone
        part = min(1 << (groups.bit_length() - 1), lanes)
        left, groups = left + (part == 1), groups - part
    assert len(scalar_stores(flat)) == left


@pytest.mark.parametrize("lanes", [4, 16])
def test_the_order_of_additions_is_that_of_one_row(lanes):
    """Bits and all: values of very different sizes, infinities, NaN and zeros of both signs."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((16, lanes)) * 10.0 ** rng.integers(-30, 30, (16, lanes))).astype(
        np.float32)
    x[3, 1], x[4, 2], x[5, :2] = np.inf, np.nan, (np.inf, -np.inf)
    x[6], x[7], x[7, 0] = -0.0, -0.0, 0.0
    kernel = folded(Op.ADD, dt.float32, 0.0, 16, lanes)
    together, alone = np.zeros(16, np.float32), np.zeros(16, np.float32)
    with np.errstate(all="ignore"):
        interpret.run(flat_of(kernel), {"x": x, "y": together})
        interpret.run(flat_of(kernel, copies=False), {"x": x, "y": alone})
    np.testing.assert_array_equal(together.view(np.uint32), alone.view(np.uint32))
    assert not np.signbit(together[6])  # 0 + -0 is 0


def test_what_needs_a_result_waits_and_the_rest_does_not():
    """y[r] = (sum of x[r]) * 2 + z[r]; w[r] = z[r]: loads of z are not held back."""
    x, z = memory("x", 4, 8), memory("z", 4)
    y, w = memory("y", 4), memory("w", 4)
    reduce = Reduce((Axis(v("k"), n(8)),), (total("s", value=f("a")),),
                    (Load(f("a"), x, (v("r"), v("k"))),))
    body = loop("r", 4, reduce, Load(f("c"), z, (v("r"),)),
                Store(y, (v("r"),), f("s") * 2.0 + f("c")), Store(w, (v("r"),), f("c")))
    kernel = Kernel("both", (x, z, y, w), (body,), ROWS)
    flat = flat_of(kernel)
    assert_same(Schedule(kernel).vectorize("k").kernel, flat)
    assert shuffles(flat)


@pytest.mark.parametrize("meta", [ROWS, Meta(kind="custom")])
def test_a_fold_of_what_an_earlier_result_wrote_is_not_moved(meta):
    """x[r, 0] = sum of x[r - 1]: each row needs the result of the row before."""
    x, y = memory("x", 5, 8), memory("y", 5)
    reduce = Reduce((Axis(v("k"), n(8)),), (total("s", value=f("a")),),
                    (Load(f("a"), x, (v("r"), v("k"))),))
    body = loop("r", 4, reduce, Store(x, (v("r") + 1, n(0)), f("s")))
    kernel = Kernel("carried", (x, y), (body,), meta)
    assert_same(Schedule(kernel).vectorize("k").kernel, flat_of(kernel))


def test_arrays_of_users_may_be_one():
    """Rows are loaded behind a write to an array that may be theirs: nothing is gathered."""
    kernel = folded(Op.ADD, dt.float32, 0.0, 4, 8, Meta(kind="custom"))
    flat = flat_of(kernel)
    assert_same(Schedule(kernel).vectorize("k").kernel, flat)
    assert not shuffles(flat)


def test_a_sum_of_a_fold_follows_it():
    """The second sum multiplies by the first: they are two groups."""
    x, y = memory("x", 4, 8), memory("y", 4)
    first = Reduce((Axis(v("k"), n(8)),), (total("s", value=f("a")),),
                   (Load(f("a"), x, (v("r"), v("k"))),))
    second = Reduce((Axis(v("q"), n(8)),), (total("t", value=f("b") * f("s")),),
                    (Load(f("b"), x, (v("r"), v("q"))),))
    kernel = Kernel("two", (x, y), (loop("r", 4, first, second, Store(y, (v("r"),), f("t"))),),
                    ROWS)
    lanes = Schedule(kernel).vectorize("k").vectorize("q").kernel
    flat = vectorize(Schedule(lanes).unroll("r").kernel)
    verify(flat)
    assert_same(lanes, flat)


@pytest.mark.parametrize("op", [Op.MAX, Op.ADD])
def test_an_unrolled_axis_that_stays_a_loop_updates_more_than_once(op):
    """Its extent is data: the first of its terms is not all there is."""
    x, y = memory("x", 4, 4), memory("y", 4)
    s, a = f("s"), f("a")
    start = float("-inf") if op is Op.MAX else 0.0
    reduce = Reduce((Axis(v("k"), v("r") + 1, "unrolled"),),
                    (Accumulator(s, ex.const(start, dt.float32), ex.binary(op, s, a),
                                 ex.binary(op, lhs(s), rhs(s))),),
                    (Load(a, x, (v("r"), v("k"))),))
    kernel = Kernel("ragged", (x, y), (loop("r", 4, reduce, Store(y, (v("r"),), s)),), ROWS)
    flat = vectorize(kernel)
    verify(flat)
    assert_same(kernel, flat)
