"""Gradients of whole layers against PyTorch, in float64."""

import compositions as c
import numpy as np
import pytest
from graph_tools import Inputs, weights

from weft.graph.autodiff import gradients
from weft.ir import infer

pytestmark = pytest.mark.requires("torch")

rng = np.random.default_rng(1)


def normal(*shape):
    return rng.standard_normal(shape)


def functional():
    import torch.nn.functional

    return torch.nn.functional


CASES = {
    "matmul": ((normal(3, 5), normal(5, 4)), c.matmul, lambda f, a, b: a @ b),
    "softmax": ((normal(3, 4, 5),), c.softmax, lambda f, x: f.softmax(x, -1)),
    "softmax_middle": ((normal(3, 4, 5),), lambda x: c.softmax(x, 1), lambda f, x: f.softmax(x, 1)),
    "log_softmax": ((normal(3, 7),), c.log_softmax, lambda f, x: f.log_softmax(x, -1)),
    "layer_norm": ((normal(2, 3, 6), normal(6), normal(6)), c.layer_norm,
                   lambda f, x, w, b: f.layer_norm(x, (6,), w, b)),
    "batch_norm": ((normal(3, 2, 4, 5), normal(2), normal(2)), c.batch_norm,
                   lambda f, x, w, b: f.batch_norm(x, None, None, w, b, True)),
    "conv": ((normal(2, 3, 6, 7), normal(4, 3, 3, 3)), lambda x, w: c.conv2d(x, w, 1, 1),
             lambda f, x, w: f.conv2d(x, w, padding=1)),
    "conv_strided": ((normal(2, 2, 9, 8), normal(3, 2, 3, 3)),
                     lambda x, w: c.conv2d(x, w, 2, 1, 2),
                     lambda f, x, w: f.conv2d(x, w, stride=2, padding=1, dilation=2)),
    "max_pool": ((normal(2, 3, 6, 6),), lambda x: c.max_pool(x, 2, 2),
                 lambda f, x: f.max_pool2d(x, 2)),
    "max_pool_overlap": ((normal(1, 2, 7, 7),), lambda x: c.max_pool(x, 3, 2),
                         lambda f, x: f.max_pool2d(x, 3, 2)),
    "average_pool": ((normal(2, 3, 6, 6),), lambda x: c.average_pool(x, 3, 2),
                     lambda f, x: f.avg_pool2d(x, 3, 2)),
    "gelu": ((normal(11),), c.gelu, lambda f, x: f.gelu(x)),
    "relu": ((np.array([-1.0, 0.0, 2.0]),), c.relu, lambda f, x: f.relu(x)),
    "cumprod": ((np.array([[1.0, 0, 2, 0, 3], [2, 3, 4, 5, 6], [0, 1, 2, 3, 0]]),),
                lambda x: infer.scan(x, "prod", 1), lambda f, x: x.cumprod(1)),
    "cumsum": ((normal(2, 5),), lambda x: infer.scan(x, "sum", 1), lambda f, x: x.cumsum(1)),
    "cummax": ((np.array([[1.0, 1, 0, 3, 3], [5, 2, 5, 5, 6]]),),
               lambda x: infer.scan(x, "max", 1), lambda f, x: x.cummax(1).values),
    "cummin": ((np.array([[1.0, 1, 0, 0, 3], [5, 2, 5, 2, 6]]),),
               lambda x: infer.scan(x, "min", 1), lambda f, x: x.cummin(1).values),
    "prod": ((np.array([[1.0, 0, 2], [3, 4, 5], [0, 0, 1]]),),
             lambda x: infer.reduce(x, "prod", (1,)), lambda f, x: x.prod(1)),
    "amax": ((np.array([[1.0, 1, 0], [3, 4, 5], [0, 0, 0]]),),
             lambda x: infer.reduce(x, "max", (1,)), lambda f, x: x.amax(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_pytorchs(name):
    import torch

    arrays, ours, theirs = CASES[name]
    inputs = Inputs()
    leaves = [inputs.leaf(a) for a in arrays]
    output = ours(*leaves)
    seed = weights(output.shape)
    found = inputs.run(*gradients([output], [inputs.leaf(seed)], leaves))

    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    result = theirs(functional(), *tensors)
    np.testing.assert_allclose(inputs.run(output)[0], result.detach().numpy(), atol=1e-12)
    result.backward(torch.tensor(seed))
    for got, tensor in zip(found, tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_cross_entropy_of_a_network():
    import torch

    x, y = normal(6, 5), np.array([[0], [2], [1], [1], [0], [2]])
    w1, b1, w2 = normal(5, 8), normal(8), normal(8, 3)
    inputs = Inputs()
    leaves = [inputs.leaf(a) for a in (x, w1, b1, w2)]
    n, m, b, k = leaves
    hidden = c.relu(c.e(c.Op.ADD, c.matmul(n, m), infer.expand(b, (6, 8))))
    picked = infer.gather(c.log_softmax(c.matmul(hidden, k)), inputs.leaf(y), 1)
    loss = c.e(c.Op.NEG, c.mean(picked, (0, 1)))
    found = inputs.run(*gradients([loss], [infer.full((), 1.0, loss.dtype)], leaves))

    tensors = [torch.tensor(a, requires_grad=True) for a in (x, w1, b1, w2)]
    n, m, b, k = tensors
    functional().cross_entropy(torch.relu(n @ m + b) @ k, torch.tensor(y[:, 0])).backward()
    for got, tensor in zip(found, tensors, strict=True):
        np.testing.assert_allclose(got, tensor.grad.numpy(), rtol=1e-9, atol=1e-12)
