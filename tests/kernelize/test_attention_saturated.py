"""Gradients of attention whose scores are so large that weights are 0 and 1."""

import numpy as np
import pytest

import weft
from capabilities import module

torch = module("torch")
pytestmark = pytest.mark.requires("torch")


def _gradients(lib, arrays, g, dtype, composed):
    q, k, v = (lib.tensor(a, dtype=dtype, requires_grad=True) for a in arrays)
    if composed:
        out = ((q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5).softmax(-1) @ v
    else:
        functional = torch.nn.functional if lib is torch else weft.nn.functional
        out = functional.scaled_dot_product_attention(q, k, v)
    (out * lib.tensor(g, dtype=dtype)).sum().backward()
    return [np.asarray(t.grad.tolist()) for t in (q, k, v)]


@pytest.mark.parametrize("composed", [True, False])
@pytest.mark.parametrize("shape", [(2, 8, 8), (1, 70, 16)])
def test_errors_are_those_of_pytorch(shape, composed):
    ratios = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        q, k, v, g = rng.standard_normal((4, 1, *shape)).astype(np.float32)
        for scale in (30, 300, 1000):
            arrays = (q * np.float32(scale), k, v)
            exact = _gradients(torch, arrays, g, torch.float64, composed)
            theirs = _gradients(torch, arrays, g, torch.float32, composed)
            ours = _gradients(weft, arrays, g, weft.float32, composed)
            for e, t, o in zip(exact, theirs, ours, strict=True):
                least = 1e-7 * max(np.abs(e).max(), 1e-3)
                ratios.append(np.abs(o - e).max() / max(np.abs(t - e).max(), least))
    assert np.median(ratios) <= 1.5
    assert np.sort(ratios)[-3] <= 8


@pytest.mark.parametrize("shape", [(2, 32, 64, 8), (2, 64, 100, 16), (2, 16, 40, 32)])
@pytest.mark.parametrize("scale", [1, 3, 10])
def test_pooled_errors_with_more_keys_than_channels(shape, scale):
    """Weights near 1 have slopes that are differences of nearly equal numbers."""
    batch, queries, keys, channels = shape
    squares = np.zeros((2, 3))
    for seed in range(12):
        rng = np.random.default_rng(seed)
        q, k, v, g = (rng.standard_normal((batch, n, channels), dtype=np.float32)
                      for n in (queries, keys, keys, queries))
        arrays = (q * np.float32(scale), k, v)
        exact, theirs, ours = (
            _gradients(lib, arrays, g, dtype, False) for lib, dtype in (
                (torch, torch.float64), (torch, torch.float32), (weft, weft.float32)))
        for n, (e, t, o) in enumerate(zip(exact, theirs, ours, strict=True)):
            squares[:, n] += [((a - e) ** 2).max() / (e ** 2).max() for a in (t, o)]
    assert (np.sqrt(squares[1] / squares[0]) < 1.5).all()
