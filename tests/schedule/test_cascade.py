"""Sums in blocks: the primitives keep the meaning, and results are as exact as they should be."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir import dtype as dt
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


@pytest.mark.parametrize("size", [8, 12, 32])
def test_promote(size):
    kernel = nests.add_sum(size)
    made = Schedule(kernel).split("k", 4).cascade("k.o").promote("k.o")
    outer, inner = (s for s in walk(made.kernel.body) if isinstance(s, Reduce))
    assert [r.accumulators[0].var.dtype for r in (outer, inner)] == [dt.float64, dt.float32]
    assert_same(kernel, made.kernel, exact=False)
    again = Schedule.replay(kernel, made.trace)
    assert_same(made.kernel, again.kernel)


def test_promote_refuses():
    with pytest.raises(ScheduleError, match="float32"):
        Schedule(nests.argmax(3, 12)).promote("k")
    with pytest.raises(ScheduleError, match="float32"):
        Schedule(nests.add_sum(8)).promote("k").promote("k")
    with pytest.raises(ScheduleError, match="no loop"):
        Schedule(nests.add_sum(8)).promote("j")


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


@pytest.mark.parametrize(("shape", "dim", "limit"), [
    ((3_000_017,), 0, 1.0), ((1 << 21,), 0, 1.0), ((1701, 1203), (0, 1), 1.0),
    ((20_011, 40), 0, 3.0), ((4000, 300), 0, 3.0), ((7, 30_001), 1, 1.5)])  # fmt: skip
def test_sums_of_one_sign_err_by_few_ulps(shape, dim, limit):
    """What blocks leave is added in float64; a column errs by the chains of its blocks."""
    data = np.random.default_rng([12, *shape]).random(shape, dtype=np.float32) + 1
    want = data.astype(np.float64).sum(dim)
    got = weft.from_numpy(data).sum(dim).numpy()
    assert (np.abs(got - want) / np.spacing(want.astype(np.float32))).max() <= limit


@pytest.mark.parametrize("shape", [(50, 1000), (50, 1001)])
def test_variances_round_once(shape):
    data = np.random.default_rng([13, *shape]).standard_normal(shape, dtype=np.float32) + 3
    for name in ("var", "std"):
        got = getattr(weft.from_numpy(data), name)(1).numpy()
        want = getattr(data.astype(np.float64), name)(1, ddof=1)
        assert (np.abs(got - want) / np.spacing(want.astype(np.float32))).max() < 0.52


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
