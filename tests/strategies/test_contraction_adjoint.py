"""Gradients by images: only terms that exist take part, whatever the weights are."""

import numpy as np
import pytest

import weft
import weft.nn.functional as wf
from seeds import seeds


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


@pytest.mark.grid
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
    (2, 3, 8, 19, 16, 3, 3, 0, 2),
    (2, 4, 8, 16, 19, 3, 2, 1, 1),
    (1, 9, 4, 26, 24, 3, 3, 1, 2),
    (2, 8, 9, 29, 14, 5, 3, 0, 2),
    (1, 6, 8, 9, 18, 5, 2, 3, 2),
    (2, 7, 3, 28, 20, 2, 1, 0, 1),
    (1, 1, 5, 4, 15, 2, 1, 0, 1),
    # sums of so many channels that blocks of them are copied
    (1, 2, 220, 20, 70, 3, 1, 1, 1),
    (1, 3, 240, 83, 67, 5, 2, 1, 2),
    (2, 1, 260, 9, 90, 3, 2, 0, 1),
    (1, 7, 60, 30, 5, 5, 1, 2, 1),
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
    assert not np.isfinite(found).all()


@pytest.mark.grid
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


@pytest.mark.grid
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize(("channels", "outputs", "groups"), [(12, 24, 4), (28, 28, 4), (4, 4, 2),
                                                             (6, 4, 2)])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 3, 2), (5, 3, 1), (3, 2, 1),
                                                            (2, 1, 1)])
def test_infinite_weights_of_groups_in_gradients_by_images(channels, outputs, groups, kernel,
                                                           stride, dilation, seed):
    rng = np.random.default_rng(seed)
    height, width = (int(n) for n in rng.integers(dilation * (kernel - 1) + 1, 30, 2))
    sides = [(m + 2 - dilation * (kernel - 1) - 1) // stride + 1 for m in (height, width)]
    up = rng.integers(1, 5, (2, outputs, *sides)).astype(np.float32)
    w = rng.integers(-4, 5, (outputs, channels // groups, kernel, kernel)).astype(np.float32)
    for value in (np.inf, np.nan):
        w.flat[rng.integers(w.size)] = value
    shape = (2, channels, height, width)

    @weft.jit
    def gradient(up, w):
        x = weft.zeros(*shape).requires_grad_()
        wf.conv2d(x, w, stride=stride, padding=1, dilation=dilation, groups=groups).backward(up)
        return x.grad

    parts = [gradient_of_images(u, v, (2, channels // groups, height, width), stride, 1, dilation)
             for u, v in zip(np.split(up, groups, 1), np.split(w, groups), strict=True)]
    found = gradient(weft.tensor(up), weft.tensor(w)).numpy()
    np.testing.assert_array_equal(found, np.concatenate(parts, 1))


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_padded_before_a_product_is_multiplied(turned):
    """Only windows leave out what lies outside: zeros of the program are numbers."""
    x, w = np.ones((5, 40), np.float32), np.ones((40, 24), np.float32)
    w[3, 7] = np.inf

    @weft.jit
    def product(x, w):
        y = x.pad((0, 0, 0, 3)) @ w
        return y.T.contiguous() if turned else y

    found = product(weft.tensor(x), weft.tensor(w)).numpy()
    found = found.T if turned else found
    assert np.isinf(found[:5, 7]).all()
    assert np.isnan(found[5:, 7]).all()
    assert (found[5:, :7] == 0).all()
