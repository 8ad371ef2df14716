"""Exact round trips of the text of expressions, kernels and graphs, and its errors."""

import math
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir_examples import every_statement, linear_example, renamed, softmax
from weft.errors import ParseError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.expr import Bounds, Expr
from weft.ir.linear import Compute, LinearKernel, Value
from weft.ir.lookup import lookup
from weft.ir.op import SCALAR_OPS, Op
from weft.ir.record import Record
from weft.ir.stmt import For, Kernel, Let, Location, Memory, Meta, Stmt
from weft.ir.text.text import canonical_text, canonicalise, print_expr, print_kernel, stmt_text
from weft.ir.text.text_graph import parse_graph, print_graph, storages_of
from weft.ir.text.text_linear import print_linear
from weft.ir.text.text_parse import parse_expr, parse_kernel
from weft.ir.text.text_parse_linear import parse_linear
from weft.ir.traverse import walk

NAN = struct.unpack("<d", (0xFFF8000000000123).to_bytes(8, "little"))[0]
VECTOR_OPS = (Op.BROADCAST, Op.RAMP, Op.EXTRACT, Op.HALF, Op.REVERSE, Op.SLIDE,
              Op.SHUFFLE, Op.COMPRESS, Op.WORDS, Op.PLACES, Op.LOOKUP)
VALUES = [0.0, -0.0, 1.0, 0.1, 1e-45, 5e-324, 1e308, math.inf, -math.inf, math.nan, NAN, 1e22]


def random_expr(rng, size=12):
    """Return a legal expression over every operation, type and number of lanes."""
    pool = [leaf(rng, d, lanes) for d in rng.sample(dt.ALL, 4) for lanes in (1, rng.choice([2, 8]))]
    for _ in range(size):
        op = rng.choice([*SCALAR_OPS, *VECTOR_OPS])
        made = grow(rng, op, pool)
        if made is not None:
            pool.append(made)
    return pool[-1]


def leaf(rng, d, lanes):
    kind = rng.randrange(3)
    if kind == 0 and lanes == 1:
        bounds = Bounds(rng.choice(["n", "é", "a b"]), -5, 1 << 40)
        return ex.make(Op.VARIABLE, dt.int64, (), bounds)
    if kind == 1:
        return ex.make(Op.VAR, d, (), rng.choice(["x", "i.o", "a b", 'q"', "7", "acc.l"]), lanes)
    if d.is_float:
        return ex.make(Op.CONST, d, (), rng.choice(VALUES), lanes)
    return ex.make(Op.CONST, d, (), rng.choice([0, 1, int(d.max), int(d.min)]) if d.is_integer
                   else rng.random() < 0.5, lanes)  # fmt: skip


def grow(rng, op, pool):
    first = rng.choice(pool)
    if op is Op.LOOKUP:
        table = [rng.choice(VALUES[:5] + VALUES[7:11]) for _ in range(rng.choice([16, 32]))]
        return lookup(first, table) if first.dtype is dt.uint32 else None
    if op.group == "vector":
        if op in (Op.BROADCAST, Op.RAMP):
            return ex.make(op, first.dtype, (first,), None, 4) if first.lanes == 1 else None
        if op is Op.PLACES:
            return ex.places(first, 40) if first.lanes == 1 and first.dtype is dt.int64 else None
        if first.lanes == 1:
            return None
        if op is Op.WORDS:
            fits = first.dtype.itemsize < 4 and first.lanes == 8 and not first.dtype.is_bool
            return ex.words(first) if fits else None
        if op is Op.REVERSE:
            return ex.reverse(first)
        if op is Op.SHUFFLE:
            return ex.shuffle(first, first, (first.lanes, 0, 2 * first.lanes - 1))
        if op is Op.COMPRESS:
            flags = [e for e in pool if e.dtype.is_bool and e.lanes == first.lanes]
            return ex.compress(rng.choice(flags), first) if flags else None
        if op is Op.SLIDE:
            return ex.slide(first, first, first.lanes - 1)
        return ex.extract(first, first.lanes - 1) if op is Op.EXTRACT else ex.half(first, 1)
    if op is Op.CAST:
        return ex.make(op, rng.choice(dt.ALL), (first,), None, first.lanes)
    if op is Op.BITCAST:
        same = [d for d in dt.ALL if d.itemsize == first.dtype.itemsize and not d.is_bool]
        return None if first.dtype.is_bool else ex.make(op, rng.choice(same), (first,), None,
                                                        first.lanes)  # fmt: skip
    alike = [e for e in pool if e.dtype is first.dtype and e.lanes == first.lanes]
    args = [rng.choice(alike) for _ in range(op.arity)]
    if op is Op.WHERE:
        conditions = [e for e in pool if e.dtype.is_bool and e.lanes == first.lanes]
        if not conditions:
            return None
        args[0] = rng.choice(conditions)
    return ex.make(op, dt.bool_ if op.result == "bool" else first.dtype, tuple(args), None,
                   first.lanes)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_expression_round_trip(seed):
    e = random_expr(random.Random(seed))
    assert parse_expr(print_expr(e)) is e


