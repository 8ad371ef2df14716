"""Convolutions whose last tile of a row reaches past it, and those whose sums are short."""

import numpy as np
import pytest
from test_contraction_forms import NARROW, scheduled

import schedule_nests as nests
import weft
from schedule_costs import WIDE, costs_on
from seeds import seeds
from weft.driver import counters


def convolved(x, w, padding):
    """Return the results of a compiled convolution, and what it costs where vectors are wide."""
    call = weft.jit(lambda x, w: getattr(x, f"conv{x.ndim - 2}d")(w, padding=padding))
    with counters.record() as record:
        found = call(weft.tensor(x), weft.tensor(w)).numpy()
    return found, costs_on(WIDE, record)[-1]


def drawn(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, s).astype(np.float32) for s in shapes]


@pytest.mark.requires("torch")
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(("image", "weights", "padding"), [
    ((8, 128, 128), (128, 128, 5), 0),
    ((5, 90, 100), (64, 90, 4), 0),
    ((2, 130, 9, 33), (64, 130, 3, 3), 0),
    ((4, 100, 60), (64, 100, 7), 1),
])
def test_last_tiles_of_rows_run_past_them(seed, image, weights, padding):
    import torch
    import torch.nn.functional as tf

    x, w = drawn(seed, image, weights)
    found, cost = convolved(x, w, padding)
    wanted = getattr(tf, f"conv{x.ndim - 2}d")(torch.from_numpy(x).double(),
                                              torch.from_numpy(w).double(), padding=padding)
    np.testing.assert_array_equal(found, wanted.numpy())
    assert padding or cost.masked < cost.multiplications / 10


def test_what_lies_past_a_row_reaches_no_result():
    """Of a box, that is the beginning of the next row, which may be anything."""
    x, w = drawn(1, (8, 128, 128), (128, 128, 5))
    x[1::2, :, :8] = np.inf
    x[0::2, 3, 0] = np.nan
    found, cost = convolved(x, w, 0)
    assert cost.masked < cost.multiplications / 10
    assert np.isfinite(found[0::2, :, 1:]).all()
    assert np.isfinite(found[1::2, :, 8:]).all()


@pytest.mark.requires("torch")
@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(("image", "weights", "padding"), [
    ((1, 2, 4096), (417, 2, 5), 2), ((1, 3, 300), (40, 3, 3), 1), ((3, 4, 129), (64, 4, 3), 0),
    ((2, 1, 77), (33, 1, 9), 4), ((2, 5, 64), (18, 5, 2), 1), ((3, 2, 90), (64, 2, 5), 7)])
def test_short_sums_have_their_lanes_along_the_row(seed, image, weights, padding):
    import torch
    import torch.nn.functional as tf

    x, w = drawn(seed, image, weights)
    found, cost = convolved(x, w, padding)
    wanted = tf.conv1d(torch.from_numpy(x).double(), torch.from_numpy(w).double(),
                       padding=padding)
    np.testing.assert_array_equal(found, wanted.numpy())
    assert cost.stored_at_once("out0") >= 16


@pytest.mark.parametrize("shape", [(5, 15, 1, 0, 4, 8), (7, 13, 1, 0, 6, 16)])
def test_a_tile_past_its_row_is_no_mask_in_its_steps(shape):
    cost = scheduled(nests.convolution(*shape), NARROW, window_rows=6, whole_bytes=256,
                     window_bytes=800, sum_bytes=8 << 10)
    assert cost.masked == 0
