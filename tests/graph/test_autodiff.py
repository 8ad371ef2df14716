"""The gradient of every operation against finite differences in float64."""

import gc

import graph_tools
import numpy as np
import pytest
from graph_tools import Inputs, check_gradient

from weft.errors import GradientError, ShapeError
from weft.graph import autodiff
from weft.graph.autodiff import gradients
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import BY_NAME, Op

rng = np.random.default_rng(0)


def between(low, high, *shape):
    return rng.uniform(low, high, shape)


UNARY = {
    Op.NEG: (-2, 2), Op.ABS: (0.1, 2), Op.SQRT: (0.3, 3), Op.RSQRT: (0.3, 3),
    Op.RECIPROCAL: (0.4, 2), Op.EXP: (-2, 2), Op.EXP2: (-2, 2), Op.EXPM1: (-2, 2),
    Op.LOG: (0.3, 3), Op.LOG2: (0.3, 3), Op.LOG10: (0.3, 3), Op.LOG1P: (-0.5, 3),
    Op.SIN: (-3, 3), Op.COS: (-3, 3), Op.TAN: (-1, 1), Op.ASIN: (-0.8, 0.8), Op.ACOS: (-0.8, 0.8),
    Op.ATAN: (-3, 3), Op.SINH: (-2, 2), Op.COSH: (-2, 2), Op.TANH: (-2, 2), Op.ASINH: (-2, 2),
    Op.ACOSH: (1.3, 3), Op.ATANH: (-0.8, 0.8), Op.ERF: (-2, 2), Op.ERFC: (-2, 2),
    Op.SIGMOID: (-3, 3), Op.FLOOR: (0.1, 0.9), Op.CEIL: (0.1, 0.9), Op.TRUNC: (0.1, 0.9),
    Op.ROUND: (0.6, 0.9),
}  # fmt: skip
BINARY = {
    Op.ADD: (-2, 2), Op.SUB: (-2, 2), Op.MUL: (-2, 2), Op.DIV: (0.5, 2), Op.POW: (0.5, 2),
    Op.ATAN2: (0.5, 2), Op.COPYSIGN: (0.5, 2), Op.MIN: (-2, 2), Op.MAX: (-2, 2),
    Op.FLOORDIV: (0.5, 2), Op.MOD: (0.5, 2), Op.FMOD: (0.5, 2),
}  # fmt: skip


def test_every_differentiable_operation_has_a_row():
    stops = {"const", "buffer", "variable", "var", "iota", "detach", "bitcast", "argreduce",
             "launch", "pack"}
    integers = {r.name for r in BY_NAME.values() if "f" not in r.kinds or r.result == "bool"}
    vectors = {r.name for r in BY_NAME.values() if r.group in ("vector", "native")}
    missing = set(BY_NAME) - {op.name for op in autodiff.RULES} - stops - integers - vectors
    assert not missing
    assert {op for op in autodiff.RULES if op.group == "unary"} == set(UNARY)
    assert {op for op in autodiff.RULES if op.group == "binary"} == set(BINARY)


@pytest.mark.parametrize("op", UNARY, ids=lambda o: o.name)
def test_unary(op):
    low, high = UNARY[op]
    second = op not in (Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND, Op.ABS)
    check_gradient(lambda x: infer.elementwise(op, x), between(low, high, 3, 2),
                   tolerance=1e-5 if second else 1e-7, second=second)  # fmt: skip


@pytest.mark.parametrize("op", BINARY, ids=lambda o: o.name)
def test_binary(op):
    low, high = BINARY[op]
    check_gradient(lambda a, b: infer.elementwise(op, a, b), between(low, high, 5),
                   between(low, high, 5), tolerance=1e-5, second=op is not Op.FLOORDIV)  # fmt: skip


@pytest.mark.parametrize("op", BINARY, ids=lambda o: o.name)
def test_binary_of_one_operand_twice(op):
    if op in (Op.MOD, Op.FMOD, Op.FLOORDIV):
        return  # a step at x / x
    check_gradient(lambda a: infer.elementwise(op, a, infer.elementwise(Op.EXP, a)),
                   between(0.5, 2, 4))  # fmt: skip


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 2.5])
def test_power_of_constant(exponent):
    check_gradient(lambda x: infer.elementwise(Op.POW, x, infer.full(x.shape, exponent, x.dtype)),
                   between(0.5, 2, 4), second=True, tolerance=1e-5)  # fmt: skip


