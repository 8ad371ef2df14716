"""Gradients of limited values read their mask from the result, and say the same."""

import compositions as c
import numpy as np
import pytest
from graph_tools import Inputs

from seeds import seeds
from weft.graph.autodiff import gradients
from weft.graph.masks import mask_by_results
from weft.graph.simplify import simplify
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op
from weft.kernelize.build import kernelize

SPECIAL = [0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40]


def limited(x, least=0.0):
    k = infer.full(x.shape, least, x.dtype)
    return c.e(Op.WHERE, c.e(Op.LE, x, k), k, x)


def values(rng, *shape):
    found = rng.standard_normal(shape).astype(np.float32)
    return np.where(rng.random(shape) < 0.3, rng.choice(np.float32(SPECIAL), shape), found)


def layers(inputs, rng, ends=lambda x: x):
    """Two products with a limit between them, and the gradients of all three operands."""
    shapes = (7, 1), (1, 9), (9, 4)  # sums of one term keep what is special
    x, w, v = (inputs.leaf(values(rng, *s)) for s in shapes)
    y = c.matmul(limited(ends(c.matmul(x, w))), v)
    return y, gradients([y], [inputs.leaf(values(rng, 7, 4))], [x, w, v])


def conditions(outputs):
    return [n for n in nd.toposort(outputs) if n.op is Op.LE]


@pytest.mark.parametrize("seed", seeds(3))
def test_values_are_the_same_to_the_bit(seed):
    inputs = Inputs()
    y, found = layers(inputs, np.random.default_rng(seed))
    outputs = [y, *found]
    made = mask_by_results(outputs)
    assert [n for n in made if n not in outputs]  # something was replaced
    with np.errstate(all="ignore"):
        pairs = zip(inputs.run(*outputs), inputs.run(*made), strict=True)
    for before, after in pairs:
        np.testing.assert_array_equal(before.view(np.int32)[~np.isnan(before)],
                                      after.view(np.int32)[~np.isnan(before)])
        np.testing.assert_array_equal(np.isnan(before), np.isnan(after))


def test_a_product_stores_one_array_for_its_gradient(rng):
    y, found = layers(Inputs(), rng)
    steps = kernelize(simplify([y, *found]))
    stored = [n for step in steps for n in step.outputs if n.shape == (7, 9)]
    assert len(stored) == 2  # the limited product, and the gradient of what it was made of


def test_a_mask_that_is_a_result_is_replaced_as_well(rng):
    inputs = Inputs()
    a, b = inputs.leaf(values(rng, 6, 1)), inputs.leaf(values(rng, 1, 5))
    y = limited(c.matmul(a, b), 0.25)
    outputs = [y.args[0], y]
    made = mask_by_results(outputs)
    assert made[0].args[0] is made[1]
    for before, after in zip(inputs.run(*outputs), inputs.run(*made), strict=True):
        np.testing.assert_array_equal(before, after)


def test_what_is_read_elsewhere_keeps_its_mask(rng):
    """Where the sum is kept in any case, the result would be one more array to read."""
    inputs = Inputs()

    def centered(x):
        mean = infer.expand(infer.reshape(infer.reduce(x, "sum", (1,)), (7, 1)), (7, 9))
        return c.e(Op.SUB, x, mean)

    y, found = layers(inputs, rng, centered)
    assert mask_by_results([y, *found]) == [y, *found]


def test_other_limits_keep_their_masks():
    x = infer.reshape(nd.buffer(nd.Storage(dt.float32, 40)), (8, 5))
    product = c.matmul(x, infer.permute(x, (1, 0)))
    one, two = (infer.full((8, 8), k, dt.float32) for k in (1.0, 2.0))
    condition = c.e(Op.LE, product, one)
    outputs = [c.e(Op.WHERE, condition, two, product), c.e(Op.WHERE, condition, one, two)]
    assert mask_by_results(outputs) == outputs  # what became 2 is no longer below 1
    assert conditions(outputs) == [condition]
