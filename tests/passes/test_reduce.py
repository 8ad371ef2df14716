"""Reductions: every mix of axis kinds, tuples of accumulators, masks, and the combining tree."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nests import (
    F32,
    I64,
    accumulator,
    check,
    f32,
    kernel,
    loop,
    memory,
    reduce,
    total,
    var,
)

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret import run
from weft.ir.op import Op
from weft.ir.stmt import Accumulator, Alloc, For, If, Let, Load, Reduce, Store, lhs, rhs
from weft.ir.traverse import walk
from weft.passes.vector.vectorize import vectorize

i, j, k, r, u, v = (var(n) for n in "ijkruv")
x, y = ex.var("x", F32), ex.var("y", F32)
ZERO = ex.index(0)


def row_sum(axes, at, columns, s=None):
    a, b = memory("a", 3, columns), memory("b", 3)
    s = total("s", x) if s is None else s
    body = (reduce(axes, [s], Load(x, a, (r, at))), Store(b, (r,), s.var))
    return kernel([a, b], loop(r, 3, *body))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_axes_in_any_order(order):
    axes = [(k, 5, "serial"), (u, 2, "unrolled"), (v, 4, "vector")]
    check(row_sum([axes[n] for n in order], k * 8 + u * 4 + v, 40))


@pytest.mark.parametrize(
    ("kinds", "loops"),
    [
        (("serial",), 1),
        (("vector",), 0),
        (("unrolled",), 0),
        (("serial", "vector"), 1),
        (("unrolled", "vector"), 0),
        (("serial", "serial"), 2),
        (("unrolled", "serial", "vector"), 2),
    ],
)
def test_loops_that_are_left(kinds, loops):
    names = [k, u, v]
    sizes = [8 if kind == "vector" else 2 for kind in kinds]
    at, columns = ZERO, 1
    for name, n in zip(names, sizes, strict=False):
        at, columns = at * n + name, columns * n
    axes = list(zip(names, sizes, kinds, strict=False))
    _, made = check(row_sum(axes, at, columns))
    inner = [s for s in walk(made.body) if isinstance(s, For) and s.var.attr != "r"]
    assert len(inner) == loops


def test_order_of_the_sum_is_the_documented_tree():
    """Neighbours of the unrolled copies first, then lanes by halves."""
    axes = [(u, 3, "unrolled"), (v, 4, "vector")]
    arrays, _ = check(row_sum(axes, u * 4 + v, 12))
    for row, got in zip(arrays["a"].reshape(3, 3, 4), arrays["b"], strict=True):
        p = (row[0] + row[1]) + row[2]
        assert got == (p[0] + p[2]) + (p[1] + p[3])


def test_masked_tail_by_fill():
    n = 21
    a, b = memory("a", n), memory("b", 1)
    at = k * 8 + v
    s = total("s", x)
    body = Load(x, a, (at,), at.lt(n))
    nest = (reduce([(k, 3, "serial"), (v, 8, "vector")], [s], body), Store(b, (ZERO,), s.var))
    arrays, _ = check(kernel([a, b], *nest))
    np.testing.assert_allclose(arrays["b"], arrays["a"].sum(), rtol=1e-5)


@pytest.mark.parametrize("dtype", [F32, dt.int32, dt.float64, dt.uint8])
def test_masked_tail_by_select(dtype):
    """The product has no zero fill: the update itself is guarded."""
    n = 21
    a, b = memory("a", n, dtype=dtype), memory("b", 1, dtype=dtype)
    at = k * 8 + v
    e = ex.var("e", dtype)
    p = accumulator("p", ex.const(1, dtype), lambda p: ex.where(at.lt(n), p * e, p),
                    lambda a, b: a * b, dtype)  # fmt: skip
    body = Load(e, a, (at,), at.lt(n))
    nest = (reduce([(k, 3, "serial"), (v, 8, "vector")], [p], body), Store(b, (ZERO,), p.var))
    check(kernel([a, b], *nest))


def arg_accumulators(at):
    """Argmax: the first of equal values wins, in any tree."""
    best, where = ex.var("best", F32), var("where")
    better = best.lt(x)
    bl, br, wl, wr = lhs(best), rhs(best), lhs(where), rhs(where)
    tie = ex.binary(Op.AND, bl.eq(br), wl.lt(wr))
    left = ex.binary(Op.OR, br.lt(bl), tie)
    return [
        Accumulator(best, f32(-np.inf), ex.where(better, x, best), ex.maximum(bl, br)),
        Accumulator(where, ex.index(1 << 40), ex.where(better, at, where), ex.where(left, wl, wr)),
    ]


@pytest.mark.parametrize(
    "axes",
    [
        [(k, 16, "serial")],
        [(k, 2, "serial"), (v, 8, "vector")],
        [(k, 2, "serial"), (u, 2, "unrolled"), (v, 4, "vector")],
        [(v, 8, "vector"), (k, 2, "serial")],
    ],
)
def test_argmax(axes):
    at = ZERO
    for name, n, _ in axes:
        at = at * n + name
    a, b = memory("a", 4, 16), memory("b", 4, dtype=I64)
    accs = arg_accumulators(at)
    body = (reduce(axes, accs, Load(x, a, (r, at))), Store(b, (r,), accs[1].var))
    rng = np.random.default_rng(1)
    values = rng.integers(0, 5, 64).astype(np.float32)
    arrays, _ = check(kernel([a, b], loop(r, 4, *body)),
                      {"a": values, "b": np.zeros(4, np.int64)})  # fmt: skip
    np.testing.assert_array_equal(arrays["b"], values.reshape(4, 16).argmax(1))


def welford(value):
    n, mean, m2 = (ex.var(name, F32) for name in ("n", "mean", "m2"))
    delta = value - mean
    after = n + 1.0
    mean_after = mean + delta / after
    nl, nr, ml = lhs(n), rhs(n), lhs(mean)
    both, gap = nl + nr, rhs(mean) - lhs(mean)
    share = ex.where(both.eq(0.0), f32(0.0), nr / both)
    return [
        Accumulator(n, f32(0.0), after, nl + nr),
        Accumulator(mean, f32(0.0), mean_after, ml + gap * share),
        Accumulator(m2, f32(0.0), m2 + delta * (value - mean_after),
                    lhs(m2) + rhs(m2) + gap * gap * nl * share),
    ]  # fmt: skip


@pytest.mark.parametrize("kinds", [("serial", "serial"), ("serial", "vector"),
                                   ("unrolled", "vector")])  # fmt: skip
def test_welford(kinds):
    a, b = memory("a", 3, 24), memory("b", 3)
    accs = welford(x)
    axes = [(k, 3, kinds[0]), (v, 8, kinds[1])]
    body = (reduce(axes, accs, Load(x, a, (r, k * 8 + v))), Store(b, (r,), accs[2].var / 24.0))
    arrays, _ = check(kernel([a, b], loop(r, 3, *body)))
    np.testing.assert_allclose(arrays["b"], arrays["a"].reshape(3, 24).var(1), rtol=1e-4)


def test_online_softmax():
    a, b = memory("a", 2, 24), memory("b", 2, 24)
    m, s = ex.var("m", F32), ex.var("s", F32)
    exp = lambda e: ex.unary(Op.EXP, e)  # noqa: E731
    low = -1e30
    up = ex.maximum(m, x)
    ml, mr, sl, sr = lhs(m), rhs(m), lhs(s), rhs(s)
    top = ex.maximum(ml, mr)
    accs = [
        Accumulator(m, f32(low), up, top),
        Accumulator(s, f32(0.0), s * exp(m - up) + exp(x - up),
                    sl * exp(ml - top) + sr * exp(mr - top)),
    ]  # fmt: skip
    axes = [(k, 3, "serial"), (u, 2, "unrolled"), (v, 4, "vector")]
    at = k * 8 + u * 4 + v
    body = (
        reduce(axes, accs, Load(x, a, (r, at))),
        loop(i, 3, loop(j, 8, Load(y, a, (r, i * 8 + j)),
                        Store(b, (r, i * 8 + j), exp(y - m) / s), kind="vector")),
    )  # fmt: skip
    arrays, _ = check(kernel([a, b], loop(r, 2, *body)))
    e = np.exp(arrays["a"].reshape(2, 24))
    np.testing.assert_allclose(arrays["b"].reshape(2, 24), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_body_with_lets_stores_and_inner_reduce():
    """A rowwise phase: writes a temporary while it reduces."""
    a, b, c = memory("a", 2, 16), memory("b", 2), memory("c", 2, 16)
    tmp = memory("tmp", 16, scope="local")
    s, t = total("s", y), total("t", ex.var("z", F32))
    at = k * 8 + v
    first = (Load(x, a, (r, at)), Let(y, x * x), Store(tmp, (at,), y))
    body = (
        Alloc(tmp),
        reduce([(k, 2, "serial"), (v, 8, "vector")], [s], *first),
        loop(i, 2, reduce([(u, 8, "vector")], [t], Load(ex.var("z", F32), tmp, (i * 8 + u,))),
             Store(c, (r, i), t.var + s.var)),
        Store(b, (r,), s.var),
    )  # fmt: skip
    check(kernel([a, b, c], loop(r, 2, *body)))


def test_condition_in_the_body():
    a, b, c = memory("a", 16), memory("b", 1), memory("c", 16)
    s = total("s", x)
    inner = If(f32(0.0).lt(x), (Store(c, (k * 8 + v,), x),))
    body = (Load(x, a, (k * 8 + v,)), inner)
    nest = (reduce([(k, 2, "serial"), (v, 8, "vector")], [s], *body), Store(b, (ZERO,), s.var))
    check(kernel([a, b, c], *nest))


def test_body_that_reads_the_running_value():
    """A scan written as a reduction: the body stores every partial sum."""
    a, b = memory("a", 9), memory("b", 9)
    s = total("s", x)
    body = (Load(x, a, (k,)), Store(b, (k,), s.var + x))
    arrays, _ = check(kernel([a, b], reduce([(k, 9, "serial")], [s], *body)))
    np.testing.assert_allclose(arrays["b"], np.cumsum(arrays["a"]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [0, 1])
def test_empty_and_single(n):
    check(row_sum([(k, n, "serial")], k, max(n, 1)))
    a, b = memory("a", 1), memory("b", 1)
    s = total("s", x)
    nest = (reduce([(k, n, "unrolled")], [s], Load(x, a, (k,))), Store(b, (ZERO,), s.var))
    check(kernel([a, b], *nest))


def test_initial_value_from_memory():
    a, b = memory("a", 3, 8), memory("b", 3)
    s = accumulator("s", y * 0.0, lambda s: s + x, lambda a, b: a + b)
    body = (
        Load(y, b, (r,)),
        reduce([(v, 8, "vector")], [s], Load(x, a, (r, v))),
        Store(b, (r,), s.var + y),
    )
    check(kernel([a, b], loop(r, 3, *body)))


def test_parallel_axis_is_refused():
    a, b = memory("a", 8), memory("b", 1)
    s = total("s", x)
    nest = (reduce([(k, 8, "parallel")], [s], Load(x, a, (k,))), Store(b, (ZERO,), s.var))
    with pytest.raises(VerifyError, match="rfactor"):
        vectorize(kernel([a, b], *nest))


def test_half_precision_accumulates_wide():
    a, b = memory("a", 32, dtype=dt.float16), memory("b", 1, dtype=dt.float16)
    h = ex.var("h", dt.float16)
    s = total("s", ex.cast(h, F32))
    body = Load(h, a, (k * 8 + v,))
    out = Store(b, (ZERO,), ex.cast(s.var, dt.float16))
    check(kernel([a, b], reduce([(k, 4, "serial"), (v, 8, "vector")], [s], body), out))


KINDS = st.sampled_from([("serial", 1), ("serial", 3), ("serial", 5), ("unrolled", 2),
                         ("unrolled", 3), ("vector", 4), ("vector", 8), ("vector", 3)])  # fmt: skip


@pytest.mark.slow
@given(st.lists(KINDS, min_size=1, max_size=4), st.integers(0, 3), st.booleans())
def test_random_axes(parts, missing, outer_vector):
    names = [var(f"k{n}") for n in range(len(parts))]
    at, count = ZERO, 1
    for name, (_, n) in zip(names, parts, strict=True):
        at, count = at * n + name, count * n
    valid = max(count - missing, 1)
    a, b, c = memory("a", 4, valid), memory("b", 4), memory("c", 4, dtype=I64)
    inside = at.lt(valid)
    s = total("s", x)
    best = arg_accumulators(at)
    guarded = [
        Accumulator(z.var, z.init, ex.where(inside, z.update, z.var), z.combine) for z in best
    ]
    axes = [(name, n, kind) for name, (kind, n) in zip(names, parts, strict=True)]
    body = (
        reduce(axes, [s, *guarded], Load(x, a, (r, at), inside)),
        Store(b, (r,), s.var),
        Store(c, (r,), best[1].var),
    )
    nest = loop(r, 4, *body, kind="vector" if outer_vector else "serial")
    arrays, _ = check(kernel([a, b, c], nest))
    np.testing.assert_allclose(arrays["b"], arrays["a"].reshape(4, -1).sum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(arrays["c"], arrays["a"].reshape(4, -1).argmax(1))


def test_reduce_statement_is_gone_without_running_it():
    k8 = row_sum([(k, 2, "serial"), (v, 8, "vector")], k * 8 + v, 16)
    assert any(isinstance(s, Reduce) for s in walk(k8.body))
    run(vectorize(k8), [np.ones(48, np.float32), np.zeros(3, np.float32)])
