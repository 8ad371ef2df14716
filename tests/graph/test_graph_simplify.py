"""Simplification keeps every bit, and finds what it is made for."""

import time

import compositions as c
import numpy as np
import pytest
from graph_tools import Inputs, weights
from hypothesis import given, settings
from hypothesis import strategies as hs

import oracle
import weft
from weft.errors import DTypeError
from weft.graph.autodiff import gradients
from weft.graph.formula import constant_of
from weft.graph.identities import improve
from weft.graph.simplify import simplify
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op
from weft.ir.rewriting.pattern import Pattern
from weft.ir.rewriting.rewrite import RANGE
from weft.rules.algebra import ALGEBRA

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.5, np.inf, -np.inf, np.nan, 1e-310, 3e38, -1e300]
WHOLE = [0, 1, -1, 2, 3, 7, 8, -8, 100, -128, 127]


def bits_equal(a, b):
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if a.dtype.kind == "f":
        same = (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
    else:
        same = a == b
    np.testing.assert_array_equal(same, np.ones_like(same), f"{a}\n{b}")


def check_same(inputs, node):
    (plain,) = simplify([node])
    assert plain.shape == node.shape
    assert plain.dtype is node.dtype
    bits_equal(*inputs.run(plain, node))
    return plain


def ops(node):
    return [n.op for n in nd.toposort([node])]


def e(op, *args):
    return infer.elementwise(op, *args)


def special(dtype, n=12, seed=0):
    pool = WHOLE if dtype.kind in "iu" else [False, True] if dtype.kind == "b" else SPECIAL
    with np.errstate(all="ignore"):
        values = np.random.default_rng(seed).choice(np.array(pool), n)
        return values.astype(dtype.numpy)


# --- elementwise rules, each from its own pattern


def instance(pattern, dtype, holes, inputs, value):
    """A node that the pattern matches: holes are leaves of special values."""
    if pattern.value is not None:
        if dtype.is_bool != isinstance(pattern.value, bool):
            raise DTypeError("instance")
        return infer.full((3, 4), pattern.value, dtype)
    if pattern.op is Op.CONST:
        return infer.full((3, 4), holes.setdefault(pattern.name, value), dtype)
    if not pattern.args:
        if pattern.kinds == "b":
            dtype = dt.bool_
        if pattern.name not in holes:
            holes[pattern.name] = inputs.leaf(special(dtype, 12, len(holes)).reshape(3, 4))
        return holes[pattern.name]
    kinds = [dtype] * len(pattern.args)
    if pattern.op is Op.WHERE and not pattern.args[0].args:
        kinds[0] = dt.bool_
    return e(pattern.op, *(instance(a, d, holes, inputs, value)
                           for a, d in zip(pattern.args, kinds, strict=True)))  # fmt: skip


def kinds_of(pattern):
    kinds = [d for d in (dt.bool_, dt.uint8, dt.int8, dt.float32, dt.float64)
             if d.kind in pattern.op.kinds]  # fmt: skip
    stack = list(pattern.args)
    while stack:
        part = stack.pop()
        is_condition = part.kinds == "b"
        if part.value is None and not is_condition:
            kinds = [d for d in kinds if d.kind in part.kinds]
        if isinstance(part.value, float):
            kinds = [d for d in kinds if d.is_float]
        if part.op is None or part.op.result == "same":
            stack.extend(part.args)
    return kinds


def constants(dtype):
    if dtype.is_float:
        return [4.0, 3.0, -np.inf, np.inf]
    if dtype.is_bool:
        return [False, True]
    return [4, 3, dtype.min, dtype.max, *([-1] if dtype.min < 0 else [])]


IEEE_RULES = [r for r in ALGEBRA if r.valid != RANGE]


@pytest.mark.grid
@pytest.mark.parametrize("rule", IEEE_RULES, ids=lambda r: r.name)
def test_each_identity_on_its_own_pattern(rule):
    assert isinstance(rule.pattern, Pattern)
    tried = fired = 0
    for dtype in kinds_of(rule.pattern):
        for value in constants(dtype):
            inputs = Inputs()
            try:
                node = instance(rule.pattern, dtype, {}, inputs, value)
            except DTypeError:  # no such operation on this type
                continue
            tried += 1
            fired += improve(node) is not None
            check_same(inputs, node)
    assert tried
    assert fired


def test_folding_of_constants_through_expand():
    a, b = infer.full((3, 4), 2.5, dt.float32), infer.full((3, 4), 0.1, dt.float32)
    (node,) = simplify([e(Op.MUL, e(Op.ADD, a, b), a)])
    assert node.op is Op.EXPAND
    assert node.args[0].op is Op.CONST
    assert node.args[0].attr == float((np.float32(2.5) + np.float32(0.1)) * np.float32(2.5))


def test_an_operation_on_repeated_scalars_is_done_once():
    inputs = Inputs()
    s = inputs.leaf(np.float32(3))
    x = infer.expand(s, (4, 5))
    plain = check_same(inputs, e(Op.EXP, e(Op.MUL, x, infer.full((4, 5), 2.0, dt.float32))))
    assert plain.op is Op.EXPAND
    assert plain.args[0].shape == ()


def test_casts_and_detach():
    inputs = Inputs()
    x = inputs.leaf(special(dt.float32))
    assert simplify([infer.cast(infer.cast(x, dt.float64), dt.float32)]) == [x]
    narrow = infer.cast(infer.cast(x, dt.float16), dt.float32)
    assert check_same(inputs, narrow) is narrow
    assert simplify([infer.detach(e(Op.NEG, e(Op.NEG, x)))]) == [x]
    twice = infer.contiguous(infer.contiguous(e(Op.EXP, x)))
    assert ops(check_same(inputs, twice)).count(Op.CONTIGUOUS) == 1


# --- movement


KINDS = ("reshape", "permute", "expand", "slice", "pad", "window", "unwindow", "ones")


def movement(draw, x):
    """A random movement of a node."""
    shape = x.shape
    kind = draw(hs.sampled_from(KINDS))
    if kind == "reshape":
        total = int(np.prod(shape))
        first = draw(hs.sampled_from([d for d in range(1, total + 1) if total % d == 0]))
        return infer.reshape(x, (first, total // first))
    if kind == "ones":
        at = draw(hs.integers(0, len(shape)))
        return infer.reshape(x, (*shape[:at], 1, *shape[at:]))
    if kind == "permute":
        return infer.permute(x, draw(hs.permutations(range(len(shape)))))
    if kind == "expand":
        grown = tuple(draw(hs.sampled_from([1, 3])) if d == 1 else d for d in shape)
        return infer.expand(x, (*draw(hs.sampled_from([(), (2,), (1,)])), *grown))
    if kind == "slice":
        starts, sizes, steps = [], [], []
        for d in shape:
            step = draw(hs.sampled_from([1, 1, 2, -1]))
            start = draw(hs.integers(0, d - 1))
            room = (d - 1 - start) // step if step > 0 else start
            starts.append(start)
            sizes.append(draw(hs.integers(1, room + 1)))
            steps.append(step)
        return infer.slice_(x, starts, sizes, steps)
    if kind == "pad":
        value = draw(hs.sampled_from([0, 0, 1]))
        if x.dtype.is_float:
            value = float(value)
        before, after = ([draw(hs.integers(0, 2)) for _ in shape] for _ in range(2))
        return infer.pad(x, before, after, value)
    if not shape:
        return x
    axis = draw(hs.integers(0, len(shape) - 1))
    step, dilation = draw(hs.integers(1, 2)), draw(hs.integers(1, 2))
    if kind == "window":
        size = draw(hs.integers(1, (shape[axis] - 1) // dilation + 1))
        return infer.window(x, axis, size, step, dilation)
    if len(shape) < 2:
        return x
    axis = draw(hs.integers(0, len(shape) - 2))
    return infer.unwindow(x, axis, step, dilation, draw(hs.integers(1, 6)))


@hs.composite
def movements(draw, dtype=None):
    inputs = Inputs()
    dtype = dtype or draw(hs.sampled_from([dt.float32, dt.int32]))
    shape = tuple(draw(hs.lists(hs.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3)))
    x = inputs.leaf(special(dtype, int(np.prod(shape)), draw(hs.integers(0, 99))).reshape(shape))
    for _ in range(draw(hs.integers(1, 6))):
        if np.prod(x.shape) < 3000:
            x = movement(draw, x)
    return inputs, x


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(movements())
def test_random_movement(case):
    check_same(*case)


@settings(max_examples=150, deadline=None)
@given(movements(), hs.data())
def test_random_movement_and_reductions(case, data):
    """Whole numbers, so that sums are exact in any order."""
    inputs, x = case
    for storage, values in inputs.env.items():
        inputs.env[storage] = np.nan_to_num(values, posinf=3, neginf=-2).clip(-4, 4).round().astype(
            values.dtype)  # fmt: skip
    for _ in range(2):
        if x.ndim > 1:
            kind = data.draw(hs.sampled_from(["sum", "sum", "max", "min", "prod"]))
            axes = data.draw(hs.sets(hs.integers(0, x.ndim - 1), min_size=1, max_size=2))
            x = infer.reduce(x, kind, sorted(axes))
        for _ in range(data.draw(hs.integers(0, 2))):
            if np.prod(x.shape) < 3000:
                x = movement(data.draw, x)
    if x.ndim:
        x = infer.reduce(x, "sum", (0,))
    (plain,) = simplify([x])
    ours, theirs = inputs.run(plain, x)
    np.testing.assert_array_equal(ours, theirs)  # a sum of no terms has no sign


@hs.composite
def programs(draw):
    """Random elementwise programs with constants, movement between."""
    inputs, x = draw(movements(dt.float32))
    nodes = [x, infer.full(x.shape, draw(hs.sampled_from(SPECIAL)), x.dtype)]
    binary = [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MIN, Op.MAX]
    for _ in range(draw(hs.integers(1, 12))):
        a, b = (draw(hs.sampled_from(nodes)) for _ in range(2))
        op = draw(hs.sampled_from([*binary, Op.NEG, Op.ABS, Op.WHERE, Op.CONST, Op.FLOOR, Op.CAST]))
        if op is Op.CONST:
            value = draw(hs.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, np.inf]))
            nodes.append(infer.full(x.shape, value, x.dtype))
        elif op is Op.WHERE:
            nodes.append(e(op, e(draw(hs.sampled_from([Op.LT, Op.LE, Op.EQ, Op.NE])), a, b), b, a))
        elif op is Op.CAST:
            middle = draw(hs.sampled_from([dt.float64, dt.float16, dt.int32]))
            nodes.append(infer.cast(infer.cast(a, middle), x.dtype))
        else:
            nodes.append(e(op, a, b) if op in binary else e(op, a))
    return inputs, nodes[-1]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(programs())
def test_random_programs(case):
    check_same(*case)


def leaf(*shape, dtype=dt.float32):
    return infer.reshape(nd.buffer(nd.Storage(dtype, int(np.prod(shape)))), shape)


x34 = leaf(3, 4)
MERGES = {
    "reshapes": (infer.reshape(infer.reshape(x34, (12,)), (2, 6)), infer.reshape(x34, (2, 6))),
    "there_and_back": (infer.reshape(infer.reshape(x34, (12,)), (3, 4)), x34),
    "permutes": (infer.permute(infer.permute(x34, (1, 0)), (1, 0)), x34),
    "expands": (infer.expand(infer.expand(leaf(1, 1), (3, 1)), (3, 4)), None),
    "slices": (infer.slice_(infer.slice_(x34, (2, 0), (3, 4), (-1, 1)), (0, 1), (2, 2)),
               infer.slice_(x34, (2, 1), (2, 2), (-1, 1))),
    "flips": (infer.slice_(infer.slice_(x34, (0, 3), (3, 4), (1, -1)), (0, 3), (3, 4), (1, -1)),
              x34),
    "pads": (infer.pad(infer.pad(x34, (1, 0), (0, 0), 0.0), (1, 1), (0, 0), 0.0),
             infer.pad(x34, (2, 1), (0, 0), 0.0)),
    "slice_of_pad": (infer.slice_(infer.pad(x34, (2, 2), (2, 2), 0.0), (2, 2), (3, 4)), x34),
    "pad_of_zeros": (infer.pad(infer.full((2,), 0.0, dt.float32), (1,), (1,), 0.0),
                     infer.full((4,), 0.0, dt.float32)),
    "window_of_one": (infer.window(x34, 0, 1), infer.reshape(x34, (3, 4, 1))),
    "permute_of_ones": (infer.permute(leaf(1, 3), (1, 0)), None),
    "reshape_of_expand": (infer.reshape(infer.expand(leaf(1, 4), (3, 4)), (3, 1, 4)), None),
}  # fmt: skip


@pytest.mark.parametrize("name", MERGES)
def test_movement_merges(name):
    node, expected = MERGES[name]
    (plain,) = simplify([node])
    if expected is None:
        assert plain.op in (Op.EXPAND, Op.RESHAPE)
        assert len(ops(plain)) <= 3 + (plain.op is Op.EXPAND)
    else:
        assert [plain] == simplify([expected])
        assert len(ops(plain)) <= len(ops(expected))


# --- reductions


def test_nested_reductions_become_one():
    inputs = Inputs()
    x = inputs.leaf(np.arange(24.0).reshape(2, 3, 4))
    for kind in ("sum", "max", "min", "prod"):
        inner = infer.reshape(infer.reduce(x, kind, (1,)), (2, 1, 4))
        plain = check_same(inputs, infer.reduce(infer.permute(inner, (2, 0, 1)), kind, (0,)))
        assert ops(plain).count(Op.REDUCE) == 1


def sum_of(x, *axes):
    return infer.reduce(x, "sum", axes)


def whole(inputs, *shape):
    return inputs.leaf(np.random.default_rng(4).integers(-9, 9, shape).astype(np.float32))


def test_windows_of_sums_merge():
    inputs = Inputs()
    rows = sum_of(whole(inputs, 3, 6, 4), 0)
    plain = check_same(inputs, sum_of(infer.window(rows, 0, 3), 0, 2))
    assert ops(plain).count(Op.REDUCE) == 1
    rows = sum_of(whole(inputs, 4, 3, 6), 0, 1)
    plain = check_same(inputs, sum_of(infer.window(rows, 0, 2), 1))
    assert ops(plain).count(Op.REDUCE) == 1


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_only_zeros_may_be_filled_in_between(value):
    inputs = Inputs()
    rows = sum_of(whole(inputs, 3, 8), 1)
    plain = check_same(inputs, sum_of(infer.pad(rows, (1,), (2,), value), 0))
    assert ops(plain).count(Op.REDUCE) == (1 if value == 0 else 2)
    best = infer.reduce(whole(inputs, 3, 8), "max", (1,))
    node = infer.reduce(infer.pad(best, (1,), (2,), 0.0), "max", (0,))
    assert ops(check_same(inputs, node)).count(Op.REDUCE) == 2


def test_one_factor_is_masked_where_both_repeat():
    inputs = Inputs()
    wide = (2, 5, 3, 7)  # both factors repeat along axis 1, which is filled with zeros
    a = infer.expand(whole(inputs, 2, 1, 1, 7), wide)
    b = infer.expand(whole(inputs, 1, 1, 3, 7), wide)
    rows = sum_of(e(Op.MUL, a, b), 3)
    plain = check_same(inputs, sum_of(infer.unwindow(rows, 1, 1, 1, 6), 2))
    assert ops(plain).count(Op.REDUCE) == 1
    plain = check_same(inputs, sum_of(infer.pad(rows, (0, 1, 0), (0, 2, 0), 0.0), 2))
    assert ops(plain).count(Op.REDUCE) == 1


def test_any_of_nothing():
    inputs = Inputs()
    x = inputs.leaf(np.array([[True], [False]]))
    for kind in ("any", "all"):
        check_same(inputs, infer.reduce(infer.expand(x, (2, 0)), kind, (1,)))
        check_same(inputs, infer.reduce(infer.expand(x, (2, 3)), kind, (1,)))


def test_a_reduction_with_two_users_is_not_done_twice():
    inputs = Inputs()
    x = inputs.leaf(np.arange(12.0).reshape(3, 4))
    rows = infer.reduce(x, "sum", (1,))
    total, scaled = simplify([infer.reduce(rows, "sum", (0,)), e(Op.EXP, rows)])
    assert rows in nd.toposort([total])
    assert rows in nd.toposort([scaled])
    kept = simplify([infer.reduce(rows, "sum", (0,)), rows])
    assert rows in nd.toposort(kept[:1])


def test_rows_that_share_a_kernel_stay_rows():
    x = leaf(64, 256)
    rows = infer.reduce(e(Op.MUL, c.softmax(x), c.log_softmax(x)), "sum", (1,))
    (plain,) = simplify([infer.reduce(rows, "sum", (0,))])
    assert plain.args[0].op is Op.REDUCE


def test_reductions_of_equal_elements():
    x = leaf(3, 1)
    for kind in ("max", "min"):
        (plain,) = simplify([infer.reduce(infer.expand(x, (3, 4)), kind, (1,))])
        assert Op.REDUCE not in ops(plain)
    (zeros,) = simplify([infer.reduce(infer.full((3, 4), 0.0, dt.float32), "sum", (1,))])
    assert zeros is infer.full((3,), 0.0, dt.float32)
    (one,) = simplify([infer.argreduce(leaf(3, 1, 4), "max", 1)])
    assert one is infer.full((3, 4), 0, dt.int64)
    (kept,) = simplify([infer.argreduce(leaf(3, 0, 4), "max", 2)])
    assert kept.op is Op.ARGREDUCE
    (one,) = simplify([infer.reduce(leaf(3, 1, 4), "sum", (1,))])
    assert Op.REDUCE not in ops(one)


def backward(build, *shapes):
    inputs = Inputs()
    rng = np.random.default_rng(5)
    leaves = [inputs.leaf(rng.integers(-4, 5, s).astype(np.float32)) for s in shapes]
    output = build(*leaves)
    seed = inputs.leaf(np.rint(weights(output.shape) * 4).astype(np.float32))
    return inputs, gradients([output], [seed], leaves)


def contractions(node):
    return [n for n in nd.toposort([node])
            if n.op is Op.REDUCE and n.args[0].op is Op.MUL]  # fmt: skip


@pytest.mark.parametrize(("padding", "dilation"), [(0, 1), (1, 1), (2, 1), (2, 2)])
def test_convolution_backward_is_one_contraction_each(padding, dilation):
    inputs, found = backward(lambda x, w: c.conv2d(x, w, 1, padding, dilation),
                             (2, 3, 8, 9), (4, 3, 3, 3))  # fmt: skip
    for node, shape in zip(simplify(found), [(2, 3, 8, 9), (4, 3, 3, 3)], strict=True):
        assert ops(node).count(Op.REDUCE) == 1
        (sum_,) = contractions(node)
        assert sum_.shape == shape
    for node in found:
        np.testing.assert_array_equal(*inputs.run(node, *simplify([node])))


def test_windows_side_by_side_are_stored_positions_last():
    inputs, found = backward(c.conv2d, (1, 7, 25, 6), (128, 7, 3, 3))
    by_input = simplify(found)[0]
    (sum_,) = contractions(by_input)
    assert sum_.shape[-2:] == (23, 4)
    for a, b in zip(inputs.run(found[0]), inputs.run(by_input), strict=True):
        np.testing.assert_array_equal(a, b)


def test_strided_convolution_backward():
    inputs, found = backward(lambda x, w: c.conv2d(x, w, 2, 1), (2, 3, 8, 9), (4, 3, 3, 3))
    plain = simplify(found)
    assert all(ops(n).count(Op.REDUCE) <= 2 for n in plain)
    for a, b in zip(inputs.run(*found), inputs.run(*plain), strict=True):
        np.testing.assert_array_equal(a, b)


def test_matmul_backward_writes_its_transpose_directly():
    _, found = backward(c.matmul, (5, 3), (3, 4))
    for node in simplify(found):
        assert node.op is Op.REDUCE
        assert contractions(node) == [node]


def heads(inputs, heads_, rows, width, seed):
    """A product for each head, as attention has behind its softmax: (2, heads, rows, width)."""
    rng = np.random.default_rng(seed)
    scores = inputs.leaf(rng.standard_normal((2, heads_, rows, 5), dtype=np.float32))
    values = inputs.leaf(rng.standard_normal((2, heads_, 5, width), dtype=np.float32))
    wide = (2, heads_, rows, width, 5)
    left = infer.expand(infer.reshape(scores, (2, heads_, rows, 1, 5)), wide)
    turned = infer.permute(values, (0, 1, 3, 2))
    right = infer.expand(infer.reshape(turned, (2, heads_, 1, width, 5)), wide)
    return infer.reduce(e(Op.MUL, left, right), "sum", (4,))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("width", [16, 17, 3])
def test_a_product_is_stored_in_the_order_in_which_its_rows_are_wanted(width, seed):
    """Others read it as it was; short rows stay, as does a result, and what two orders want."""
    inputs = Inputs()
    product = heads(inputs, 3, 4, width, seed)
    rows = infer.reshape(infer.permute(product, (0, 2, 1, 3)), (2, 4, 3 * width))
    scaled = e(Op.MUL, product, product)
    plain, other = simplify([infer.contiguous(rows), scaled])
    for got, want in zip(inputs.run(plain, other), inputs.run(rows, scaled), strict=True):
        np.testing.assert_array_equal(got, want)
    turned = [n for n in nd.toposort([plain]) if n.op is Op.PERMUTE and n.args[0].op is Op.REDUCE]
    assert bool(turned) == (width < 16)
    kept = simplify([infer.contiguous(rows), product])
    assert kept[1].op is Op.REDUCE
    back = infer.permute(product, (1, 0, 2, 3))
    both = simplify([infer.contiguous(rows), infer.contiguous(back), scaled])
    assert any(n.op is Op.REDUCE and n.shape == product.shape for n in nd.toposort(both))


def test_an_operand_of_several_matmuls_gets_a_contraction_from_each():
    def several(x, a, b, bias):
        y = e(Op.ADD, c.matmul(x, a), c.matmul(x, b))
        return e(Op.ADD, y, e(Op.MUL, c.matmul(x, a), infer.expand(bias, y.shape)))

    inputs, found = backward(several, (5, 3), (3, 4), (3, 4), (4,))
    (plain,) = simplify(found[:1])
    assert len(contractions(plain)) == 2
    assert all(n.args[0].op is Op.MUL for n in nd.toposort([plain]) if n.op is Op.REDUCE)
    np.testing.assert_array_equal(*inputs.run(plain, found[0]))


def test_symbolic_sizes():
    from weft.ir import expr as ex

    n = ex.Variable("n", 1, 64)
    x = nd.make(Op.RESHAPE, dt.float32, (n, 4), (nd.buffer(nd.Storage(dt.float32, n * 4)),))
    y = infer.reduce(infer.permute(infer.permute(x, (1, 0)), (1, 0)), "sum", (1,))
    assert simplify([y]) == [infer.reduce(x, "sum", (1,))]
    (g,) = gradients([y], [infer.full((n,), 1.0, dt.float32)], [x])
    assert simplify([g]) == [infer.full((n, 4), 1.0, dt.float32)]


def test_places_of_checks_survive():
    from weft.ir.stmt import Location

    inputs = Inputs()
    x, index = leaf(3, 4), inputs.leaf(np.zeros((1, 4), np.int64))
    picked = infer.gather(infer.detach(x), index, 0)
    nd.locations[picked] = Location("user.py", 3)
    (plain,) = simplify([picked])
    assert plain is not picked
    assert nd.locations[plain] == Location("user.py", 3)


def deep_chain(length):
    """Return what building a chain takes and what simplifying it takes, in seconds of the CPU."""
    x = y = leaf(3, 4)
    half = infer.full((3, 4), 0.5, dt.float32)
    begin = time.process_time()
    for _ in range(length):
        y = e(Op.TANH, e(Op.ADD, e(Op.MUL, y, half), x))
    built = time.process_time()
    (plain,) = simplify([y])
    assert plain is y
    return built - begin, time.process_time() - built


@pytest.mark.slow
def test_deep_chain_in_linear_time():
    """Beside what building the chain takes, which a loaded machine makes as much slower."""
    short = min(deep_chain(10_000)[1] for _ in range(3))
    build, simplified = deep_chain(100_000)
    assert simplified < 2.5 * build
    assert simplified < 40 * short  # quadratic: 100 times


def test_oracle_agrees_on_a_whole_backward():
    inputs = Inputs()
    rng = np.random.default_rng(2)
    leaves = [inputs.leaf(rng.standard_normal(s).astype(np.float32))
              for s in [(2, 2, 8, 8), (3, 2, 3, 3), (3,)]]  # fmt: skip

    def network(x, w, b):
        y = c.relu(e(Op.ADD, c.conv2d(x, w, 1, 1),
                     infer.expand(infer.reshape(b, (3, 1, 1)), (2, 3, 8, 8))))  # fmt: skip
        return c.log_softmax(infer.reshape(c.max_pool(y, 2, 2), (2, 48)))

    output = network(*leaves)
    found = gradients([output], [inputs.leaf(weights(output.shape).astype(np.float32))], leaves)
    plain = simplify(found)
    for a, b in zip(oracle.evaluate(found, inputs.env), oracle.evaluate(plain, inputs.env),
                    strict=True):  # fmt: skip
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("kind", "dtype", "value"), [
    ("sum", dt.float32, 0.0), ("sum", dt.int64, 0), ("prod", dt.float32, 1.0),
    ("prod", dt.int64, 1), ("any", dt.bool_, False), ("all", dt.bool_, True)])  # fmt: skip
def test_reductions_of_nothing_are_constants(kind, dtype, value):
    """No kernel is made of them, which would read where no memory is."""
    x = nd.buffer(nd.Storage(dtype, 12))
    x = infer.slice_(infer.reshape(x, (3, 4)), (0, 1), (3, 0), (1, 1))
    (out,) = simplify([infer.reduce(x, kind, (1,))])
    assert constant_of(out) == value
    assert not any(n.op is Op.REDUCE for n in nd.toposort([out]))


def test_values_at_no_indices_have_no_sum():
    table, none = weft.ones(5, 2), weft.tensor([], dtype=weft.int64)
    assert table[none].sum().item() == 0
    assert (table[:, none].sum(1) + table[none].prod()).tolist() == [1] * 5
    assert weft.ones(0, 3).cross_entropy(none).isnan().item()
    assert weft.nn.functional.embedding(none, table).mean(0).isnan().tolist() == [True] * 2
