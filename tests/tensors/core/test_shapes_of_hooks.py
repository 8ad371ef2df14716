"""Hooks see a gradient in the shape of their tensor, and give one of that shape."""

import numpy as np
import pytest

import weft
from weft.errors import ShapeError


def leaf_of(kind, values):
    if kind == "memory":
        return weft.tensor(values).requires_grad_()
    if kind == "computed":
        return (weft.tensor(values) * 2).requires_grad_()
    if kind == "realized":
        return (weft.tensor(values) * 2).realize().requires_grad_()
    return weft.tensor(values).requires_grad_() * 2


@pytest.mark.parametrize("kind", ["memory", "computed", "realized", "node"])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 1, 3), (0, 3)])
def test_hooks_see_the_shape_of_their_tensor(kind, shape, rng):
    x = leaf_of(kind, rng.standard_normal(shape).astype(np.float32))
    factor = rng.standard_normal(shape).astype(np.float32)
    seen = []
    x.register_hook(lambda g: seen.append(g.numpy()))
    x.register_hook(lambda g: g * weft.tensor(factor))
    x.register_hook(lambda g: seen.append(g.numpy()))
    x.retain_grad()
    for times in (1, 2):
        (x * x).sum().backward(retain_graph=True)
        assert [s.shape for s in seen] == [shape] * 2 * times
        np.testing.assert_array_equal(seen[-2], 2 * x.detach().numpy())
        np.testing.assert_array_equal(seen[-1], seen[-2] * factor)
        np.testing.assert_allclose(x.grad.numpy(), times * seen[-1], rtol=1e-6)


def test_a_gradient_of_another_shape_is_refused():
    x = weft.ones(2, 3).realize().requires_grad_()
    x.register_hook(lambda g: g.reshape(6))
    with pytest.raises(ShapeError, match=r"a gradient of shape \(2, 3\)"):
        (x * 2).sum().backward()
