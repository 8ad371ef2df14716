"""Scatters of rows: order kept, rows in lanes, indices checked once."""

import math

import numpy as np
import pytest

import weft
from seeds import seeds
from weft import strategies
from weft.backends import cpu
from weft.errors import BoundsError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.stmt import PARALLEL, For
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize


@pytest.mark.parametrize("columns", [1, 7, 64, 130])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
def test_rows_are_added_in_order(columns, dtype):
    rng = np.random.default_rng(0)
    base = rng.integers(0, 9, (20, columns)).astype(dtype)
    rows = rng.integers(0, 9, (50, columns)).astype(dtype)
    index = rng.integers(0, 20, 50)
    wanted = base.copy()
    np.add.at(wanted, index, rows)
    got = weft.tensor(base).index_add(0, weft.tensor(index), weft.tensor(rows))
    np.testing.assert_array_equal(got.numpy(), wanted)


def test_the_last_of_several_rows_wins():
    index = weft.tensor(np.array([3, 1, 3, 3, 0]))
    rows = np.arange(5 * 40, dtype=np.float32).reshape(5, 40)
    got = weft.zeros(4, 40).index_copy(0, index, weft.tensor(rows)).numpy()
    np.testing.assert_array_equal(got, np.stack([rows[4], rows[1], np.zeros(40), rows[3]]))


def test_a_bad_row_is_refused_and_no_row_is_not():
    bad = weft.tensor(np.array([0, 9]))
    with pytest.raises(BoundsError, match="index 9"):
        weft.zeros(4, 40).index_add(0, bad, weft.ones(2, 40)).numpy()
    assert weft.zeros(4, 0).index_add(0, bad, weft.ones(2, 0)).numpy().shape == (4, 0)


def test_embedding_gradient():
    rng = np.random.default_rng(1)
    weight = weft.tensor(rng.standard_normal((30, 48)).astype(np.float32), requires_grad=True)
    index = rng.integers(0, 30, (8, 9))
    weft.nn.functional.embedding(weft.tensor(index), weight).sum().backward()
    counts = np.bincount(index.ravel(), minlength=30).astype(np.float32)
    np.testing.assert_array_equal(weight.grad.numpy(), np.repeat(counts[:, None], 48, 1))


@pytest.mark.parametrize("width", [64, 99, 300])
@pytest.mark.parametrize("total", [33, 500])
def test_parts_of_the_rows(total, width):
    """Rows of the result are shared out; each keeps the order of its updates."""
    rng = np.random.default_rng(width)
    base = rng.standard_normal((total, width)).astype(np.float32)
    rows = rng.standard_normal((1200, width)).astype(np.float32)
    index = rng.integers(0, total, 1200)
    x, at, new = map(weft.tensor, (base, index, rows))
    for kind, ufunc in (("sum", np.add), ("prod", np.multiply), ("amax", np.maximum)):
        wanted = base.copy()
        ufunc.at(wanted, index, rows)
        wide = at.unsqueeze(1).expand(1200, width)
        got = x.scatter_reduce(0, wide, new, kind)
        np.testing.assert_array_equal(got.numpy(), wanted)
        again = x.scatter_reduce(0, wide, new, kind)
        assert again.numpy().tobytes() == got.numpy().tobytes()
    wanted = base.copy()
    wanted[index] = rows
    np.testing.assert_array_equal(x.index_copy(0, at, new).numpy(), wanted)
    index[700] = total
    with pytest.raises(BoundsError, match=f"index {total}"):
        x.index_add(0, weft.tensor(index), new).numpy()


def test_elements_of_wide_rows():
    rng = np.random.default_rng(2)
    base = rng.integers(0, 9, (300, 70)).astype(np.float32)
    new = rng.integers(0, 9, (300, 400)).astype(np.float32)
    index = rng.integers(0, 70, (300, 400))
    wanted = base.copy()
    np.add.at(wanted, (np.arange(300)[:, None], index), new)
    got = weft.tensor(base).scatter_add(1, weft.tensor(index), weft.tensor(new))
    np.testing.assert_array_equal(got.numpy(), wanted)


def test_an_index_for_each_element_of_wide_rows():
    rng = np.random.default_rng(3)
    base = rng.integers(0, 9, (300, 70)).astype(np.float32)
    new = rng.integers(0, 9, (1000, 70)).astype(np.float32)
    index = rng.integers(0, 300, (1000, 70))
    wanted = base.copy()
    np.add.at(wanted, (index, np.arange(70)), new)
    got = weft.tensor(base).scatter_add(0, weft.tensor(index), weft.tensor(new))
    np.testing.assert_array_equal(got.numpy(), wanted)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["set", "sum", "prod"])
