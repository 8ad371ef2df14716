"""How many kernels a graph becomes, and that they compute it (run by the interpreter)."""

import math

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
from weft.kernelize.build import kernelize


def execute(outputs, rng):
    """Return the kernels' results and the oracle's for random inputs."""
    steps = kernelize(outputs)
    arrays, env = {}, {}
    for step in steps:
        for node in step.inputs:
            if node.op is Op.BUFFER and node not in arrays:
                arrays[node] = random_array(node, rng)
                env[node.attr] = arrays[node]
        for node in step.outputs:
            arrays[node] = np.zeros(math.prod(node.shape), node.dtype.numpy)
        scratch = [np.zeros([d.attr for d in m.shape], m.dtype.numpy).ravel() for m in step.scratch]
        run(step.kernel, [arrays[n] for n in (*step.inputs, *step.outputs)] + scratch)
    wanted = oracle.evaluate(outputs, env)
    return [arrays[base(o)].reshape(o.shape) for o in outputs], wanted, steps


def random_array(node, rng):
    count = math.prod(node.shape)
    if node.dtype.is_float:
        return rng.standard_normal(count).astype(node.dtype.numpy)
    return rng.integers(0, 3, count).astype(node.dtype.numpy)


def chain(x):
    y = el(Op.ADD, el(Op.MUL, x, full(x, 2.0)), full(x, 1.0))
    return [el(Op.ADD, el(Op.EXP, el(Op.MUL, el(Op.MAX, y, full(x, 0.0)), full(x, -0.5))), x)]


def linear(x, w, b):
    y = graphs.matmul(x, w)
    return [el(Op.TANH, el(Op.ADD, y, infer.expand(b, y.shape)))]


def attention(q, k, v):
    scores = graphs.softmax(graphs.matmul(q, infer.permute(k, (1, 0))))
    return [graphs.matmul(scores, v)]


CASES = {
    "chain": (lambda: chain(leaf(3, 5, 7)), 1),
    "softmax": (lambda: [graphs.softmax(leaf(5, 7))], 1),
    "softmax of 3 axes": (lambda: [graphs.softmax(leaf(2, 5, 7))], 1),
    "softmax of a middle axis": (lambda: [graphs.softmax(leaf(2, 5, 7), 1)], 1),
    "log-softmax": (lambda: [graphs.log_softmax(leaf(5, 7))], 1),
    "layer norm": (lambda: [graphs.layer_norm(leaf(2, 3, 7))], 1),
    "linear": (lambda: linear(leaf(5, 7), leaf(7, 3), leaf(3)), 1),
    "softmax backward": (lambda: [graphs.softmax_backward(leaf(5, 7), leaf(5, 7))], 1),
    "layer norm backward": (
        lambda: list(graphs.layer_norm_backward(leaf(5, 7), leaf(7), leaf(5, 7))), 2),
    "convolution": (lambda: [graphs.conv2d(leaf(2, 2, 5, 6), leaf(3, 2, 3, 3))], 1),
    "attention": (lambda: attention(leaf(9, 4), leaf(6, 4), leaf(6, 4)), 1),
    "argmax": (lambda: [infer.argreduce(leaf(5, 7), "max", 0)], 1),
    "scan": (lambda: [infer.scan(leaf(5, 7), "sum", 0)], 1),
    "sort": (lambda: list(infer.sort(leaf(3, 9), 1)), 1),
    "sort down": (lambda: list(infer.sort(leaf(3, 9), 0, descending=True)), 1),
    "gather": (lambda: [infer.gather(leaf(3, 4), leaf(2, 4, dtype=dt.int64), 0)], 1),
    "scatter": (lambda: [infer.scatter(leaf(3, 4), leaf(2, 4, dtype=dt.int64), leaf(2, 4), 0,
                                       "add")], 1),
    "window sum": (lambda: [infer.reduce(infer.window(leaf(9), 0, 3, 2), "sum", (1,))], 1),
    "fold": (lambda: [infer.reduce(infer.unwindow(leaf(4, 3), 0, 2, 1, 9), "sum", (1,))], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_kernel_count_and_values(name, rng):
    make, count = CASES[name]
    got, wanted, steps = execute(make(), rng)
    assert len(steps) == count
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


def test_softmax_reads_its_input_once_from_memory():
    (step,) = kernelize([graphs.softmax(leaf(64, 128))])
    assert [p.name for p in step.kernel.params] == ["in0", "out0"]
    assert step.kernel.meta.traffic == 2 * 64 * 128 * 4


def test_every_join_has_a_reason():
    (step,) = kernelize([graphs.layer_norm(leaf(4, 8))])
    assert step.why
    assert all(step.why)


@pytest.mark.parametrize(("shape", "axes", "count"), [
    ((6, 6), (1, 0), 2), ((6, 6), (0, 1), 2), ((6, 6), (1, 1), 1), ((6, 6), (0, 0), 1),
    ((6, 5), (1, 0), 2), ((2, 3, 6), ((0, 1), 2), 2), ((4, 2, 8), ((0, 1), 2), 2),
])  # fmt: skip
def test_rows_and_columns_of_a_square_are_two_walks(shape, axes, count, rng):
    x = leaf(*shape)
    outputs = [infer.reduce(v, "sum", (axis,) if isinstance(axis, int) else axis)
               for v, axis in zip((x, el(Op.MUL, x, x)), axes, strict=True)]
    got, wanted, steps = execute(outputs, rng)
    assert len(steps) == count
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5, atol=1e-6)


def test_value_stored_and_reduced_is_one_kernel(rng):
    x = leaf(6, 5)
    y = el(Op.EXP, x)
    got, wanted, steps = execute([y, infer.reduce(y, "sum", (1,))], rng)
    assert len(steps) == 1
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5)


