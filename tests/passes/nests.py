"""Kernels at loop level for the tests of passes, and the check that passes keep their meaning."""

import numpy as np
from hypothesis import strategies as st

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret import evaluate, run, run_linear
from weft.ir.op import Op
from weft.ir.stmt import (
    SERIAL,
    UNROLLED,
    VECTOR,
    Accumulator,
    Axis,
    For,
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Reduce,
    Store,
    lhs,
    rhs,
)
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.ir.verify.verify_linear import verify_linear
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize

F32, I64, BOOL = dt.float32, dt.int64, dt.bool_


def size(n):
    return n if isinstance(n, ex.Expr) else ex.index(n)


def memory(name, *shape, dtype=F32, scope="global"):
    return Memory(name, dtype, tuple(map(size, shape)), scope)


def var(name, dtype=I64):
    return ex.var(name, dtype)


def f32(value):
    return ex.const(value, F32)


def loop(v, n, *body, kind=SERIAL):
    return For(v, size(n), kind, tuple(body))


def vector(v, n, *body):
    return loop(v, n, *body, kind=VECTOR)


def unrolled(v, n, *body):
    return loop(v, n, *body, kind=UNROLLED)


def kernel(params, *body, name="k"):
    return Kernel(name, tuple(params), tuple(body))


def accumulator(name, init, update, combine, dtype=F32):
    """An accumulator of which `update` and `combine` are functions of its names."""
    v = ex.var(name, dtype)
    return Accumulator(v, init, update(v), combine(lhs(v), rhs(v)))


def total(name, x):
    return accumulator(name, ex.const(0, x.dtype), lambda s: s + x, lambda a, b: a + b, x.dtype)


def reduce(axes, accumulators, *body):
    axes = tuple(Axis(v, size(n), kind) for v, n, kind in axes)
    return Reduce(axes, tuple(accumulators), tuple(body))


def random_arrays(k, variables=None, seed=0):
    """Fresh arrays for the parameters; integers are small."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for m in k.params:
        symbols = {s: variables[s.attr.name] for s in ex.variables([m.size])} if variables else {}
        n = int(evaluate(m.size, symbols))
        if m.dtype.is_float:
            values = rng.standard_normal(n).astype(m.dtype.numpy)
        elif m.dtype.is_bool:
            values = rng.random(n) < 0.5
        else:
            values = rng.integers(0, 8, n).astype(m.dtype.numpy)
        arrays[m.name] = values
    return arrays


def same_bits(a, b):
    """Equal, telling -0 from 0; any NaN equals any other."""
    if a.dtype.kind in "biu":
        return np.array_equal(a, b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    return np.array_equal(x, y, equal_nan=True) and np.array_equal(
        np.signbit(x) & ~np.isnan(x), np.signbit(y) & ~np.isnan(y)
    )


def check(k, arrays=None, variables=None, functions=None):
    """Run a kernel before and after the passes; return the arrays and the vectorised kernel.

    All three levels must agree to the last bit.
    """
    arrays = random_arrays(k, variables) if arrays is None else arrays
    verify(k)
    made = vectorize(k)
    verify(made)
    verify_linear(linearize(made))
    for s in walk(made.body):
        assert not isinstance(s, Reduce)
        assert getattr(s, "kind", SERIAL) not in (VECTOR, UNROLLED)
    bound = [v.attr for s in walk(made.body) for v in s.binds()]
    assert len(bound) == len(set(bound))
    results = []
    for execute, form in ((run, k), (run, made), (run_linear, linearize(made))):
        copies = {name: a.copy() for name, a in arrays.items()}
        execute(form, copies, variables, functions)
        results.append(copies)
    for other in results[1:]:
        for name, expected in results[0].items():
            assert same_bits(expected, other[name]), (name, expected, other[name])
    return results[0], made


def stores_to(k, m):
    return [s for s in walk(k.body) if isinstance(s, Store) and s.memory.name == m.name]


def loads_of(k, m):
    return [s for s in walk(k.body) if isinstance(s, Load) and s.memory.name == m.name]


@st.composite
def nests(draw):
    """A kernel of independent iterations over one output, with random schedule kinds."""
    rows, columns = draw(st.integers(1, 4)), draw(st.sampled_from([1, 3, 4, 7, 8, 13]))
    lanes = draw(st.sampled_from([2, 4, 8]))
    a, b = memory("a", rows, columns), memory("b", columns)
    out, idx = memory("out", rows, columns), memory("idx", columns, dtype=I64)
    flags = memory("flags", columns, dtype=BOOL)
    x, y, z = (ex.var(name, F32) for name in "xyz")
    outer, chunk, lane = var("r"), var("c"), var("l")
    at = chunk * lanes + lane
    flag, g, k = ex.var("flag", BOOL), var("g"), var("k")
    pool = [x, y]

    def expression(depth):
        if depth == 0:
            return draw(st.sampled_from([*pool, f32(1.5), f32(-0.0)]))
        op = draw(st.sampled_from([Op.ADD, Op.SUB, Op.MUL, Op.MIN, Op.MAX, Op.DIV]))
        return ex.binary(op, expression(depth - 1), expression(depth - 1))

    body = [Load(x, a, (outer, at)), Load(y, b, (draw(st.sampled_from([at, outer * 0, at * 0])),))]
    if draw(st.booleans()):
        body += [Load(g, idx, (at,)), Load(z, b, (g % columns,))]
        pool.append(z)
    if draw(st.booleans()):
        w = ex.var("w", F32)
        body.append(Let(w, expression(1)))
        pool.append(w)
    if draw(st.booleans()):
        e, count = ex.var("e", F32), draw(st.integers(0, 4))
        t = total("t", e * expression(0))
        kind = draw(st.sampled_from(["serial", "unrolled"]))
        extent = draw(st.sampled_from([ex.index(count), at % 3]))
        body.append(reduce([(k, extent, kind)], [t], Load(e, b, (k % columns,))))
        pool.append(t.var)
    store = Store(out, (outer, at), expression(2), draw(st.sampled_from([None, at.lt(5)])))
    if draw(st.booleans()):
        body.append(Load(flag, flags, (at,)))
        cond = draw(st.sampled_from([flag, x.lt(y), outer.lt(2)]))
        body.append(If(cond, (store,), (Store(out, (outer, at), expression(1)),)))
    else:
        body.append(store)
    inside = If(at.lt(columns), tuple(body))
    chunks = draw(st.sampled_from([loop, unrolled]))
    nest = chunks(chunk, -(-columns // lanes), vector(lane, lanes, inside))
    kind = draw(st.sampled_from(["serial", "parallel", "unrolled"]))
    return kernel([a, b, out, idx, flags], loop(outer, rows, nest, kind=kind))
