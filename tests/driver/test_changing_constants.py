"""Eager code whose constants change: a plan for all floats from the second on."""

import math
import random
import sys

import numpy as np
import pytest

import weft
from weft.driver.plans import resized, runtime_constants


@pytest.fixture(autouse=True)
def _forget():
    """Let no plan of other tests serve these graphs."""
    resized._alike.clear()
    runtime_constants._seen.clear()


X = (np.arange(24, dtype=np.float32) - 11).reshape(4, 6) / 8


def plans(function, values):
    """Return how many plans a loop makes, and check each result against NumPy's."""
    before = weft.compile_count()
    for value in values:
        found = function(weft.tensor(X), value)
        with np.errstate(all="ignore"):
            wanted = function(X, np.float32(value))
        np.testing.assert_allclose(np.asarray(found), wanted, 1e-6, 1e-6)
    return weft.compile_count() - before


def test_a_float_compiles_twice():
    values = [0.1, 0.5, 0.0, -0.0, math.nan, math.inf, 1e30, 1.0, 2.0, -3.5, 0.2]
    assert plans(lambda x, rate: x * rate + 2.25, values) == 2
    assert plans(lambda x, rate: (x - rate) * rate, values) == 2
    assert plans(lambda x, rate: x[1:3] * rate + 3.0, values) == 2
    assert plans(lambda x, rate: x[1:3, ::2] * rate + 3.0, values) == 2


def test_other_constants_stay_constants(monkeypatch):
    seen = []
    read = runtime_constants.as_data

    def noted(nodes, chosen=None):
        seen.append(sorted(n.attr for n in chosen or ()))
        return read(nodes, chosen)

    monkeypatch.setattr(sys.modules["weft.driver.plans.realize"], "as_data", noted)
    for rate in (0.125, 0.25, 0.375):
        ((weft.tensor(X) * rate + 7.5) / 3.5).numpy()
    assert seen == [[0.25], [0.375]]


def test_constants_that_come_again_are_constants():
    x = weft.tensor(X).realize()
    for _ in range(4):
        for rate in (0.5, 0.25, 0.125):
            before = weft.compile_count()
            np.testing.assert_array_equal((x * rate - 1.5).numpy(), X * np.float32(rate) - 1.5)
    assert weft.compile_count() == before


def test_integers_stay_constants_for_a_while():
    x = weft.arange(20)
    before = weft.compile_count()
    for n in range(3, 15):
        np.testing.assert_array_equal((x // n + 1).numpy(), np.arange(20) // n + 1)
    assert weft.compile_count() - before <= runtime_constants.PATIENCE + 2


def test_a_graph_with_the_same_constants_is_planned_once():
    before = weft.compile_count()
    for _ in range(8):
        (weft.tensor(X)[1:3] * 0.75 - 1.25).numpy()
    assert weft.compile_count() - before == 1


@pytest.mark.parametrize("seed", range(6))
def test_drawn_loops(seed):
    pick = random.Random(seed)
    steps = [pick.choice([
        lambda x, a, b: x * a, lambda x, a, b: x + b, lambda x, a, b: x.clamp(-b * b, a * a),
        lambda x, a, b: weft.where(x > a, x, b), lambda x, a, b: x.exp() / (b * b + 1),
        lambda x, a, b: x.sum(0, keepdim=True) * a + x, lambda x, a, b: x.cumsum(0) - a,
    ]) for _ in range(4)]  # fmt: skip

    def program(x, a, b):
        for step in steps:
            x = step(x, a, b)
        return x

    for _ in range(6):
        a, b = pick.uniform(-2, 2), pick.uniform(-2, 2)
        wanted = weft.jit(program, static=(1, 2))(weft.tensor(X), a, b)
        np.testing.assert_allclose(program(weft.tensor(X), a, b).numpy(), wanted.numpy(), 1e-5,
                                   1e-5)
