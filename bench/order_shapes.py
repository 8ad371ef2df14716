"""Kernel types of `bench/shapes.py` that move data: copies, sorts, lookups, pooling, draws.

A function with the attribute ``eager`` cannot be captured (the shape of its result is data), the
results of one with the attribute ``drawn`` are random and not compared.
"""

import numpy as np
import torch
import torch.nn.functional as F

import weft

LEAST, MOST = 1 << 12, 1 << 23  # elements of an array
KINDS = (np.float32, np.float32, np.float64, np.int8, np.int16, np.int64)


def data(draw, shape, kind=np.float32):
    if np.dtype(kind).kind == "f":
        return draw.normal(*shape).astype(kind)
    return draw.rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, shape, kind)


def make_transpose(draw):
    return (data(draw, draw.sizes([(2, 1 << 13)] * 2, LEAST, MOST), draw.pick(*KINDS)),), {}


def make_permute(draw):
    rank = draw.pick(3, 3, 4)
    shape = draw.sizes([(2, 512)] * rank, LEAST, MOST)
    while True:
        order = tuple(map(int, draw.rng.permutation(rank)))
        if order != tuple(range(rank)):
            return (data(draw, shape, draw.pick(*KINDS)),), {"order": order}


def make_step(draw):
    rows, columns = draw.sizes([(1, 1 << 13), (8, 1 << 16)], LEAST, MOST)
    return (draw.normal(rows, columns),), {"step": draw.pick(2, 2, 3, 4, 5, 8)}


def make_short(draw):
    rows, n = draw.sizes([(8, 1 << 18), (2, 4096)], LEAST, MOST >> 2)
    return (data(draw, (rows, n), draw.pick(np.float32, np.float32, np.int32, np.float64)),), {}


def make_long(draw):
    rows, n = draw.sizes([(1, 64), (1 << 12, 1 << 21)], LEAST, MOST >> 2)
    return (data(draw, (rows, n), draw.pick(np.float32, np.float32, np.int32, np.float64)),), {}


def make_any(draw):
    return draw.pick(make_short, make_long)(draw)