def value_of(build, *arrays, dtype=np.float64):
    inputs = Inputs()
    leaves = [inputs.leaf(np.asarray(a, dtype)) for a in arrays]
    output = build(*leaves)
    seed = infer.full(output.shape, 1.0, output.dtype)
    return inputs.run(*gradients([output], [seed], leaves))


def test_power_at_zero():
    a, b = value_of(lambda a, b: infer.elementwise(Op.POW, a, b), [0, 0, 0, 2], [0, 2, 1, 0])
    np.testing.assert_array_equal(a, [0, 0, 1, 0])
    np.testing.assert_allclose(b, [0, 0, 0, np.log(2)])


@pytest.mark.parametrize("op", [Op.MIN, Op.MAX], ids=lambda o: o.name)
def test_ties_of_two_share(op):
    a, b = value_of(lambda a, b: infer.elementwise(op, a, b), [1, 2, 3], [1, 5, 0])
    wins = np.array([0.5, 1, 0]) if op is Op.MIN else np.array([0.5, 0, 1])
    np.testing.assert_array_equal(a, wins)
    np.testing.assert_array_equal(b, 1 - wins)


def test_abs_and_copysign_at_zero():
    (g,) = value_of(lambda x: infer.elementwise(Op.ABS, x), [-1.0, -0.0, 0.0, 2.0])
    np.testing.assert_array_equal(g, [-1, 0, 0, 1])
    g, _ = value_of(lambda a, b: infer.elementwise(Op.COPYSIGN, a, b), [-1.0, 0.0, 2], [1, -1, -1])
    np.testing.assert_array_equal(g, [-1, 0, -1])


def test_where_and_mad():
    c = np.array([True, False, True])

    def choose(a, b):
        inputs = infer.elementwise(Op.LT, a, infer.full((3,), 0.0, dt.float64))
        return infer.elementwise(Op.WHERE, inputs, infer.elementwise(Op.EXP, a), b)

    check_gradient(choose, np.where(c, -1.0, 1.0), between(-1, 1, 3))
    check_gradient(lambda *a: infer.elementwise(Op.MAD, *a), *between(-2, 2, 3, 4), second=True)


def test_cast_rounds_the_gradient_back():
    inputs = Inputs()
    x = inputs.leaf(np.array([1.5, 2.5]))
    y = infer.cast(x, dt.float32)
    (g,) = gradients([y], [infer.full((2,), 3.0, dt.float32)], [x])
    assert g.dtype is dt.float64
    np.testing.assert_array_equal(inputs.run(g)[0], [3, 3])
    through_int = infer.cast(infer.cast(x, dt.int32), dt.float32)
    assert gradients([through_int], [infer.full((2,), 1.0, dt.float32)], [x]) == [None]