@pytest.mark.parametrize("columns", [1100, 1101, 2049])
@pytest.mark.parametrize("seed", seeds(2))
def test_some_columns_of_all_rows_before_others(columns, kind, seed):
    """A result that no cache holds; the order of the updates of an element is kept."""
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((700, columns)).astype(np.float32)
    new = rng.standard_normal((90, columns)).astype(np.float32)
    index = rng.integers(0, 40, (90, columns))
    wanted, at = base.copy(), np.arange(columns)
    for row, to in zip(new, index, strict=True):
        wanted[to, at] = {"set": row, "sum": wanted[to, at] + row, "prod": wanted[to, at] * row}[
            kind]
    x, i, u = map(weft.tensor, (base, index, new))
    got = x.scatter(0, i, u) if kind == "set" else x.scatter_reduce(0, i, u, kind)
    np.testing.assert_array_equal(got.numpy(), wanted)
    index[89, columns - 1] = 700
    with pytest.raises(BoundsError, match="index 700"):
        x.scatter(0, weft.tensor(index), u).numpy()


def leaf(kind, *shape):
    stored = nd.buffer(nd.Storage(kind, math.prod(shape)))
    return infer.reshape(stored, shape)


def chosen(node):
    """Return the body of the kernel of a node, scheduled for two threads."""
    target = cpu.host_target()
    (step,) = kernelize([node], target)
    return strategies.choose(step.kernel, target, 2).body


@pytest.mark.parametrize(("elements", "shared"), [(9_000, False), (50_000, True)])
def test_elements_that_are_looked_up_are_soon_shared_out(elements, shared):
    body = chosen(infer.gather(leaf(dt.float32, 40, elements), leaf(dt.int64, 1, elements), 0,
                               "gather"))
    assert any(isinstance(s, For) and s.kind == PARALLEL for s in walk(body)) == shared


@pytest.mark.parametrize(("columns", "shared"), [(20, False), (76, True), (4000, True)])
def test_short_rows_of_updates_stay_with_one_thread(columns, shared):
    """A hand-over for each of a thousand rows takes longer than the rows: threads share columns."""
    _, updates = chosen(infer.scatter(
        leaf(dt.float32, 600, columns), leaf(dt.int64, 300, columns),
        leaf(dt.float32, 300, columns), 0))
    assert isinstance(updates, For)
    assert (updates.kind == PARALLEL) == shared
    assert not any(isinstance(s, For) and s.kind == PARALLEL for s in walk(updates.body))


@pytest.mark.parametrize(("rows", "width", "count"),
                         [(16_384, 16, 7), (512, 256, 86), (900, 41, 41)])
def test_threads_share_rows_whose_updates_stay_in_them(rows, width, count):
    """However narrow: rows with an axis of their own do not overlap."""
    _, updates = chosen(infer.scatter(
        leaf(dt.float32, rows, width), leaf(dt.int64, rows, count),
        leaf(dt.float32, rows, count), 1))
    assert isinstance(updates, For)
    assert updates.kind == PARALLEL


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("seed", seeds(4))
def test_updates_of_narrow_rows_keep_their_order(axis, seed):
    rng = np.random.default_rng(seed)
    shape = rng.integers(2, 100, 2)
    shape[0] *= 50
    x = rng.standard_normal(shape).astype(np.float32)
    index = rng.integers(0, shape[axis], shape)
    new = rng.standard_normal(shape).astype(np.float32)
    wanted = x.copy()
    for place in np.ndindex(*shape):
        at = (index[place], place[1]) if axis == 0 else (place[0], index[place])
        wanted[at] = new[place]
    got = weft.jit(lambda x, i, u: x.scatter(axis, i, u))(*map(weft.tensor, (x, index, new)))
    np.testing.assert_array_equal(got.numpy(), wanted)


@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (0, 0)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["set", "sum"])
def test_no_update_changes_nothing(shape, axis, kind):
    base = np.arange(239 * 2).reshape(239, 2).astype(np.float16)
    index, rows = (weft.tensor(np.zeros(shape, d)) for d in (np.int64, np.float16))
    x = weft.tensor(base)
    got = (x.scatter if kind == "set" else x.scatter_add)(axis, index, rows)
    np.testing.assert_array_equal(got.numpy(), base)
