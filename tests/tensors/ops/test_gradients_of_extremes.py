"""Gradients of the largest, smallest and middle elements: shared among ties and NaN, as PyTorch."""

import random

import numpy as np
import pytest

import weft
from capabilities import module
from seeds import seeds
from weft.nn import functional as F

torch = module("torch")
pytestmark = pytest.mark.requires("torch")

WHOLE = {
    "max": lambda L, t: t.max(), "min": lambda L, t: t.min(), "median": lambda L, t: t.median(),
    "amax": lambda L, t: t.amax(), "amin": lambda L, t: t.amin(),
}  # fmt: skip
ROWS = {
    "amax": lambda L, t: t.amax(1), "amin": lambda L, t: t.amin(0, keepdim=True),
    "amax of axes": lambda L, t: t.amax((0, 1)), "least": lambda L, t: t.aminmax(dim=1)[0],
    "largest": lambda L, t: t.aminmax(dim=0)[1],
}  # fmt: skip
PAIRS = {
    "maximum": lambda L, t: L.maximum(t[:, ::2], t[:, 1::2]),
    "minimum": lambda L, t: L.minimum(t[:2], t[2:]), "max": lambda L, t: L.max(t[0], t[1]),
}  # fmt: skip


def _gradient(lib, function, values, dtype, weights):
    x = lib.tensor(values.tolist(), dtype=getattr(lib, dtype)).requires_grad_(True)
    y = function(lib, x)
    scale = lib.tensor(weights[: max(int(np.prod(y.shape)), 1)].tolist(), dtype=y.dtype)
    (y * scale.reshape(tuple(y.shape))).sum().backward()
    return x.grad.double().numpy()


@pytest.mark.parametrize("seed", seeds(2))
def test_drawn_ties_and_nans(seed):
    draw = random.Random(seed)
    for _ in range(6):
        values = np.array([[draw.choice((0.0, 1.0, 2.0, 2.0, -1.0)) for _ in range(6)]
                           for _ in range(4)])  # fmt: skip
        for _ in range(draw.choice((0, 0, 1, 3))):
            values[draw.randrange(4), draw.randrange(6)] = np.nan
        weights = np.array([draw.randint(1, 8) for _ in range(24)], float)
        for kind in (WHOLE, ROWS, PAIRS):
            for name, function in kind.items():
                dtype = draw.choice(("float32", "float64"))
                given = function, values, dtype, weights
                np.testing.assert_allclose(_gradient(weft, *given), _gradient(torch, *given),
                                           1e-6, err_msg=f"{name} {dtype} {values.tolist()}")


@pytest.mark.parametrize("name", WHOLE)
def test_ties_of_short_floats_and_captures(name):
    values = np.array([2.0, 1.0] * 700 + [1.5])
    jitted = weft.jit(lambda x: WHOLE[name](weft, x * 2))
    for dtype in ("bfloat16", "float16", "float32"):
        given = values, dtype, np.ones(1)
        expected = _gradient(torch, WHOLE[name], *given)
        np.testing.assert_allclose(_gradient(weft, WHOLE[name], *given), expected, 1e-2)
        for _ in range(2):
            np.testing.assert_allclose(_gradient(weft, lambda L, x: jitted(x), *given),
                                       expected * 2, 1e-2)


def test_margins_that_are_just_met_have_a_gradient():
    def losses(lib, functional):
        x = lib.tensor([1.0, 2.0, 0.0, 1.0]).requires_grad_(True)
        y, zero = lib.tensor([1.0, -1.0, -1.0, -1.0]), lib.zeros(4)
        rows = lib.eye(4)
        total = functional.hinge_embedding_loss(x, y, margin=1.0)
        total = total + functional.margin_ranking_loss(x, zero, y, margin=1.0)
        total = total + functional.cosine_embedding_loss(rows * x, rows, y, margin=1.0)
        anchors = x.reshape(4, 1)
        near, far = anchors.detach() + 1, anchors.detach() + 2
        total = total + functional.triplet_margin_loss(anchors, near, far, margin=1.0)
        total.backward()
        return x.grad.numpy()

    np.testing.assert_allclose(losses(weft, F), losses(torch, torch.nn.functional), 1e-5, 1e-6)
