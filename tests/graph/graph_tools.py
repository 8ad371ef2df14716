"""Build small graphs over placeholders, evaluate them, differentiate them numerically."""

import numpy as np

import oracle
from weft.graph.autodiff import gradients
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd


class Inputs:
    """Leaves and the arrays they stand for."""

    def __init__(self):
        self.env = {}

    def leaf(self, value):
        array = np.asarray(value)
        storage = nd.Storage(dt.as_dtype(array.dtype), array.size)
        self.env[storage] = array.reshape(-1)
        return infer.reshape(nd.buffer(storage), array.shape)

    def run(self, *nodes):
        return oracle.evaluate(nodes, self.env)


def storage_of(leaf):
    while leaf.args:
        leaf = leaf.args[0]
    return leaf.attr


def weights(shape, seed=7):
    """A seed gradient that tells elements apart."""
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)


def analytic(inputs, output, leaves):
    """Gradients of sum(w * output) by `gradients`."""
    seed = inputs.leaf(weights(output.shape))
    found = gradients([output], [seed], leaves)
    wanted = [g for g in found if g is not None]
    values = iter(inputs.run(*wanted))
    return [None if g is None else next(values) for g in found]


def numeric(inputs, output, leaves, step=1e-6):
    """Gradients of sum(w * output) by central differences."""
    w = weights(output.shape)

    def objective():
        return float(np.sum(w * inputs.run(output)[0]))

    result = []
    for leaf in leaves:
        storage = storage_of(leaf)
        original = inputs.env[storage]
        slopes = np.zeros_like(original)
        for i in range(original.size):
            sides = []
            for sign in (1, -1):
                moved = original.copy()
                moved[i] += sign * step
                inputs.env[storage] = moved
                sides.append(objective())
            slopes[i] = (sides[0] - sides[1]) / (2 * step)
        inputs.env[storage] = original
        result.append(slopes.reshape(leaf.shape))
    return result


def check_gradient(build, *arrays, tolerance=1e-6, second=False):
    """Compare the gradients of ``build(*leaves)`` with finite differences, of second order too."""
    inputs = Inputs()
    leaves = [inputs.leaf(np.asarray(a, np.float64)) for a in arrays]
    output = build(*leaves)
    _compare(inputs, output, leaves, tolerance)
    if not second:
        return
    seed = inputs.leaf(weights(output.shape, 3))
    for first in gradients([output], [seed], leaves):
        if first is not None:
            _compare(inputs, first, leaves, tolerance * 20)


def _compare(inputs, output, leaves, tolerance):
    found = analytic(inputs, output, leaves)
    expected = numeric(inputs, output, leaves)
    for got, want in zip(found, expected, strict=True):
        got = np.zeros_like(want) if got is None else got
        np.testing.assert_allclose(got, want, rtol=tolerance * 10, atol=tolerance)