@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.text)
def test_constants_are_exact(d):
    values = VALUES if d.is_float else [int(d.min), int(d.max), 0, 1]
    for value in values:
        for lanes in (1, 16):
            e = ex.make(Op.CONST, d, (), bool(value) if d.is_bool else value, lanes)
            assert parse_expr(print_expr(e)) is e


def test_floats_round_trip_by_bits(rng):
    for raw in rng.integers(0, 1 << 64, 500, dtype="u8"):
        e = ex.const(struct.unpack("<d", int(raw).to_bytes(8, "little"))[0], dt.float64)
        assert parse_expr(print_expr(e)) is e


def test_readable():
    i, x = ex.var("i.o"), ex.var("x", dt.float32)
    n = ex.Variable("n", 1, 64)
    assert print_expr((i * 512 + n) % 7) == "((%i.o * 512) + @n[1..64]) % 7"
    assert print_expr(ex.cast(i, dt.float32) - 0.5) == "cast.f32(%i.o) - 0.5:f32"
    assert print_expr(ex.where(x.lt(0.0), x, -x)) == (
        "where(%x:f32 < 0.0:f32, %x:f32, neg(%x:f32))"
    )


def test_shared_parts_are_written_once():
    e = ex.var("x", dt.float32)
    for _ in range(64):
        e = e * e + 1.0
    text = print_expr(e)
    assert len(text) < 4_000
    assert parse_expr(text) is e


@pytest.mark.slow
def test_a_chain_of_300000():
    e = ex.var("x", dt.float32)
    for _ in range(300_000):
        e = ex.unary(Op.NEG, e)
    assert parse_expr(print_expr(e)) is e


# --- kernels


def same(a, b):
    """Whether two parts of kernels have equal structure."""
    if isinstance(a, Expr):
        return a is b
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Record):
        return type(a) is type(b) and all(map(same, a.values(), b.values()))
    return a == b


def parts(k):
    return (k.name, k.params, k.body, k.meta)


@pytest.mark.parametrize("make", [softmax, every_statement])
def test_kernel_round_trip(make):
    k = make()
    text = print_kernel(k)
    again = parse_kernel(text)
    assert print_kernel(again) == text
    assert same(parts(k), parts(again))


def test_kernel_text(golden):
    golden("loop_softmax.txt", print_kernel(softmax()))
    golden("loop_every_statement.txt", print_kernel(every_statement(), locations=True))


def test_canonical_text(golden):
    golden("loop_canonical.txt", canonical_text(every_statement()))


def test_locations_round_trip_beside_the_text():
    k = every_statement()
    again = parse_kernel(print_kernel(k, locations=True))
    places = [k.locations.get(s) for s in walk(k.body)]
    assert [again.locations.get(s) for s in walk(again.body)] == places
    assert any(places)
    assert print_kernel(again) == print_kernel(k)


@pytest.mark.parametrize("make", [softmax, every_statement])
def test_canonical_text_knows_no_names(make):
    k = make()
    other = renamed(k)
    assert print_kernel(other) != print_kernel(k)
    assert canonical_text(other) == canonical_text(k)
    assert print_kernel(canonicalise(k)) == canonical_text(k)
    assert canonical_text(canonicalise(k)) == canonical_text(k)


