"""The verifiers accept what is legal, and name the statement and the place of what is not."""

import pytest

from ir_examples import BOOL, F32, I32, every_statement, f32, linear_example, softmax
from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import linear as li
from weft.ir import node as nd
from weft.ir import stmt as st
from weft.ir.linear import LinearBuilder, LinearKernel
from weft.ir.op import Op
from weft.ir.stmt import Accumulator, Axis, Kernel, Location, Memory
from weft.ir.text.text_parse import parse_kernel
from weft.ir.text.text_parse_linear import parse_linear
from weft.ir.verify.verify import verify, verify_graph, verify_linear

A = Memory("a", F32, (ex.index(8), ex.index(4)))
B = Memory("b", F32, (ex.index(8),))
TABLE = Memory("table", F32, (ex.index(8),), "constant")
i, j, k = map(ex.var, "ijk")
x, y = ex.var("x", F32), ex.var("y", F32)
ZERO, TRUE = ex.index(0), ex.const(True, BOOL)


def nest(*body, params=(A, B, TABLE)):
    return Kernel("nest", params, tuple(body))


def loop(v, *body, kind="serial", extent=4):
    return st.For(v, ex.index(extent), kind, tuple(body))


def accumulator(v, update=None, init=None, combine=None):
    return Accumulator(v, f32(0.0) if init is None else init, v + 1.0 if update is None else update,
                       st.lhs(v) + st.rhs(v) if combine is None else combine)  # fmt: skip


@pytest.mark.parametrize("make", [softmax, every_statement])
def test_legal_kernels(make):
    verify(make())


def raw(op, dtype, *args, attr=None, lanes=1):
    return ex.make(op, dtype, args, attr, lanes)


BAD_EXPRESSIONS = {
    "types differ": raw(Op.ADD, F32, f32(1.0), ZERO),
    "kind": raw(Op.EXP, dt.int64, ZERO),
    "result": raw(Op.LT, F32, f32(1.0), f32(2.0)),
    "arity": raw(Op.ADD, F32, f32(1.0)),
    "lanes": raw(Op.NEG, F32, f32(1.0), lanes=4),
    "condition": raw(Op.WHERE, F32, f32(1.0), f32(1.0), f32(2.0)),
    "constant": raw(Op.CONST, dt.int8, attr=300),
    "constant of the wrong kind": raw(Op.CONST, dt.int8, attr=1.5),
    "graph level": raw(Op.RESHAPE, F32, f32(1.0)),
    "bitcast": raw(Op.BITCAST, dt.int8, f32(1.0)),
    "lane": raw(Op.EXTRACT, F32, ex.broadcast(x, 4), attr=4),
    "places": raw(Op.PLACES, dt.int64, ZERO, attr=8, lanes=256),
    "places of other lanes": raw(Op.PLACES, dt.int64, ZERO, attr=16, lanes=64),
    "half": raw(Op.HALF, F32, ex.broadcast(x, 4), attr=2, lanes=2),
    "reverse": raw(Op.REVERSE, F32, ex.broadcast(x, 4), attr=2, lanes=4),
    "slide": raw(Op.SLIDE, F32, ex.broadcast(x, 4), ex.broadcast(x, 4), attr=4, lanes=4),
    "shuffle": raw(Op.SHUFFLE, F32, ex.broadcast(x, 4), ex.broadcast(x, 4), attr="0_8", lanes=2),
    "compress": raw(Op.COMPRESS, F32, ex.broadcast(x, 4), ex.broadcast(x, 4), lanes=4),
    "broadcast": raw(Op.BROADCAST, F32, ex.broadcast(x, 4), lanes=8),
    "table": raw(Op.LOOKUP, F32, ex.const(0, dt.uint32), attr="00" * 60),
    "table of a float": raw(Op.LOOKUP, F32, f32(0.0), attr="00" * 64),
    "table of integers": raw(Op.LOOKUP, I32, ex.const(0, dt.uint32), attr="00" * 64),
    "attribute": raw(Op.NEG, F32, f32(1.0), attr=3),
    "range": raw(Op.VARIABLE, dt.int64, attr=ex.Bounds("n", 5, 2)),
    "mad of integers": raw(Op.MAD, dt.int64, ZERO, ZERO, ZERO),
}


