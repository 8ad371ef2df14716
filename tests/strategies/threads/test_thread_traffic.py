"""Bytes, sectors and banks of kernels on a target with the figures of an A100."""

import math

import numpy as np
import pytest

import graphs
from graphs import el, leaf
from launch_costs import A100, launch_costs, used
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.strategies.threads.choose import choose_for_threads


def costs(node, target=A100, **named):
    """Return the cost of each launch of a graph of one kernel."""
    (step,) = kernelize([node])
    scheduled = choose_for_threads(step.kernel, target, target.cores)
    return launch_costs(scheduled, target, **named)


def nbytes(*shape, itemsize=4):
    return itemsize * math.prod(shape)


def turned(*shape, order=(1, 0), dtype=dt.float32):
    return infer.contiguous(infer.permute(leaf(*shape, dtype=dtype), order))


def wide(*shape, like):
    """Return an array that is repeated along what it lacks."""
    return infer.expand(leaf(*shape), like)


def is_coalesced(traffic):
    """Whether each instruction reads one place, or touches one sector more than it must."""
    least = -(-traffic.nbytes // (32 * traffic.requests))
    return traffic.sectors <= (least + 1) * traffic.requests


ELEMENTWISE = {
    "chain": ((2048, 4096), lambda n: el(Op.EXP, el(Op.MUL, leaf(*n), el(Op.ADD, leaf(*n),
                                                                         leaf(*n)))), 3),
    "odd": ((1001, 77), lambda n: el(Op.SUB, el(Op.ABS, leaf(*n)), leaf(*n)), 2),
    "row": ((512, 4096), lambda n: el(Op.MUL, leaf(*n), wide(1, 4096, like=n)), 2),
    "column": ((512, 4096), lambda n: el(Op.MUL, leaf(*n), wide(512, 1, like=n)), 2),
    "outer": ((512, 4096), lambda n: el(Op.ADD, wide(1, 4096, like=n), wide(512, 1, like=n)), 2),
    "three axes": ((16, 33, 1024), lambda n: el(Op.ADD, leaf(*n), wide(33, 1, like=n)), 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name):
    shape, make, operands = ELEMENTWISE[name]
    (cost,) = costs(make(shape))
    assert len(cost.loads) == operands
    assert cost.used >= 0.95
    assert cost.written == {"out0": nbytes(*shape)}
    assert all(map(is_coalesced, [*cost.loads.values(), *cost.stores.values()]))
    whole = [t for t in cost.loads.values() if t.nbytes == nbytes(*shape)]
    assert all(t.coalescing > 0.95 for t in (*whole, *cost.stores.values()))


SUMS = {
    "rows": ((4096, 4096), (1,)),
    "columns": ((2048, 4096), (0,)),
    "whole": ((4096, 4096), (0, 1)),
    "images": ((8, 64, 56, 56), (2, 3)),
    "short rows": ((8192, 64), (1,)),
    "middle": ((16, 300, 512), (1,)),
}


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("name", SUMS)
def test_reductions(name, kind):
    shape, axes = SUMS[name]
    first, *rest = costs(infer.reduce(leaf(*shape), kind, axes))
    read = first.loads["in0"]
    assert read.nbytes == nbytes(*shape)
    assert read.coalescing >= 0.95
    assert used(first.loads.values()) >= 0.95
    assert first.used >= 0.95 or name == "short rows"  # of whose sums each is a group's
    assert first.conflicts == 0
    assert len(rest) == (name == "whole")
    for cost in rest:
        assert cost.read["in0"] == 0
        assert cost.conflicts == 0


@pytest.mark.parametrize("shape", [(4096, 4096), (4096, 1000), (512, 4096)])
@pytest.mark.parametrize("make", [graphs.softmax, graphs.layer_norm], ids=lambda f: f.__name__)
def test_rows_are_read_and_written_once(make, shape):
    (cost,) = costs(make(leaf(*shape)))
    assert cost.read == {"in0": nbytes(*shape)}
    assert cost.written == {"out0": nbytes(*shape)}
    assert cost.used >= 0.95
    assert cost.conflicts == 0
    assert cost.items == A100.group_items


def test_rows_that_do_not_fit_are_read_again():
    narrow = A100.replace(shared_bytes=24 << 10)
    (cost,) = costs(graphs.softmax(leaf(4096, 4096)), narrow)
    assert cost.read["in0"] == 2 * nbytes(4096, 4096)
    assert cost.used >= 0.95


def test_rows_of_odd_lengths():
    (cost,) = costs(graphs.softmax(leaf(61, 1537)), every=True)
    assert cost.read == {"in0": nbytes(61, 1537)}
    assert cost.written == {"out0": nbytes(61, 1537)}
    assert cost.used >= 0.95
    assert cost.conflicts == 0


TRANSPOSED = {
    "square": lambda: turned(4096, 4096),
    "halves": lambda: turned(4096, 2048, dtype=dt.float16),
    "bytes": lambda: turned(2048, 2048, dtype=dt.int8),
    "doubles": lambda: turned(1024, 4096, dtype=dt.float64),
    "heads": lambda: turned(8, 512, 16, 64, order=(0, 2, 3, 1)),
    "reversed": lambda: turned(64, 96, 128, order=(2, 1, 0)),
    "sum": lambda: el(Op.ADD, leaf(2048, 2048), infer.permute(leaf(2048, 2048), (1, 0))),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_transposes_are_coalesced_both_ways(name):
    node = TRANSPOSED[name]()
    (cost,) = costs(node)
    size = nbytes(*node.shape, itemsize=node.dtype.itemsize)
    assert set(cost.read.values()) == set(cost.written.values()) == {size}
    assert all(t.coalescing == 1 for t in (*cost.loads.values(), *cost.stores.values()))
    assert cost.shared
    assert cost.conflicts == 0


@pytest.mark.parametrize("shape", [(1001, 515), (257, 33), (70, 41)])
def test_transposes_of_odd_sizes(shape):
    """Rows that begin between two sectors share those with their neighbours."""
    (cost,) = costs(turned(*shape), every=True)
    assert cost.read["in0"] == cost.written["out0"] == nbytes(*shape)
    assert all(map(is_coalesced, [*cost.loads.values(), *cost.stores.values()]))
    assert cost.conflicts == 0


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (0, 2, 3, 1)])
def test_channels_last_and_first(order):
    shape = (4, 64, 80, 3) if order[1] == 3 else (4, 3, 64, 80)
    (cost,) = costs(turned(*shape, order=order), every=True)
    assert cost.read["in0"] == cost.written["out0"] == nbytes(*shape)
    assert cost.used >= 0.95
    assert all(map(is_coalesced, [*cost.loads.values(), *cost.stores.values()]))


def test_gathered_rows():
    """Rows at places that are data: neighbouring threads read neighbouring elements of one."""
    x, index = leaf(5000, 256), leaf(640, 256, dtype=dt.int64)
    rows = np.random.default_rng(5).integers(0, 5000, (640, 1)).repeat(256, 1)
    (cost,) = costs(infer.gather(x, index, 0), arrays={"in0": rows, "in1": rows})
    assert sorted(cost.read.values()) == [nbytes(640, 256), nbytes(640, 256, itemsize=8)]
    assert cost.written == {"out0": nbytes(640, 256)}
    assert used([*cost.loads.values(), *cost.stores.values()]) == 1
    assert all(t.coalescing == 1 for t in cost.loads.values())
