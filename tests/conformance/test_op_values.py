"""Every elementwise op × dtype × special values × odd sizes, against the oracle."""

import itertools

import numpy as np
import pytest
from transcendental_reference import FUNCTIONS, exact
from values import SIZES, assert_same, cross, random, special, ulps

import oracle
from graphs import el
from scalar_semantics import mad
from ulp_bounds import bound
from weft import driver
from weft.driver.context import context
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import SCALAR_OPS, Op

PLAIN = [op for op in SCALAR_OPS if op not in (Op.CAST, Op.BITCAST, Op.WHERE, Op.MAD)]
SHAPES = ((3, 5), (7, 13), (1, 17), (31, 1), (2, 3, 5), (13, 1, 7), (5, 0, 3), (3, 65))


def types_of(op):
    return [d for d in dt.ALL if d.kind in op.kinds]


def check(op, got, nodes, columns, device):
    """Compare with the oracle, or with exact values where only an error bound is promised."""
    d = dt.as_dtype(columns[0].dtype)
    if op not in FUNCTIONS or not d.is_float:
        (want,) = oracle.evaluate(nodes)
        assert_same(got, want, *columns, what=f"{op.name} {d.name}")
        return
    flat = [c.ravel() for c in columns]
    error = ulps(got.ravel(), exact(op, flat), d)
    if error.size and not error.max() <= (limit := bound(context(device.name).target, op, d)):
        at = int(np.argmax(error))
        raise AssertionError(
            f"{op.name} {d.name}: {float(error[at])} ulps, at most {limit}, at "
            f"{[c[at] for c in flat]}, got {got.ravel()[at]!r}, exactly {exact(op, flat)[at]!r}"
        )


@pytest.mark.grid
@pytest.mark.parametrize("op", PLAIN, ids=lambda op: op.name)
def test_special_values(op, device, rng):
    """The full cross product of special values, and random bits after it."""
    for d in types_of(op):
        if d.is_storage_only and op in FUNCTIONS:
            continue
        columns = cross(d, op.arity)
        columns = [np.concatenate([c, random(d, (301,), rng)]) for c in columns]
        node = el(op, *map(device.leaf, columns))
        (got,) = device.compute(node)
        check(op, got, [node], columns, device)


@pytest.mark.grid
@pytest.mark.parametrize("op", PLAIN, ids=lambda op: op.name)
def test_sizes(op, device, rng):
    """Every size, the types taking turns; operands start off the alignment of vectors."""
    types = [d for d in types_of(op) if not (d.is_storage_only and op in FUNCTIONS)]
    turns = itertools.cycle(types)
    cases = []
    for k, shape in enumerate([(n,) for n in SIZES] + list(SHAPES)):
        d = next(turns)
        columns = [random(d, shape, rng) for _ in range(op.arity)]
        leaves = [device.leaf(c, shift=(k + i) % 4) for i, c in enumerate(columns)]
        cases.append((el(op, *leaves), columns))
    nodes = [node for node, _ in cases]
    for got, (node, columns) in zip(device.compute(*nodes), cases, strict=True):
        check(op, got, [node], columns, device)


@pytest.mark.parametrize("op", [Op.FLOOR, Op.CEIL, Op.TRUNC, Op.ROUND], ids=lambda op: op.name)
def test_roundings(op, device, rng):
    """Every magnitude that has a fraction, halves, and what vanishes with the sign of its zero."""
    for d in types_of(op):
        values = np.ldexp(rng.uniform(1, 2, 4000), rng.integers(-9, 56, 4000))
        values[::2] = np.rint(values[::2] * 2) / 2
        column = np.where(rng.random(4000) < 0.5, values, -values)
        with np.errstate(over="ignore"):
            column = column.astype(d.numpy)
        node = el(op, device.leaf(column))
        check(op, device.compute(node)[0], [node], [column], device)


