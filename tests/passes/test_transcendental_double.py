"""float64 transcendentals against mpmath, over every exponent and where formulas change."""

import math

import mpmath
import numpy as np
import pytest

from passes.expr_eval import evaluate
from passes.references import BINARY, UNARY
from passes.ulps import errors, every_exponent
from ulp_bounds import DOUBLE
from weft.ir import dtype as dt
from weft.ir.expr import var
from weft.ir.op import Op
from weft.passes.transcendental import decompose

mp = mpmath.MPContext()
mp.dps = 40


def _sigmoid(x):
    return 1 / (1 + mp.exp(-x)) if x >= 0 else mp.exp(x) / (1 + mp.exp(x))


EXACT = {
    Op.RECIPROCAL: lambda x: 1 / x, Op.RSQRT: lambda x: 1 / mp.sqrt(x),
    Op.EXP: mp.exp, Op.EXP2: lambda x: mp.power(2, x), Op.EXPM1: mp.expm1,
    Op.LOG: mp.log, Op.LOG2: lambda x: mp.log(x, 2), Op.LOG10: mp.log10, Op.LOG1P: mp.log1p,
    Op.SIN: mp.sin, Op.COS: mp.cos, Op.TAN: mp.tan, Op.ASIN: mp.asin, Op.ACOS: mp.acos,
    Op.ATAN: mp.atan, Op.SINH: mp.sinh, Op.COSH: mp.cosh, Op.TANH: mp.tanh, Op.ASINH: mp.asinh,
    Op.ACOSH: mp.acosh, Op.ATANH: mp.atanh, Op.ERF: mp.erf, Op.ERFC: mp.erfc,
    Op.SIGMOID: _sigmoid,
}  # fmt: skip
POSITIVE = {Op.RSQRT, Op.LOG, Op.LOG2, Op.LOG10}
# Where a result is a finite number; outside it is a limit, which the special values cover.
DOMAIN = {op: (0.0, math.inf) for op in POSITIVE} | {
    Op.LOG1P: (-1.0, math.inf), Op.ASIN: (-1.0, 1.0), Op.ACOS: (-1.0, 1.0),
    Op.ACOSH: (1.0, math.inf), Op.ATANH: (-1.0, 1.0), Op.EXP: (-745.0, 709.7),
    Op.EXP2: (-1074.0, 1023.9), Op.EXPM1: (-700.0, 709.7), Op.SINH: (-710.4, 710.4),
    Op.COSH: (-710.4, 710.4), Op.ERFC: (-27.0, 26.5), Op.SIGMOID: (-745.0, 700.0),
    Op.TANH: (-700.0, 700.0), Op.ERF: (-26.0, 26.0),
}  # fmt: skip


def call(op, *arrays):
    """Evaluate the decomposition of `op` on float64 arrays."""
    names = tuple(var(f"x{i}", dt.float64) for i in range(len(arrays)))
    return evaluate(decompose(op, names), dict(zip(names, arrays, strict=True)))


def ulps(got, exact):
    """Return the error in ulps of finite results, against mpmath numbers."""
    high = np.array([float(e) for e in exact])
    low = np.array([float(e - mp.mpf(h)) for e, h in zip(exact, high.tolist(), strict=True)])
    unit = np.spacing(np.maximum(np.abs(high), 2.0**-1022))
    return np.abs((got - high) - low) / unit


def assert_close(op, x, got, exact, *more):
    error = ulps(got, exact)
    at = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    text = ", ".join(float(a[at]).hex() for a in (x, *more))
    assert error[at] <= DOUBLE[op], f"{op.name}({text}) gave {got[at]!r}, exactly {exact[at]}"


def _inside(op, x):
    low, high = DOMAIN.get(op, (-math.inf, math.inf))
    return x[np.isfinite(x) & (x > low) & (x < high) & (x != 0)]


@pytest.mark.grid
@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_against_exact_results(op):
    random = np.random.default_rng(5)
    x = np.concatenate([
        every_exponent(np.float64, 0, seed=6)[::7],
        random.permutation(every_exponent(np.float64, 1, seed=7))[:600],
        random.uniform(-1.5, 1.5, 400), random.uniform(-12, 12, 300),
        random.uniform(-760, 720, 200), 1 + random.normal(0, 1e-3, 100),
        np.arange(1, 60) * (math.pi / 2), np.array([6381956970095103 * 2.0**797]),
    ])  # fmt: skip
    x = _inside(op, x)
    assert len(x) > 300
    assert_close(op, x, call(op, x), [EXACT[op](mp.mpf(v)) for v in x.tolist()])


def test_powers_against_exact_results():
    random = np.random.default_rng(8)
    x = np.abs(random.permutation(every_exponent(np.float64, 1, seed=9))[:1000])
    x[::2] = np.exp2(random.uniform(-2, 2, len(x[::2])))
    x[::8] = 1 + random.normal(0, 1e-6, len(x[::8]))
    x = x[np.isfinite(x) & (x > 0) & (x != 1)]
    y = random.uniform(-1070, 1020, len(x)) / np.log2(x)
    exact = [mp.power(mp.mpf(a), mp.mpf(b)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert_close(Op.POW, x, call(Op.POW, x, y), exact, y)


def test_angles_against_exact_results():
    random = np.random.default_rng(10)
    y, x = random.normal(0, 1, (2, 1000)) * np.exp2(random.uniform(-60, 60, (2, 1000)))
    exact = [mp.atan2(mp.mpf(a), mp.mpf(b)) for a, b in zip(y.tolist(), x.tolist(), strict=True)]
    assert_close(Op.ATAN2, y, call(Op.ATAN2, y, x), exact, x)


SPECIAL = np.array(
    [0.0, 2.0**-1074, 2.0**-1022, 2.0**-60, 0.5, 1 - 2.0**-53, 1.0, 1 + 2.0**-52, 1.5, 2.0, 3.0,
     4.0, 20.0, 26.6, 28.0, 38.0, 709.0, 710.0, 711.0, 745.0, 746.0, 1023.0, 1024.0, 1074.0,
     1075.0, 1076.0, 2.0**53 - 1, 2.0**53, 2.0**54, 2.0**60, 2.0**61, 2.0**1023,
     1.7976931348623157e308, math.inf, math.nan],
)  # fmt: skip
BOTH = np.concatenate([SPECIAL, -SPECIAL])


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_special_values(op):
    # The reference is a float64 itself; what counts here are infinities, NaN and signs of zero.
    with np.errstate(all="ignore"):
        error = errors(call(op, BOTH), UNARY[op](BOTH))
    assert (error <= 4).all(), (op.name, BOTH[error > 4])


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_special_values_of_two(op):
    x, y = (a.ravel() for a in np.meshgrid(BOTH, BOTH))
    error = errors(call(op, x, y), BINARY[op](x, y))
    assert (error <= 4).all(), (op.name, x[error > 4], y[error > 4])
