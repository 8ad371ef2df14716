"""Convolutions whose last tile of a row reaches past it, and those whose sums are short."""

import numpy as np
import pytest
import torch
import torch.nn.functional as tf
from test_contraction_forms import NARROW, scheduled

import schedule_nests as nests
import weft
from seeds import seeds
from weft.driver import report
from weft.ir import traverse
from weft.ir.op import Op
from weft.ir.stmt import VECTOR, For, Load


def convolved(x, w, padding):
    """Return the results of a compiled convolution, its nests and its trace."""
    call = weft.jit(lambda x, w: getattr(x, f"conv{x.ndim - 2}d")(w, padding=padding))
    with report.record() as record:
        found = call(weft.tensor(x), weft.tensor(w)).numpy()
    (built,) = record.built
    return found, built.scheduled, " ".join(built.scheduled.meta.schedule)


def drawn(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(("image", "weights", "padding"), [
    ((8, 128, 128), (128, 128, 5), 0),
    ((5, 90, 100), (64, 90, 4), 0),
    ((2, 130, 9, 33), (64, 130, 3, 3), 0),
    ((4, 100, 60), (64, 100, 7), 1),
])
def test_last_tiles_of_rows_run_past_them(seed, image, weights, padding):
    x, w = drawn(seed, image, weights)
    found, made, trace = convolved(x, w, padding)
    wanted = getattr(tf, f"conv{x.ndim - 2}d")(torch.from_numpy(x).double(),
                                              torch.from_numpy(w).double(), padding=padding)
    np.testing.assert_array_equal(found, wanted.numpy())
    if padding:
        return
    assert "flatten(in0.w, " in trace
    tiles = [s for s in traverse.walk(made.body) if isinstance(s, For) and s.kind == VECTOR
             and any(e.op is Op.MAD for t in traverse.walk(s.body) for e in t.exprs())]
    reads = [s for t in tiles for s in traverse.walk(t.body) if isinstance(s, Load)]
    assert reads
    assert not any(s.mask is not None for s in reads)


def test_what_lies_past_a_row_reaches_no_result():
    """Of a box, that is the beginning of the next row, which may be anything."""
    x, w = drawn(1, (8, 128, 128), (128, 128, 5))
    x[1::2, :, :8] = np.inf
    x[0::2, 3, 0] = np.nan
    found, _, trace = convolved(x, w, 0)
    assert "flatten(in0.w, " in trace
    assert np.isfinite(found[0::2, :, 1:]).all()
    assert np.isfinite(found[1::2, :, 8:]).all()


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize(("image", "weights", "padding"), [
    ((1, 2, 4096), (417, 2, 5), 2), ((1, 3, 300), (40, 3, 3), 1), ((3, 4, 129), (64, 4, 3), 0),
    ((2, 1, 77), (33, 1, 9), 4), ((2, 5, 64), (18, 5, 2), 1), ((3, 2, 90), (64, 2, 5), 7)])
def test_short_sums_have_their_lanes_along_the_row(seed, image, weights, padding):
    x, w = drawn(seed, image, weights)
    found, _, trace = convolved(x, w, padding)
    wanted = tf.conv1d(torch.from_numpy(x).double(), torch.from_numpy(w).double(),
                       padding=padding)
    np.testing.assert_array_equal(found, wanted.numpy())
    assert "vectorize(r3" in trace
    assert "vectorize(r2" not in trace


@pytest.mark.parametrize("shape", [(5, 15, 1, 0, 4, 8), (7, 13, 1, 0, 6, 16)])
def test_a_tile_past_its_row_is_no_mask_in_its_steps(shape):
    trace = scheduled(nests.convolution(*shape), NARROW, window_rows=6, whole_bytes=256,
                      window_bytes=800, sum_bytes=8 << 10)
    assert "flatten(x.w, " in trace