MOVEMENT = {
    "reshape": ((2, 3, 4), lambda x: infer.reshape(x, (6, 4))),
    "reshape_scalar": ((1, 1), lambda x: infer.reshape(x, ())),
    "permute": ((2, 3, 4), lambda x: infer.permute(x, (2, 0, 1))),
    "expand": ((3, 1), lambda x: infer.expand(x, (2, 3, 4))),
    "expand_scalar": ((), lambda x: infer.expand(x, (2, 3))),
    "expand_ones": ((1, 1), lambda x: infer.expand(x, (1, 3))),
    "slice": ((5, 4), lambda x: infer.slice_(x, (1, 0), (3, 4))),
    "slice_steps": ((7, 6), lambda x: infer.slice_(x, (1, 5), (3, 2), (2, -3))),
    "slice_reversed": ((5,), lambda x: infer.slice_(x, (4,), (5,), (-1,))),
    "slice_one": ((5,), lambda x: infer.slice_(x, (3,), (1,), (-2,))),
    "slice_nothing": ((5,), lambda x: infer.slice_(x, (0,), (0,))),
    "pad": ((2, 3), lambda x: infer.pad(x, (1, 0), (0, 2), 5.0)),
    "window": ((2, 9), lambda x: infer.window(x, 1, 3, 2, 2)),
    "window_overlap": ((7, 2), lambda x: infer.window(x, 0, 3)),
    "window_apart": ((2, 3, 11), lambda x: infer.window(infer.window(x, 2, 2, 3), 1, 1, 2)),
    "window_touching": ((7, 2), lambda x: infer.window(x, 0, 3, 3)),
    "unwindow": ((2, 4, 3), lambda x: infer.unwindow(x, 1, 2, 1, 9)),
    "unwindow_cropped": ((4, 3), lambda x: infer.unwindow(x, 0, 2, 3, 8)),
    "unwindow_single": ((4, 1), lambda x: infer.unwindow(x, 0, 3, 1, 12)),
    "strided": ((12,), lambda x: infer.strided(x, (3, 2, 2), 1, (2, 3, 1))),
    "strided_reversed": ((8,), lambda x: infer.strided(x, (3,), 7, (-3,))),
    "contiguous": ((3,), infer.contiguous),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVEMENT)
def test_movement(name):
    shape, build = MOVEMENT[name]

    def squared(x):
        moved = build(x)
        return infer.elementwise(Op.MUL, moved, moved)

    check_gradient(build, between(-1, 1, *shape))
    check_gradient(squared, between(-1, 1, *shape), second=True, tolerance=1e-5)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(("shape", "axes"), [((3, 5), (1,)), ((2, 3, 4), (0, 2)), ((4,), (0,))])
def test_reduce(kind, shape, axes):
    values = rng.permutation(np.prod(shape)).reshape(shape) / 7.0 + 0.3
    check_gradient(lambda x: infer.reduce(x, kind, axes), values, tolerance=1e-5, second=True)


def test_product_with_zeros():
    x = between(0.5, 2, 4, 5)
    x[1, 2] = x[2, 0] = x[2, 4] = x[3, 1] = 0
    check_gradient(lambda x: infer.reduce(x, "prod", (1,)), x)
    # exact second order while a product has one zero
    check_gradient(lambda x: infer.reduce(x, "prod", (1,)), x[[0, 1, 3]], tolerance=1e-5,
                   second=True)  # fmt: skip


@pytest.mark.parametrize("kind", ["max", "min"])
def test_largest_shares_among_ties(kind):
    x = [[1.0, 3, 3, 1], [2, 2, 2, 2], [0.0, -0.0, 1, 1]]
    (g,) = value_of(lambda x: infer.reduce(x, kind, (1,)), x)
    best = getattr(np, "a" + kind)(x, axis=1, keepdims=True) == x
    np.testing.assert_array_equal(g, best / best.sum(1, keepdims=True))


def test_many_ties_in_half_precision():
    (g,) = value_of(lambda x: infer.reduce(x, "max", (0,)), np.zeros(70000), dtype=np.float16)
    np.testing.assert_array_equal(g, np.float16(1 / 70000))


def test_empty_sum():
    inputs = Inputs()
    x = inputs.leaf(np.zeros((0, 3)))
    y = infer.reduce(x, "sum", (0,))
    (g,) = gradients([y], [infer.full((3,), 1.0, dt.float64)], [x])
    assert inputs.run(g)[0].shape == (0, 3)


@pytest.mark.parametrize("kind", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize(("shape", "axis"), [((6,), 0), ((2, 4), 1), ((4, 3), 0)])
def test_scan(kind, shape, axis):
    values = rng.permutation(np.prod(shape)).reshape(shape) / 5.0 + 0.3
    check_gradient(lambda x: infer.scan(x, kind, axis), values, tolerance=1e-5, second=True)


def test_running_product_with_zeros():
    x = between(0.5, 2, 3, 6)
    x[0, 2] = x[1, 1] = x[1, 4] = x[2, 0] = x[2, 1] = 0
    check_gradient(lambda x: infer.scan(x, "prod", 1), x)


def test_running_maximum_gives_to_the_last_of_equals():
    (g,) = value_of(lambda x: infer.scan(x, "max", 0), [1.0, 1, 0, 2, 2])
    np.testing.assert_array_equal(g, [1, 2, 0, 1, 1])


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending):
    values = rng.permutation(12).reshape(3, 4) / 4.0
    check_gradient(lambda x: infer.sort(x, 1, descending)[0], values)
    check_gradient(lambda x: infer.elementwise(Op.EXP, infer.sort(x, 0, descending)[0]), values,
                   second=True, tolerance=1e-5)  # fmt: skip