def make_patterned(draw):
    """Draw rows of which a good part is in order already, or few values differ."""
    rows, n = draw.sizes([(1, 256), (1 << 8, 1 << 20)], LEAST, MOST >> 2)
    place = np.arange(n)
    pattern = draw.pick("equal", "few", "sorted", "reversed", "organ pipe", "runs", "appended")
    row = {"equal": lambda: np.zeros(n), "few": lambda: draw.rng.integers(0, 5, n),
           "sorted": lambda: place, "reversed": lambda: place[::-1],
           "organ pipe": lambda: np.minimum(place, n - place),
           "runs": lambda: place % draw.size(2, n),
           "appended": lambda: np.where(place < n - n // 64, place, draw.rng.integers(0, n, n))}
    kind = draw.pick(np.float32, np.float32, np.int32, np.float64)
    return (np.tile(row[pattern]().astype(kind), (rows, 1)),), {"pattern": pattern}


def make_topk(draw):
    (x,), _ = make_any(draw)
    return (x,), {"k": min(draw.pick(1, 2, 5, 10, 50, 100), x.shape[1])}


def make_unique(draw):
    n = draw.size(1 << 10, 1 << 20)
    return (draw.rng.integers(0, draw.size(10, 1 << 30), n),), {}


def make_gather(draw):
    rows, n = draw.sizes([(2, 1 << 14)] * 2, LEAST, MOST >> 1)
    dim = draw.pick(0, 1)
    shape = [rows, n]
    shape[dim] = draw.size(2, 2 * shape[dim])
    return (draw.normal(rows, n), draw.rng.integers(0, (rows, n)[dim], shape)), {"dim": dim}


def make_embedding(draw):
    while True:
        rows, width, n = draw.size(2, 1 << 16), draw.size(4, 1024), draw.size(16, 1 << 14)
        if max(rows, n) * width <= MOST << 1 and n * width >= LEAST:
            return (draw.normal(rows, width), draw.rng.integers(0, rows, n)), {}


def make_embedding_gradient(draw):
    (x, index), _ = make_embedding(draw)
    return (x, index, draw.normal(len(index), x.shape[1])), {}


def make_add(draw):
    n, m = draw.size(16, 1 << 20), draw.size(1 << 12, 1 << 20)
    return (draw.normal(n), draw.rng.integers(0, n, m), draw.normal(m)), {}


def make_scatter(draw):
    """Draw rows, a permutation of some places of an axis, and what is put there."""
    rows, n = draw.sizes([(2, 1 << 14)] * 2, LEAST, MOST >> 1)
    dim = draw.pick(0, 1)
    x, keys = draw.normal(rows, n), draw.normal(rows, n)
    most = draw.size(1, x.shape[dim])
    index = keys.argsort(dim)[(slice(None),) * dim + (slice(most),)]
    return (x, np.ascontiguousarray(index), draw.normal(*index.shape)), {"dim": dim}


def make_mask(draw):
    n = draw.size(LEAST, MOST)
    return (draw.normal(n), draw.rng.random(n) < draw.pick(0.01, 0.3, 0.5, 0.9)), {}


def make_labels(draw):
    n, classes = draw.sizes([(16, 1 << 16), (2, 1 << 12)], LEAST, MOST >> 1)
    return (draw.rng.integers(0, classes, n),), {"classes": classes}


def make_recurrence(draw):
    rows, steps = draw.sizes([(1, 1 << 13), (16, 1 << 12)], LEAST, MOST >> 1)
    return (draw.rng.random((steps, rows), np.float32), draw.normal(steps, rows)), {}


def make_dropout(draw):
    return (draw.normal(draw.size(LEAST, MOST)),), {"p": draw.pick(0.1, 0.5)}


def make_pool(draw):
    while True:
        n, c, h, w = draw.size(1, 16), draw.size(1, 256), draw.size(4, 128), draw.size(4, 128)
        size = draw.pick(2, 2, 3, 3, 5)
        stride = draw.pick(1, 2, size)
        if LEAST <= n * c * h * w <= MOST and min(h, w) >= size:
            break
    options = {"kernel_size": size, "stride": stride, "padding": draw.pick(0, size // 2)}
    return (draw.normal(n, c, h, w),), options


def make_pool_gradient(draw):
    (x,), options = make_pool(draw)
    out = F.avg_pool2d(torch.from_numpy(x[:1, :1]), **options).shape[2:]
    return (x, draw.normal(*x.shape[:2], *out)), options


def make_draw(draw):
    return (), {"shape": (draw.size(1 << 8, 1 << 22),)}


def torch_gradient(fn):
    def gradient(x, *rest, **options):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            fn(x, *rest[:-1], **options).backward(rest[-1])
        return x.grad
    return gradient


def weft_gradient(fn):
    def gradient(x, *rest, **options):
        return weft.grad(lambda y: (fn(y, *rest[:-1], **options) * rest[-1]).sum())(x)
    return gradient


def weft_unique(x):
    return x.unique()


def np_scatter(x, index, updates, dim):
    out = x.copy()
    np.put_along_axis(out, index, updates, dim)
    return out


def np_one_hot(x, classes):
    out = np.zeros((len(x), classes), np.int64)
    out[np.arange(len(x)), x] = 1
    return out


def steps_of(empty):
    """Return a recurrence step by step over whole rows, as a user of an array library writes it."""
    def recurrence(factors, terms):
        out, h = empty(terms), terms[0]
        out[0] = h
        for k in range(1, len(terms)):
            h = factors[k] * h + terms[k]
            out[k] = h
        return out
    return recurrence


def marked(fn, mark):
    setattr(fn, mark, True)
    return fn


def drawn(fn):
    return marked(lambda **o: fn(*o["shape"]), "drawn")


# name: (draw shapes, Weft, PyTorch, NumPy or None)
TYPES = {
    "transpose": (make_transpose, lambda x: x.T.contiguous(), lambda x: x.T.contiguous(),
                  lambda x: np.ascontiguousarray(x.T)),
    "permute": (make_permute, lambda x, order: x.permute(*order).contiguous(),
                lambda x, order: x.permute(*order).contiguous(),
                lambda x, order: np.ascontiguousarray(x.transpose(order))),
    "every nth element": (make_step, lambda x, step: x[:, ::step].contiguous(),
                          lambda x, step: x[:, ::step].contiguous(),
                          lambda x, step: np.ascontiguousarray(x[:, ::step])),
    "sort short rows": (make_short, lambda x: x.sort()[0], lambda x: x.sort()[0], np.sort),
    "sort long rows": (make_long, lambda x: x.sort()[0], lambda x: x.sort()[0], np.sort),
    "sort in some order": (make_patterned, lambda x, pattern: x.sort()[0],
                           lambda x, pattern: x.sort()[0],
                           lambda x, pattern: np.sort(x)),
    "argsort": (make_any, lambda x: x.argsort(), lambda x: x.argsort(stable=True),
                lambda x: np.argsort(x, kind="stable")),
    "topk": (make_topk, lambda x, k: x.topk(k)[0], lambda x, k: x.topk(k)[0], None),
    "unique": (make_unique, marked(weft_unique, "eager"), torch.unique, np.unique),
    "gather": (make_gather, lambda x, i, dim: x.gather(dim, i),
               lambda x, i, dim: x.gather(dim, i),
               lambda x, i, dim: np.take_along_axis(
                   x[:i.shape[0]] if dim else x[:, :i.shape[1]], i, dim)),
    "embedding": (make_embedding, lambda x, i: x[i], lambda x, i: F.embedding(i, x),
                  lambda x, i: x[i]),
    "embedding gradient": (make_embedding_gradient, weft_gradient(lambda x, i: x[i]),
                           torch_gradient(lambda x, i: F.embedding(i, x)), None),
    "scatter add": (make_add, lambda x, i, u: x.scatter_add(0, i, u),
                    lambda x, i, u: x.scatter_add(0, i, u), None),
    "scatter": (make_scatter, lambda x, i, u, dim: x.scatter(dim, i, u),
                lambda x, i, u, dim: x.scatter(dim, i, u), np_scatter),
    "one hot": (make_labels, lambda x, classes: x.one_hot(classes),
                lambda x, classes: F.one_hot(x, classes), np_one_hot),
    "masked select": (make_mask, marked(lambda x, m: x[m], "eager"), lambda x, m: x[m],
                      lambda x, m: x[m]),
    "nonzero": (make_mask, marked(lambda x, m: m.nonzero(), "eager"), lambda x, m: m.nonzero(),
                lambda x, m: np.argwhere(m)),
    "linear recurrence": (make_recurrence, lambda a, b: a.linear_recurrence(b, 0),
                          steps_of(torch.empty_like), steps_of(np.empty_like)),
    "max pool": (make_pool, lambda x, **o: x.max_pool2d(**o), F.max_pool2d, None),
    "average pool": (make_pool, lambda x, **o: x.avg_pool2d(**o), F.avg_pool2d, None),
    "max pool gradient": (make_pool_gradient,
                          weft_gradient(lambda x, **o: x.max_pool2d(**o)),
                          torch_gradient(F.max_pool2d), None),
    "average pool gradient": (make_pool_gradient,
                              weft_gradient(lambda x, **o: x.avg_pool2d(**o)),
                              torch_gradient(F.avg_pool2d), None),
    "dropout": (make_dropout, marked(weft.dropout, "drawn"), F.dropout, None),
    "rand": (make_draw, drawn(weft.rand), lambda shape: torch.rand(shape),
             lambda shape: np.random.default_rng(0).random(shape, np.float32)),
    "randn": (make_draw, drawn(weft.randn), lambda shape: torch.randn(shape),
              lambda shape: np.random.default_rng(0).standard_normal(shape, np.float32)),
}  # fmt: skip