def test_canonicalise_keeps_locations_and_differences():
    k = every_statement()
    places = [k.locations.get(s) for s in walk(k.body)]
    plain = canonicalise(k)
    assert [plain.locations.get(s) for s in walk(plain.body)] == places
    changed = k.with_body(k.body[:-1])
    assert canonical_text(changed) != canonical_text(k)
    assert canonical_text(k.replace(meta=Meta("scan"))) != canonical_text(k)


@pytest.mark.slow
def test_a_kernel_of_many_statements():
    i, x = ex.var("i"), ex.var("x0", dt.float32)
    body = [Let(x, ex.const(1.0, dt.float32))]
    for n in range(1, 20_000):
        x = ex.var(f"x{n}", dt.float32)
        body.append(Let(x, body[-1].var * 2.0))
    k = Kernel("long", (), (For(i, ex.index(4), "serial", tuple(body)),))
    text = print_kernel(k)
    assert print_kernel(parse_kernel(text)) == text


def test_names_that_need_quotes():
    x = ex.var('a "b"', dt.int8)
    params = (Memory("in f", dt.int8, (ex.index(1),)), Memory("inf", dt.int8, ()))
    k = Kernel("my kernel", params, (Let(x, ex.const(1, dt.int8)),))
    assert same(parts(parse_kernel(print_kernel(k))), parts(k))


def test_stmt_text():
    k = softmax()
    assert stmt_text(k.body[0]).startswith("for %i in 8")


# --- kernel level


def linear_parts(k):
    def plain(v):
        if isinstance(v, Value):
            return (v.name, v.id, v.dtype, v.lanes)
        if isinstance(v, tuple):
            return tuple(map(plain, v))
        return v

    code = [(type(i), *map(plain, i.values())) for i in k.code]
    return (k.name, k.params, k.variables, code, k.messages, k.meta)


def test_lanes_of_two_vectors_round_trip():
    """What SHUFFLE picks is text, which other details are not."""
    a, b, c = (Value("", k, dt.float32, 2) for k in range(3))
    code = (Compute(a, Op.CONST, (), 1.0), Compute(b, Op.CONST, (), 2.0),
            Compute(c, Op.SHUFFLE, (a, b), "0_2"))  # fmt: skip
    text = print_linear(LinearKernel("k", (), (), code))
    assert parse_linear(text).code[-1].attr == "0_2"
    assert print_linear(parse_linear(text)) == text


def test_linear_round_trip(golden):
    k = linear_example()
    text = print_linear(k)
    again = parse_linear(text)
    assert isinstance(again, LinearKernel)
    assert print_linear(again) == text
    assert linear_parts(again) == linear_parts(k)
    golden("linear_every_instruction.txt", text)


# --- graph level


def graph():
    n = ex.Variable("n", 1, 64)
    x = infer.reshape(nd.buffer(nd.Storage(dt.float32, 12)), (3, 4))
    rows = nd.buffer(nd.Storage(dt.int64, 3))
    moved = infer.pad(infer.permute(x, (1, 0)), (0, 1), (2, 0), -0.0)
    cut = infer.slice_(moved, (5, 0), (3, 4), (-2, 1))
    windows = infer.window(infer.reshape(x, (12,)), 0, 3, 2, 2)
    folded = infer.unwindow(windows, 0, 2, 2, 12)
    total = infer.reduce(infer.elementwise(Op.MUL, x, x), "sum", (1,))
    values, order = infer.sort(total, 0, True)
    picked = infer.gather(total, rows, 0)
    placed = infer.scatter(total, rows, picked, 0, "add")
    symbolic = infer.full((n, 2), math.inf, dt.float16)
    size = infer.cast(nd.variable(n), dt.float32)
    strided = infer.strided(nd.buffer(nd.Storage(dt.float32, 12)), (2, 2), 1, (4, 2))
    rest = (infer.argreduce(x, "max", 1), infer.scan(x, "sum", 0), infer.iota(4), size, strided,
            infer.contiguous(x), infer.detach(x), infer.bitcast(x, dt.int32))  # fmt: skip
    return [cut, folded, values, order, placed, symbolic, *rest]


