"""Sums in blocks: the primitives keep the meaning, and results are as exact as they should be."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir.stmt import Reduce
from weft.ir.traverse import walk
from weft.schedule import Schedule


@pytest.mark.parametrize("size", [8, 12, 32])
def test_cascade(size):
    kernel = nests.add_sum(size)
    made = Schedule(kernel).split("k", 4).cascade("k.o")
    assert sum(isinstance(s, Reduce) for s in walk(made.kernel.body)) == 2
    assert_same(kernel, made.kernel, exact=False)
    again = Schedule.replay(kernel, made.trace)
    assert_same(made.kernel, again.kernel)


def test_cascade_of_pairs():
    kernel = nests.argmax(3, 12)
    assert_same(kernel, Schedule(kernel).split("k", 4).cascade("k.o").kernel)


def test_cascade_refuses():
    with pytest.raises(ScheduleError, match="first axis"):
        Schedule(nests.add_sum(8)).cascade("k")
    with pytest.raises(ScheduleError, match="first axis"):
        Schedule(nests.add_sum(8)).split("k", 4).cascade("k.i")


def columns(rows, width):
    schedule = Schedule(nests.column_sum(rows, width)).split("j", 4)
    return schedule.decompose_reduction("s", "j.o", scope="local")


@pytest.mark.parametrize("rows", [1, 4, 8, 11])
def test_block_sums(rows):
    kernel = nests.column_sum(rows, 8)
    made = columns(rows, 8).block_sums("s.r", "k", 4)
    assert_same(kernel, made.kernel, exact=False)
    again = Schedule.replay(kernel, made.trace)
    assert_same(made.kernel, again.kernel)


def test_block_sums_refuses():
    with pytest.raises(ScheduleError, match="running sums"):
        columns(8, 8).block_sums("s.r", "j.o.f", 2)
    with pytest.raises(ScheduleError, match="no memory"):
        columns(8, 8).block_sums("t", "k", 2)


SHAPES = [((50_021,), 0), ((3, 40_001), 1), ((40_001, 3), 0), ((30_011, 17), 0), ((20_000, 64), 0),
          ((2, 9001, 20), 1), ((700, 701), (0, 1)), ((40, 50, 60), (0, 2)),
          ((130, 500), 0)]


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_rounding_errors_do_not_pile_up(shape, dim):
    data = np.random.default_rng(11).standard_normal(shape).astype(np.float32) + 1
    x = weft.from_numpy(data)
    wide = data.astype(np.float64)
    for got, want in ((x.sum(dim), wide.sum(dim)), (x.mean(dim), wide.mean(dim)),
                      (x.var(dim), wide.var(dim, ddof=1))):
        np.testing.assert_allclose(got.numpy(), want, rtol=1.5e-6)


@pytest.mark.parametrize(("shape", "dim"), [((6, 5000), 1), ((5000, 40), 0), ((70_000,), 0)])
def test_variance_far_from_zero(shape, dim):
    # The deviations are 10**7 times smaller than the mean; float32 has 7 digits of the elements.
    data = (1e6 + 0.1 * np.random.default_rng(12).standard_normal(shape)).astype(np.float32)
    want = data.astype(np.float64).var(dim, ddof=1)
    got = weft.from_numpy(data).var(dim).numpy()
    np.testing.assert_allclose(got, want, rtol=2e-5)
    if dim == 1:
        normal = weft.from_numpy(data).layer_norm((shape[1],), eps=0.0).numpy()
        wide = data.astype(np.float64)
        exact = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
        assert np.abs(normal - exact).max() < 0.05
