"""Convolutions of bfloat16 whose taps slide over one copy: by the interpreter, against float64."""

import numpy as np
import pytest
from test_contraction_matrix import TARGET, WITHOUT, assembly
from test_contraction_taps import cost, narrow

import weft
from schedule_costs import Cost
from seeds import seeds
from weft.kernelize.build import kernelize
from weft.strategies import choose


def slides(found):
    return found.form == "matrix_convolution"


@pytest.mark.grid
@pytest.mark.parametrize(("width", "stride", "pad", "flip"), [
    (16, 1, 1, False), (17, 1, 2, False), (34, 2, 1, False), (33, 1, 0, False), (17, 1, 1, True),
])  # fmt: skip
def test_the_schedule_is_exact(width, stride, pad, flip):
    kernel = narrow(3, width + 2 - 2 * pad, stride, pad, 16, 3, flip=flip)
    columns = (width + 2 - 3) // stride + 1
    assert slides(cost(kernel)) is (columns >= 16)


@pytest.mark.grid
@pytest.mark.parametrize(("channels", "outputs"), [(16, 17), (33, 3)])
@pytest.mark.parametrize("threads", [1, 2])
def test_channels_that_fill_no_tiles_are_exact(channels, outputs, threads):
    assert slides(cost(narrow(2, 16, 1, 1, channels, outputs), threads=threads))


@pytest.mark.parametrize("shape", [(1, 16, 1, 1, 15, 8), (1, 15, 1, 1, 16, 8),
                                   (1, 16, 1, 1, 16, 2)])
def test_few_channels_or_positions_take_another_form(shape):
    assert not slides(cost(narrow(*shape)))


@pytest.mark.parametrize("turned", [False, True])
def test_taps_that_go_backwards_are_turned(turned):
    """The windows of a gradient by images, of which few channels of results are summed, too."""
    assert slides(cost(narrow(1, 16, 1, 1, 5, 9, flip=True, turned=turned)))


@pytest.mark.parametrize(("stride", "dilation", "slid"), [
    (2, 3, False), (3, 2, False), (4, 3, False), (2, 2, True), (4, 2, True), (1, 3, True),
    (3, 1, True),
])  # fmt: skip
def test_steps_of_which_none_is_a_part_of_the_other_take_tiles_as_well(stride, dilation, slid):
    kernel = narrow(7, 16 * stride + 2 * dilation, stride, 1, 16, 9, dilation=dilation)
    found = Cost(choose(kernel, TARGET, 1))
    assert slides(found) is slid
    assert found.unit == "matrix"


@pytest.mark.parametrize(("length", "kernel", "stride", "pad"), [(53, 2, 2, 3), (70, 2, 3, 3)])
def test_borders_of_positions_alone_take_tiles_as_well(length, kernel, stride, pad):
    """Where a position lies outside whatever the tap is, the tap is no part of the condition."""
    x, w = (weft.zeros(*shape, dtype=weft.bfloat16).realize()
            for shape in ((2, 32, length), (9, 32, kernel)))
    (step,) = kernelize([x.conv1d(w, stride=stride, padding=pad)._read()], TARGET)
    found = Cost(choose(step.kernel, TARGET, 1))
    assert not slides(found)
    assert found.unit == "matrix"


def test_without_tile_registers_nothing_changes():
    assert not slides(cost(narrow(3, 18, 1, 1, 16, 8), WITHOUT))


@pytest.mark.parametrize("width", [30, 64])
def test_tiles_are_read_from_the_copy_and_words_copied_as_vectors(width):
    lines = assembly(narrow(12, width, 1, 1, 64, 32))
    assert not any(name in line for line in lines for name in ("pinsrw", "idiv", "vpgather"))
    assert sum("tdpbf16ps" in line for line in lines) == 4


@pytest.mark.grid
@pytest.mark.parametrize(("height", "width", "stride", "pad", "flip"), [
    (8, 5, 1, 1, True), (8, 7, 1, 0, False), (12, 3, 1, 1, False),
])  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2])
def test_short_rows_are_joined(height, width, stride, pad, flip, threads):
    """Where rows of the image are as long as those of results, and where they are not."""
    found = cost(narrow(height, width, stride, pad, 17, 5, flip=flip), threads=threads)
    assert found.multiplications < 9 * (height + 2 * pad - 2)  # of each row alone


