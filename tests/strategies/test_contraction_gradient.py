"""Gradients of bfloat16 convolutions by weights: by the interpreter, and against float64."""

import math

import numpy as np
import pytest
from test_contraction_matrix import TARGET, WITHOUT, assembly

import weft
from schedule_costs import Cost
from schedule_nests import assert_same
from seeds import seeds
from weft.kernelize.build import kernelize
from weft.strategies import choose
from weft.strategies.common import nest
from weft.target import CostModel


def gradient(image, weights, dtype=weft.bfloat16, groups=1, back=(), **options):
    """The kernel of a gradient by weights, of an image whose axes `back` are read backwards."""
    x, w = (weft.zeros(*shape, dtype=dtype).realize() for shape in (image, weights))
    x = x.flip(*back) if back else x

    def result(v):
        return getattr(x, f"conv{len(image) - 2}d")(v, groups=groups, **options)

    g = (result(w) * 0).realize()
    (step,) = kernelize([weft.grad(lambda v: (result(v) * g).sum())(w)._read()], TARGET)
    return step.kernel


def takes_places(made):
    """Whether all places of the weights are multiplied from one copy of the image."""
    return Cost(made).form == "matrix_weight_gradient"


def checked(kernel, threads=1, target=TARGET):
    """The scheduled kernel, which the interpreter has compared with the nest."""
    made = choose(kernel, target, threads)
    assert_same(kernel, made)
    assert Cost(made).unit == "matrix"
    return made


@pytest.mark.grid
@pytest.mark.parametrize(("image", "weights", "options"), [
    ((2, 5, 6, 9), (7, 5, 3, 3), {"padding": 1}),
    ((3, 18, 9, 8), (33, 18, 3, 2), {"stride": 2}),
    ((1, 5, 9, 5), (17, 5, 3, 2), {"dilation": 2, "padding": 2}),
    ((3, 1, 6, 8), (9, 1, 2, 5), {"padding": 1}),
    ((2, 12, 30), (6, 12, 5), {"stride": 2, "padding": 2}),
    ((2, 4, 3, 5, 6), (9, 4, 2, 3, 3), {"padding": 1}),
    ((2, 10, 5, 4), (14, 5, 3, 3), {"groups": 2, "padding": 1}),
])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_schedule_is_exact(image, weights, options, threads):
    assert takes_places(checked(gradient(image, weights, **options), threads))


def joins_places(made, weights, groups=1):
    """Whether places of the weights and channels of the image make columns together."""
    tiles = Cost(made).written["out0"] // 256
    return tiles < groups * math.prod(weights[2:])


@pytest.mark.grid
@pytest.mark.parametrize(("image", "weights", "options"), [
    ((1, 4, 6, 17), (7, 4, 3, 3), {"padding": 1}),
    ((2, 3, 7, 16), (7, 3, 3, 2), {"stride": 2}),
    ((1, 5, 5, 18), (9, 5, 2, 3), {"dilation": 2, "padding": 2}),
    ((2, 2, 5, 16), (9, 2, 3, 3), {"padding": 1}),
    ((1, 1, 6, 16), (9, 1, 2, 5), {"padding": 1}),
    ((2, 3, 16), (9, 3, 5), {"padding": 2}),
    ((1, 6, 4, 16), (14, 3, 3, 3), {"groups": 2, "padding": 1}),
])
@pytest.mark.parametrize("threads", [1, 2])
def test_few_channels_make_columns_with_places(image, weights, options, threads):
    made = checked(gradient(image, weights, **options), threads)
    assert joins_places(made, weights, options.get("groups", 1))


def test_channels_that_fill_columns_leave_places_alone():
    weights = 16, 16, 3, 3
    assert not joins_places(checked(gradient((1, 16, 5, 16), weights, padding=1)), weights)


@pytest.mark.grid
@pytest.mark.parametrize(("image", "weights"), [
    ((1, 70, 3, 5), (9, 70, 3, 3)),  # channels of the image
    ((1, 5, 3, 24), (128, 5, 3, 3)),  # channels of results
    ((4, 12, 5, 7), (9, 12, 3, 3)),  # images
    ((5, 12, 1, 14), (9, 12, 3, 3)),  # images, of which a thread has one more
    ((3, 7, 5, 64), (9, 7, 3, 3)),  # positions of a row
])
def test_threads_share_channels_or_sums(image, weights, monkeypatch):
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 8))
    made = checked(gradient(image, weights, padding=1), 2)
    assert takes_places(made)
    assert Cost(made).shares[0] == 2


@pytest.mark.parametrize(("n", "c"), [(1, 3), (4, 27), (2, 33)])
def test_both_threads_work_on_few_channels(n, c):
    """Tiles that overlap store the same results: they cannot be shared out."""
    made = choose(gradient((n, c, 16, 60), (25, c, 5, 5), padding=2), TARGET, 2)
    assert takes_places(made)
    assert Cost(made).shares


@pytest.mark.parametrize("options", [{"stride": 2, "padding": 2}, {"padding": 1}])
def test_one_channel_and_one_place_leave_no_columns(options):
    kernel = gradient((1, 2, 6, 10), (36, 1, 1, 1), groups=2, **options)
    made = choose(kernel, TARGET, 1)
    assert not takes_places(made)
    assert_same(kernel, made, exact=False)


