"""Accesses that run backwards read and write whole vectors, turned around in registers."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same, loop, memory, n, v
from weft.ir.op import Op
from weft.ir.stmt import Kernel, Load, Store
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.passes.vector.vectorize import vectorize
from weft.schedule import Schedule


def reversal(size, store):
    x, y = memory("x", size), memory("y", size)
    places = [(n(size - 1) - v("i"),), (v("i"),)]
    source, target = reversed(places) if store else places
    return Kernel("reversal", (x, y), (loop(
        "i", size, Load(nests.f("a"), x, source), Store(y, target, nests.f("a"))),))


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("size", [16, 24, 40])
def test_reversed_accesses_are_contiguous(size, store):
    kernel = reversal(size, store)
    made = Schedule(kernel).split("i", 8).vectorize("i.i").kernel
    flat = vectorize(made)
    verify(flat)
    assert_same(kernel, flat)
    accesses = [s for s in walk(flat.body) if isinstance(s, Load | Store)]
    assert accesses
    assert all(s.index[0].lanes == 1 for s in accesses)
    assert any(e.op is Op.REVERSE for s in walk(flat.body) for e in s.exprs())


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(7,), (64,), (130,), (5, 33), (3, 4, 50)])
def test_flip(shape, dtype):
    a = (np.random.default_rng(0).standard_normal(shape) * 10).astype(dtype)
    x = weft.tensor(a)
    for axis in range(a.ndim):
        np.testing.assert_array_equal(x.flip(axis).numpy(), np.flip(a, axis))
    both = x.flip(-1).float() - x.float()
    np.testing.assert_array_equal(both.numpy(), np.flip(a, -1).astype("f4") - a.astype("f4"))