def test_graph_round_trip(golden):
    outputs = graph()
    text = print_graph(outputs)
    assert parse_graph(text, storages_of(outputs)) == outputs
    assert print_graph(parse_graph(text)) == text
    golden("graph.txt", text)


@pytest.mark.slow
def test_a_long_graph():
    x = nd.buffer(nd.Storage(dt.float32, 8))
    y = x
    for _ in range(50_000):
        y = infer.elementwise(Op.NEG, y)
    assert parse_graph(print_graph([y]), storages_of([y])) == [y]


# --- malformed text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 0), ("%x +", 1), ("%x + + %y", 1), ("%x ? %y", 1), ("exp(%x", 1), ("exp(%x, %y)", 1),
        ("nosuch(%x)", 1), ("1:f33", 1), ("1.5", 1), ("$0", 1), ("$0 = 1\n$1", 2), ("cast.q(1)", 1),
        ("1 2", 1), ("reshape(1)", 1), ("@n[1..x]", 1), ("half(1)", 1), ('%"x', 1), ("true:f32", 1),
        ("(" * 5000 + "1" + ")" * 5000, 1), ("add.3(1, 2)", 1),
    ],
    ids=range(20),
)  # fmt: skip
def test_malformed_expressions(text, line):
    with pytest.raises(ParseError) as caught:
        parse_expr(text)
    assert caught.value.where.line == line


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("what %x", 3), ("let %x: f32 =", 3), ("load %x: f32 = b[0]", 3),
        ("for %i in 4 sideways {", 3),
        ("for %i in 4 serial {", 4), ("}\n}", 4), ("if true {\n} else {\n} else {\n}", 5),
        ("while {\n}", 4), ("update %s = 1 combine 2", 3), ("acc %s = 1", 3),
        ("reduce %k in 4 serial {\nacc %s = 0\n}", 5), ("barrier", 3), ("store a[0] 1", 3),
        ("} test true {", 3), ("let %x = 1 extra", 3), ("assert true", 3), ("print 3()", 3),
    ],
    ids=range(17),
)  # fmt: skip
def test_malformed_kernels(body, line):
    with pytest.raises(ParseError) as caught:
        parse_kernel(f"kernel k kind=custom\n{{\n{body}\n}}")
    assert caught.value.where.line == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kernel k kind=x\n{\n}", 1), ("linear k kind=x\n{", 2), ("linear k kind=x\n{\n}\n}", 4),
        ("linear k kind=x\n{\n%0 = add %1, %2\n}", 3), ("linear k kind=x\n{\n%0 = what\n}", 3),
        ("linear k kind=x\n{\n%0 = const 1.5\n}", 3), ("linear k kind=x\n{\n%x = const 1\n}", 3),
        ("linear k kind=x\n{\n%0 = const 1\n%0 = const 1\n}", 4), ("linear k\n{\nif %0 {\n}\n}", 3),
        ("linear k colour=x\n{\n}", 1), ("linear k kind=x\nhint 3\n{\n}", 2), ("", 1),
    ],
    ids=range(12),
)  # fmt: skip
def test_malformed_linear_kernels(text, line):
    with pytest.raises(ParseError) as caught:
        parse_linear(text)
    assert caught.value.where.line == line


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_damaged_text_raises_parse_errors_only(seed):
    rng = random.Random(seed)
    text, parse = rng.choice(
        [(print_kernel(every_statement(), True), parse_kernel), (LINEAR, parse_linear),
         (GRAPH, parse_graph)]
    )  # fmt: skip
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text))
        kind = rng.randrange(3)
        if kind == 0:
            text = text[:at] + text[at + rng.randint(1, 8) :]
        elif kind == 1:
            text = text[:at] + rng.choice(' "%${}[]()=:,.1xé\n') + text[at:]
        else:
            lines = text.splitlines()
            rng.shuffle(lines)
            text = "\n".join(lines)
    try:
        parse(text)
    except ParseError as error:
        assert error.where is not None  # noqa: PT017 - many inputs are still well-formed


LINEAR, GRAPH = print_linear(linear_example()), print_graph(graph())


def test_statements_have_one_line_each():
    assert all("\n" not in stmt_text(s) for s in walk(every_statement().body))
    assert isinstance(every_statement().body[0], Stmt)
    assert Location("f.py", 3).column == 0
