"""Functions of which few lanes of a vector, or all, need what stands behind a test."""

import math

import mpmath
import numpy as np
import pytest

import weft
from passes.expr_eval import evaluate
from seeds import seeds
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir.expr import var
from weft.ir.op import Op
from weft.passes.transcendental import decompose

OPS = {"sin": Op.SIN, "cos": Op.COS, "tan": Op.TAN}
# doubles next to a multiple of pi / 2: remainders of 2**-61 (the least of all) to 2**-50
NEAR = [6381956970095103 * 2.0**797, 5319372648326541 * 2.0**50, math.pi, 355.0, 45.553093477052,
        321307.9594422229, 642615.9188844458, 2915.397982531328]
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-310, 2.0**50, 2.0**20, 0.78515625]


@pytest.fixture(autouse=True)
def _compiled(compiled):
    """Branches are made by the compiler alone."""


def expected(name, x):
    v = var("x", dt.float32 if x.dtype == np.float32 else dt.float64)
    made = decompose(OPS[name], (v,), tables=cpu.host_target().supports(Op.LOOKUP, dt.uint32))
    return evaluate(made, {v: x.ravel()}).reshape(x.shape)


def same(got, want):
    kind = f"u{got.itemsize}"
    return ((got.view(kind) == want.view(kind)) | (np.isnan(got) & np.isnan(want))).all()


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("seed", seeds(2))
def test_far_lanes_among_near_ones(seed, name, kind):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3000))
    x = rng.uniform(-40, 40, n)
    far = rng.random(n) < rng.choice([0, 0.001, 0.05, 0.9])
    top = 38 if kind == "float32" else 308
    x[far] = 10.0 ** rng.uniform(5, top, far.sum()) * rng.choice([-1, 1], far.sum())
    known = NEAR[2:] + SPECIAL
    x[rng.integers(0, n, len(known))] = known
    x = x.astype(kind)
    got = weft.jit(lambda t: getattr(t, name)())(weft.from_numpy(x)).numpy()
    assert same(got, expected(name, x))
    if name != "cos":
        assert same(got[x == 0], x[x == 0])


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", ["log", "log2", "log10"])
@pytest.mark.parametrize("seed", seeds(2))
def test_logarithms_of_few_odd_numbers(seed, name, kind):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3000))
    x = np.exp2(rng.uniform(-125, 127, n)).astype(kind)
    tiny = float(np.finfo(kind).smallest_subnormal)
    odd = np.array([0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, tiny, 77777 * tiny, -tiny,
                    np.finfo(kind).smallest_normal, np.finfo(kind).max], kind)
    taken = rng.random(n) < rng.choice([0, 0.001, 0.05, 0.9])
    x[taken] = rng.choice(odd, taken.sum())
    got = weft.jit(lambda t: getattr(t, name)())(weft.from_numpy(x)).numpy()
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.longdouble)).astype(np.float64)
    whole = np.isfinite(exact)
    assert (np.isnan(got) == np.isnan(exact)).all()
    assert (got[~whole] == exact[~whole])[~np.isnan(exact[~whole])].all()
    error = np.abs(got[whole] - exact[whole]) / np.spacing(np.abs(exact[whole]).astype(kind))
    assert (error <= 1.1).all()


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_doubles_next_to_multiples_of_half_a_turn(name):
    """The short way alone would be off there by a rounding."""
    x = np.array(NEAR * 3 + [1.0])
    with mpmath.workprec(1400):
        exact = [getattr(mpmath, name)(mpmath.mpf(v)) for v in x.tolist()]
        got = getattr(weft.from_numpy(x), name)().numpy()
        for value, want in zip(got.tolist(), exact, strict=True):
            assert abs(mpmath.mpf(value) - want) <= 0.6 * np.spacing(abs(value)), (value, want)


@pytest.mark.parametrize("seed", seeds(1))
def test_one_value_for_a_whole_row(seed):
    """What does not change in the inner loop is computed outside of it, branch and all."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1e9, 1e9, 300), rng.standard_normal((300, 77))
    x[::7] *= 1e200
    got = weft.jit(lambda a, b: a.sin()[:, None] + b)(*map(weft.from_numpy, (x, y))).numpy()
    assert same(got, expected("sin", x)[:, None] + y)


def test_an_operand_of_two_functions():
    x = np.linspace(-3e6, 3e6, 4097)
    got = weft.jit(lambda a: a.sin() * a.cos() + a.tan())(weft.from_numpy(x)).numpy()
    assert same(got, expected("sin", x) * expected("cos", x) + expected("tan", x))
