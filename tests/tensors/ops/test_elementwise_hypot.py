"""`hypot` against float64 (float32) and extended precision (float64), at all magnitudes."""

import numpy as np
import pytest

import weft
from seeds import seeds

pytestmark = pytest.mark.usefixtures("compiled")
SPECIAL = np.array([0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", seeds(2))
def test_is_almost_correctly_rounded(seed, dtype):
    """Squares, sum and root, each rounded, were off by up to 1.2 ulp."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    lowest, highest = np.log2(float(info.smallest_normal)), np.log2(float(info.max)) - 2
    x = np.exp2(rng.uniform(lowest, highest, 20_000)).astype(dtype)
    x *= rng.uniform(1, 2, 20_000).astype(dtype) * rng.choice([-1, 1], 20_000).astype(dtype)
    y = (x * np.exp2(rng.uniform(-14, 0, 20_000))).astype(dtype)[rng.permutation(20_000)]
    y[::2] = (x * rng.uniform(0.01, 1, 20_000)).astype(dtype)[::2]
    wide = np.longdouble if dtype == "float64" else np.float64
    exact = np.hypot(x.astype(wide), y.astype(wide))
    got = weft.jit(lambda x, y: x.hypot(y))(weft.from_numpy(x), weft.from_numpy(y)).numpy()
    error = np.abs(got - exact) / np.spacing(exact.astype(dtype))
    assert error.max() < 0.51


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values_and_broadcast(dtype):
    x = SPECIAL.astype(dtype)
    got = weft.from_numpy(x[:, None]).hypot(weft.from_numpy(x)).numpy()
    want = np.hypot(x[:, None], x)
    np.testing.assert_array_equal(got, want)  # beside infinity, NaN is infinity


def test_gradient():
    x, y = (weft.tensor([v], requires_grad=True) for v in (3.0, -4.0))
    x.hypot(y).sum().backward()
    np.testing.assert_allclose([x.grad.numpy()[0], y.grad.numpy()[0]], [0.6, -0.8], rtol=1e-6)