def test_gather():
    index = np.array([[0, 2, 2, 0], [1, 1, 1, 1]])
    inputs = Inputs()
    x, i = inputs.leaf(between(-1, 1, 3, 4)), inputs.leaf(index)
    picked = infer.gather(infer.elementwise(Op.EXP, x), i, 0)
    got = graph_tools.analytic(inputs, picked, [x])[0]
    np.testing.assert_allclose(got, graph_tools.numeric(inputs, picked, [x])[0], rtol=1e-6)


@pytest.mark.parametrize("kind", infer.SCATTER_KINDS)
def test_scatter(kind):
    index = np.array([[0, 2], [2, 2], [0, 1]])
    inputs = Inputs()
    base = inputs.leaf(np.array([[0.5, 0.9], [1.2, 2.5], [0.7, 0.1]]))
    updates = inputs.leaf(np.array([[0.8, 0.4], [2.1, 1.6], [1.1, 0.6]]))
    out = infer.scatter(base, inputs.leaf(index), updates, 0, kind)
    expected = graph_tools.numeric(inputs, out, [base, updates])
    for got, want in zip(graph_tools.analytic(inputs, out, [base, updates]), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


def test_scatter_product_with_zeros():
    inputs = Inputs()
    index = inputs.leaf(np.array([0, 0, 1, 1, 1, 2, 3]))
    base = inputs.leaf(np.array([2.0, 3, 0, 5]))
    updates = inputs.leaf(np.array([0.0, 4, 0, 0, 7, 6, 0]))
    out = infer.scatter(base, index, updates, 0, "prod")
    expected = graph_tools.numeric(inputs, out, [base, updates])
    for got, want in zip(graph_tools.analytic(inputs, out, [base, updates]), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_scatter_ties_share(kind):
    inputs = Inputs()
    index = inputs.leaf(np.array([0, 0, 1]))
    base, updates = inputs.leaf(np.array([1.0, 2])), inputs.leaf(np.array([1.0, 1, 2]))
    out = infer.scatter(base, index, updates, 0, kind)
    found = gradients([out], [infer.full((2,), 6.0, dt.float64)], [base, updates])
    g, u = inputs.run(*found)
    np.testing.assert_array_equal(g, [2, 3])
    np.testing.assert_array_equal(u, [2, 2, 3])


# --- the engine


def leaf(*shape):
    return Inputs().leaf(np.ones(shape))


def test_interior_nodes_and_several_outputs():
    inputs = Inputs()
    x = inputs.leaf(np.array([0.3, 0.7]))
    y = infer.elementwise(Op.EXP, x)
    z = infer.elementwise(Op.MUL, y, y)
    ones = infer.full((2,), 1.0, dt.float64)
    gx, gy, gz = inputs.run(*gradients([z, y], [ones, ones], [x, y, z]))
    e = np.exp([0.3, 0.7])
    np.testing.assert_allclose(gz, [1, 1])
    np.testing.assert_allclose(gy, 2 * e + 1)
    np.testing.assert_allclose(gx, (2 * e + 1) * e)


def test_unrelated_and_detached_and_flat():
    x, other = leaf(2), leaf(2)
    ones = infer.full((2,), 1.0, dt.float64)
    y = infer.elementwise(Op.MUL, infer.detach(x), x)
    assert gradients([y], [ones], [x, other]) == [infer.detach(x), None]
    flat = infer.elementwise(Op.FLOOR, x)
    (zero,) = gradients([flat], [ones], [x])
    assert zero is infer.full((2,), 0.0, dt.float64)
    assert gradients([infer.detach(x)], [ones], [x]) == [None]


def test_a_detached_node_may_be_asked_for():
    x = leaf(2)
    mark = nd.make(Op.DETACH, x.dtype, x.shape, (x,), 5)
    ones = infer.full((2,), 1.0, dt.float64)
    g, below = gradients([infer.elementwise(Op.EXP, mark)], [ones], [mark, x])
    assert g is infer.elementwise(Op.EXP, mark)
    assert below is None


def test_realized_storage_leads_on_to_its_definition():
    inputs = Inputs()
    x = inputs.leaf(np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]))
    y = infer.elementwise(Op.EXP, x)
    storage = nd.Storage(dt.float64, 6, origin=y)
    inputs.env[storage] = np.exp(inputs.run(x)[0]).reshape(-1)
    stored = infer.reshape(nd.buffer(storage), (2, 3))
    loss = infer.reduce(infer.elementwise(Op.MUL, stored, stored), "sum", (0, 1))
    early = infer.reduce(y, "sum", (0, 1))  # built before y was realized
    one = infer.full((), 1.0, dt.float64)
    gx, gy = gradients([loss, early], [one, one], [x, stored])
    e = np.exp(inputs.run(x)[0])
    np.testing.assert_allclose(inputs.run(gy)[0], 2 * e + 1)
    np.testing.assert_allclose(inputs.run(gx)[0], (2 * e + 1) * e)