@pytest.mark.grid
@pytest.mark.parametrize("l2", [40 << 10, 120 << 10, 2 << 20])
@pytest.mark.parametrize("back", [(), (3,), (2, 3)])
def test_blocks_of_images_and_of_rows_are_exact(l2, back):
    kernel = gradient((2, 17, 6, 20), (5, 17, 3, 2), back=back, padding=1)
    made = checked(kernel, target=TARGET.replace(l2_bytes=l2))
    assert takes_places(made)
    assert sum(Cost(made).private.values()) <= l2


@pytest.mark.parametrize(("image", "weights"), [((2, 5, 6, 9), (2, 5, 3, 3)),
                                                ((2, 4, 6, 9), (4, 4, 3, 3)),
                                                ((2, 4, 6, 9), (7, 4, 1, 1))])
def test_few_channels_take_another_form(image, weights):
    assert not takes_places(choose(gradient(image, weights), TARGET, 1))


def test_few_results_fill_tiles_for_windows():
    assert takes_places(checked(gradient((2, 3, 6, 9), (7, 3, 3, 3), padding=1)))


def test_two_channels_of_results_fill_tiles_for_large_windows():
    kernel = gradient((2, 17, 7, 9), (2, 17, 5, 5), padding=2)
    assert takes_places(checked(kernel))
    assert not takes_places(choose(gradient((2, 17, 7, 9), (2, 17, 3, 3), padding=1), TARGET, 1))


def test_other_elements_and_processors_take_another_form():
    shape = (2, 16, 6, 9), (16, 16, 3, 3)
    assert not takes_places(choose(gradient(*shape), WITHOUT, 1))
    assert not takes_places(choose(gradient(*shape, dtype=weft.float32), TARGET, 1))


def test_words_are_copied_as_vectors():
    lines = assembly(gradient((2, 32, 20, 34), (32, 32, 3, 3), padding=1))
    assert not any(name in line for line in lines for name in ("pinsrw", "idiv", "vpgather"))
    assert sum("tdpbf16ps" in line for line in lines) == 4


@pytest.mark.grid
@pytest.mark.parametrize("seed", seeds(16))
def test_random_gradients_agree_with_float64(seed):
    rng = np.random.default_rng(seed)
    dimensions, groups = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    kernel = [int(n) for n in rng.choice([1, 2, 3, 5], dimensions)]
    stride, dilation, pad = (int(rng.integers(low, 4)) for low in (1, 1, 0))
    n, c, o = (int(2 ** rng.uniform(0, most)) for most in (3, 6, 6))
    size = [int(rng.integers(0, 24 // dimensions)) + (k - 1) * dilation + 1 for k in kernel]
    x = rng.standard_normal((n, c * groups, *size), dtype=np.float32)
    w = rng.standard_normal((o * groups, c, *kernel), dtype=np.float32)
    options = {"stride": stride, "padding": pad, "dilation": dilation, "groups": groups}
    name = f"conv{dimensions}d"
    x, w = (weft.tensor(a).to(weft.bfloat16) for a in (x, w))
    shape = getattr(x, name)(w, **options).shape
    g = weft.tensor(rng.standard_normal(shape, dtype=np.float32)).to(weft.bfloat16)

    def by_weights(x, w, g):
        return weft.grad(lambda v: (getattr(x, name)(v, **options) * g).sum())(w)

    got = weft.jit(by_weights)(x, w, g).to(weft.float32).numpy()
    expected = by_weights(*(t.to(weft.float64) for t in (x, w, g))).numpy()
    bound = 2.0**-8 * np.abs(expected).max(initial=0)
    assert np.abs(got - expected).max(initial=0) <= bound


@pytest.mark.parametrize("seed", seeds(3))
def test_memory_that_no_window_reaches_does_not_count(seed):
    """Beside a view and behind its last window there may be NaN, which zeros must not meet."""
    rng = np.random.default_rng(seed)
    stride = int(rng.integers(2, 4))
    n, c, o, high, width = (int(rng.integers(*ends)) for ends in (
        (1, 5), (4, 40), (8, 40), (2, 8), (2, 20)))
    used = [(count - 1) * stride + 3 for count in (high, width)]
    rows, columns = (count + stride - 1 for count in used)
    whole = np.full((n + 1, c + 1, rows + 2, columns + 3), np.nan, np.float32)
    whole[:n, :c, : used[0], : used[1]] = rng.standard_normal((n, c, *used))
    w = weft.zeros(o, c, 3, 3, dtype=weft.bfloat16).realize()
    g = weft.tensor(rng.standard_normal((n, o, high, width), dtype=np.float32)).to(weft.bfloat16)

    def by_weights(x, w, g):
        x = x[:n, :c, :rows, :columns]
        return weft.grad(lambda v: (x.conv2d(v, stride=stride) * g).sum())(w)

    x, zeros = (weft.tensor(a).to(weft.bfloat16).realize() for a in (whole, np.nan_to_num(whole)))
    got = weft.jit(by_weights)(x, w, g).to(weft.float32).numpy()
    expected = by_weights(*(t.to(weft.float64) for t in (zeros, w, g))).numpy()
    assert np.abs(got - expected).max() <= 2.0**-8 * np.abs(expected).max()
