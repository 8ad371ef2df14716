"""Which slices of arrays become arrays of their own."""

import numpy as np
import pytest

import weft
from graphs import leaf
from weft.driver.slices import take_slices
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op
from weft.ir.text.text import canonical_text
from weft.kernelize.build import kernelize


def part(x, start, count):
    return infer.slice_(x, (start,), (count,), (1,))


@pytest.mark.parametrize("count", [1, 8, 63, 64, 1000])
def test_short_slices_under_a_mask_stay_parts_of_their_array(count):
    """A vector that is read at a short array may reach into a page that is missing.

    ``x.roll(1)`` of a million floats took 57 ms, since its last element alone was such an array.
    """
    x = leaf(4096)
    for slice_ in (part(x, 4096 - count, count), part(x, 0, count)):
        for middle in (slice_, infer.reshape(slice_, (count, 1))):
            zeros = (0,) * len(middle.shape)
            padded = infer.pad(middle, zeros, (4096 - count, *zeros[1:]), 0.0)
            _, parts = take_slices([padded])
            assert len(parts) == (count >= 64)


def test_short_slices_that_are_read_whole_are_arrays():
    x = leaf(4096)
    _, parts = take_slices([infer.cast(part(x, 8 * k, 8), x.dtype) for k in range(4)])
    assert sorted(offset for _, offset in parts.values()) == [0, 32, 64, 96]


def test_graphs_without_slices_are_kept():
    x = leaf(64, 64)
    y = infer.reduce(x, "sum", (1,))
    outputs, parts = take_slices([y])
    assert outputs[0] is y
    assert not parts


def test_rolls_read_no_short_arrays():
    rng = np.random.default_rng(3)
    for _ in range(20):
        size, by = int(rng.integers(200, 5000)), int(rng.integers(1, 199))
        x = leaf(size)
        first = infer.pad(part(x, size - by, by), (0,), (size - by,), 0.0)
        rest = infer.pad(part(x, 0, size - by), (by,), (0,), 0.0)
        outputs, _ = take_slices([first, rest])
        leaves = [n for n in nd.toposort(outputs) if n.op is Op.BUFFER]
        assert leaves
        assert all(nd.size(n.shape) >= 64 for n in leaves)


def columns(x, starts, count, step=1):
    return [infer.slice_(x, (0, k), (x.shape[0], count), (1, step)) for k in starts]


@pytest.mark.parametrize(("starts", "count", "step", "found"), [
    (range(0, 64, 8), 8, 1, 8), (range(0, 64, 8), 1, 1, 8), (range(0, 64, 16), 4, 5, 4),
    (range(8), 8, 1, 0), (range(0, 64, 7), 8, 1, 0),  # a stencil's overlap
    (range(0, 24, 8), 8, 1, 0)])  # a few
def test_slices_that_divide_an_axis_are_strided_views(starts, count, step, found):
    x = leaf(16, 64)
    starts = [k for k in starts if k + (count - 1) * step < 64]
    outputs, parts = take_slices([infer.cast(c, x.dtype) for c in columns(x, starts, count, step)])
    assert len(parts) == found
    views = {infer.strided(nd.buffer(s), (16, count), 0, (64, step if count > 1 else 0)): None
             for s in parts}
    assert not found or {nd.base(o) for o in outputs} >= set(views)


@pytest.mark.parametrize("seed", range(8))
def test_steps_over_columns_have_few_kernels_and_the_right_values(seed):
    rng = np.random.default_rng(seed)
    rows, width, steps = (int(n) for n in rng.integers((1, 1, 4), (9, 9, 30)))
    x = rng.random((rows, steps, width), dtype=np.float32)
    w = rng.random((width, width), dtype=np.float32) / width
    columns, weights = weft.tensor(x).realize(), weft.tensor(w).realize()
    h, expected = weft.zeros(rows, width), np.zeros((rows, width))
    for t in range(steps):
        h = (h @ weights + columns[:, t]).tanh()
        expected = np.tanh(expected @ w.astype(float) + x[:, t])
    nests = {canonical_text(step.kernel) for step in kernelize(take_slices([h._value()])[0])}
    assert len(nests) <= 4
    np.testing.assert_allclose(h.numpy(), expected, 2e-5, 2e-6)
