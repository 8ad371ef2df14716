"""Graphs that many tests build, straight from checked node builders."""

import math

import numpy as np

from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op

el = infer.elementwise


def leaf(*shape, dtype=dt.float32):
    """Return an array without memory."""
    return infer.reshape(nd.buffer(nd.Storage(dtype, math.prod(shape))), shape)


def hosted(array):
    """Return an array in NumPy's memory, which the node keeps alive."""
    from weft import driver

    array = np.ascontiguousarray(array)
    held = driver.from_host(array.ctypes.data, array.nbytes, array)
    return infer.reshape(
        nd.buffer(nd.Storage(dt.as_dtype(array.dtype), array.size, held)), array.shape
    )


def full(like, value):
    return infer.full(like.shape, value, like.dtype)


def kept(reduced, axes, like):
    """Return a reduction spread over the axes it dropped."""
    ones = tuple(1 if a in axes else d for a, d in enumerate(like.shape))
    return infer.expand(infer.reshape(reduced, ones), like.shape)


def softmax(x, axis=-1):
    axis %= x.ndim
    e = el(Op.EXP, el(Op.SUB, x, kept(infer.reduce(x, "max", (axis,)), (axis,), x)))
    return el(Op.DIV, e, kept(infer.reduce(e, "sum", (axis,)), (axis,), x))


def log_softmax(x):
    axis = x.ndim - 1
    shifted = el(Op.SUB, x, kept(infer.reduce(x, "max", (axis,)), (axis,), x))
    total = infer.reduce(el(Op.EXP, shifted), "sum", (axis,))
    return el(Op.SUB, shifted, kept(el(Op.LOG, total), (axis,), x))


def moments(x):
    """Return the deviation from the row mean and the reciprocal deviation of the row."""
    axes = (x.ndim - 1,)
    count = float(x.shape[-1])
    total = infer.reduce(x, "sum", axes)
    mean = el(Op.DIV, total, full(total, count))
    deviation = el(Op.SUB, x, kept(mean, axes, x))
    squares = infer.reduce(el(Op.MUL, deviation, deviation), "sum", axes)
    variance = el(Op.DIV, squares, full(squares, count))
    return deviation, el(Op.RSQRT, el(Op.ADD, variance, full(variance, 1e-5)))


def layer_norm(x):
    deviation, scale = moments(x)
    return el(Op.MUL, deviation, kept(scale, (x.ndim - 1,), x))


def layer_norm_backward(x, weight, g):
    """Return the gradients of input, weight and bias."""
    axes = (x.ndim - 1,)
    count = float(x.shape[-1])
    deviation, scale = moments(x)
    wide = kept(scale, axes, x)
    normal = el(Op.MUL, deviation, wide)
    weighted = el(Op.MUL, g, infer.expand(weight, x.shape))

    def mean(v):
        total = infer.reduce(v, "sum", axes)
        return kept(el(Op.DIV, total, full(total, count)), axes, x)

    inner = el(Op.SUB, weighted, mean(weighted))
    projected = el(Op.MUL, normal, mean(el(Op.MUL, weighted, normal)))
    rows = tuple(range(x.ndim - 1))
    return (el(Op.MUL, el(Op.SUB, inner, projected), wide),
            infer.reduce(el(Op.MUL, g, normal), "sum", rows), infer.reduce(g, "sum", rows))


def softmax_backward(y, g):
    axes = (y.ndim - 1,)
    dot = infer.reduce(el(Op.MUL, y, g), "sum", axes)
    return el(Op.MUL, y, el(Op.SUB, g, kept(dot, axes, y)))


def matmul(a, b):
    (m, k), (_, n) = a.shape, b.shape
    left = infer.expand(infer.reshape(a, (m, 1, k)), (m, n, k))
    right = infer.expand(infer.reshape(infer.permute(b, (1, 0)), (1, n, k)), (m, n, k))
    return infer.reduce(el(Op.MUL, left, right), "sum", (2,))


def conv2d(x, w, padding=1):
    batch, channels = x.shape[:2]
    outputs, _, height, width = w.shape
    amounts = (0, 0, padding, padding)
    seen = infer.window(infer.window(infer.pad(x, amounts, amounts), 2, height), 3, width)
    rows, columns = seen.shape[2:4]
    shape = (batch, outputs, rows, columns, channels, height, width)
    seen = infer.permute(seen, (0, 2, 3, 1, 4, 5))
    seen = infer.reshape(seen, (batch, 1, rows, columns, channels, height, width))
    seen = infer.expand(seen, shape)
    weights = infer.expand(infer.reshape(w, (1, outputs, 1, 1, channels, height, width)), shape)
    return infer.reduce(el(Op.MUL, seen, weights), "sum", (4, 5, 6))