@pytest.mark.parametrize(("width", "stride", "rows"), [(32, 1, 5), (34, 2, 3)])
def test_rows_of_whole_tiles_and_those_that_skip_others_stay_alone(width, stride, rows):
    found = cost(narrow(5, width, stride, 1, 16, 3))
    assert slides(found)
    assert found.multiplications >= 9 * rows * 2


@pytest.mark.parametrize(("shape", "weights", "options"), [
    ((3, 9, 12, 7), (5, 9, 3, 3), {"stride": 2, "padding": 1}),  # one tap, two, and four
    ((2, 6, 11, 24), (3, 6, 7, 7), {"padding": 3}),  # pairs of taps, more than channels
    ((2, 7, 16, 6), (40, 7, 3, 3), {"padding": 1}),  # of a last step that is not full
])
@pytest.mark.parametrize("seed", seeds(1))
def test_gradients_with_short_rows_agree_with_float64(shape, weights, options, seed):
    rng = np.random.default_rng(seed)
    x, w = (weft.tensor(rng.standard_normal(s, dtype=np.float32)).to(weft.bfloat16)
            for s in (shape, weights))
    result = x.conv2d(w, **options).shape
    g = weft.tensor(rng.standard_normal(result, dtype=np.float32)).to(weft.bfloat16)

    def by_images(x, w, g):
        return weft.grad(lambda v: (v.conv2d(w, **options) * g).sum())(x)

    got = weft.jit(by_images)(x, w, g).to(weft.float32).numpy()
    expected = by_images(*(t.to(weft.float64) for t in (x, w, g))).numpy()
    assert np.abs(got - expected).max() <= 2.0**-8 * np.abs(expected).max()


@pytest.mark.grid
@pytest.mark.parametrize("seed", seeds(12))
def test_random_gradients_by_images_agree_with_float64(seed):
    rng = np.random.default_rng(seed)
    kernel, dilation, stride = (int(rng.integers(1, most)) for most in (6, 3, 3))
    pad, c, o = int(rng.integers(0, 3)), *(int(n) for n in rng.integers(3, 40, 2))
    size = [int(rng.integers(0, 20)) + (kernel - 1) * dilation + 1 for _ in range(2)]
    x = weft.tensor(rng.standard_normal((2, c, *size), dtype=np.float32)).to(weft.bfloat16)
    w = weft.tensor(rng.standard_normal((o, c, kernel, kernel), dtype=np.float32))
    options = {"stride": stride, "padding": pad, "dilation": dilation}
    w, shape = w.to(weft.bfloat16), x.conv2d(w.to(weft.bfloat16), **options).shape
    g = weft.tensor(rng.standard_normal(shape, dtype=np.float32)).to(weft.bfloat16)

    def by_images(x, w, g):
        return weft.grad(lambda v: (v.conv2d(w, **options) * g).sum())(x)

    got = weft.jit(by_images)(x, w, g).to(weft.float32).numpy()
    expected = by_images(*(t.to(weft.float64) for t in (x, w, g))).numpy()
    assert np.abs(got - expected).max(initial=0) <= 2.0**-8 * np.abs(expected).max(initial=0)


@pytest.mark.grid
@pytest.mark.parametrize("seed", seeds(12))
def test_random_convolutions_agree_with_float64(seed):
    rng = np.random.default_rng(seed)
    dimensions, groups = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    kernel = [int(n) for n in rng.choice([1, 2, 3, 5], dimensions)]
    stride, dilation, pad = (int(rng.integers(low, 3)) for low in (1, 1, 0))
    c, o = int(rng.integers(16, 70)), int(rng.integers(3, 40))
    size = [int(rng.integers(0, 6)) + (k - 1) * dilation + 1 for k in kernel]
    size[-1] += 32
    x = weft.tensor(rng.standard_normal((2, c * groups, *size), dtype=np.float32))
    w = weft.tensor(rng.standard_normal((o * groups, c, *kernel), dtype=np.float32))
    options = {"stride": stride, "padding": pad, "dilation": dilation, "groups": groups}
    x, w = x.to(weft.bfloat16), w.to(weft.bfloat16)
    name = f"conv{dimensions}d"
    got = getattr(x, name)(w, **options).to(weft.float32).numpy()
    expected = getattr(x.to(weft.float64), name)(w.to(weft.float64), **options).numpy()
    bound = 2.0**-8 * np.abs(expected).max(initial=0)
    assert np.abs(got - expected).max(initial=0) <= bound
