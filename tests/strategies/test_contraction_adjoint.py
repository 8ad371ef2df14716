"""Gradients by images: only terms that exist take part, whatever the weights are."""

import numpy as np
import pytest

import weft
import weft.nn.functional as wf


def gradient_of_images(up, w, shape, stride, padding, dilation):
    """The sums in float64: each product is added to the place of the image that it came from."""
    n, c, height, width = shape
    out = np.zeros((n, c, height + 2 * padding, width + 2 * padding))
    rows, columns = up.shape[2:]
    with np.errstate(invalid="ignore"):
        for p in range(w.shape[2]):
            for q in range(w.shape[3]):
                terms = up[:, :, None].astype(np.float64) * w[None, :, :, p, q, None, None]
                y, x = p * dilation, q * dilation
                out[:, :, y : y + stride * rows : stride,
                    x : x + stride * columns : stride] += terms.sum(1)
    return out[:, :, padding : padding + height, padding : padding + width]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("images", "channels", "outputs", "height", "width", "kernel", "stride",
                          "padding", "dilation"), [
    (2, 32, 24, 12, 30, 3, 1, 1, 1),
    (1, 64, 64, 9, 56, 3, 1, 0, 1),
    (2, 16, 20, 11, 45, 5, 1, 2, 1),
    (1, 33, 8, 10, 41, 7, 1, 3, 1),
    (2, 16, 9, 13, 33, 5, 1, 0, 1),
    (1, 40, 12, 11, 37, 3, 1, 2, 2),
    (3, 24, 40, 7, 7, 3, 1, 1, 1),
    (1, 32, 16, 14, 32, 3, 1, 1, 1),
    (2, 3, 8, 12, 30, 3, 1, 1, 1),
    (1, 6, 4, 9, 56, 5, 1, 2, 1),
    (2, 7, 6, 13, 21, 3, 1, 2, 2),
    (1, 4, 5, 33, 8, 7, 1, 3, 1),
])
def test_infinite_weights_beside_borders(images, channels, outputs, height, width, kernel, stride,
                                         padding, dilation, seed):
    rng = np.random.default_rng([seed, channels, width, kernel])
    reach = dilation * (kernel - 1)
    sides = [(m + 2 * padding - reach - 1) // stride + 1 for m in (height, width)]
    up = rng.integers(1, 5, (images, outputs, *sides)).astype(np.float32)
    w = rng.integers(-4, 5, (outputs, channels, kernel, kernel)).astype(np.float32)
    for value in (np.inf, -np.inf, np.nan):
        w[rng.integers(outputs), rng.integers(channels), rng.integers(kernel), 0] = value
        w[rng.integers(outputs), rng.integers(channels), 0, rng.integers(kernel)] = value
    shape = (images, channels, height, width)

    @weft.jit
    def gradient(up, w):
        x = weft.zeros(*shape).requires_grad_()
        wf.conv2d(x, w, stride=stride, padding=padding, dilation=dilation).backward(up)
        return x.grad

    wanted = gradient_of_images(up, w, shape, stride, padding, dilation)
    found = gradient(weft.tensor(up), weft.tensor(w)).numpy()
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found).any()
    assert np.isinf(found).any()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("channels", "outputs", "groups"), [(5, 5, 5), (12, 3, 1), (6, 12, 6)])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 1, 1), (5, 1, 2), (3, 2, 1)])
def test_infinite_weights_of_few_channels(channels, outputs, groups, kernel, stride, padding, seed):
    """Where lanes are positions, padding is not multiplied either."""
    rng = np.random.default_rng([seed, channels, kernel, stride])
    x = rng.integers(1, 5, (2, channels, 11, 37)).astype(np.float32)
    w = rng.integers(1, 5, (outputs, channels // groups, kernel, kernel)).astype(np.float32)
    w[:, 0, 0, 0], w[:, 0, 1, -1] = np.inf, -np.inf
    found = weft.jit(lambda x, w: x.conv2d(w, stride=stride, padding=padding, groups=groups))(
        weft.tensor(x), weft.tensor(w)).numpy()
    wanted = np.zeros(found.shape)
    every = outputs // groups
    with np.errstate(invalid="ignore"):
        for o, i, j in np.ndindex(outputs, *found.shape[2:]):
            for p, q in np.ndindex(kernel, kernel):
                a, b = i * stride + p - padding, j * stride + q - padding
                if 0 <= a < x.shape[2] and 0 <= b < x.shape[3]:
                    first = o // every * (channels // groups)
                    seen = x[:, first : first + channels // groups, a, b]
                    wanted[:, o, i, j] += seen @ w[o, :, p, q]
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found).any()
    assert np.isinf(found).any()
