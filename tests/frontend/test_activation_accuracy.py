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
