"""What is detached between steps lets go of the steps before, however it is detached."""

import gc
import weakref

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("compiled")

STEPS = 12


def detached(y):
    return y.detach()


def data(y):
    return y.data


def part(y):
    return y[:, :].detach().T.T


def in_place(y):
    return y.detach_()


def no_grad(y):
    with weft.no_grad():
        return y + 0.5


def no_grad_view(y):
    with weft.no_grad():
        return y.reshape(4, 2)


WAYS = [detached, data, part, in_place, no_grad, no_grad_view]


def walk(way, realize=True):
    """Return the recorded values of each step, and how much was compiled after each."""
    w = weft.full((4, 4), 0.25, requires_grad=True)
    state = weft.ones(2, 4)
    values, compiled = [], []
    for _ in range(STEPS):
        y = (state.reshape(2, 4) @ w).tanh() + 0.1
        y.sum().backward()
        if realize:
            y.realize()
        values.append(weakref.ref(y._value()))
        w.grad = None
        state = way(y)
        state.realize()
        compiled.append(weft.compile_count())
    return state, values, compiled


@pytest.mark.grid
@pytest.mark.parametrize("way", WAYS)
def test_each_step_lets_go_of_the_one_before(way):
    state, values, compiled = walk(way)
    del state
    gc.collect()
    assert sum(v() is not None for v in values) <= 1
    state, values, compiled = walk(way)
    gc.collect()
    assert sum(v() is not None for v in values) <= 2, state.shape
    assert compiled[-1] == compiled[2]


@pytest.mark.grid
@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients_are_those_of_one_step(way):
    state, _, _ = walk(way)
    w = np.full((4, 4), 0.25, np.float32)
    expected = np.ones((2, 4), np.float32)
    for _ in range(STEPS):
        expected = np.tanh(expected.reshape(2, 4) @ w) + np.float32(0.1)
        expected = expected + np.float32(0.5) if way is no_grad else expected
    np.testing.assert_allclose(state.numpy().reshape(2, 4), expected, rtol=1e-5)
    again = weft.full((4, 4), 0.25, requires_grad=True)
    (state.reshape(2, 4) @ again).sum().backward()
    found = again.grad.numpy()
    np.testing.assert_allclose(found, np.tile(expected.sum(0)[:, None], (1, 4)), rtol=1e-5)


def test_a_realized_value_and_the_same_detached():
    w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (w * 2).realize()
    (y * y.detach()).sum().backward()
    assert w.grad.tolist() == [4, 8, 12]
    part, again = y.detach(), y.detach()
    part.add_(1)
    assert y.tolist() == part.tolist() == again.tolist() == [3, 5, 7]
    w.grad = None
    y.sum().backward()
    assert w.grad.tolist() == [2, 2, 2]


def test_a_captured_step_agrees():
    def step(state, w):
        y = (state @ w).tanh()
        gradient, = weft.grad(y.sum(), [w])
        return y.detach() + y * 0, gradient

    w = weft.full((3, 3), 0.5, requires_grad=True)
    captured, results = weft.jit(step), []
    for run in (step, captured):
        state = weft.ones(2, 3)
        for _ in range(4):
            state, gradient = run(state, w)
            state.realize()
            state = state.detach()
        results.append((state.numpy(), gradient.numpy()))
    for eager, replayed in zip(*results, strict=True):
        np.testing.assert_allclose(eager, replayed, rtol=1e-6)
