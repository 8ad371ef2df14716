"""Kernels that use every statement and instruction once, for the tests of text and verifiers."""

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir import stmt as st
from weft.ir.linear import LinearBuilder, LinearKernel
from weft.ir.op import Op
from weft.ir.stmt import Kernel, Location, Memory, Meta
from weft.ir.text.text import canonicalise

F32, I32, I64, BOOL = dt.float32, dt.int32, dt.int64, dt.bool_


def f32(value):
    return ex.const(value, F32)


def softmax():
    """Return a row-wise softmax of 8 rows of 16."""
    a = Memory("a", F32, (ex.index(8), ex.index(16)))
    out = Memory("out", F32, (ex.index(8), ex.index(16)))
    i, k, q, j = map(ex.var, ("i", "k", "q", "j"))
    x, y, z = (ex.var(n, F32) for n in "xyz")
    top, total = ex.var("top", F32), ex.var("total", F32)
    maximum = st.Accumulator(top, f32(float("-inf")), ex.maximum(top, x),
                             ex.maximum(st.lhs(top), st.rhs(top)))  # fmt: skip
    summed = st.Accumulator(total, f32(0.0), total + ex.unary(Op.EXP, y - top),
                            st.lhs(total) + st.rhs(total))  # fmt: skip
    row = (
        st.Reduce((st.Axis(k, ex.index(16)),), (maximum,), (st.Load(x, a, (i, k)),)),
        st.Reduce((st.Axis(q, ex.index(16), "vector"),), (summed,), (st.Load(y, a, (i, q)),)),
        st.For(j, ex.index(16), "vector", (
            st.Load(z, a, (i, j)),
            st.Store(out, (i, j), ex.unary(Op.EXP, z - top) / total),
        )),
    )  # fmt: skip
    return Kernel("softmax", (a, out), (st.For(i, ex.index(8), "parallel", row),), Meta("rowwise"))


def every_statement():
    """Return a legal kernel with every statement and option."""
    n = ex.Variable("n", 1, 64)
    a = Memory("a", F32, (n, ex.index(4)))
    flags = Memory("flags", I32, (n,))
    table = Memory("table", F32, (ex.index(4),), "constant")
    tile = Memory("tile", F32, (ex.index(4),), "local")
    i, j, k, m = map(ex.var, ("i", "j", "k", "m"))
    x, y, w, s = (ex.var(name, F32) for name in ("x", "y", "w", "s"))
    best, place = ex.var("best", F32), ex.var("place")
    old, got, left = ex.var("old", I32), ex.var("got", I32), ex.var("left", I32)
    r = ex.var("r", F32)
    better = st.lhs(best).lt(st.rhs(best))
    accumulators = (
        st.Accumulator(best, f32(float("-inf")), ex.maximum(best, y),
                       ex.maximum(st.lhs(best), st.rhs(best))),
        st.Accumulator(place, ex.index(0), ex.where(best.lt(y), k * 4 + m, place),
                       ex.where(better, st.rhs(place), st.lhs(place))),
    )  # fmt: skip
    load = st.Load(x, a, (i, j), j.lt(3), f32(1.0))
    store = st.Store(tile, (j,), x * 2.0, x.lt(0.5), True)
    axes = (st.Axis(k, ex.index(2), "unrolled"), st.Axis(m, ex.index(2), "vector"))
    inner = (
        st.Alloc(tile),
        st.For(j, ex.index(4), "serial", (load, store)),
        st.Reduce(axes, accumulators, (st.Load(y, tile, (k * 2 + m,)),)),
        st.If(best.lt(0.0), (st.Assert(place.lt(n), "index out of range", place, n),),
              (st.Block("report", (st.Print("best", (best, place)),)),)),
        st.If(place.eq(0), (st.Prefetch(a, (i, place)),)),
        st.While((st.Load(left, flags, (i,)),), left.gt(0), (
            st.Atomic(old, "sub", flags, (i,), ex.const(1, I32)),
        )),
        st.Atomic(got, "cas", flags, (i,), ex.const(1, I32), ex.const(0, I32), "system"),
        st.Atomic(ex.var("new", I32), "add", flags, (i,), ex.const(1, I32), None, "warp",
                  "acq_rel"),
        st.Fence("thread"), st.Fence("device", "release"),
        st.Call((w,), "helper", (x_of(place), got)),
        st.Call((), "done", ()),
        st.Load(r, table, (ex.index(0),)),
        st.Let(s, w * r + ex.cast(got, F32)),
        st.Store(a, (i, ex.index(0)), s),
    )  # fmt: skip
    body = (st.For(i, n, "parallel", inner), st.Barrier("grid"))
    where = {load: Location("model.py", 12, 4), store: Location("model.py", 13)}
    meta = Meta("custom", ("split(i, 4)", 'stage("a")'), 100, 2048, True,
                (("why", "small"), ("tile", (4, 8)), ("ratio", 0.5), ("none", None)))  # fmt: skip
    return Kernel("every", (a, flags, table), body, meta, where)


