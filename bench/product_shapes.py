"""Products of `bench/shapes.py`: small ones, vectors, and other types than float32.

The arrays of a type whose function has the attribute ``bfloat16`` are of that type in all systems;
their values fit it, so that the sums in float64 are those of the same numbers.
"""

import functools

import numpy as np
import torch

import weft

LEAST, MOST = 1 << 18, 1 << 28  # terms of a product
SMALL = 96  # the longest side of a small product


def make_sides(draw, left="n", right="n"):
    m, n, k = draw.sizes([(1, 4096)] * 3, LEAST, MOST)
    a = draw.normal(m, k) if left == "n" else draw.normal(k, m)
    return a, draw.normal(k, n) if right == "n" else draw.normal(n, k)


def make_small(draw):
    m, n, k = (draw.size(2, SMALL) for _ in range(3))
    return (draw.normal(m, k), draw.normal(k, n)), {}


def make_middle(draw, right="n"):
    m, n, k = (draw.size(60, 300) for _ in range(3))
    return (draw.normal(m, k), draw.normal(k, n) if right == "n" else draw.normal(n, k)), {}


def make_small_batched(draw):
    batch, m, n, k = draw.sizes([(2, 4096), *[(2, 48)] * 3], 1 << 14, 1 << 24)
    return (draw.normal(batch, m, k), draw.normal(batch, k, n)), {}


def make_vector(draw, left):
    n, k = draw.sizes([(16, 1 << 14), (16, 1 << 14)], 1 << 12, 1 << 25)
    matrix, vector = draw.normal(n, k), draw.normal(n if left else k)
    return ((vector, matrix) if left else (matrix, vector)), {}


def make_typed(draw, dtype, left="n", right="n"):
    return tuple(a.astype(dtype) for a in make_sides(draw, left, right)), {}


def make_bytes(draw):
    a, b = make_sides(draw, right="t")
    return tuple(np.clip(x * 40, -128, 127).astype(np.int8) for x in (a, b)), {}


def make_weights(draw):
    a, b = make_sides(draw, right="t")
    scale = np.abs(b).max(1) / 127
    return (a, np.round(b / scale[:, None]).astype(np.int8), scale), {}


def bfloat16(a):
    """Return float32 values that fit bfloat16."""
    return (a.view(np.uint32) & 0xFFFF0000).view(np.float32)


def make_bfloat16(draw, left="n", right="n"):
    return tuple(map(bfloat16, make_sides(draw, left, right))), {}


def make_bfloat16_batched(draw):
    batch, m, n, k = draw.sizes([(2, 256), *[(1, 512)] * 3], LEAST, MOST)
    return (bfloat16(draw.normal(batch, m, k)), bfloat16(draw.normal(batch, k, n))), {}


def make_bfloat16_skinny(draw):
    small, n, k = draw.sizes([(1, 16), (32, 8192), (32, 8192)], LEAST, MOST)
    return (bfloat16(draw.normal(small, k)), bfloat16(draw.normal(n, k))), {}


def product(a, b):
    return a @ b


def product_nt(a, b):
    return a @ b.T


def product_tn(a, b):
    return a.T @ b


def narrow(function):
    """Return a function of bfloat16 arrays."""
    def run(a, b):
        return function(a, b)
    run.bfloat16 = True
    return run


def bytes_weft(a, b):
    return a.to(weft.int32) @ b.T.to(weft.int32)


def bytes_torch(a, b):
    return torch._int_mm(a, b.T)


def weights_weft(x, w, scale):
    return x @ (w.to(weft.float32) * scale[:, None]).T


def weights_torch(x, w, scale):
    return x @ (w.to(x.dtype) * scale[:, None]).T


# name: (draw shapes, Weft, PyTorch, NumPy or None)
TYPES = {
    "small product": (make_small, product, product, product),
    "small product batched": (make_small_batched, product, product, product),
    "middle product nn": (make_middle, product, product, product),
    "middle product nt": (functools.partial(make_middle, right="t"), *[product_nt] * 3),
    "matrix times vector": (functools.partial(make_vector, left=False), *[product] * 3),
    "vector times matrix": (functools.partial(make_vector, left=True), *[product] * 3),
    "float64 product nn": (functools.partial(make_typed, dtype=np.float64), *[product] * 3),
    "float64 product nt": (functools.partial(make_typed, dtype=np.float64, right="t"),
                           *[product_nt] * 3),
    "float16 product nn": (functools.partial(make_typed, dtype=np.float16), product, product, None),
    "float16 product nt": (functools.partial(make_typed, dtype=np.float16, right="t"), product_nt,
                           product_nt, None),
    "bfloat16 product nn": (make_bfloat16, narrow(product), product, None),
    "bfloat16 product nt": (functools.partial(make_bfloat16, right="t"), narrow(product_nt),
                            product_nt, None),
    "bfloat16 product tn": (functools.partial(make_bfloat16, left="t"), narrow(product_tn),
                            product_tn, None),
    "bfloat16 product batched": (make_bfloat16_batched, narrow(product), product, None),
    "bfloat16 product skinny": (make_bfloat16_skinny, narrow(product_nt), product_nt, None),
    "int8 product": (make_bytes, bytes_weft, bytes_torch, None),
    "int8 weights": (make_weights, weights_weft, weights_torch, None),
}  # fmt: skip
