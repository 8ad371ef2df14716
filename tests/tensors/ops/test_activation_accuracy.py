"""Activations against float64: where they lose what their parts do not."""

import math

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.mark.parametrize("seed", [5, 6])
def test_gelu_by_tanh_keeps_small_negative_results(seed):
    """0.5 * x * (1 + tanh(u)) would lose all digits from -3 on."""
    x = np.random.default_rng(seed).uniform(-6, 1, 5000).astype(np.float32)
    w = x.astype(np.float64)
    u = math.sqrt(2 / math.pi) * (w + 0.044715 * w**3)
    want = w / (1 + np.exp(-2 * u))
    got = weft.jit(lambda x: x.gelu(approximate="tanh"))(weft.from_numpy(x)).numpy()
    assert np.abs(got / want - 1).max() < 1e-5


@pytest.mark.parametrize("seed", [11, 12])
def test_gelu_by_tanh_has_an_exact_slope(seed):
    """That of a sigmoid near 1 would cancel: errors were 14 times 2**-24."""
    x = np.random.default_rng(seed).standard_normal(20000).astype(np.float32) * 2
    w = x.astype(np.float64)
    u = math.sqrt(2 / math.pi) * (w + 0.044715 * w**3)
    inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * w**2)
    want = 0.5 * (1 + np.tanh(u)) + 0.5 * w * inner / np.cosh(u)**2
    slope = weft.jit(lambda x: weft.grad(lambda x: x.gelu(approximate="tanh").sum())(x))
    assert np.abs(slope(weft.from_numpy(x)).numpy() - want).max() < 3.5 * 2.0**-24


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu_by_tanh_far_out(dtype):
    x = np.array([-np.inf, -1e30, -40, -12, -9, 9, 40, 1e30, np.inf, np.nan], dtype)
    got = weft.jit(lambda x: x.gelu(approximate="tanh"))(weft.from_numpy(x)).numpy()
    assert np.isnan(got[0])  # -inf * 0, as in PyTorch
    assert np.abs(got[1:5]).max() < 1e-27
    assert np.array_equal(got[5:], x[5:], equal_nan=True)


@pytest.mark.parametrize("seed", [13, 14])
def test_slopes_of_elu_keep_their_digits(seed):
    """y + 1 would have lost them all at -17."""
    x = np.random.default_rng(seed).uniform(-40, 1, 5000).astype(np.float32)
    want = np.exp(np.minimum(x.astype(np.float64), 0))
    slope = weft.jit(lambda x: weft.grad(lambda x: x.elu().sum())(x))
    assert np.abs(slope(weft.from_numpy(x)).numpy() / want - 1).max() < 2.0**-22


@pytest.mark.parametrize("seed", [7, 8])
def test_gradient_of_tanh_is_rounded_once_more_than_tanh(seed):
    x = np.random.default_rng(seed).uniform(-9, 9, 5000).astype(np.float32)
    gradient = weft.jit(lambda x: weft.grad(lambda x: x.tanh().sum())(x))(weft.from_numpy(x))
    y = weft.jit(lambda x: x.tanh())(weft.from_numpy(x)).numpy().astype(np.float64)
    assert np.array_equal(gradient.numpy(), (1 - y * y).astype(np.float32))


@pytest.mark.parametrize("seed", [9, 10])
def test_selu_multiplies_once(seed):
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    x = np.random.default_rng(seed).uniform(-4, 4, 5000).astype(np.float32)
    w = x.astype(np.float64)
    want = scale * np.where(w > 0, w, alpha * np.expm1(w))
    got = weft.jit(lambda x: x.selu())(weft.from_numpy(x)).numpy()
    assert np.abs(got / want - 1).max() < 3 * 2.0**-24
