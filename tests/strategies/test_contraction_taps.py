"""Convolutions of bfloat16 by products of matrices: by the interpreter, and against float64."""

import numpy as np
import pytest
from test_contraction_matrix import TARGET, WITHOUT, assembly

import schedule_nests as nests
import weft
from schedule_costs import Cost
from schedule_nests import assert_same
from weft.ir import dtype as dt
from weft.strategies import choose


def narrow(*shape, images=1, **options):
    return nests.convolution(*shape, dtype=dt.bfloat16, images=images, **options)


def cost(kernel, target=TARGET, threads=1):
    """Return what the kernel costs as it is scheduled; it computes the same."""
    made = choose(kernel, target, threads)
    assert_same(kernel, made)
    return Cost(made)


@pytest.mark.grid
@pytest.mark.parametrize(("height", "width"), [(2, 6), (1, 17), (3, 7)])
@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize(("flip", "turned"), [(False, False), (True, False), (False, True)])
def test_the_schedule_is_exact(height, width, stride, pad, flip, turned):
    kernel = narrow(height + 2, width + 2, stride, pad, 17, 9, flip=flip, turned=turned)
    columns = (width + 2 + 2 * pad - 3) // stride + 1
    assert (cost(kernel).unit == "matrix") is (
        columns >= (5 if turned else 3))


@pytest.mark.grid
@pytest.mark.parametrize(("channels", "outputs"), [(16, 31), (33, 8), (20, 40)])
@pytest.mark.parametrize("threads", [1, 2])
def test_channels_that_fill_no_tiles_are_exact(channels, outputs, threads):
    kernel = narrow(2, 5, 1, 1, channels, outputs, nested=outputs == 31)
    assert cost(kernel, threads=threads).unit == "matrix"


@pytest.mark.parametrize("shape", [(2, 5, 1, 1, 8, 16), (2, 5, 1, 1, 16, 7), (2, 3, 1, 1, 16, 8)])
def test_few_channels_or_positions_take_another_form(shape):
    """Where each tap has steps of its own, as with weights that lie the other way round."""
    assert cost(narrow(*shape, turned=True)).unit != "matrix"


@pytest.mark.parametrize("shape", [(2, 5, 1, 1, 2, 16), (2, 5, 1, 1, 16, 2), (2, 2, 1, 1, 16, 16)])
def test_few_terms_channels_or_positions_fill_no_tiles(shape):
    assert cost(narrow(*shape)).unit != "matrix"


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(3, 7, 1, 1, 3, 4), (9, 4, 1, 1, 5, 20), (3, 20, 1, 2, 7, 3),
                                   (2, 5, 2, 1, 33, 6)])
@pytest.mark.parametrize("threads", [1, 2])
def test_all_taps_make_one_sum(shape, threads):
    assert cost(narrow(*shape, images=2), threads=threads).form == "matrix_convolution_taps"


@pytest.mark.parametrize("width", [10, 17, 40])
def test_words_of_all_taps_are_copied_as_vectors(width):
    """No element is loaded by a branch of its own, and no place is found by division."""
    kernel = narrow(12, width, 1, 1, 13, 20)
    lines = assembly(kernel)
    assert not any(name in line for line in lines for name in ("pinsrw", "idiv", "vpgather"))
    assert sum("tdpbf16ps" in line for line in lines) == 4


def test_without_tile_registers_nothing_changes():
    assert cost(narrow(2, 5, 1, 1, 16, 8), WITHOUT).unit != "matrix"


@pytest.mark.parametrize("turned", [False, True])
def test_short_rows_are_taken_two_at_a_time(turned):
    kernel = narrow(28, 28, 2, 1, 32, 32, turned=turned)
    assert sum("tdpbf16ps" in line for line in assembly(kernel)) == 4


def test_weights_are_copied_once_for_all_images_and_by_all_threads():
    kernel = narrow(28, 28, 1, 1, 64, 64, images=4)
    cost = Cost(choose(kernel, TARGET, 2))
    assert cost.read["w"] == Cost(choose(kernel, TARGET, 1)).read["w"]
    assert 4 in cost.shares  # images
    assert len(cost.shares) == 2


@pytest.mark.grid
@pytest.mark.parametrize("case", range(12))
def test_random_convolutions_agree_with_float64(case):
    rng = np.random.default_rng([case, 17])
    groups, kernel = int(rng.integers(1, 3)), int(rng.integers(1, 8))
    stride, dilation, pad = (int(rng.integers(low, 3)) for low in (1, 1, 0))
    c, o = (int(2 ** rng.uniform(0, 6)) for _ in range(2))
    spread = (kernel - 1) * dilation + 1
    h, w = (int(rng.integers(spread, spread + 30)) for _ in range(2))
    x = weft.tensor(rng.standard_normal((2, c * groups, h, w), dtype=np.float32)).to(weft.bfloat16)
    k = weft.tensor(rng.standard_normal((o * groups, c, kernel, kernel),
                                        dtype=np.float32)).to(weft.bfloat16)
    options = {"stride": stride, "padding": pad, "dilation": dilation, "groups": groups}
    got = x.conv2d(k, **options).relu().to(weft.float32).numpy()
    wide = [t.to(weft.float64) for t in (x, k)]
    expected = wide[0].conv2d(wide[1], **options).relu().numpy()
    assert np.abs(got - expected).max(initial=0) <= 2.0**-8 * np.abs(expected).max(initial=0)