def test_a_grid_wide_dependency_is_not_fused(rng):
    """A row result read from another row must be finished before."""
    x = leaf(4, 4)
    total = infer.reduce(x, "sum", (1,))
    crossed = el(Op.MUL, x, infer.expand(infer.reshape(total, (1, 4)), (4, 4)))
    got, wanted, steps = execute([crossed], rng)
    assert len(steps) == 2
    np.testing.assert_allclose(got[0], wanted[0], rtol=2e-5, atol=1e-6)


def test_a_group_between_forbids_a_join(rng):
    """c reads a (row-wise) and b, and b reads a at other rows: c may not join a's kernel."""
    x = leaf(4, 4)
    total = infer.reduce(x, "sum", (1,))
    turned = infer.permute(infer.expand(infer.reshape(total, (4, 1)), (4, 4)), (1, 0))
    between = infer.scan(turned, "sum", 1)
    last = el(Op.ADD, el(Op.MUL, x, graphs.kept(total, (1,), x)), between)
    got, wanted, steps = execute([last], rng)
    assert len(steps) == 3
    np.testing.assert_allclose(got[0], wanted[0], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 50257), (8, 70000), (100_000,), (2, 1 << 18)])
def test_long_rows_are_one_kernel_too(shape):
    assert len(kernelize([graphs.softmax(leaf(*shape))])) == 1
    assert len(kernelize([graphs.layer_norm(leaf(*shape))])) == 1


def test_long_chains_are_cut_and_equal_pieces_shared():
    x = leaf(8)
    y, one = x, full(x, 1.0)
    for _ in range(5000):
        y = el(Op.ADD, y, one)
    steps = kernelize([y])
    assert len(steps) > 5
    assert len({id(s.kernel) for s in steps}) <= 3


def test_shared_subgraphs_do_not_explode():
    x = leaf(4)
    for _ in range(64):
        x = el(Op.MUL, x, x)
    assert len(kernelize([x])) == 1


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 0), (1, 1, 1), (13, 1, 17)])
def test_odd_shapes(shape, rng):
    x = leaf(*shape)
    outputs = [el(Op.ADD, x, full(x, 1.5))]
    if shape:
        outputs.append(infer.reduce(x, "sum", tuple(range(len(shape)))))
        outputs.append(infer.reduce(x, "sum", (0,)))
    got, wanted, _ = execute(outputs, rng)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=3e-5)


