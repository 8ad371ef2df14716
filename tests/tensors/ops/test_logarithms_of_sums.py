"""Logarithms of sums of exponentials: as exact as float64 rounded once, or almost; infinities."""

import numpy as np
import pytest

import weft

INF = float("inf")
SPECIAL = np.array([0, -0.0, 1, -1, INF, -INF, np.nan, 3e38, -3e38, 1e-40, 89, -104, 5.5])
PAIRS = np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))


def ulps(found, want):
    """Return errors in distances of neighbouring float32 at the exact results."""
    return np.abs(found - want) / np.exp2(np.frexp(want)[1] - 24.0)


def test_logaddexp_errs_by_little_more_than_its_last_rounding(rng, compiled):
    """What is lost where 1 and the smaller exponential are added does not count."""
    a, b = rng.uniform(0, 9, (2, 1 << 16)).astype(np.float32)
    want = np.logaddexp(a.astype(np.float64), b)
    error = ulps(weft.from_numpy(a).logaddexp(weft.from_numpy(b)).numpy(), want)
    assert np.sqrt(np.mean(error**2)) < 0.3
    b = -rng.uniform(9, 60, 1 << 12).astype(np.float32)
    found = weft.from_numpy(b).logaddexp(0.0).numpy()
    np.testing.assert_allclose(found, np.log1p(np.exp(b.astype(np.float64))), rtol=2.5e-7)


@pytest.mark.parametrize("dtype", [weft.bfloat16, weft.float16])
def test_logaddexp_of_short_types_keeps_what_is_far_below_1(rng, compiled, dtype):
    b = weft.from_numpy(-rng.uniform(1, 14, 1 << 10).astype(np.float32)).astype(dtype)
    found = b.logaddexp(weft.zeros((), dtype=dtype)).astype(weft.float32).numpy()
    want = np.log1p(np.exp(b.astype(weft.float64).numpy()))
    rounding = 2.0**-8 if dtype is weft.bfloat16 else 2.0**-11
    np.testing.assert_allclose(found, want, rtol=rounding, atol=2.0**-25)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logaddexp_of_special_values(compiled, dtype):
    arrays = [p.astype(dtype) for p in PAIRS]
    with np.errstate(invalid="ignore"):
        want = np.logaddexp(*(a.astype(np.float64) for a in arrays))
    found = weft.from_numpy(arrays[0]).logaddexp(weft.from_numpy(arrays[1])).numpy()
    np.testing.assert_allclose(found, want, rtol=2e-7, atol=2e-45)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slopes_of_logaddexp(rng, compiled, dtype):
    """They are 1 / (1 + exp(b - a)), also of one infinite operand; two equal ones share 1."""
    a, b = (np.concatenate([p, rng.standard_normal(300) * 9]).astype(dtype) for p in PAIRS)
    x, y = (weft.from_numpy(v).requires_grad_() for v in (a, b))
    slopes = weft.grad(x.logaddexp(y).sum(), (x, y))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(a == b, 0.0, b.astype(np.float64) - a)
        wanted = 1 / (1 + np.exp(difference)), 1 / (1 + np.exp(-difference))
    for found, want in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-37)


def test_curvature_of_logaddexp_where_operands_are_equal(compiled):
    a = weft.tensor([0.0, 1.0, 2.0], dtype=weft.float64)
    x = a.requires_grad_()
    b = weft.tensor([0.0, 1.5, 2.0], dtype=weft.float64)
    (slope,) = weft.grad(x.logaddexp(b).sum(), (x,), create_graph=True)
    (found,) = weft.grad(slope.sum(), (x,))
    share = 1 / (1 + np.exp([0.0, 0.5, 0.0]))
    np.testing.assert_allclose(found.numpy(), share * (1 - share), rtol=1e-12)


@pytest.mark.grid
@pytest.mark.parametrize(("shape", "axis"), [((50, 1000), 1), ((1000, 50), 0), ((3000, 11), 1),
                                             ((2, 700), 1), ((9001,), 0), ((40, 30, 3), 1)])
def test_running_log_sums_are_rounded_once(rng, compiled, shape, axis):
    """Near 0, too, where the sum of the largest element and a logarithm cancels."""
    x = rng.standard_normal(shape).astype(np.float32)
    want = np.logaddexp.accumulate(x.astype(np.float64), axis)
    error = ulps(weft.from_numpy(x).logcumsumexp(axis).numpy(), want)
    assert error.max() < 0.51


@pytest.mark.parametrize(("shape", "axis"), [((200, 900), 1), ((300, 20), 1), ((300, 40), 0),
                                             ((9, 70, 30), 1)])
def test_log_softmax_where_one_element_outweighs_the_others(rng, compiled, shape, axis):
    """Its logarithm is small then: the largest element's 1 hides the others' last bits."""
    x = (rng.standard_normal(shape) * 6).astype(np.float32)
    top = np.argmax(x, axis, keepdims=True)
    far = rng.uniform(0, 14, top.shape).astype(np.float32)
    np.put_along_axis(x, top, np.take_along_axis(x, top, axis) + far, axis)
    shifted = x - x.max(axis, keepdims=True)  # what rounding this loses is no matter of logarithms
    e = np.exp(shifted.astype(np.float64))
    want = shifted - np.log1p(np.where(shifted == 0, 0, e).sum(axis, keepdims=True))
    error = ulps(weft.from_numpy(x).log_softmax(axis).numpy(), want)
    assert error.max() < 8
    assert np.sqrt(np.mean(error**2)) < 1


def test_log_softmax_of_several_largest_elements(compiled):
    x = np.full((5, 70), -3.0, np.float32)
    for row, count in enumerate((1, 2, 3, 40, 70)):
        x[row, ::70 // count][:count] = 11.0
    want = x - np.log(np.exp(x.astype(np.float64)).sum(1, keepdims=True))
    np.testing.assert_allclose(weft.from_numpy(x).log_softmax(1).numpy(), want, rtol=2e-7)
