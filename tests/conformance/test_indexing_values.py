"""Gathers and scatters: kinds, types of values and indices, duplicates, order, bounds."""

import numpy as np
import pytest
from values import assert_same, calm, random

import oracle
from graphs import el
from weft.errors import BoundsError
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op

INDICES = [d for d in dt.ALL if d.is_integer]
CASES = [  # shape of the array, shape of the index, axis
    ((7,), (13,), 0), ((3, 5), (3, 9), 1), ((3, 5), (8, 5), 0), ((3, 5), (2, 4), 1),
    ((4, 3, 5), (4, 1, 5), 1), ((2, 3, 65), (1, 2, 127), 2), ((1000,), (0,), 0),
    ((17, 31), (17, 31), 0),
]  # fmt: skip


def index(shape, bound, d, rng):
    return rng.integers(0, bound, shape).astype(d.numpy)


@pytest.mark.grid
@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.name)
def test_gathers(d, device, rng):
    nodes = []
    for k, (shape, wanted, axis) in enumerate(CASES):
        x = device.leaf(random(d, shape, rng))
        i = device.leaf(index(wanted, shape[axis], INDICES[k % len(INDICES)], rng))
        nodes.append(infer.gather(x, i, axis))
    for got, want in zip(device.compute(*nodes), oracle.evaluate(nodes), strict=True):
        assert_same(got, want)


@pytest.mark.grid
@pytest.mark.parametrize("kind", infer.SCATTER_KINDS)
@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.name)
def test_scatters(kind, d, device, rng):
    """In row-major order of the updates: sums are equal to the last bit, `set` keeps the last."""
    if (d.is_bool and kind in ("add", "prod")) or d.is_storage_only:
        kind = "set"
    nodes = []
    for k, (shape, wanted, axis) in enumerate(CASES):
        values = random if kind in ("set", "max", "min") else calm
        base, updates = (device.leaf(values(d, s, rng)) for s in (shape, wanted))
        i = device.leaf(index(wanted, shape[axis], INDICES[k % len(INDICES)], rng))
        nodes.append(infer.scatter(base, i, updates, axis, kind))
    for got, want in zip(device.compute(*nodes), oracle.evaluate(nodes), strict=True):
        assert_same(got, want, what=f"{kind} {d.name}")


@pytest.mark.parametrize("d", INDICES, ids=lambda d: d.name)
def test_index_out_of_range(d, device):
    x = device.leaf(np.arange(5.0))
    updates = device.leaf(np.ones(3))
    for bad in {5, d.max, d.min} - {0}:
        i = device.leaf(np.array([1, bad, 0], d.numpy))
        for node in (infer.gather(x, i, 0), infer.scatter(x, i, updates, 0, "add"),
                     infer.reduce(infer.gather(x, i, 0), "sum", (0,))):  # fmt: skip
            with pytest.raises(BoundsError, match="0 to 4"):
                device.compute(node)
    fine = device.leaf(np.array([4, 0], d.numpy))
    assert device.compute(infer.gather(x, fine, 0))[0].tolist() == [4.0, 0.0]


def test_index_into_nothing(device):
    x, i = device.leaf(np.zeros(0)), device.leaf(np.zeros(1, np.int64))
    with pytest.raises(BoundsError, match="index 0"):
        device.compute(infer.gather(x, i, 0))
    none = device.leaf(np.zeros(0, np.int64))
    assert device.compute(infer.contiguous(infer.gather(x, none, 0)))[0].shape == (0,)


@pytest.mark.parametrize("rows", [1, 7])
def test_gather_of_row_results(rows, device, rng):
    """A reduction cannot be computed beside a gather that reads any of its rows."""
    x = device.leaf(rng.integers(0, 9, (rows, 33)))
    total = infer.reduce(x, "sum", (1,))
    index = device.leaf(rng.integers(0, rows, (rows,)))
    picked = infer.gather(total, index, 0)
    nodes = [picked, infer.cast(x, dt.int8), el(Op.SUB, picked, total)]
    for got, want in zip(device.compute(*nodes), oracle.evaluate(nodes), strict=True):
        assert_same(got, want)
