"""What stays connected when tensors are written in place, held against PyTorch.

Under no_grad, through detach() and through `data` a write changes values alone: gradients are those
of what was recorded. `tests/conformance/drawn_writes.py` draws programs of such writes.
"""

import numpy as np
import pytest

import weft
from capabilities import module

torch = module("torch")
pytestmark = pytest.mark.requires("torch")


def _story_follow(lib, x):
    base = lib.zeros(3)
    view = base[:2]
    base.mul_(0)
    base.add_(x)
    (view * view).sum().backward()
    return [base, view, x.grad], view.requires_grad, view.is_leaf


def _story_leaf(lib, x):
    leaf = x.detach().requires_grad_()
    with lib.no_grad():
        x.mul_(2)
    (leaf * leaf).sum().backward()
    return [x, leaf, leaf.grad], leaf.is_leaf, x.grad is None


def _story_step(lib, x):
    base = lib.zeros(3)
    leaf = base[1:].requires_grad_()
    (leaf * 2 + leaf * leaf).sum().backward()
    with lib.no_grad():
        leaf.sub_(leaf.grad)
    return [base, leaf, leaf.grad], leaf.is_leaf, base.requires_grad


def _story_alias(lib, x):
    base = x * 2
    alias = base.detach()
    alias.mul_(x)
    part = alias[1:]
    part.add_(x[0])
    ((part * alias[:2]).sum() + base.sum()).backward()
    return [base, alias, part, x.grad], alias.requires_grad, alias.is_leaf


def _story_grad(lib, x):
    y = x * x
    early = y.sum()
    with lib.no_grad():
        y.clamp_(0, 2)
    late = (y * y).sum()
    grad = torch.autograd.grad if lib is torch else weft.grad
    found = [grad(loss, t, retain_graph=True)[0] for loss in (early, late) for t in (y, x)]
    return [y, *found], y.requires_grad


def _story_again(lib, x):
    y = x * 3
    for i in range(50):
        with lib.no_grad():
            y.add_(i)
        y.detach().mul_(0.5)
    (y * y).sum().backward()
    return [y, x.grad], y.requires_grad


def _story_realized(lib, x):
    y = x * 3
    y.tolist()
    with lib.no_grad():
        y[0] = 7
    y.tolist()
    z = y + y
    z.tolist()
    y.zero_()
    y.tolist()
    (z + y).sum().backward()
    return [y, z, x.grad], y.requires_grad


STORIES = {
    "views follow a base that begins to be tracked": _story_follow,
    "a view that became a leaf shows its base": _story_leaf,
    "a step under no_grad reaches the base of a leaf": _story_step,
    "an alias is recorded and its base is not": _story_alias,
    "grad() of a tensor that was overwritten": _story_grad,
    "overwritten again and again": _story_again,
    "realized between": _story_realized,
}


@pytest.mark.parametrize("name", STORIES)
def test_what_stays_connected(name):
    results = []
    for lib in (torch, weft):
        tensors, *flags = STORIES[name](lib, lib.tensor([0.5, 1.0, 2.0], requires_grad=True))
        results.append(([t.detach().numpy() for t in tensors], flags))
    for expected, found in zip(results[0][0], results[1][0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert results[0][1] == results[1][1]
