"""Sums over more taps than a picture has points go over its points, and give what they gave."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same, loop, memory, v
from weft.driver import counters
from weft.ir import expr as ex
from weft.ir.stmt import Accumulator, Axis, Kernel, Load, Meta, Reduce, Store, lhs, rhs
from weft.ir.traverse import walk
from weft.kernelize.windows.tap_interchange import interchange_taps


def windows(points, taps, rows, kind, sign=-1, start=0):
    """y[i] = the sum of g[start + i + sign*k] * w[k] where it is inside.

    A row-wise sum has no products: it picks the places by ``w[k]``, as gradients of pooling do.
    """
    g, w, y = memory("g", points), memory("w", taps), memory("y", rows)
    i, k, a, b, s = v("i"), v("k"), nests.f("a"), nests.f("b"), nests.f("s")
    place = i - k + start if sign < 0 else i + k + start
    inside = place.ge(0) & place.lt(points)
    zero = ex.const(0.0, a.dtype)
    term = ex.where(inside, a, zero)
    term = ex.where(b.lt(zero), term, zero) if kind == "rowwise" else term * b
    reduce = Reduce((Axis(k, ex.index(taps)),),
                    (Accumulator(s, zero, s + term, lhs(s) + rhs(s)),),
                    (Load(a, g, (place,), inside), Load(b, w, (k,))))
    body = loop("i", rows, reduce, Store(y, (i,), s))
    return Kernel("windows", (g, w, y), (body,), Meta(kind=kind))


def extents(kernel):
    return [a.extent.attr for s in walk(kernel.body) if isinstance(s, Reduce) for a in s.axes]


@pytest.mark.parametrize(("sign", "start"), [(-1, 0), (-1, 2), (1, -4), (1, -2), (1, 0)])
@pytest.mark.parametrize(("points", "taps", "rows"), [(1, 5, 5), (2, 5, 6), (4, 5, 3), (3, 7, 11)])
def test_points_instead_of_taps(points, taps, rows, sign, start):
    kernel = windows(points, taps, rows, "rowwise", sign, start)
    made = interchange_taps(kernel)
    assert_same(kernel, made)
    assert extents(made) == [points]


def test_products_turn_where_both_factors_stay_plain():
    dense = interchange_taps(windows(1, 5, 5, "contraction"))
    assert extents(dense) == [1]
    assert_same(windows(1, 5, 5, "contraction"), dense)
    assert not any(s.mask is not None for s in walk(dense.body) if isinstance(s, Load))
    for other in (windows(2, 5, 6, "contraction"), windows(5, 5, 9, "rowwise"),
                  windows(2, 5, 6, "apart")):
        assert interchange_taps(other) is other


@pytest.mark.parametrize(("picture", "taps", "padding"), [((6, 20), 7, 3), ((5, 9), 7, 3)])
def test_windows_of_channels_of_their_own_stay_windows_on_low_pictures(picture, taps, padding):
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 5, *picture), dtype=np.float32)
    w = rng.standard_normal((5, 1, taps, taps), dtype=np.float32)
    with counters.record() as record:
        found = weft.tensor(x).conv2d(weft.tensor(w), padding=padding, groups=5).numpy()
    (built,) = record.built
    assert extents(built.nest) == [taps, taps]
    sides = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    seen = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.float64), sides), (taps, taps), (2, 3))
    np.testing.assert_allclose(found, np.einsum("bchwij,cij->bchw", seen, w[:, 0]), atol=1e-5)


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), [
    ((2, 3, 13, 5), 5, 1, 0), ((1, 4, 4, 13), 3, 2, 0), ((2, 2, 5, 39), 5, 1, 0),
    ((2, 3, 3, 3), 3, 1, 1), ((1, 2, 6, 7), 5, 2, 2)])
def test_gradients_of_tiny_results(shape, kernel, stride, padding):
    import torch
    import torch.nn.functional as tf

    rng = np.random.default_rng(3)
    x = rng.integers(-3, 4, shape).astype(np.float32)  # with ties
    x.flat[5] = np.nan
    w = rng.integers(-3, 4, (4, shape[1], kernel, kernel)).astype(np.float32)
    for name in ("max_pool2d", "avg_pool2d", "conv2d"):
        first = w if name == "conv2d" else kernel
        tx = torch.from_numpy(x).requires_grad_()
        out = getattr(tf, name)(tx, torch.from_numpy(w) if name == "conv2d" else kernel,
                                stride=stride, padding=padding)
        g = rng.integers(-3, 4, tuple(out.shape)).astype(np.float32)
        out.backward(torch.from_numpy(g))
        other = weft.from_numpy(first) if name == "conv2d" else first
        found = weft.grad(lambda t, name=name, other=other, g=g: (getattr(t, name)(
            other, stride=stride, padding=padding) * weft.from_numpy(g)).sum())(weft.from_numpy(x))
        np.testing.assert_allclose(found.numpy(), tx.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 5, 9, 20), (1, 3, 8, 7)])
def test_parameters_of_a_padded_picture_are_read_without_its_mask(shape):
    rng = np.random.default_rng(4)
    x = rng.standard_normal(shape).astype(np.float32)
    mean, scale = (rng.standard_normal(shape[1]).astype(np.float32) for _ in range(2))

    def pooled(x, mean, scale):
        y = (x - mean.reshape(-1, 1, 1)) * scale.reshape(-1, 1, 1)
        return y.max_pool2d(3, stride=2, padding=1)

    with counters.record() as record:
        found = weft.jit(pooled)(*map(weft.tensor, (x, mean, scale))).realize().numpy()
    (nest,) = [b.nest for b in record.built]
    loads = [s for s in walk(nest.body) if isinstance(s, Load)]
    assert {s.mask is None for s in loads if len(s.memory.shape) == 1} == {True}
    assert {s.mask is None for s in loads if len(s.memory.shape) > 1} == {False}
    y = (x - mean[:, None, None]) * scale[:, None, None]
    y = np.pad(y, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    seen = np.lib.stride_tricks.sliding_window_view(y, (3, 3), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(found, seen.max((4, 5)))
