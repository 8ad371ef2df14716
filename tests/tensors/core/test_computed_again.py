"""Loops that rebind their state and look at a value of it each turn compile a few plans."""

import gc
import weakref

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("compiled")
TURNS = 24


def compiled(function, *args):
    """Return how many plans a call compiles, and its result."""
    before = weft.compile_count()
    result = function(*args)
    return weft.compile_count() - before, result


def rebound(m, x):
    for _ in range(TURNS):
        x = x * 0.9 + 0.1
        seen = (x**2).sum().item()
    return x, seen


def two_states(m, x):
    v = x * 0
    for _ in range(TURNS):
        x = x + 0.1 * v
        v = v - 0.1 * x
        seen = (x * x + v * v).sum().item()
    return x, seen


def made_before_the_look(m, x):
    for _ in range(TURNS):
        after = x * 0.9 + 0.1
        seen = x.sum().item()
        x = after
    return x, seen


def looked_at_beside(m, x):
    """The next state is made from one value that was looked at and one that was not."""
    for _ in range(TURNS):
        y = m.matmul(x, x) if m is np else x @ x
        size = (y * y).sum()
        x = y / size + 0.1
        seen = size.item()
    return x, seen


def transposed(m, x):
    for _ in range(TURNS):
        x = (x * 0.9 + 0.1).T
        seen = x.sum().item()
    return x, seen


def stencil(m, x):
    for _ in range(TURNS):
        x = x + 0.1 * (m.roll(x, 1, 0) + m.roll(x, -1, 0) - 2 * x)
        seen = x.max().item()
    return x, seen


def written(m, x):
    x = x + 0
    for _ in range(TURNS):
        x += 0.1 * x
        seen = x.sum().item()
    return x, seen


def sometimes(m, x):
    for turn in range(TURNS):
        x = x * 0.9 + 0.1
        if turn % 3 == 0:
            seen = x.sum().item()
    return x, seen


def remembered(m, x):
    states = []
    for _ in range(TURNS):
        x = x * 0.9 + 0.1
        states.append(x)
        seen = x.sum().item()
    return states[-1], seen


LOOPS = [rebound, two_states, made_before_the_look, looked_at_beside, transposed, stencil, written,
         sometimes, remembered]  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_plans_and_values(loop, rng):
    start = rng.random((6, 6), np.float32)
    count, (x, seen) = compiled(loop, weft, weft.tensor(start))
    want, last = loop(np, start.astype(np.float64))
    np.testing.assert_allclose(x.numpy(), want, rtol=2e-4)
    assert seen == pytest.approx(last, rel=2e-4)
    assert count <= 12
    again, _ = compiled(loop, weft, weft.tensor(start))
    assert again == 0


def test_gradients_through_kept_values(rng):
    start, weight = rng.random((4, 5), np.float32), rng.random((5, 5), np.float32)
    w = weft.tensor(weight, requires_grad=True)

    def run(look):
        h = weft.tensor(start)
        for _ in range(TURNS):
            h = (h @ w + 0.1).tanh()
            if look:
                h.mean().item()
        w.grad = None
        (h * h).sum().backward()
        return w.grad.numpy()

    count, looked = compiled(run, True)
    assert count <= 8
    np.testing.assert_allclose(looked, run(False), rtol=1e-4)


def test_one_look_before_gradients_keeps_nothing(rng):
    """What is computed twice is computed twice: only what comes again and again takes memory."""
    w = weft.tensor(rng.random((5, 5), np.float32), requires_grad=True)
    x = weft.tensor(rng.random((4, 5), np.float32))
    optimizer = weft.optim.SGD([w], lr=0.1)
    for _ in range(6):
        h = (x @ w).tanh()
        loss = (h * h).sum()
        loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        w.realize()
        assert h._buffer is None


def test_old_states_are_let_go(rng):
    x = weft.tensor(rng.random((64, 64), np.float32))
    buffers = []
    for _ in range(TURNS):
        x = x * 0.9 + 0.1
        x.sum().item()
        if x._buffer is not None:
            buffers.append(weakref.ref(x._node))
    assert len(buffers) > TURNS // 2
    gc.collect()
    assert sum(b() is not None for b in buffers) <= 2


def test_a_value_that_many_readers_compute_is_kept():
    x = weft.rand(100) + 1
    first = [(x * i).sum().item() for i in range(14)]
    assert x._buffer is not None
    assert first[5] == pytest.approx(5 * x.numpy().sum(), rel=1e-5)


def test_what_a_jitted_function_overwrites_is_not_read_from_old_memory(rng):
    """A graph that reads a value that was realized keeps that value, whatever is written later."""
    start = rng.random(50, np.float32)
    x = weft.tensor(start)
    step = weft.jit(lambda t: t.mul_(2.0))
    y = x + 1
    z = y * 3
    y.sum().item()
    y.realize()
    for _ in range(4):
        step(y)
    np.testing.assert_allclose(z.numpy(), (start + 1) * 3, rtol=1e-6)
    np.testing.assert_allclose(y.numpy(), (start + 1) * 16, rtol=1e-6)
