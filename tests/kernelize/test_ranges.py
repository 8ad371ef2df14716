"""Sums that are not there for some positions are 0, whatever the factors are."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same, loop, memory, v
from weft.ir import expr as ex
from weft.ir.stmt import Accumulator, Axis, Kernel, Load, Meta, Reduce, Store, lhs, rhs
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.kernelize.windows.domain_split import split_domain


def masked_product(rows, low, high, every=True):
    """y[i, j] = the sum over k of a[i, k] * b[k, j] where low <= i < high."""
    a, b, y = memory("a", rows, 5), memory("b", 5, 4), memory("y", rows, 4)
    i, j, k, p, q, s = v("i"), v("j"), v("k"), nests.f("p"), nests.f("q"), nests.f("s")
    inside = ex.index(low - 1).lt(i) & i.lt(high)
    zero = ex.const(0.0, p.dtype)
    other = ex.where(inside, q, zero) if every else q
    reduce = Reduce((Axis(k, ex.index(5)),),
                    (Accumulator(s, zero, s + ex.where(inside, p, zero) * other, lhs(s) + rhs(s)),),
                    (Load(p, a, (i, k), inside), Load(q, b, (k, j))))
    body = loop("i", rows, loop("j", 4, reduce, Store(y, (i, j), s)))
    return Kernel("masked", (a, b, y), (body,), Meta(kind="contraction"))


@pytest.mark.parametrize(("rows", "low", "high", "count"), [
    (7, 0, 4, 2), (7, 2, 7, 2), (7, 2, 5, 3), (3, 3, 3, 1), (1, 0, 0, 1), (5, 4, 5, 2),
    (3, 9, 12, 1), (3, 4, 2, 1), (3, -5, -2, 1), (5, 3, 1, 2)])  # and ranges outside of the loop
def test_ranges_become_nests_without_conditions(rows, low, high, count):
    made = masked_product(rows, low, high)
    cut = split_domain(made)
    verify(cut)
    assert_same(made, cut)
    assert len(cut.body) == count
    assert not any(s.mask is not None for s in walk(cut.body) if isinstance(s, Load))
    assert sum(isinstance(s, Reduce) for s in walk(cut.body)) == (
        max(low, 0) < min(high, rows))


def test_zeros_of_one_factor_meet_the_other():
    made = masked_product(7, 2, 5, every=False)
    assert split_domain(made) is made
    whole = masked_product(7, 0, 7)
    assert split_domain(whole) is whole


def exact_gradients(x, w, g, stride, padding, dilation, groups):
    """The gradients of a convolution, term by term; of the weights with padding or without."""
    x, w, g = (a.astype(np.float64) for a in (x, w, g))
    dx, dw, padded = np.zeros_like(x), np.zeros_like(w), np.zeros_like(w)
    per = w.shape[0] // groups
    for o, i, a, b in np.ndindex(w.shape):
        c = o // per * w.shape[1] + i
        for n, _, p, q in np.ndindex(g[:, :1].shape):
            r = p * stride[0] + a * dilation[0] - padding[0]
            t = q * stride[1] + b * dilation[1] - padding[1]
            if 0 <= r < x.shape[2] and 0 <= t < x.shape[3]:
                dx[n, c, r, t] += g[n, o, p, q] * w[o, i, a, b]
                dw[o, i, a, b] += g[n, o, p, q] * x[n, c, r, t]
            else:
                padded[o, i, a, b] += g[n, o, p, q] * 0
    return dx, dw, dw + padded


CASES = [  # image, weight, stride, padding, dilation, groups
    ((1, 1, 2, 3), (1, 1, 3, 3), (1, 3), (2, 1), (1, 1), 1),  # no window reaches the last column
    ((1, 3, 2, 3), (2, 3, 3, 3), (1, 3), (2, 1), (1, 1), 1),
    ((2, 2, 5, 4), (3, 2, 1, 1), (3, 3), (0, 0), (1, 1), 1),
    ((2, 17, 3, 9), (9, 17, 3, 3), (2, 1), (1, 1), (1, 1), 1),
    ((1, 4, 7, 6), (4, 2, 3, 2), (2, 2), (1, 0), (2, 2), 2),
    ((2, 3, 9, 5), (6, 1, 3, 3), (1, 2), (0, 1), (1, 1), 3),
    ((1, 2, 5, 11), (19, 2, 5, 5), (1, 1), (2, 2), (1, 2), 1),
    ((1, 2, 1, 1), (3, 2, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((2, 3, 8, 7), (4, 3, 7, 5), (2, 3), (0, 0), (1, 1), 1),  # one window
    ((2, 3, 10, 9), (4, 3, 5, 5), (1, 2), (0, 0), (2, 2), 1),
]


@pytest.mark.grid
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@pytest.mark.parametrize(("where", "value"), [("x", np.inf), ("x", np.nan), ("g", np.inf),
                                              ("g", -np.inf), ("g", np.nan)])
def test_infinities_reach_what_they_are_multiplied_with(case, where, value, jit):
    shape, weight, stride, padding, dilation, groups = case
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in (shape, weight))
    out = [(n + 2 * p - (k - 1) * d - 1) // s + 1 for n, k, s, p, d in zip(
        shape[2:], weight[2:], stride, padding, dilation, strict=True)]
    g = rng.standard_normal((shape[0], weight[0], *out)).astype(np.float32)
    (x if where == "x" else g).flat[0] = value
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}

    def by_input(x, w, g):
        return weft.grad(lambda a: (a.conv2d(w, **options) * g).sum())(x)

    def by_weight(x, w, g):
        return weft.grad(lambda a: (x.conv2d(a, **options) * g).sum())(w)

    with np.errstate(invalid="ignore"):
        dx, *both = exact_gradients(x, w, g, stride, padding, dilation, groups)
    given = [weft.from_numpy(a) for a in (x, w, g)]
    found = (weft.jit(by_input) if jit else by_input)(*given).numpy()
    np.testing.assert_allclose(found, dx, rtol=1e-4, atol=1e-5)
    found = (weft.jit(by_weight) if jit else by_weight)(*given).numpy()
    close = [np.isclose(found, want, rtol=1e-4, atol=1e-5, equal_nan=True) for want in both]
    assert (close[0] | close[1]).all()
