"""Results written over arrays: where it is legal, and that the values are the same."""

import numpy as np
import pytest

import graphs
import oracle
from graphs import el, full, leaf
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.interpret.interpret import run
from weft.ir.node import base
from weft.ir.op import Op
from weft.ir.traverse import stores
from weft.kernelize.build import kernelize
from weft.kernelize.memory.inplace import scatter_in_place, write_in_place


def execute(outputs, wanted, rng):
    """Run the launches with shared memory; return what took what, the results and the oracle's."""
    arrays, env = {}, {}
    steps = scatter_in_place(kernelize(outputs), {base(o) for o in outputs})
    steps, taken = write_in_place(steps, wanted)
    for step in steps:
        for node in step.inputs:
            if node.op is Op.BUFFER and node not in arrays:
                count = int(np.prod(node.shape))
                values = rng.standard_normal(count) if node.dtype.is_float else (
                    rng.integers(0, 3, count))
                arrays[node] = values.astype(node.dtype.numpy)
                env[node.attr] = arrays[node].copy()
    expected = oracle.evaluate(outputs, env)
    for node, source in taken.items():
        arrays[node] = arrays.setdefault(source, np.zeros(source.shape, source.dtype.numpy))
    for step in steps:
        for node in step.outputs:
            arrays.setdefault(node, np.zeros(int(np.prod(node.shape)), node.dtype.numpy))
        run(step.kernel, [arrays[n] for n in (*step.inputs, *step.outputs)])
    got = [arrays[base(o)].reshape(o.shape) for o in outputs]
    for g, w in zip(got, expected, strict=True):
        largest = np.abs(w).max(initial=1.0)  # of sums that cancel
        np.testing.assert_allclose(g, w, rtol=3e-5, atol=1e-6 * largest)
    return taken, steps


def scaled(x, by=0.5):
    return el(Op.MUL, x, full(x, by))


@pytest.mark.parametrize("shape", [(1,), (7,), (5, 7), (2, 3, 5), (1, 13)])
def test_an_elementwise_update_takes_the_memory(shape, rng):
    p, m, g = leaf(*shape), leaf(*shape), leaf(*shape)
    m2 = el(Op.ADD, scaled(m), g)
    p2 = el(Op.ADD, p, scaled(m2, -0.1))
    taken, steps = execute([p2, m2], {p2: base(p), m2: base(m)}, rng)
    assert taken == {p2: base(p), m2: base(m)}
    (step,) = steps
    assert not step.outputs
    assert {s.name for s in stores(step.kernel.body)} <= {
        s.name for s in step.kernel.params[: len(step.inputs)]}


def test_a_row_result_takes_the_memory(rng):
    """A bias and the gradient of it: the sum of a column, in one kernel with the update."""
    b, g = leaf(7), leaf(5, 7)
    b2 = el(Op.ADD, b, scaled(infer.reduce(g, "sum", (0,)), -0.1))
    taken, _ = execute([b2], {b2: base(b)}, rng)
    assert taken


def test_an_epilogue_takes_the_memory(rng):
    x, w, r = leaf(5, 7), leaf(7, 3), leaf(5, 3)
    y = el(Op.ADD, graphs.matmul(x, w), r)
    taken, _ = execute([y], {y: base(r)}, rng)
    assert taken == {y: base(r)}


def test_an_array_that_is_read_elsewhere_is_left_alone(rng):
    """A kernel that reads neighbours, or the operand of a product, needs the old values."""
    p = leaf(6, 6)
    turned = el(Op.ADD, p, infer.permute(p, (1, 0)))
    assert not execute([turned], {turned: base(p)}, rng)[0]
    product = el(Op.ADD, graphs.matmul(p, leaf(6, 6)), p)
    assert not execute([product], {product: base(p)}, rng)[0]
    repeated = infer.expand(infer.reshape(infer.reduce(p, "sum", (0,)), (1, 6)), (6, 6))
    assert not execute([repeated], {repeated: base(p)}, rng)[0]


