"""`weft.autograd.Function`: derivatives written by hand, eager, in captures, and what is refused.

What PyTorch does with the same programs is in ``behaviour/blocks.txt``.
"""

import gc
import weakref

import numpy as np
import pytest

import weft
from weft.errors import DTypeError, GradientError, ShapeError, UnsupportedError
from weft.tensors.api.custom_function import Function


class Squares(Function):
    """``x * x * w`` with values saved both ways."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        ctx.kept = {"double": [x * 2]}
        return x * x * w

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient * ctx.kept["double"][0] * w, gradient * x * x


def leaf(*values):
    return weft.tensor(list(values), requires_grad=True)


def function(forward, backward):
    """Return a function class of two lambdas."""
    return type("Made", (Function,), {"forward": staticmethod(forward),
                                      "backward": staticmethod(backward)})  # fmt: skip


def test_values_are_those_of_the_forward():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = Squares.apply(x, w)
    with weft.no_grad():
        x.fill_(100.0)
        w.zero_()
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 16.0]
    assert w.grad.tolist() == [1.0, 4.0]


def test_a_replay_has_its_own_values():
    w = leaf(2.0, 3.0)
    called = weft.jit(lambda x: Squares.apply(x, w))
    for values in ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)):
        x, w.grad = leaf(*values), None
        called(x).sum().backward()
        assert x.grad.tolist() == [4 * values[0], 6 * values[1]]
        assert w.grad.tolist() == [v * v for v in values]


@pytest.mark.slow
def test_a_replay_has_its_own_sizes():
    both = function(lambda ctx, x: (x * 2, x.sum()), lambda ctx, g, h: g * 2 + h)
    called = weft.jit(lambda x: Squares.apply(x, x * 3))
    first = weft.jit(lambda x: both.apply(x)[0])  # the other has a gradient of zeros
    for n in (3, 4, 5, 6):
        x, z = (weft.arange(float(n)).requires_grad_() for _ in range(2))
        called(x).sum().backward()
        first(z).sum().backward()
        assert x.grad.tolist() == (9 * np.arange(n) ** 2).tolist()
        assert z.grad.tolist() == [2.0] * n


def test_a_captured_training_step():
    w = leaf(2.0, 3.0)

    @weft.jit
    def step(x):
        Squares.apply(x, w).sum().backward()
        with weft.no_grad():
            w.sub_(w.grad)
        w.grad = None

    expected = np.array([2.0, 3.0])
    for values in ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)):
        step(weft.tensor(values))
        expected -= np.square(values)
        assert w.tolist() == expected.tolist()


def test_saved_results_are_differentiated_again():
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]

    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    x = leaf(0.0, 1.0)
    (g,) = weft.grad(function(forward, backward).apply(x).sum(), x, create_graph=True)
    (h,) = weft.grad(g.sum(), x, create_graph=True)
    (last,) = weft.grad(h.sum(), x)
    np.testing.assert_allclose(last.numpy(), np.exp([0, 1]), rtol=1e-6)


def test_nothing_is_kept_in_a_circle():
    gc.collect()
    gc.disable()
    try:
        y = Squares.apply(leaf(1.0) * 2, leaf(1.0))
        node = weakref.ref(y._node)
        y.sum().backward()
        del y
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("backward", "error", "words"), [
    (lambda ctx, g: (g, g), GradientError, "2 gradients, expected 1"),
    (lambda ctx, g: (), GradientError, "0 gradients, expected 1"),
    (lambda ctx, g: 3, GradientError, "a tensor or None"),
    (lambda ctx, g: g.sum(), ShapeError, r"\(\), expected the argument's shape, \(2,\)"),
    (lambda ctx, g: weft.ones(3), ShapeError, r"\(3,\), expected the argument's shape"),
])  # fmt: skip
def test_what_a_backward_returns_is_checked(backward, error, words):
    y = function(lambda ctx, x: x * 2, backward).apply(leaf(1.0, 2.0)).sum()
    with pytest.raises(error, match=words) as caught:
        y.backward()
    assert "test_custom_functions.py" in str(caught.value)


def test_what_is_no_function_is_refused():
    with pytest.raises(UnsupportedError, match="apply"):
        Squares(1)
    with pytest.raises(UnsupportedError, match="no method backward"):
        type("Half", (Function,), {"forward": staticmethod(lambda ctx, x: x)}).apply(leaf(1.0))
    with pytest.raises(DTypeError, match="forward: found 3"):
        function(lambda ctx, x: 3, lambda ctx, g: g).apply(leaf(1.0))
    with pytest.raises(DTypeError, match="save_for_backward: found 3"):
        function(lambda ctx, x: ctx.save_for_backward(3), lambda ctx, g: g).apply(leaf(1.0))
    double = function(lambda ctx, x: (ctx.mark_dirty(x), x.mul_(2))[1], lambda ctx, g: g)
    with pytest.raises(GradientError, match="a leaf that requires a gradient"):
        double.apply(leaf(1.0))


def test_an_argument_changed_in_place():
    double = function(lambda ctx, x: (ctx.mark_dirty(x), x.mul_(2))[1], lambda ctx, g: g * 5)
    x = leaf(1.0)
    y = x * 3
    z = double.apply(y)
    (z * z).sum().backward()
    assert z is y
    assert x.grad.tolist() == [12.0 * 5 * 3]
