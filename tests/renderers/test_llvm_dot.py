"""The dot products of packed words, natively, against the interpreter: bit for bit."""

import math

import numpy as np
import pytest
from compiled import evaluate

from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret_scalar import function
from weft.ir.op import Op
from weft.target import native_operations

LANES = [1, 2, 4, 8, 16, 32, 64]


def plain():
    """This machine without instructions for dot products: they are decomposed."""
    return cpu.host_target().replace(operations=native_operations())


def columns(op, rng, count):
    words = [rng.integers(0, 1 << 32, count, dtype=np.uint32) for _ in range(2)]
    if op is not Op.DOT2:
        return [rng.integers(-(1 << 31), 1 << 31, count).astype(np.int32), *words]
    total = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    total[: count // 2] = rng.standard_normal(count // 2)
    for word in words:  # half of them numbers of ordinary size, some of those tiny
        size = np.where(rng.random((count // 2, 2)) < 0.3, 1e-20, 1)
        pairs = (rng.standard_normal((count // 2, 2)) * size).astype(np.float32)
        word[: count // 2] = (pairs.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)[:, 0]
    return [total, *words]


@pytest.mark.parametrize("op", [Op.DOT2, Op.DOT4, Op.DOT4S], ids=lambda op: op.name)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("target", [None, plain], ids=["host", "decomposed"])
def test_dot(op, lanes, target, rng):
    kind = dt.float32 if op is Op.DOT2 else dt.int32
    data = columns(op, rng, 512)
    names = {ex.var(x, d, lanes): None for x, d in zip("sab", (kind, dt.uint32, dt.uint32),
                                                        strict=True)}
    options = {} if target is None else {"target": target()}
    (got,) = evaluate([ex.dot(op, *names)], list(names), data, lanes, **options)
    fn = function(op, dt.uint32, kind)
    want = [fn(*row) for row in zip(*(c.tolist() for c in data), strict=True)]
    for g, w, *row in zip(got.tolist(), want, *data, strict=True):
        same = g == w and (kind is dt.int32 or math.copysign(1, g) == math.copysign(1, w))
        assert same or (g != g and w != w), (row, g, w)