def test_an_array_that_a_later_kernel_reads_is_written_after_it(rng):
    p, g = leaf(5, 7), leaf(5, 7)
    p2 = el(Op.ADD, p, scaled(g, -0.1))
    later = infer.scan(el(Op.EXP, p), "sum", 1)
    taken, steps = execute([p2, later], {p2: base(p)}, rng)
    assert taken == {p2: base(p)}
    assert stores(steps[-1].kernel.body).keys() == {steps[-1].kernel.params[0]}


def test_two_updates_that_read_each_other_keep_one_copy(rng):
    a, b = leaf(5), leaf(5)
    a2 = infer.scan(b, "sum", 0)
    b2 = infer.scan(a, "sum", 0)
    taken, _ = execute([a2, b2], {a2: base(a), b2: base(b)}, rng)
    assert len(taken) <= 1


def test_nothing_is_written_over_before_the_last_check(rng):
    p, table, ids = leaf(6), leaf(9, 6), leaf(4, dtype=dt.int64)
    p2 = el(Op.ADD, p, scaled(p, 0.1))
    found = infer.gather(table, infer.expand(infer.reshape(ids, (4, 1)), (4, 6)), 0)
    taken, steps = execute([p2, found], {p2: base(p)}, rng)
    assert taken == {p2: base(p)}
    assert [bool(s.checks) for s in steps] == [True, False]


def test_a_kernel_that_may_fail_writes_over_nothing(rng):
    p, ids = leaf(6), leaf(6, dtype=dt.int64)
    p2 = el(Op.ADD, p, infer.gather(leaf(9), ids, 0))
    assert not execute([p2], {p2: base(p)}, rng)[0]


def test_sizes_and_types_must_agree(rng):
    x = leaf(6)
    wide = infer.cast(x, dt.float64)
    other = infer.cast(x, dt.int32)
    part = infer.reduce(leaf(6, 2), "sum", (0, 1))
    wanted = {wide: base(x), other: base(x), part: base(x)}
    assert not execute([wide, other, part], wanted, rng)[0]


def rows_added(table, ids, updates):
    """Return `table` with a row of `updates` added at each index, some of which are equal."""
    count, width = updates.shape
    places = infer.expand(infer.reshape(ids, (count, 1)), (count, width))
    return infer.scatter(table, places, updates, 0, "add")


@pytest.mark.parametrize(("rows", "width", "count"), [(9, 6, 4), (33, 300, 250), (32, 300, 250)])
def test_a_scatter_updates_what_was_computed_for_it(rows, width, count, rng):
    """Also in parts, whether or not the rows divide into them."""
    product = graphs.matmul(leaf(rows, 3), leaf(3, width))
    ids, updates = leaf(count, dtype=dt.int64), leaf(count, width)
    out = rows_added(product, ids, updates)
    _, steps = execute([out], {}, rng)
    assert [len(s.outputs) for s in steps] == [1, 0]
    assert steps[0].outputs == (out,)
    again = rows_added(out, ids, updates)
    _, steps = execute([again], {}, rng)
    assert [len(s.outputs) for s in steps] == [1, 0, 0]


def test_the_base_of_a_scatter_stays_where_others_need_it(rng):
    product = graphs.matmul(leaf(9, 3), leaf(3, 6))
    out = rows_added(product, leaf(4, dtype=dt.int64), leaf(4, 6))
    _, steps = execute([out, product], {}, rng)
    assert all(s.outputs for s in steps)
    _, steps = execute([out, infer.scan(product, "sum", 1)], {}, rng)
    assert all(s.outputs for s in steps)
    table = leaf(9, 6)
    _, steps = execute([rows_added(table, leaf(4, dtype=dt.int64), leaf(4, 6))], {}, rng)
    assert [len(s.outputs) for s in steps] == [1]


@pytest.mark.parametrize("shape", [(1, 1), (1,), (3, 1), (2, 4)])
def test_updates_that_are_the_base_keep_its_copy(shape, rng):
    """What is computed for a scatter is also what it adds: its values are those of before."""
    total = infer.reduce(leaf(*shape, 5), "sum", (len(shape),))
    places = leaf(*shape, dtype=dt.int64)
    index = el(Op.MUL, places, full(places, 0))
    out = infer.scatter(total, index, total, 0, "add")
    execute([out], {}, rng)
    execute([out, total], {}, rng)
    execute([infer.scatter(out, index, out, 0, "add")], {}, rng)
