"""Convolutions of low pictures take the forms of others, and rows share what columns' taps read."""

import numpy as np
import pytest

import weft
from schedule_costs import Cost
from weft.driver import counters
from weft.driver.report.explain import explain
from weft.strategies import choose
from weft.strategies.common import nest
from weft.target import CostModel, Target


def correlated(x, w, padding, groups=1):
    """Return the convolution in float64."""
    sides = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    seen = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.float64), sides), w.shape[2:], (2, 3))
    n, _, rows, columns = seen.shape[:4]
    seen = seen.reshape(n, groups, -1, *seen.shape[2:])
    found = np.einsum("ngchwij,gocij->ngohw", seen, w.reshape(groups, -1, *w.shape[1:]))
    return found.reshape(n, len(w), rows, columns)


def ran(fn, *arrays):
    """Return what a function gave, and what `explain` says of its first kernel."""
    with counters.record() as record:
        result = weft.jit(fn)(*map(weft.tensor, arrays)).numpy()
        again = weft.jit(fn)(*map(weft.tensor, arrays)).numpy()
    np.testing.assert_array_equal(result, again)
    first = explain(record)[0]
    return result, " ".join(first.why)


@pytest.mark.parametrize("taps", [5, 7])
@pytest.mark.parametrize("shape", [(2, 3, 6, 20), (1, 5, 13, 17)])
def test_rows_of_a_tile_share_what_taps_of_a_column_read(shape, taps):
    rng = np.random.default_rng(8)
    x = rng.standard_normal(shape, dtype=np.float32)
    w = rng.standard_normal((shape[1], 1, taps, taps), dtype=np.float32)
    pad = taps // 2
    found, _ = ran(lambda x, w: x.conv2d(w, padding=pad, groups=shape[1]), x, w)
    np.testing.assert_allclose(found, correlated(x, w, pad, shape[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 40, 2, 2), (3, 33, 2, 3), (4, 24, 3, 3)])
def test_a_convolution_of_a_low_picture_is_no_gradient_by_weights(shape):
    rng = np.random.default_rng(9)
    x = rng.standard_normal(shape, dtype=np.float32)
    w = rng.standard_normal((32, shape[1], 5, 5), dtype=np.float32)
    found, why = ran(lambda x, w: x.conv2d(w, padding=2), x, w)
    np.testing.assert_allclose(found, correlated(x, w, 2), rtol=1e-5, atol=1e-4)
    assert "partial sums" not in why


@pytest.mark.parametrize(("shape", "taps"), [((2, 32, 8, 39), 5), ((1, 37, 39, 7), 5)])
def test_taps_whose_results_stay_apart_are_convolutions_of_their_own(shape, taps):
    rng = np.random.default_rng(10)
    x = rng.standard_normal(shape, dtype=np.float32)
    w = rng.standard_normal((24, shape[1], taps, taps), dtype=np.float32)
    g = rng.standard_normal((shape[0], 24, shape[2] - taps + 1, shape[3] - taps + 1),
                            dtype=np.float32)
    found, why = ran(
        lambda x, w, g: weft.grad(lambda x: (x.conv2d(w) * g).sum())(x), x, w, g)
    turned = w[:, :, ::-1, ::-1].swapaxes(0, 1)
    np.testing.assert_allclose(found, correlated(g, turned, taps - 1), rtol=1e-5, atol=1e-4)
    assert "form: implicit_gemm" in why or "form: channel_blocked" in why


@pytest.mark.parametrize("threads", [1, 2])
def test_weights_of_taps_apart_are_copied_inside_their_loop(threads, monkeypatch):
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 10))
    x, w, g = (weft.tensor(np.ones(shape, np.float32)) for shape in
               ((4, 17, 8, 39), (48, 17, 5, 5), (4, 48, 4, 35)))
    with counters.record() as record:
        weft.grad(lambda x: (x.conv2d(w) * g).sum())(x).numpy()
    made = choose(record.built[0].nest, Target("cpu", "x86_64", vector_bytes=64,
                                               vector_registers=32, cores=2), threads)
    assert bool(Cost(made).shares) == (threads > 1)


def test_sums_start_anew_in_blocks_that_no_cache_asks_for():
    x, w, g = (weft.tensor(np.ones(shape, np.float32)) for shape in
               ((1, 21, 8, 18), (82, 21, 2, 2), (1, 82, 8, 18)))
    with counters.record() as record:
        weft.grad(lambda x: (x.conv2d(w, padding=1, dilation=2) * g).sum())(x).numpy()
    made = choose(record.built[0].nest, Target("cpu", "x86_64", vector_bytes=64,
                                               vector_registers=32, cores=1), 1)
    cost = Cost(made)
    blocks = cost.written["sum3.t"] // (cost.private["sum3.t"] // 4) - 1  # which are set to 0 first
    assert blocks == 5  # of 17 of 82, with 4 terms each


def test_taps_are_asked_once_for_the_row_of_each_of_two_rows():
    x, w = (weft.tensor(np.ones(shape, np.float32)) for shape in ((2, 70, 32, 8), (70, 16, 3, 3)))
    with counters.record() as record:
        x.conv_transpose2d(w).numpy()
    made = choose(record.built[0].nest, Target("cpu", "x86_64", vector_bytes=64,
                                               vector_registers=32, cores=1), 1)
    rows, taps, channels, images = 34, 3, 70, 2
    assert Cost(made).branches == rows * taps * channels * images  # nothing is asked for an element
