"""What PyTorch's autograd offers around a backward: hooks, kept gradients, inputs, detaching."""

import pytest

import weft
from capabilities import module
from weft.errors import GradientError, ShapeError

torch = module("torch")
pytestmark = pytest.mark.requires("torch")


def retained(L, x):
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad, x.grad


def retained_of_the_new_value(L, x):
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    return y.grad, x.grad


def retained_of_a_leaf(L, x):
    x.retain_grad()
    (x * 2).sum().backward()
    return (x.grad,)


def retained_and_realized(L, x):
    y = x * 2
    y.retain_grad()
    y.tolist()
    (y * y).sum().backward()
    return y.grad, x.grad


def hooked(L, x):
    x.register_hook(lambda g: g * 2)
    x.register_hook(lambda g: None)
    handle = x.register_hook(lambda g: g * 100)
    handle.remove()
    (x * x).sum().backward()
    return (x.grad,)


def hooked_on_the_way(L, x):
    y = x * 2
    y.register_hook(lambda g: g.clamp(0, 5))
    z = y * y
    del y
    z.sum().backward()
    return (x.grad,)


def hooked_in_grad(L, x):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    return (torch.autograd.grad if L is torch else weft.grad)((y * y).sum(), x)


def hooked_softmax(L, x):
    weights = x.softmax(0)
    weights.register_hook(lambda g: g * L.tensor([1.0, 2.0, 4.0]))
    (weights * x).sum().backward()
    return (x.grad,)


def chosen_inputs(L, x):
    w = L.ones(3, requires_grad=True)
    (x * w).sum().backward(inputs=[w])
    assert x.grad is None
    return (w.grad,)


def detached_in_place(L, x):
    y = x * 2
    y.detach_()
    assert y.is_leaf
    assert not y.requires_grad
    (y * x).sum().backward()
    return y, x.grad


def copied_by_index(L, x):
    y = L.zeros(3)
    y.index_copy_(0, L.tensor([0, 2]), x[:2])
    y.index_fill_(0, L.tensor([1]), 7.0)
    (y * y).sum().backward()
    return y, x.grad


CASES = (retained, retained_of_the_new_value, retained_of_a_leaf, retained_and_realized, hooked,
         hooked_on_the_way, hooked_in_grad, hooked_softmax, chosen_inputs, detached_in_place,
         copied_by_index)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_as_in_pytorch(case):
    found = [[t.tolist() for t in case(L, L.tensor([1.0, 2.0, 3.0], requires_grad=True))]
             for L in (torch, weft)]  # fmt: skip
    for expected, ours in zip(*found, strict=True):
        assert ours == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_what_is_refused():
    x = weft.ones(3, requires_grad=True)
    for wrong in (weft.ones(2), weft.ones(3, dtype="float64"), 1.0):
        with pytest.raises(GradientError, match="float32 of shape"):
            x.grad = wrong
    assert x.grad is None
    with pytest.raises(GradientError, match="a view"):
        (x * 2)[:2].detach_()
    for use in (lambda t: t.retain_grad(), lambda t: t.register_hook(print)):
        with pytest.raises(GradientError, match="requires no gradient"):
            use(weft.ones(3))
    x.register_hook(lambda g: g[:2])
    with pytest.raises(ShapeError, match="register_hook"):
        x.sum().backward()
