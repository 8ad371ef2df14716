"""When threads share a product: by the time that its tiles take, not by its terms alone."""

import pytest

import schedule_nests as nests
from schedule_costs import Cost
from schedule_nests import assert_same
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.stmt import Axis, Kernel, Load, Meta, Reduce, Store
from weft.strategies import choose

FEATURES = tuple(f"+{name}" for name in (
    "avx", "avx2", "avx512bw", "avx512dq", "avx512f", "avx512fp16", "avx512vl", "f16c", "fma",
    "sse2"))  # fmt: skip
TARGET = cpu.target_from("x86_64", "sapphirerapids", FEATURES,
                         {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20})


def product(rows, columns, inner, dtype=dt.float64):
    """c[i, j] = sum over k of a[i, k] * b[j, k]."""
    i, j, k = (nests.v(name) for name in "ijk")
    x, y, s = (nests.v(name, dtype) for name in "xys")
    a, b, c = (nests.memory(name, *shape, dtype=dtype) for name, shape in (
        ("a", (rows, inner)), ("b", (columns, inner)), ("c", (rows, columns))))
    reduce = Reduce((Axis(k, ex.index(inner)),), (nests.total("s", dtype, x * y),),
                    (Load(x, a, (i, k)), Load(y, b, (j, k))))
    nest = nests.loop("i", rows, nests.loop("j", columns, reduce, Store(c, (i, j), s)))
    return Kernel("product", (a, b, c), (nest,), Meta("contraction"))


def is_shared(made):
    return bool(Cost(made).shares)


@pytest.mark.grid
@pytest.mark.parametrize(("shape", "shared"), [
    ((21, 872, 19), True),  # short sums: results leave their registers often
    ((5, 600, 28), False),
    ((486, 208, 3), True),  # panels of all columns come first
    ((120, 208, 3), False),
])
def test_short_sums_are_shared_by_their_time(shape, shared):
    kernel = product(*shape)
    made = choose(kernel, TARGET, 2)
    assert is_shared(made) is shared
    assert not is_shared(choose(kernel, TARGET, 1))
    assert_same(kernel, made)


@pytest.mark.parametrize(("threads", "turned"), [(1, True), (2, False)])
def test_a_single_panel_is_not_turned_for_several_threads(threads, turned):
    """One of them would turn it while the others wait."""
    cost = Cost(choose(product(49, 8, 2048), TARGET, threads))
    assert (max(cost.private.values()) >= 8 * 2048 * 8) is turned


def test_few_rows_take_longer_pieces_of_turned_columns():
    """A panel of fewer columns is copied from longer parts of the lines that they lie in."""
    copied = []
    for rows in (20, 26):
        made = choose(nests.narrow(rows, 256, 2894, "f16", "f16", "ik", "jk"), TARGET, 1)
        copied.append(Cost(made).private["s.left.p"])  # about ten rows of such a length
    assert copied[0] >= 2 * copied[1]