def x_of(place):
    return ex.cast(place, F32)


def renamed(kernel):
    """Return the kernel with every name changed, through canonical names."""
    plain = canonicalise(kernel)
    text_names = {}

    def rename(e):
        done = {}
        for node in ex.toposort([e]):
            attr = node.attr
            if node.op is Op.VAR:
                attr = text_names.setdefault(attr, f"other_{attr}")
            args = tuple(done[x] for x in node.args)
            done[node] = ex.make(node.op, node.dtype, args, attr, node.lanes)
        return done[e]

    def change(value):
        if isinstance(value, ex.Expr):
            return rename(value)
        if isinstance(value, tuple):
            return tuple(map(change, value))
        if isinstance(value, Memory):
            return Memory("mem_" + value.name, value.dtype, value.shape, value.scope)
        if isinstance(value, st.Block):
            return st.Block("block_" + value.name, change(value.body))
        if isinstance(value, st.Stmt | st.Axis | st.Accumulator):
            return type(value)(*map(change, value.values()))
        return value

    return Kernel("other", change(plain.params), change(plain.body), kernel.meta)


def linear_example():
    """Return a legal kernel-level kernel with every instruction."""
    n = ex.Variable("n", 1, 64)
    a = Memory("a", F32, (n, ex.index(4)))
    flags = Memory("flags", I32, (n,))
    tile = Memory("tile", F32, (ex.index(16),), "register")
    b = LinearBuilder()
    emit = b.emit
    zero, one = b.const(0, I64), b.const(1, I64)
    size = b.value("n", I64)
    emit(li.VariableInst(size, 0, n.attr))
    i = b.value("i", I64)
    emit(li.Loop(i, size, li.PARALLEL))
    emit(li.StorageInst(tile, 16))
    base = b.compute(Op.MUL, I64, 1, (i, b.const(4, I64)))
    lanes = b.compute(Op.RAMP, I64, 4, (base,), None, "lane")
    limit = b.compute(Op.BROADCAST, I64, 4, (size,))
    mask = b.compute(Op.LT, BOOL, 4, (lanes, limit), None, "mask")
    fill = b.const(0.5, F32, 4)
    x = b.value("x", F32, 4)
    emit(li.LoadInst(x, a, base, mask, fill))
    emit(li.StoreInst(tile, zero, x))
    y = b.value("y", F32, 4)
    emit(li.LoadInst(y, a, lanes))
    total = b.compute(Op.MAD, F32, 4, (x, y, fill))
    lower = b.compute(Op.HALF, F32, 2, (total,), 0)
    last = b.compute(Op.EXTRACT, F32, 1, (lower,), 1)
    emit(li.StoreInst(a, base, total, mask, True))
    none = b.const(0, I32)
    emit(li.WhileBegin())
    left = b.value("left", I32)
    emit(li.LoadInst(left, flags, i))
    emit(li.WhileTest(b.compute(Op.LT, BOOL, 1, (none, left))))
    emit(li.AtomicInst(b.value("old", I32), "sub", flags, i, left))
    emit(li.EndWhile())
    emit(li.AtomicInst(b.value("", I32), "cas", flags, i, none, none, "system"))
    emit(li.AtomicInst(b.value("", I32), "add", flags, i, none, None, "warp", "acq_rel"))
    emit(li.FenceInst("thread"))
    emit(li.FenceInst("device", "release"))
    inside = b.compute(Op.LT, BOOL, 1, (i, size))
    emit(li.AssertInst(inside, 0, i, size))
    emit(li.IfBegin(inside))
    emit(li.PrintInst("x =", (last, i)))
    emit(li.Else())
    emit(li.PrefetchInst(a, base))
    emit(li.EndIf())
    emit(li.IfBegin(inside))
    emit(li.CallInst((b.value("r", F32),), "helper", (last, one)))
    emit(li.CallInst((), "done", ()))
    emit(li.EndIf())
    bits = b.compute(Op.BITCAST, I32, 1, (last,))
    b.compute(Op.CAST, dt.float16, 1, (bits,), None, "a b")
    emit(li.EndLoop())
    emit(li.BarrierInst("grid"))
    messages = (("index out of range", Location("model.py", 12, 4)), ("no place", None))
    return LinearKernel("every", (a, flags), (n,), tuple(b.code), messages, Meta("custom"))
