"""Networks' usual parts, written in nodes as the front end writes them."""

from weft.ir import infer
from weft.ir.op import Op


def e(op, *args):
    return infer.elementwise(op, *args)


def full(like, value):
    return infer.full(like.shape, value, like.dtype)


def keep(r, axes, like):
    return infer.expand(
        infer.reshape(r, tuple(1 if a in axes else s for a, s in enumerate(like.shape))), like.shape
    )


def mean(x, axes):
    n = 1
    for a in axes:
        n *= x.shape[a]
    total = infer.reduce(x, "sum", axes)
    return e(Op.DIV, total, full(total, float(n)))


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    wide = (m, n, k)
    return infer.reduce(e(
        Op.MUL, infer.expand(infer.reshape(a, (m, 1, k)), wide),
        infer.expand(infer.reshape(infer.permute(b, (1, 0)), (1, n, k)), wide),
    ), "sum", (2,))  # fmt: skip


def softmax(x, axis=-1):
    axis %= x.ndim
    top = infer.detach(infer.reduce(x, "max", (axis,)))
    p = e(Op.EXP, e(Op.SUB, x, keep(top, (axis,), x)))
    return e(Op.DIV, p, keep(infer.reduce(p, "sum", (axis,)), (axis,), x))


def log_softmax(x, axis=-1):
    axis %= x.ndim
    shifted = e(Op.SUB, x, keep(infer.detach(infer.reduce(x, "max", (axis,))), (axis,), x))
    total = infer.reduce(e(Op.EXP, shifted), "sum", (axis,))
    return e(Op.SUB, shifted, keep(e(Op.LOG, total), (axis,), x))


def normalize(x, axes, eps=1e-5):
    d = e(Op.SUB, x, keep(mean(x, axes), axes, x))
    variance = mean(e(Op.MUL, d, d), axes)
    return e(Op.MUL, d, keep(e(Op.RSQRT, e(Op.ADD, variance, full(variance, eps))), axes, x))


def layer_norm(x, weight, bias):
    y = normalize(x, (x.ndim - 1,))
    return e(Op.ADD, e(Op.MUL, y, infer.expand(weight, x.shape)), infer.expand(bias, x.shape))


def batch_norm(x, weight, bias):
    y = normalize(x, (0, 2, 3))
    column = (weight.shape[0], 1, 1)
    return e(Op.ADD, e(Op.MUL, y, infer.expand(infer.reshape(weight, column), x.shape)),
             infer.expand(infer.reshape(bias, column), x.shape))  # fmt: skip


def windows(x, size, stride=1, padding=0, dilation=1):
    """(n, c, h, w) to (n, c, oh, ow, kh, kw)."""
    amounts = (0, 0, padding, padding)
    x = infer.pad(x, amounts, amounts, 0.0)
    return infer.window(infer.window(x, 2, size, stride, dilation), 3, size, stride, dilation)


def conv2d(x, weight, stride=1, padding=0, dilation=1):
    p = windows(x, weight.shape[2], stride, padding, dilation)
    n, c, oh, ow, kh, kw = p.shape
    o = weight.shape[0]
    wide = (n, o, oh, ow, c, kh, kw)
    p = infer.expand(infer.reshape(infer.permute(p, (0, 2, 3, 1, 4, 5)),
                                   (n, 1, oh, ow, c, kh, kw)), wide)  # fmt: skip
    w = infer.expand(infer.reshape(weight, (1, o, 1, 1, c, kh, kw)), wide)
    return infer.reduce(e(Op.MUL, p, w), "sum", (4, 5, 6))


def max_pool(x, size, stride):
    return infer.reduce(windows(x, size, stride), "max", (4, 5))


def average_pool(x, size, stride):
    return mean(windows(x, size, stride), (4, 5))


def gelu(x):
    half = e(Op.MUL, x, full(x, 0.5))
    return e(Op.MUL, half, e(Op.ADD, e(Op.ERF, e(Op.MUL, x, full(x, 0.5**0.5))), full(x, 1.0)))


def relu(x):
    zero = full(x, 0.0)
    return e(Op.WHERE, e(Op.LE, x, zero), zero, x)
