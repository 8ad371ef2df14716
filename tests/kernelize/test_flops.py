"""What `weft explain` shows as flops: operations on values that the nest of a kernel executes."""

import graphs
from graphs import el, full, leaf
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op
from weft.kernelize.build import kernelize


def flops(*outputs):
    return sum(s.kernel.meta.flops for s in kernelize(outputs))


def test_every_operation_of_a_chain_counts():
    x = leaf(16, 8)
    y = el(Op.EXP, el(Op.ADD, el(Op.MUL, x, full(x, 2.0)), full(x, 1.0)))
    assert flops(y) == 3 * 128


def test_shared_operations_count_once():
    x = leaf(128)
    y = el(Op.EXP, x)
    assert flops(el(Op.MUL, y, y)) == 2 * 128


def test_value_read_at_two_places_counts_twice():
    x = leaf(130)
    y = el(Op.MUL, x, full(x, 3.0))
    pair = [infer.slice_(y, (start,), (128,), (1,)) for start in (0, 2)]
    assert flops(el(Op.ADD, *pair)) == (2 + 1) * 128


def test_products_count_two_and_epilogues_what_they_compute():
    x, w = leaf(8, 32), leaf(32, 16)
    product = graphs.matmul(x, w)
    assert flops(product) == 2 * 8 * 16 * 32
    assert flops(el(Op.TANH, el(Op.ADD, product, full(product, 1.0)))) == 8 * 16 * (2 * 32 + 2)


def test_passes_over_rows_add_up():
    x = leaf(8, 64)
    # max; subtract, exp, sum; what was kept of exp times the reciprocal, which is one a row
    assert flops(graphs.softmax(x)) == 5 * 512 + 8


def test_masks_indices_and_conversions_count_nothing():
    x = leaf(64, dtype=dt.float32)
    moved = infer.pad(infer.slice_(x, (1,), (63,), (1,)), (0,), (1,), 0.0)
    assert flops(infer.cast(moved, dt.float64)) == 0
