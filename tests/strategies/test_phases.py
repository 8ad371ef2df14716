"""Loops written out by remainder: gradients of windows, repeated elements, masks with a stride."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same, loop, memory, v
from weft.ir import expr as ex
from weft.ir.stmt import Kernel, Load, Meta, Store
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.passes.vector.vectorize import vectorize
from weft.schedule import Schedule
from weft.strategies import choose
from weft.target import Target

TARGET = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, l1_bytes=32 << 10,
                l2_bytes=1 << 20, l3_bytes=32 << 20, cores=2)


def repeated(rows, n, times):
    """y[r, i] = x[r, i // times], zero where i % times is 1."""
    x, y = memory("x", rows, -(-n // times)), memory("y", rows, n)
    i = v("i")
    kept = (i % times).ne(1)
    body = loop("r", rows, loop("i", n, Load(nests.f("a"), x, (v("r"), i // times), kept),
                                Store(y, (v("r"), i), nests.f("a"))))  # fmt: skip
    return Kernel("repeated", (x, y), (body,), Meta(kind="elementwise"))


@pytest.mark.parametrize("times", [2, 3, 4, 8])
@pytest.mark.parametrize("n", [48, 63, 64, 97, 200])
def test_repeated_elements(n, times):
    kernel = repeated(3, n, times)
    made = choose(kernel, TARGET, 1)
    flat = vectorize(made)
    verify(flat)
    assert_same(kernel, flat)
    assert any("remainder" in str(h) for h in made.meta.hints)
    if n % times == 0 and n >= 16 * times:  # else a mask cuts off the last lanes
        wide = [s for s in walk(flat.body) if isinstance(s, Load | Store)
                and s.index[0].lanes > 1]  # fmt: skip
        assert not wide


@pytest.mark.parametrize("step", [1, 2, 3, 5, -2, -3])
@pytest.mark.parametrize("limit", [0, 1, 7, 30, 31, 32, 33, 95, 200])
def test_masks_with_a_stride(step, limit):
    """Comparisons of lanes that count in steps, from both sides, strict and not."""
    x, y = memory("x", 32), memory("y", 4, 32)
    i = v("i")
    place = i * step + (100 if step < 0 else 0)
    n = ex.index(limit)
    tests = (place.lt(n), place.le(n), n.lt(place), n.le(place))
    body = [Load(nests.f("a"), x, (i,))]
    zero = ex.const(0.0, nests.f("a").dtype)
    body += [Store(y, (ex.index(k), i), ex.where(t, nests.f("a"), zero))
             for k, t in enumerate(tests)]  # fmt: skip
    kernel = Kernel("masks", (x, y), (loop("i", 32, *body),), Meta(kind="elementwise"))
    flat = vectorize(Schedule(kernel).split("i", 16).vectorize("i.i").kernel)
    verify(flat)
    assert_same(kernel, flat)


@pytest.mark.parametrize("stride", [2, 3])
@pytest.mark.parametrize("limit", [0, 5, 20, 31, 40])
def test_masked_loads_of_a_small_stride(stride, limit):
    """Lanes of which some are left out are picked from loads that leave out the same places."""
    i, j = v("i"), v("j")
    x, y = memory("x", limit * stride + 1), memory("y", 2, 32)
    body = loop("i", 2, loop("j", 32, Load(nests.f("a"), x, (j * stride,), j.lt(limit + 1) & (
        i.eq(0) | j.lt(limit))), Store(y, (i, j), nests.f("a"))))  # fmt: skip
    kernel = Kernel("masked", (x, y), (body,), Meta(kind="elementwise"))
    flat = vectorize(Schedule(kernel).split("j", 16).vectorize("j.i").kernel)
    verify(flat)
    assert_same(kernel, flat)
    assert not [s for s in walk(flat.body) if isinstance(s, Load) and s.index[0].lanes > 1]


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("size", [(7, 9), (32, 33), (56, 64)])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [
    (2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2), (3, 2, 0), (2, 1, 0)])  # fmt: skip
def test_gradients_of_pooling(size, kernel, stride, padding):
    import torch
    import torch.nn.functional as F

    rng = np.random.default_rng(kernel * stride)
    a = rng.standard_normal((2, 3, *size)).astype(np.float32)
    for name in ("max_pool2d", "avg_pool2d"):
        t = torch.from_numpy(a).requires_grad_()
        out = getattr(F, name)(t, kernel, stride, padding)
        g = rng.standard_normal(out.shape).astype(np.float32)
        out.backward(torch.from_numpy(g))
        x = weft.tensor(a).requires_grad_()
        y = getattr(x, name)(kernel, stride, padding)
        np.testing.assert_allclose(y.detach().numpy(), out.detach().numpy(), rtol=1e-5, atol=1e-6)
        (y * weft.tensor(g)).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-4, atol=1e-5)
