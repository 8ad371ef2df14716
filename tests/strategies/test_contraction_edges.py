"""Gradients by weights: sums along pictures, without what lies outside of them."""

import numpy as np
import pytest
from test_contraction_results import costs_of, gradient_of_weights, whole

import weft
import weft.nn.functional as wf


def gradient(kernel, stride, padding):
    def call(x, up):
        w = weft.zeros(up.shape[1], x.shape[1], kernel, kernel).requires_grad_()
        wf.conv2d(x, w, stride=stride, padding=padding).backward(up)
        return [w.grad]

    return call


def sides(height, width, kernel, stride, padding):
    return [(m + 2 * padding - kernel) // stride + 1 for m in (height, width)]


@pytest.mark.grid
@pytest.mark.parametrize(("images", "channels", "outputs", "height", "width", "kernel", "stride",
                          "padding"), [
    (8, 66, 64, 7, 7, 3, 1, 1),  # several pictures make a block
    (3, 64, 33, 14, 14, 3, 1, 1),  # one does
    (2, 33, 64, 29, 31, 3, 1, 1),  # rows of one do, and the last block is shorter
    (1, 40, 32, 56, 56, 3, 1, 1),
    (2, 12, 40, 31, 29, 5, 1, 2),  # two places at each end of a row
    (2, 9, 32, 33, 47, 7, 2, 3),
    (2, 34, 64, 17, 3, 5, 1, 2),  # every place is at an end
    (2, 34, 64, 20, 22, 9, 1, 4),  # too many places at the ends to write them out
    (2, 40, 32, 19, 260, 3, 1, 1),  # a row is longer than a chain
    (1, 40, 32, 5, 400, 3, 1, 1),
    (4, 40, 32, 16, 17, 3, 3, 0),  # nothing lies outside
    (1, 34, 32, 16, 17, 2, 1, 0),
])
def test_sums_along_pictures(images, channels, outputs, height, width, kernel, stride, padding):
    x = whole(images, channels, height, width)
    up = whole(images, outputs, *sides(height, width, kernel, stride, padding))
    wanted = gradient_of_weights(x, up, kernel, stride, padding)
    call = weft.jit(gradient(kernel, stride, padding))
    for _ in range(2):
        found = call(weft.tensor(x), weft.tensor(up))[0].numpy()
        np.testing.assert_array_equal(found, wanted)


def test_windows_of_few_channels_are_one_tile():
    """All taps of a row, without an overlap."""
    x, up = weft.ones(4, 32, 40, 41), weft.ones(4, 16, 40, 41)
    cost = costs_of(weft.jit(gradient(5, 1, 2)), x, up)[-1]
    assert cost.computed <= 4 * 32 * 16 * 40 * 41 * 25


def test_rows_of_large_pictures_make_blocks():
    """The image is copied into them, twice at most, and no product is made twice."""
    x, up = weft.ones(2, 64, 56, 56), weft.ones(2, 64, 56, 56)
    cost = costs_of(weft.jit(gradient(3, 1, 1)), x, up)[-1]
    assert cost.computed <= 2 * 64 * 64 * 56 * 56 * 9
    assert cost.read["in0"] <= 2 * 2 * 64 * 56 * 56
    assert max(cost.private.values()) < 80 << 10


@pytest.mark.parametrize(("size", "channels"), [(7, 64), (14, 64), (29, 40)])
def test_padding_makes_no_nan(size, channels):
    """What lies outside is not multiplied: an infinite gradient at a corner stays in its taps."""
    x, up = whole(2, channels, size, size), whole(2, 32, size, size)
    up[0, 5, 0, 0], up[1, 7, -1, -1] = np.inf, np.nan
    x[0, :, 0, 0] = x[0, :, 1, 1] = x[0, :, 0, 1] = x[0, :, 1, 0] = 1
    found = gradient(3, 1, 1)(weft.tensor(x), weft.tensor(up))[0].numpy()
    inside = np.zeros((3, 3), bool)
    inside[1:, 1:] = True
    assert (found[5][:, inside] == np.inf).all()
    assert np.isfinite(found[5][:, ~inside]).all()
    assert np.isnan(found[7][:, inside[::-1, ::-1]]).all()
    assert np.isfinite(found[7][:, ~inside[::-1, ::-1]]).all()
    assert np.isfinite(np.delete(found, (5, 7), axis=0)).all()