def test_expensive_value_of_two_kernels_is_stored():
    x, w = leaf(64, 64), leaf(64, 64)
    e = el(Op.EXP, x)
    steps = kernelize([graphs.matmul(e, w), infer.scan(e, "sum", 0)])
    stored = [o.op for s in steps for o in s.outputs]
    assert stored.count(Op.EXP) == 1


def residual_layers(count, rows=4, width=6):
    """Return x after `count` layers of x = x + norm(x) @ w."""
    x = leaf(rows, width)
    for _ in range(count):
        mixed = graphs.matmul(graphs.layer_norm(x), leaf(width, width))
        x = el(Op.ADD, x, mixed)
    return x


def test_a_sum_that_grows_from_layer_to_layer_is_stored_at_each(rng):
    """No kernel computes it from its beginning, and equal layers are equal kernels."""
    shallow, deep = kernelize([residual_layers(3)]), kernelize([residual_layers(12)])
    assert len({id(s.kernel) for s in deep}) == len({id(s.kernel) for s in shallow})
    assert max(len(s.inputs) for s in deep) <= 3
    assert len(deep) == 2 * 12
    got, wanted, _ = execute([residual_layers(3)], rng)
    np.testing.assert_allclose(got[0], wanted[0], rtol=2e-4, atol=1e-5)


def test_a_sum_of_two_arrays_that_one_row_kernel_reads_is_not_stored():
    (step,) = kernelize([graphs.softmax(el(Op.ADD, leaf(8, 16), leaf(8, 16)))])
    assert len(step.outputs) == 1


def test_a_long_sum_with_many_readers_is_stored_once():
    parts = [leaf(8, 8) for _ in range(7)]
    total = parts[0]
    for part in parts[1:]:
        total = el(Op.ADD, total, part)
    scans = [infer.scan(el(Op.MUL, total, leaf(8, 8)), "sum", a) for a in (0, 1)]
    steps = kernelize(scans)
    assert [s.outputs for s in steps].count((total,)) == 1
    assert all(len(s.inputs) <= 7 for s in steps)


def test_a_shared_scalar_is_no_reason_to_share_a_kernel():
    scale = infer.expand(infer.reshape(leaf(1), (1,)), (5,))
    rows = [infer.reduce(leaf(4, 5), "sum", (0,)) for _ in range(3)]
    steps = kernelize([el(Op.MUL, r, scale) for r in rows])
    assert len(steps) == 3


def test_long_epilogues_stay_apart_from_products():
    """A product with a bias or a residual is one kernel; an optimiser's update is another."""
    a, b, bias = leaf(64, 32), leaf(32, 48), leaf(64, 48)
    product = infer.reduce(
        el(Op.MUL, infer.expand(infer.reshape(a, (64, 32, 1)), (64, 32, 48)),
           infer.expand(infer.reshape(b, (1, 32, 48)), (64, 32, 48))), "sum", (1,))  # fmt: skip
    rng = np.random.default_rng(0)
    got, wanted, steps = execute([el(Op.ADD, product, bias)], rng)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5, atol=1e-5)
    assert len(steps) == 1
    momentum, weight = leaf(64, 48), leaf(64, 48)
    moved = el(Op.ADD, momentum, product)
    got, wanted, steps = execute([product, moved, el(Op.SUB, weight, moved)], rng)
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    assert [s.kernel.meta.kind for s in steps] == ["contraction", "elementwise"]


@pytest.mark.parametrize(("moments", "kept", "product_stores"),
                         [(2, True, 1), (2, False, 1), (1, True, 1), (1, False, 1), (0, True, 2),
                          (0, False, 1)])
