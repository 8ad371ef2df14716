"""Convolutions of `bench/shapes.py`: in one to three dimensions, their gradients, transposed ones.

The arrays of a type whose function has the attribute ``bfloat16`` are of that type in all systems;
their values fit it, so that the sums in float64 are those of the same numbers.
"""

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F

import weft

LEAST, MOST = 1 << 18, 1 << 28  # terms of a contraction

BOUNDS = [(1, 16), (1, 512), (1, 512)]  # images, channels of them and of the results
SIDES = {1: [(16, 4096)], 2: [(5, 128)] * 2, 3: [(3, 48)] * 3}  # by dimensions


def make_conv(draw, grouped=False, n=2):
    while True:
        batch, c, o, *sides = (draw.size(low, high) for low, high in [*BOUNDS, *SIDES[n]])
        kernel = draw.pick(1, 3, 3, 3, 5, 7)
        stride = draw.pick(1, 1, 1, 2)
        padding = draw.pick(0, kernel // 2, kernel // 2)
        dilation = draw.pick(1, 1, 1, 1, 2)
        groups = 1
        if grouped:
            groups = c if draw.pick(True, False) else draw.pick(2, 4, 8)
            c, o = -(-c // groups) * groups, groups * draw.pick(1, 1, 2)
            o = o if groups == c else -(-o // groups) * groups * 4
        spread = (kernel - 1) * dilation + 1
        if spread > min(sides) + 2 * padding:
            continue
        out = math.prod((size + 2 * padding - spread) // stride + 1 for size in sides)
        if LEAST <= batch * out * o * (c // groups) * kernel**n <= MOST:
            break
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return (draw.normal(batch, c, *sides), draw.normal(o, c // groups, *[kernel] * n)), options


def make_conv_gradient(draw):
    (x, w), options = make_conv(draw)
    out = F.conv2d(torch.from_numpy(x[:1]), torch.from_numpy(w), **options).shape
    return (x, w, draw.normal(len(x), *out[1:])), options


def weft_conv_gradient(which):
    def gradient(x, w, g, **options):
        def forward(y, other):
            return ((other.conv2d(y, **options) if which else y.conv2d(other, **options)) * g).sum()
        return weft.grad(forward)(*((w, x) if which else (x, w)))
    return gradient


def torch_conv_gradient(which):
    def gradient(x, w, g, stride, padding, dilation, groups):
        mask = [not which, which, False]
        return torch.ops.aten.convolution_backward(
            g, x, w, None, [stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups,
            mask)[int(which)]
    return gradient


def make_transposed(draw):
    """Return what `make_conv` draws, with the weight's channels exchanged and no more terms."""
    while True:
        (x, w), options = make_conv(draw)
        points = math.prod(x.shape[2:]) * len(x) * w.size
        if LEAST <= points <= MOST:
            return (x, np.ascontiguousarray(w.swapaxes(0, 1))), options


def make_bfloat16(draw, make=make_conv):
    arrays, options = make(draw)
    return tuple((a.view(np.uint32) & 0xFFFF0000).view(np.float32) for a in arrays), options


def weft_bfloat16(x, w, **options):
    return x.conv2d(w, **options)


def weft_bfloat16_gradient(which):
    gradient = weft_conv_gradient(which)
    gradient.bfloat16 = True
    return gradient


weft_bfloat16.bfloat16 = True

# name: (draw shapes, Weft, PyTorch, NumPy or None)
TYPES = {
    "conv": (make_conv, lambda x, w, **o: x.conv2d(w, **o), F.conv2d, None),
    "conv grouped": (functools.partial(make_conv, grouped=True),
                     lambda x, w, **o: x.conv2d(w, **o), F.conv2d, None),
    "conv gradient of input": (make_conv_gradient, weft_conv_gradient(False),
                               torch_conv_gradient(False), None),
    "conv gradient of weight": (make_conv_gradient, weft_conv_gradient(True),
                                torch_conv_gradient(True), None),
    "conv 1d": (functools.partial(make_conv, n=1), lambda x, w, **o: x.conv1d(w, **o),
                F.conv1d, None),
    "conv 3d": (functools.partial(make_conv, n=3), lambda x, w, **o: x.conv3d(w, **o),
                F.conv3d, None),
    "conv transposed": (make_transposed, lambda x, w, **o: x.conv_transpose2d(w, **o),
                        F.conv_transpose2d, None),
    "conv bfloat16": (make_bfloat16, weft_bfloat16, F.conv2d, None),
    "conv bfloat16 gradient of input": (
        functools.partial(make_bfloat16, make=make_conv_gradient), weft_bfloat16_gradient(False),
        torch_conv_gradient(False), None),
    "conv bfloat16 gradient of weight": (
        functools.partial(make_bfloat16, make=make_conv_gradient), weft_bfloat16_gradient(True),
        torch_conv_gradient(True), None),
}  # fmt: skip