def test_integers_have_none():
    index = Inputs().leaf(np.array([0, 1]))
    x = leaf(2)
    ones = infer.full((2,), 1.0, dt.float64)
    assert gradients([infer.gather(x, index, 0)], [ones], [index]) == [None]


def test_errors():
    x = leaf(2)
    ones = infer.full((2,), 1.0, dt.float64)
    bits = infer.bitcast(infer.bitcast(x, dt.int64), dt.float64)
    assert gradients([bits], [ones], [x]) == [None]
    half = Inputs().leaf(np.ones(2, np.float16))
    brain = infer.bitcast(half, dt.bfloat16)
    with pytest.raises(GradientError, match="bitcast"):
        gradients([brain], [infer.full((2,), 1.0, dt.bfloat16)], [half])
    with pytest.raises(GradientError, match="int64"):
        gradients([infer.cast(x, dt.int64)], [ones], [x])
    with pytest.raises(ShapeError, match=r"\[3\]"):
        gradients([x], [infer.full((3,), 1.0, dt.float64)], [x])


@pytest.mark.slow
def test_deep_chain():
    x = y = leaf(2)
    one = infer.full((2,), 1.5, dt.float64)
    for _ in range(150_000):
        y = infer.elementwise(Op.MUL, infer.elementwise(Op.ADD, y, one), one)
    (g,) = gradients([y], [one], [x])
    assert g is not None
    del g, y
    gc.collect()


def test_gradients_stay_small():
    """A sum gives no multiplication, an addition nothing, a matmul one product each."""
    a, b = leaf(3, 5), leaf(5, 4)
    wide = (3, 4, 5)
    p = infer.elementwise(
        Op.MUL, infer.expand(infer.reshape(a, (3, 1, 5)), wide),
        infer.expand(infer.reshape(infer.permute(b, (1, 0)), (1, 4, 5)), wide),
    )
    product = infer.reduce(p, "sum", (2,))
    ga, gb = gradients([product], [leaf(3, 4)], [a, b])
    for g in (ga, gb):
        ops = [n.op for n in nd.toposort([g])]
        assert ops.count(Op.MUL) == 1
        assert ops.count(Op.REDUCE) == 1
        assert Op.ADD not in ops
    total = infer.reduce(infer.elementwise(Op.ADD, a, a), "sum", (0, 1))
    (g,) = gradients([total], [infer.full((), 1.0, dt.float64)], [a])
    assert Op.MUL not in [n.op for n in nd.toposort([g])]
    mean = infer.expand(infer.full((), 0.25, dt.float64), (3, 5))
    (g,) = gradients([infer.expand(infer.reduce(a, "sum", (0, 1)), (3, 5))], [mean], [a])
    assert [n.op for n in nd.toposort([g])].count(Op.REDUCE) == 0