def test_a_product_leaves_its_readers_what_they_read_with_it(moments, kept, product_stores, rng):
    """A moment fits behind the tiles, with the parameter it does not: then both go together."""
    x, y = leaf(7, 5), leaf(7, 11)
    g = graphs.matmul(infer.permute(x, (1, 0)), y)
    outputs, p = [g] if kept else [], leaf(5, 11)
    step = g
    if moments:
        first, second = leaf(5, 11), leaf(5, 11)
        m = el(Op.ADD, el(Op.MUL, first, full(g, 0.9)), el(Op.MUL, g, full(g, 0.1)))
        step = m
        outputs.append(m)
        if moments == 2:
            v = el(Op.ADD, second, el(Op.MUL, g, g))
            step = el(Op.MUL, m, v)
            outputs.append(v)
    outputs.append(el(Op.ADD, p, step))
    found, wanted, steps = execute(outputs, rng)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=1e-5)
    product = next(s for s in steps if s.kernel.meta.kind == "contraction")
    assert len(product.outputs) == product_stores
    assert len(steps) == (2 if moments else 1)


def test_an_expensive_scalar_joins_the_scalars_that_are_stored(rng):
    """An optimiser's count of steps is stored; the powers of it need no place in every kernel."""
    step = el(Op.ADD, leaf(1), full(leaf(1), 1.0))
    x = leaf(6, 7)
    scaled = el(Op.MUL, x, infer.expand(el(Op.EXP, step), x.shape))
    got, wanted, steps = execute([step, scaled], rng)
    assert [len(s.outputs) for s in steps] == [2, 1]
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-5)
    (alone,) = kernelize([el(Op.MUL, x, infer.expand(el(Op.EXP, leaf(1)), x.shape))])
    assert len(alone.outputs) == 1


def pooled(y, size, step):
    seen = infer.window(infer.window(y, 2, size, step), 3, size, step)
    return infer.reduce(seen, "max", (4, 5))


@pytest.mark.parametrize(("size", "step", "epilogue"), [(3, 2, True), (2, 2, False)])
def test_overlapping_windows_read_the_end_of_a_convolution(size, step, epilogue, rng):
    x, w, b = leaf(1, 2, 7, 6), leaf(3, 2, 3, 3), leaf(1, 3, 1, 1)
    y = graphs.conv2d(x, w)
    y = el(Op.MAX, el(Op.ADD, y, infer.expand(b, y.shape)), full(y, 0.0))
    found, wanted, steps = execute([pooled(y, size, step)], rng)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-5)
    assert [s.kernel.meta.kind for s in steps] == ["contraction", "rowwise"]
    assert (len(steps[0].inputs) == 3) == epilogue  # the bias is added there


def test_windows_leave_a_convolution_that_others_read(rng):
    x, w = leaf(1, 2, 7, 6), leaf(3, 2, 3, 3)
    y = graphs.conv2d(x, w)
    outputs = [pooled(el(Op.MAX, y, full(y, 0.0)), 3, 2), el(Op.NEG, y)]
    found, wanted, steps = execute(outputs, rng)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert len(steps) == 2


def test_roots_of_parameters_are_taken_once():
    x, w, v = leaf(2, 2, 40, 40), leaf(64, 2, 3, 3), leaf(64)
    y = graphs.conv2d(x, w)
    root = infer.expand(infer.reshape(el(Op.RSQRT, v), (1, 64, 1, 1)), y.shape)
    kinds = [s.kernel.meta.kind for s in kernelize([el(Op.MUL, y, root)])]
    assert sorted(kinds) == ["contraction", "elementwise"]
    small = graphs.conv2d(leaf(1, 2, 8, 8), w)
    root = infer.expand(infer.reshape(el(Op.RSQRT, v), (1, 64, 1, 1)), small.shape)
    assert len(kernelize([el(Op.MUL, small, root)])) == 1
    mean = infer.reduce(leaf(64, 3000), "sum", (1,))  # no parameter: rows stay one kernel
    wide = infer.expand(infer.reshape(el(Op.SQRT, mean), (64, 1)), (64, 3000))
    assert len(kernelize([el(Op.MUL, leaf(64, 3000), wide)])) <= 2
