"""Gradients have the same bits whatever was realized, or captured, before them."""

import itertools

import numpy as np
import pytest

import weft

SHAPE = 8, 12
FUNCTIONS = (
    lambda v, a, b: [v * v],
    lambda v, a, b: [v * a + v.flip(0) * b],
    lambda v, a, b: [v * a, v * b],
    lambda v, a, b: [v.exp() * a, v * b],
    lambda v, a, b: (lambda t: [t, t * 3.3, t.transpose(0, 1) / 7])(v * a),
    lambda v, a, b: (lambda w: [w, w @ b.transpose(0, 1)])(v.softmax(-1)),
)
LOSSES = (
    lambda v, a, b, made, early: _squares(made) + v.sum(),
    lambda v, a, b, made, early: (v * b).sum() + _squares(made) + (v * a).sum(),
    lambda v, a, b, made, early: early.sum() + _squares(made) + (made[0] * a).sum(),
    lambda v, a, b, made, early: (made[0].reshape(-1) * a.reshape(-1)).sum() + _squares(made)
    + (v * a).sum() + early.sum(),
)  # fmt: skip


def _squares(made):
    return sum((t * t).sum() for t in made)


def gradient(function, loss, way):
    """Return the gradient of a function's results that were computed in one of the ways."""
    rng = np.random.default_rng(7)
    v, a, b = (weft.tensor(rng.standard_normal(SHAPE, dtype=np.float32)) for _ in range(3))
    v.requires_grad_()
    if way == "arguments":
        made = weft.jit(function)(v, a, b)
    else:
        made = (weft.jit(lambda: function(v, a, b)) if way == "closure" else
                lambda: function(v, a, b))()  # fmt: skip
    early = made[0] * (b + 1)
    if way == "realized":
        weft.realize(*made)
    loss(v, a, b, made, early).backward()
    return v.grad.numpy()


@pytest.mark.parametrize("way", ["realized", "closure", "arguments"])
def test_gradients_of_what_was_realized_have_the_same_bits(way):
    """Its parts are added in the same order, and products unrounded, on both sides of a leaf."""
    for function, loss in itertools.product(FUNCTIONS, LOSSES):
        wanted, found = (gradient(function, loss, w) for w in ("lazy", way))
        np.testing.assert_array_equal(found, wanted, f"{FUNCTIONS.index(function)}, "
                                                     f"{LOSSES.index(loss)}")  # fmt: skip


@pytest.mark.parametrize("way", ["realized", "overwritten"])
def test_weights_that_are_read_beside_their_contraction_after_a_change(way):
    """The shortcut over the output is for weights that nothing but the contraction reads."""
    rng = np.random.default_rng(3)
    x, v, a = (rng.standard_normal(s, dtype=np.float32) for s in ((4, 600), (600, 8), (4, 600)))
    t = weft.tensor(x).requires_grad_()
    w = t.softmax(-1)
    out = w @ weft.tensor(v)
    if way == "realized":
        w.tolist()
    else:
        with weft.no_grad():
            w.mul_(1)
    ((out * out).sum() + (w * weft.tensor(a)).sum()).backward()
    wide, v, a = x.astype(np.float64), v.astype(np.float64), a.astype(np.float64)
    weights = np.exp(wide) / np.exp(wide).sum(-1, keepdims=True)
    slope = 2 * weights @ v @ v.T + a
    wanted = weights * (slope - (slope * weights).sum(-1, keepdims=True))
    np.testing.assert_allclose(t.grad.numpy(), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("realizes", [False, True])
@pytest.mark.parametrize("view", [lambda t: t.reshape(24, 4).reshape(8, 12),
                                  lambda t: t.unsqueeze(0).squeeze(0)])  # fmt: skip
def test_a_view_in_the_shape_of_its_base_has_a_gradient_of_its_own(view, realizes):
    x = weft.ones(SHAPE).requires_grad_()
    y = x * 2
    early = view(y)
    if realizes:
        y.tolist()
    for part in (early, view(y)):
        loss = (part * 2).sum() + (y * 3).sum()
        found = [t[0, 0].item() for t in weft.grad(loss, (part, y, x))]
        assert found == [2, 5, 10]
