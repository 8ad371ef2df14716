"""Gradients of convolutions of odd shapes, strides and few channels, against float64."""

import numpy as np
import pytest

import weft
from schedule_costs import WIDE, costs_on
from seeds import seeds
from weft.driver import counters
from weft.graph.simplify import simplify
from weft.kernelize.build import kernelize

pytestmark = pytest.mark.usefixtures("compiled")


def gradients(n, c, height, width, outputs, kernel, stride, padding, dilation, dtype=np.float32):
    """Return the gradients by both operands, and those in float64, tap by tap."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, c, height, width)).astype(dtype)
    w = rng.standard_normal((outputs, c, kernel, kernel)).astype(dtype)
    rows, columns = ((m + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1
                     for m in (height, width))
    g = rng.standard_normal((n, outputs, rows, columns)).astype(dtype)
    tx, tw, tg = map(weft.from_numpy, (x, w, g))
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    found = [weft.grad(lambda t: (t.conv2d(tw, **options) * tg).sum())(tx),
             weft.grad(lambda t: (tx.conv2d(t, **options) * tg).sum())(tw)]
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    by_input, by_weight = np.zeros(wide.shape), np.zeros(w.shape)
    for i in range(kernel):
        for j in range(kernel):
            place = (..., *[slice(t * dilation, t * dilation + (m - 1) * stride + 1, stride)
                            for t, m in ((i, rows), (j, columns))])
            by_input[place] += np.einsum("nohw,oc->nchw", g.astype(np.float64), w[..., i, j])
            by_weight[..., i, j] = np.einsum("nohw,nchw->oc", g.astype(np.float64), wide[place])
    if padding:
        by_input = by_input[:, :, padding:-padding, padding:-padding]
    return [f.numpy() for f in found], [by_input, by_weight]


# Images, channels, height, width, outputs, kernel, stride, padding, dilation.
SHAPES = [
    (2, 12, 13, 9, 40, 3, 2, 1, 1), (3, 9, 7, 5, 33, 5, 1, 2, 1), (2, 17, 11, 8, 24, 3, 2, 0, 1),
    (2, 1, 23, 19, 17, 7, 2, 3, 1), (1, 1, 30, 31, 5, 3, 3, 1, 1), (2, 1, 11, 13, 3, 2, 4, 0, 1),
    (3, 1, 6, 33, 35, 3, 1, 1, 1), (2, 2, 5, 18, 21, 3, 1, 1, 1), (2, 65, 9, 8, 16, 3, 2, 0, 1),
    (1, 3, 17, 13, 44, 3, 2, 1, 2), (2, 13, 14, 6, 20, 2, 3, 0, 1), (1, 31, 5, 5, 10, 1, 2, 0, 1),
    (6, 3, 29, 41, 5, 5, 1, 0, 1), (3, 2, 40, 37, 7, 7, 1, 3, 1), (2, 4, 90, 75, 3, 3, 1, 1, 1),
]


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=["x".join(map(str, s)) for s in SHAPES])
def test_gradients(shape, dtype):
    found, wanted = gradients(*shape, dtype=dtype)
    for got, want in zip(found, wanted, strict=True):
        scale = np.abs(want).max()
        assert np.abs(got - want).max() <= (2e-6 if dtype is np.float32 else 1e-14) * scale


@pytest.mark.parametrize("shape", SHAPES[-3:], ids=["x".join(map(str, s)) for s in SHAPES[-3:]])
def test_images_stay_near_for_all_tiles(shape):
    """Sums of lanes stay apart over blocks of images, which are copied once for all tiles."""
    with counters.record() as recording:
        gradients(*shape)
    (cost,) = [c for c in costs_on(WIDE, recording) if c.form == "weight_gradient"]
    assert 4 * cost.read["in1"] < cost.read["in1.w"]
    assert cost.private["sum3.t"] >= 2 * 4 * cost.written["out0"]


@pytest.mark.parametrize("outputs", [1, 7, 16, 40])
@pytest.mark.parametrize("images", [1, 6, 17])
def test_windows_of_a_picture_of_one_point(images, outputs):
    """No axis of the sum moves the weights then: the picture has one point for all taps."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((images, 1, 1))
    w = rng.standard_normal((outputs, 1, 3))
    found = weft.jit(lambda x, w: x.conv1d(w, stride=2, padding=2))(
        weft.from_numpy(x), weft.from_numpy(w)).numpy()
    wanted = np.stack([x[:, :, 0] * w[None, :, 0, 2], x[:, :, 0] * w[None, :, 0, 0]], -1)
    assert np.array_equal(found, wanted)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("seed", seeds(2))
def test_gradients_by_images_are_contractions_in_every_type(dtype, seed):
    rng = np.random.default_rng(seed)
    x, w, up = (rng.integers(-4, 5, s).astype(np.float32) for s in (
        (2, 24, 9, 20), (16, 24, 3, 3), (2, 16, 9, 20)))
    arrays = [weft.from_numpy(a) for a in (x, w, up)]
    narrow = [a.astype(getattr(weft, dtype)) for a in arrays]

    def gradient(x, w, up):
        return weft.grad(lambda x: (x.conv2d(w, padding=1) * up).sum())(x)

    steps = kernelize(simplify([gradient(*narrow)._read()]))
    assert [s.kernel.meta.kind for s in steps if s.kernel.meta.flops > 10**6] == ["contraction"]
    found = weft.jit(gradient)(*narrow)
    wanted = weft.jit(gradient)(*arrays).astype(found.dtype)  # sums of integers, rounded once
    assert np.array_equal(found.astype(weft.float32).numpy(), wanted.astype(weft.float32).numpy())


def test_narrow_gradients_of_few_channels_keep_no_array_between():
    """A sum over taps of one axis alone was written transposed, which took twenty times as long."""
    x, w, up = (weft.from_numpy(np.ones(s, np.float32)).astype(weft.bfloat16) for s in (
        (11, 8, 43, 38), (65, 8, 3, 3), (11, 65, 41, 36)))
    made = weft.grad(lambda x: (x.conv2d(w) * up).sum())(x)
    steps = kernelize(simplify([made._read()]))
    assert [s.kernel.meta.kind for s in steps if s.kernel.meta.flops > 10**6] == ["contraction"]