@pytest.mark.grid
@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.name)
def test_all_sizes_of_a_type(d, device, rng):
    """One cheap op a type at every size: where vectors end depends on the width alone."""
    op = Op.XOR if d.is_bool else Op.SUB
    cases = [[random(d, (n,), rng) for _ in range(2)] for n in SIZES]
    nodes = [el(op, *(device.leaf(c, shift=i) for i, c in enumerate(columns))) for columns in cases]
    for got, node, columns in zip(device.compute(*nodes), nodes, cases, strict=True):
        check(op, got, [node], columns, device)


@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.name)
def test_where(d, device, rng):
    a, b = cross(d, 2)
    c = rng.random(a.size) < 0.5
    node = el(Op.WHERE, *map(device.leaf, (c, a, b)))
    assert_same(device.compute(node)[0], np.where(c, a, b), c, a, b)


@pytest.mark.parametrize("d", [d for d in dt.ALL if d.is_float], ids=lambda d: d.name)
def test_mad_rounds_once(d, device, rng):
    values = special(d)
    columns = [np.concatenate([rng.choice(values, 700), random(d, (300,), rng)]) for _ in range(3)]
    (got,) = device.compute(el(Op.MAD, *map(device.leaf, columns)))
    with np.errstate(all="ignore"):
        want = np.array([mad(*row, d) for row in zip(*columns, strict=True)]).astype(d.numpy)
    assert_same(got, want, *columns)


@pytest.mark.grid
@pytest.mark.parametrize("op", [op for op in PLAIN if op.arity == 2], ids=lambda op: op.name)
def test_constant_operand(op, device, rng):
    """A constant is folded into the kernel: rules may rewrite, never change, the result."""
    types = [d for d in types_of(op) if not d.is_storage_only]
    if op in FUNCTIONS:
        types = [d for d in types if d in (dt.float32, dt.int16)]
    for d in (types[k] for k in {0, len(types) // 2, len(types) - 1}):
        column = np.concatenate([special(d), random(d, (40,), rng)])
        x = device.leaf(column)
        constants = special(d)[:: 1 if d.is_bool else 2]
        nodes, columns = [], []
        for c in constants:
            whole = infer.full(x.shape, c.item() if d.is_float else int(c), d)
            repeated = np.full(column.shape, c)
            nodes += [el(op, x, whole), el(op, whole, x)]
            columns += [[column, repeated], [repeated, column]]
        for got, node, pair in zip(device.compute(*nodes), nodes, columns, strict=True):
            check(op, got, [node], pair, device)


@pytest.mark.grid
@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.name)
def test_views_as_operands(d, device, rng):
    """Reversed, strided, transposed and shifted operands in one operation."""
    op = Op.XOR if d.is_bool else Op.SUB
    flat = random(d, (1009,), rng)
    x = device.leaf(flat, shift=1)
    views = [
        infer.slice_(x, (1008,), (250,), (-1,)),
        infer.slice_(x, (3,), (250,), (4,)),
        infer.slice_(x, (1005,), (250,), (-4,)),
        infer.slice_(x, (7,), (250,)),
        infer.reshape(infer.permute(infer.strided(x, (10, 25), 5, (30, 2)),
                                    (1, 0)), (250,)),
        infer.strided(x, (250,), 998, (-2,)),
        infer.strided(x, (250,), 13, (0,)),
    ]  # fmt: skip
    nodes = [el(op, a, b) for a, b in itertools.product(views, views) if a is not b]
    for got, node, want in zip(device.compute(*nodes), nodes, oracle.evaluate(nodes), strict=True):
        assert_same(got, want, what=repr(node.args))


def test_result_equal_to_an_operand_has_memory_of_its_own(device):
    values = np.arange(5, dtype=np.int32)
    x = device.leaf(values)
    zero, one = (infer.full(x.shape, v, dt.int32) for v in (0, 1))
    nodes = [el(Op.SHL, x, zero), el(Op.MUL, el(Op.ADD, x, zero), one), el(Op.NEG, el(Op.NEG, x))]
    realized = driver.realize([*nodes, x])
    bases = [n if n.op is Op.BUFFER else n.args[0] for n in realized]
    for node, base in zip(realized[:-1], bases, strict=False):
        assert_same(device.value(node), values)
        assert device.place(base) != device.place(x)
    assert realized[-1] is x
