"""Index sets that kernels store, and what is said where a rewrite changes them."""

import numpy as np
import pytest

import schedule_nests as nests
from schedule_nests import loop, memory, v
from weft.errors import VerifyError
from weft.ir import expr as ex
from weft.ir.stmt import Accumulator, Assert, Axis, If, Kernel, Let, Load, Reduce, Store, lhs, rhs
from weft.ir.verify.verify_stores import stored, verify_same_stores, verify_whole
from weft.kernelize import lower
from weft.kernelize.windows import iteration_space
from weft.schedule.analysis.space import perfect


def kernel_of(body, *params):
    return Kernel("k", params, (body,))


def copied(rows, columns, skip=None):
    """y[i, j] = 0 for rows and columns, but for one column."""
    y, i, j = memory("y", 4, 6), v("i"), v("j")
    store = Store(y, (i, j), ex.const(0.0, y.dtype), None if skip is None else j.ne(skip))
    return kernel_of(loop("i", rows, loop("j", columns, store)), y)


def test_sets_of_loops_and_masks():
    assert stored(copied(4, 6))["y"].all()
    flags = stored(copied(3, 6, skip=2))["y"].reshape(4, 6)
    wanted = np.ones((4, 6), bool)
    wanted[3], wanted[:, 2] = False, False
    assert (flags == wanted).all()


def test_extents_that_depend_on_loops_branches_and_names():
    y, i, j, at = memory("y", 5, 5), v("i"), v("j"), v("at")
    zero = ex.const(0.0, y.dtype)
    below = nests.For(j, i + 1, "serial", (Let(at, i * 5 + j), Store(y, (at // 5, at % 5), zero)))
    diagonal = loop("q", 5, If(v("q").lt(2), (Store(y, (v("q"), ex.index(4)), zero),)))
    flags = stored(Kernel("k", (y,), (nests.For(i, ex.index(5), "serial", (below,)), diagonal)))
    wanted = np.tril(np.ones((5, 5), bool))
    wanted[:2, 4] = True
    assert (flags["y"].reshape(5, 5) == wanted).all()


def test_places_that_are_data_are_not_known():
    x, y, i = memory("x", 4, dtype=nests.dt.int64), memory("y", 4), v("i")
    at = v("at")
    body = loop("i", 4, Load(at, x, (i,)), Store(y, (at,), ex.const(0.0, y.dtype)))
    assert stored(kernel_of(body, x, y)) == {}
    assert stored(copied(4, 6).replace(body=(loop("z", 1 << 20, *copied(4, 6).body),))) == {}


def test_what_is_said_of_a_change():
    verify_same_stores(copied(4, 6), copied(4, 6), "cut")
    with pytest.raises(VerifyError, match="6 elements of y are no longer stored, the first at 18"):
        verify_same_stores(copied(4, 6), copied(3, 6), "cut")
    with pytest.raises(VerifyError, match="4 elements of y are only now stored, the first at 2"):
        verify_same_stores(copied(4, 6, skip=2), copied(4, 6), "cut")
    y = copied(4, 6).params
    verify_whole(copied(4, 6), y, "lower")
    with pytest.raises(VerifyError, match="element 18 of y is never stored"):
        verify_whole(copied(3, 6), y, "lower")


@pytest.mark.parametrize(("rows", "columns"), [(5, 6), (4, 7)])
def test_places_outside_of_an_array(rows, columns):
    """They are a fault of a rewrite or of a nest, but not where an assertion stops before them."""
    outside, y = copied(rows, columns), copied(4, 6).params
    assert stored(outside) == {}
    verify_same_stores(outside, copied(3, 6), "cut")
    with pytest.raises(VerifyError, match="a place outside of y is only now stored"):
        verify_same_stores(copied(4, 6), outside, "cut")
    with pytest.raises(VerifyError, match="a place outside of y is stored"):
        verify_whole(outside, y, "lower")
    inside = Assert(ex.const(False, nests.dt.bool_), "outside", ex.index(rows), ex.index(4))
    verify_whole(outside.replace(body=(inside, *outside.body)), y, "lower")


def masked_sum():
    """y[i, k] = x[i, k] where k < 3, and z[i] is the sum of these."""
    x, y, z = memory("x", 4, 8), memory("y", 4, 8), memory("z", 4)
    i, k, p, s = v("i"), v("k"), nests.f("p"), nests.f("s")
    zero = ex.const(0.0, p.dtype)
    value = ex.where(k.lt(3), p, zero)
    reduce = Reduce((Axis(k, ex.index(8)),), (Accumulator(s, zero, s + value, lhs(s) + rhs(s)),),
                    (Load(p, x, (i, k), k.lt(3)), Store(y, (i, k), value)))
    return kernel_of(loop("i", 4, reduce, Store(z, (i,), s)), x, y, z)


def test_a_cut_that_forgets_a_store_is_found(monkeypatch):
    """Without its guard a cut leaves elements unwritten, and lowering says so."""
    kernel = masked_sum()
    for cut in lower.CUTS:
        assert cut(kernel) is kernel

    def cut_short(kernel):
        nest = kernel.body[0]
        reduce = nest.body[0]
        axes = (Axis(reduce.axes[0].var, ex.index(3)),)
        made = Reduce(axes, reduce.accumulators, reduce.body)
        return kernel.replace(body=(loop("i", 4, made, *nest.body[1:]),))

    with pytest.raises(VerifyError, match="20 elements of y are no longer stored"):
        lower._rewritten(kernel, cut_short, strict=True)


def test_sums_that_store_are_no_plain_sums():
    kernel = masked_sum()
    chain = perfect(kernel.body[0])
    assert iteration_space._only_sum(chain) is None