@pytest.mark.parametrize("name", BAD_EXPRESSIONS)
def test_illegal_expressions(name):
    e = BAD_EXPRESSIONS[name]
    body = (st.Let(x, f32(1.0)), st.Let(ex.var("e", e.dtype, e.lanes), e))
    with pytest.raises(VerifyError, match="let %e"):
        verify(nest(*body))


ASSIGN = st.Let(x, f32(1.0))
BAD_STATEMENTS = {
    "unbound name": (st.Let(y, x), "%x"),
    "out of scope": (loop(i, ASSIGN), st.Let(y, x), "outside its scope"),
    "loop variable after the loop": (loop(i), st.Store(B, (i,), f32(1.0)), "outside its scope"),
    "name of another type": (ASSIGN, st.Let(y, ex.cast(ex.var("x", I32), F32)), "bound as f32"),
    "bound twice": (ASSIGN, ASSIGN, "second binder"),
    "bound in two loops": (loop(i), loop(i), "second binder"),
    "no name": (st.Let(f32(1.0), f32(1.0)), "binder"),
    "let of another type": (st.Let(x, ZERO), "of type i64"),
    "rank": (st.Load(x, A, (ZERO,)), "1 indices"),
    "index type": (st.Load(x, B, (ex.const(0, I32),)), "of type i32"),
    "load type": (st.Load(ex.var("x", I32), B, (ZERO,)), "load of f32"),
    "mask type": (st.Load(x, B, (ZERO,), ZERO), "the mask"),
    "mask lanes": (st.Load(x, B, (ZERO,), ex.broadcast(TRUE, 4)), "4 lanes"),
    "fill type": (st.Load(x, B, (ZERO,), TRUE, ZERO), "fill"),
    "index lanes": (st.Load(x, B, (ex.ramp(ZERO, 4),)), "4 lanes"),
    "store type": (st.Store(B, (ZERO,), ZERO), "of type i64"),
    "store to a constant": (st.Store(TABLE, (ZERO,), f32(0.0)), "constant"),
    "unknown memory": (st.Load(x, Memory("c", F32, ()), ()), "never declared"),
    "memory out of scope": (
        loop(i, st.Alloc(Memory("t", F32, (), "local"))),
        st.Load(x, Memory("t", F32, (), "local"), ()), "outside its scope",
    ),
    "memory twice": (st.Alloc(Memory("a", F32, (), "local")), "second memory"),
    "alloc scope": (st.Alloc(Memory("t", F32, ())), "scope global"),
    "register size": (
        loop(i, st.Alloc(Memory("t", F32, (i,), "register"))), "register size",
    ),
    "axis kind": (loop(i, kind="sideways"), "sideways"),
    "extent": (st.For(i, f32(1.0), "serial", ()), "extent"),
    "loop variable type": (loop(x), "loop variable"),
    "condition": (st.If(ZERO, ()), "condition"),
    "vector condition": (st.If(ex.broadcast(TRUE, 4), ()), "4 lanes"),
    "name of the other branch": (
        st.If(TRUE, (ASSIGN,), (st.Let(y, x),)), "outside its scope",
    ),
    "test before its head": (st.While((), x.lt(0.0), (ASSIGN,)), "%x"),
    "parallel reduction": (
        st.Reduce((Axis(k, ex.index(4), "parallel"),), (accumulator(x),), ()), "parallel",
    ),
    "reduction of nothing": (st.Reduce((Axis(k, ex.index(4)),), (), ()), "0 accumulators"),
    "start": (
        st.Reduce((Axis(k, ex.index(4)),), (accumulator(x, init=ZERO),), ()), "start of %x",
    ),
    "start from the body": (
        st.Reduce((Axis(k, ex.index(4)),), (accumulator(x, init=y),), (st.Let(y, f32(1.0)),)), "%y",
    ),
    "update": (st.Reduce((Axis(k, ex.index(4)),), (accumulator(x, ZERO),), ()), "update of %x"),
    "combine": (
        st.Reduce((Axis(k, ex.index(4)),), (accumulator(x, combine=x + 1.0),), ()), "combination",
    ),
    "axis after the reduction": (
        st.Reduce((Axis(k, ex.index(4)),), (accumulator(x),), ()), st.Store(B, (k,), x), "%k",
    ),
    "block twice": (st.Block("b", ()), st.Block("b", ()), "second block"),
    "barrier under a varying condition": (
        loop(i, st.If(i.lt(2), (st.Barrier(),)), kind="thread.x"), "differs between threads",
    ),
    "barrier under a varying loop": (
        loop(i, st.For(j, i, "serial", (st.Barrier(),)), kind="thread.x"), "differs",
    ),
    "barrier under what a let derives": (
        loop(i, st.Let(j, i + 1), st.If(j.lt(2), (st.Barrier(),)), kind="parallel"), "differs",
    ),
    "barrier in a while loop": (st.While((), TRUE, (st.Barrier(),)), "differs"),
    "atomic kind": (st.Atomic(x, "mul", B, (ZERO,), f32(1.0)), "mul"),
    "atomic scope": (st.Atomic(x, "add", B, (ZERO,), f32(1.0), None, "grid"), "the scope 'grid'"),
    "atomic order": (st.Atomic(x, "add", B, (ZERO,), f32(1.0), None, "warp", "all"), "'all'"),
    "fence scope": (st.Fence("grid"), "the scope 'grid'"),
    "fence order": (st.Fence("device", "relaxed"), "the order 'relaxed'"),
    "cas alone": (st.Atomic(x, "cas", B, (ZERO,), f32(1.0)), "compare"),
    "assert value": (st.Assert(TRUE, "text", f32(1.0)), "reported"),
    "call argument": (st.Call((), "f", (x,)), "argument of f"),
    "prefetch rank": (st.Prefetch(A, (ZERO,)), "1 indices"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_STATEMENTS)
def test_illegal_statements(name):
    *body, message = BAD_STATEMENTS[name]
    with pytest.raises(VerifyError) as caught:
        verify(nest(*body))
    assert message in str(caught.value)
    assert "verify nest, at `" in str(caught.value)


def test_a_barrier_under_uniform_control():
    uniform = st.Load(x, B, (j,))
    body = loop(j, uniform, st.If(x.lt(0.0), (st.Barrier(),)))
    verify(nest(loop(i, body, kind="thread.x")))


def test_parameters_are_checked():
    with pytest.raises(VerifyError, match="scope local"):
        verify(nest(params=(Memory("a", F32, (), "local"),)))
    with pytest.raises(VerifyError, match="second memory"):
        verify(nest(params=(A, Memory("a", F32, ()))))
    with pytest.raises(VerifyError, match="shape of a"):
        verify(nest(params=(Memory("a", F32, (i,)),)))


def test_the_error_names_the_place_in_the_source():
    bad = st.Let(y, x)
    kernel = nest(loop(i, bad)).replace(locations={bad: Location("model.py", 12)})
    with pytest.raises(VerifyError) as caught:
        verify(kernel)
    assert (caught.value.where.file, caught.value.where.line) == ("model.py", 12)
    assert "let %y: f32 = %x" in str(caught.value)


def test_text_may_be_illegal():
    """The parser reads what is well-formed; only the verifier knows what is legal."""
    kernel = parse_kernel("kernel k kind=custom\n{\n  let %x: f32 = %y:f32\n}")
    with pytest.raises(VerifyError, match="%y"):
        verify(kernel)


@pytest.mark.slow
def test_a_chain_of_300000():
    e = x
    for _ in range(300_000):
        e = ex.unary(Op.NEG, e)
    verify(nest(ASSIGN, st.Let(y, e)))
    verify(nest(*(st.Let(ex.var(f"v{n}"), ZERO) for n in range(100_000))))


# --- kernel level


def test_legal_linear_kernel():
    verify_linear(linear_example())


def built(fill):
    b = LinearBuilder()
    fill(b)
    variables = (ex.Variable("n", 1, 8),)
    return LinearKernel("flat", (A, B, TABLE), variables, tuple(b.code), (("text", None),))


def _use_before(b):
    late = b.value("late", dt.int64)
    b.compute(Op.NEG, dt.int64, 1, (late,))


def _out_of_region(b):
    b.emit(li.Loop(b.value("i", dt.int64), b.const(4, dt.int64)))
    inner = b.const(1, dt.int64)
    b.emit(li.EndLoop())
    b.compute(Op.NEG, dt.int64, 1, (inner,))


def _other_branch(b):
    b.emit(li.IfBegin(b.const(True, BOOL)))
    inner = b.const(1, dt.int64)
    b.emit(li.Else())
    b.compute(Op.NEG, dt.int64, 1, (inner,))
    b.emit(li.EndIf())


def _barrier(b):
    i = b.value("i", dt.int64)
    b.emit(li.Loop(i, b.const(4, dt.int64), li.PARALLEL))
    b.emit(li.IfBegin(b.compute(Op.LT, BOOL, 1, (i, i))))
    b.emit(li.BarrierInst())
    b.emit(li.EndIf())
    b.emit(li.EndLoop())


def _twice(b):
    v = b.const(1, dt.int64)
    b.emit(li.Compute(v, Op.CONST, (), 2))


def _storage_scope(b):
    t = Memory("t", F32, (ex.index(4),), "local")
    b.emit(li.IfBegin(b.const(True, BOOL)))
    b.emit(li.StorageInst(t, 4))
    b.emit(li.EndIf())
    b.emit(li.LoadInst(b.value("x", F32), t, b.const(0, dt.int64)))


def _numbers(b):
    b.count = 5
    b.const(1, dt.int64)


BAD_LINEAR = {
    "use before definition": (_use_before, "defined before"),
    "use after the region": (_out_of_region, "open region"),
    "use in the other branch": (_other_branch, "open region"),
    "barrier": (_barrier, "differs between threads"),
    "defined twice": (_twice, "a second %0"),
    "storage after its region": (_storage_scope, "the memory t"),
    "numbers with holes": (_numbers, "dense"),
    "types": (lambda b: b.compute(Op.ADD, F32, 1, (b.const(1, dt.int64),) * 2), "expected i64"),
    "operation": (lambda b: b.compute(Op.VAR, F32, 1, (), "x"), "operation on values"),
    "offset": (lambda b: b.emit(li.LoadInst(b.value("x", F32), B, b.const(0, I32))), "offset"),
    "load type": (
        lambda b: b.emit(li.LoadInst(b.value("x", I32), B, b.const(0, dt.int64))), "result",
    ),
    "store type": (
        lambda b: b.emit(li.StoreInst(B, b.const(0, dt.int64), b.const(0, I32))), "value",
    ),
    "constant memory": (
        lambda b: b.emit(li.StoreInst(TABLE, b.const(0, dt.int64), b.const(0.0, F32))), "constant",
    ),
    "condition": (
        lambda b: (b.emit(li.IfBegin(b.const(0, I32))), b.emit(li.EndIf())), "condition",
    ),
    "message": (lambda b: b.emit(li.AssertInst(b.const(True, BOOL), 7)), "message 7"),
    "variable": (
        lambda b: b.emit(li.VariableInst(b.value("n", dt.int64), 3, ex.Bounds("n", 1, 8))), "n",
    ),
    "open region": (lambda b: b.emit(li.IfBegin(b.const(True, BOOL))), "without an end"),
    "cas": (
        lambda b: b.emit(li.AtomicInst(b.value("x", F32), "cas", B, b.const(0, dt.int64),
                                       b.const(1.0, F32))), "compare",
    ),
    "atomic order": (
        lambda b: b.emit(li.AtomicInst(b.value("x", F32), "add", B, b.const(0, dt.int64),
                                       b.const(1.0, F32), None, "warp", "all")), "'all'",
    ),
    "fence scope": (lambda b: b.emit(li.FenceInst("grid")), "the scope 'grid'"),
    "fence order": (lambda b: b.emit(li.FenceInst("device", "relaxed")), "order 'relaxed'"),
    "loop kind": (
        lambda b: (b.emit(li.Loop(b.value("i", dt.int64), b.const(1, dt.int64), "vector")),
                   b.emit(li.EndLoop())), "vector",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_LINEAR)
def test_illegal_linear_kernels(name):
    fill, message = BAD_LINEAR[name]
    with pytest.raises(VerifyError) as caught:
        verify_linear(built(fill))
    assert message in str(caught.value)


def test_an_assertion_names_the_place_of_its_message():
    b = LinearBuilder()
    b.emit(li.AssertInst(b.const(0, I32), 0))
    kernel = LinearKernel("flat", (), (), tuple(b.code), (("text", Location("model.py", 7)),))
    with pytest.raises(VerifyError) as caught:
        verify_linear(kernel)
    assert (caught.value.where.file, caught.value.where.line) == ("model.py", 7)


def test_parsed_linear_kernels_are_legal():
    verify_linear(parse_linear("linear k kind=custom\n{\n  %0 = const 1\n  %1 = neg %0\n}"))


# --- graph level

MATRIX = infer.reshape(nd.buffer(nd.Storage(F32, 12)), (3, 4))


def test_legal_graph():
    n = ex.Variable("n", 1, 64)
    rows = infer.full((n, 4), 1.0, F32)
    total = infer.reduce(infer.elementwise(Op.ADD, rows, rows), "sum", (0,))
    verify_graph([total, infer.sort(MATRIX, 1)[1], infer.pad(MATRIX, (1, 0), (0, 2), 0.5)])


@pytest.mark.parametrize(
    "node",
    [
        nd.make(Op.ADD, F32, (3, 4), (MATRIX, nd.const(1.0, F32))),
        nd.make(Op.ADD, F32, (3, 4), (MATRIX,)),
        nd.make(Op.NEG, I32, (3, 4), (MATRIX,)),
        nd.make(Op.NEG, F32, (4, 3), (MATRIX,)),
        nd.make(Op.RESHAPE, F32, (3, 5), (MATRIX,)),
        nd.make(Op.PERMUTE, F32, (4, 3), (MATRIX,), (0, 0)),
        nd.make(Op.EXPAND, F32, (5, 4), (MATRIX,)),
        nd.make(Op.SLICE, F32, (3, 4), (MATRIX,), nd.SliceAttr((1, 0), (1, 1))),
        nd.make(Op.SLICE, F32, (3, 4), (MATRIX,)),
        nd.make(Op.PAD, F32, (2, 4), (MATRIX,), nd.PadAttr((0, 0), 0.0)),
        nd.make(Op.REDUCE, F32, (3,), (MATRIX,), nd.ReduceAttr("sum", (0,))),
        nd.make(Op.REDUCE, F32, (3,), (MATRIX,), nd.ReduceAttr("mean", (1,))),
        nd.make(Op.ARGREDUCE, F32, (3,), (MATRIX,), nd.ArgAttr("max", 1)),
        nd.make(Op.SCAN, F32, (3, 4), (MATRIX,), nd.ScanAttr("sum", 2)),
        nd.make(Op.PROJECT, F32, (3, 4), (MATRIX,), 0),
        nd.make(Op.GATHER, F32, (3, 4), (MATRIX, MATRIX), nd.GatherAttr(0)),
        nd.make(Op.SCATTER, F32, (3, 4), (MATRIX, nd.const(0, dt.int64), MATRIX),
                nd.ScatterAttr(0, "set")),
        nd.make(Op.WINDOW, F32, (3, 4, 2), (MATRIX,), nd.WindowAttr(1, 2, 1, 1)),
        nd.make(Op.CONST, dt.int8, (), (), 1000),
        nd.make(Op.BUFFER, F32, (4,), (), "no storage"),
        nd.make(Op.VAR, F32, (), (), "x"),
        nd.make(Op.IOTA, F32, (2, 2)),
        nd.make(Op.NEG, F32, (-1,), (nd.make(Op.IOTA, F32, (-1,)),)),
        nd.make(Op.DETACH, I32, (3, 4), (MATRIX,)),
    ],
    ids=lambda n: n.op.name,
)  # fmt: skip
def test_illegal_graphs(node):
    with pytest.raises(VerifyError, match=f"<{node.op.name}|<iota"):
        verify_graph([node])


def test_the_graph_error_names_the_users_line():
    node = nd.make(Op.NEG, I32, (3, 4), (MATRIX,))
    nd.locations[node] = Location("model.py", 5)
    with pytest.raises(VerifyError) as caught:
        verify_graph([node])
    assert caught.value.where.line == 5
