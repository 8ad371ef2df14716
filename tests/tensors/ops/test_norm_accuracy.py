"""Norms of elements whose mean is large beside what deviates from it, against float64."""

import numpy as np
import pytest

import weft
from seeds import seeds

pytestmark = pytest.mark.usefixtures("compiled")


def layer(x, w, b):
    return x.layer_norm((x.shape[-1],), w, b)


def batch(x, w, b):
    return x.reshape(-1, w.shape[0], 10).batch_norm(weight=w, bias=b, training=True)


def group(x, w, b):
    return x.reshape(-1, w.shape[0], 10).group_norm(3, w, b)


def instance(x, w, b):
    return x.reshape(-1, w.shape[0], 10).instance_norm(w, b)


NORMS = {"layer": (layer, 1), "batch": (batch, 10), "group": (group, 10),
         "instance": (instance, 10)}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("mean", [0.0, 1000.0, -1e6])
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("seed", seeds(2))
def test_a_far_mean_costs_no_accuracy(seed, name, mean):
    """The rounding of the mean alone was 3e-4 of the result at 1000, and 0.02 at a million."""
    norm, steps = NORMS[name]
    rng = np.random.default_rng(seed)
    columns = 30 * int(rng.integers(3, 40))
    spread = 0.1 if mean < 0 else rng.uniform(0.1, 2)
    x = (rng.standard_normal((int(rng.integers(2, 9)), columns)) * spread + mean).astype("float32")
    w, b = rng.standard_normal((2, columns // steps)).astype("float32")
    arrays = [weft.from_numpy(a) for a in (x, w, b)]
    got = weft.jit(norm)(*arrays).numpy()
    want = norm(*(a.double() for a in arrays)).numpy()
    assert got.dtype == np.float32
    # A few roundings of what is shifted and scaled, the bias being as large as that.
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()


@pytest.mark.parametrize("name", NORMS)
def test_rows_of_one_value_become_the_bias(name):
    norm, steps = NORMS[name]
    w, b = (weft.randn(90 // steps) for _ in range(2))
    got = norm(weft.full((4, 90), 12345.678), w, b).numpy()
    want = np.broadcast_to(np.repeat(b.numpy(), steps), (4, 90)).reshape(got.shape)
    np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("seed", seeds(2))
def test_gradients_round_products_once(seed):
    """Products were rounded before they were added, and squares counted twice: 7.3e-8."""
    rng = np.random.default_rng(seed)
    x, g = (weft.from_numpy(a) for a in rng.standard_normal((2, 2000, 200), dtype=np.float32))
    gradient = weft.jit(lambda x, g: weft.grad(
        lambda x: (x.rms_norm((200,), eps=1e-5) * g).sum())(x))
    got, want = gradient(x, g).numpy(), gradient(x.double(), g.double()).numpy()
    assert np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)) < 6.6e-8


@pytest.mark.parametrize("seed", [61, 62])
def test_slope_of_batch_norm_is_rounded_about_once(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((8, 60, 9, 9)).astype(np.float32)
    w = rng.standard_normal(60).astype(np.float32)
    got = weft.jit(lambda x, w: x.batch_norm(weight=w, bias=w, training=True))(
        weft.from_numpy(x), weft.from_numpy(w)).numpy().astype(np.float64)
    wide = x - x.mean((0, 2, 3), keepdims=True, dtype=np.float64)
    want = wide / np.sqrt((wide**2).mean((0, 2, 3), keepdims=True) + 1e-5)
    spread = (want * want).sum((0, 2, 3))
    slope = ((got - w[:, None, None]) * want).sum((0, 2, 3)) / spread / w - 1
    assert np.sqrt(np.mean(slope**2)) < 4.4e-8


@pytest.mark.parametrize("seed", seeds(2))
def test_batch_norm_of_an_infinite_variance_is_the_bias(seed):
    """What the quotient by an infinite root lost was not a number."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((5, 3, 7)) * 1e20).astype("float32")
    x[:, 1] /= np.float32(1e20)
    w, b = rng.standard_normal((2, 3)).astype("float32")
    y = weft.jit(lambda *a: a[0].batch_norm(weight=a[1], bias=a[2], training=True))(
        *map(weft.from_numpy, (x, w, b))).numpy()
    assert np.isfinite(y).all()
    assert (y[:, 0] == b[0]).all()
    assert (y[:, 2] == b[2]).all()
