"""Small loop nests for the tests of schedules and strategies, and a way to compare two of them."""

import numpy as np

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.ir.stmt import (
    Accumulator,
    Alloc,
    Axis,
    For,
    If,
    Kernel,
    Let,
    Load,
    Memory,
    Meta,
    Reduce,
    Store,
    lhs,
    rhs,
)
from weft.ir.text.text import print_kernel
from weft.ir.verify.verify import verify
from weft.schedule import Schedule


def v(name, dtype=dt.int64):
    return ex.var(name, dtype)


def f(name):
    return ex.var(name, dt.float32)


def n(value):
    return value if isinstance(value, ex.Expr) else ex.index(value)


def memory(name, *shape, dtype=dt.float32, scope="global"):
    return Memory(name, dtype, tuple(map(n, shape)), scope)


def loop(name, extent, *body, kind="serial"):
    return For(v(name), n(extent), kind, tuple(body))


def total(name, dtype=dt.float32, value=None):
    """The accumulator of a sum."""
    acc = v(name, dtype)
    return Accumulator(acc, ex.const(0, dtype), acc + value, lhs(acc) + rhs(acc))


def biggest(name, value):
    acc = v(name, value.dtype)
    return Accumulator(acc, ex.const(value.dtype.min, value.dtype), ex.maximum(acc, value),
                       ex.maximum(lhs(acc), rhs(acc)))


def chain(size):
    """y[i] = x[i] * x[i] + 1"""
    x, y = memory("x", size), memory("y", size)
    body = loop("i", size, Load(f("a"), x, (v("i"),)),
                Store(y, (v("i"),), f("a") * f("a") + 1.0))
    return Kernel("chain", (x, y), (body,), Meta("elementwise"))


def bias(rows, columns):
    """y[i, j] = x[i, j] + b[j]"""
    x, b, y = memory("x", rows, columns), memory("b", columns), memory("y", rows, columns)
    body = loop("i", rows, loop(
        "j", columns, Load(f("a"), x, (v("i"), v("j"))), Load(f("c"), b, (v("j"),)),
        Store(y, (v("i"), v("j")), f("a") + f("c"))))
    return Kernel("bias", (x, b, y), (body,), Meta("elementwise"))


def transpose(rows, columns):
    """y[i, j] = x[j, i]"""
    x, y = memory("x", columns, rows), memory("y", rows, columns)
    body = loop("i", rows, loop("j", columns, Load(f("a"), x, (v("j"), v("i"))),
                                Store(y, (v("i"), v("j")), f("a"))))
    return Kernel("transpose", (x, y), (body,), Meta("elementwise"))


def add_sum(size):
    """y[0] = sum of x"""
    x, y = memory("x", size), memory("y", 1)
    reduce = Reduce((Axis(v("k"), n(size)),), (total("s", value=f("a")),),
                    (Load(f("a"), x, (v("k"),)),))
    return Kernel("add_sum", (x, y), (reduce, Store(y, (n(0),), f("s"))), Meta("rowwise"))


def softmax(rows, columns):
    """Softmax over the last axis, with the exponentials kept in a row buffer."""
    x, y = memory("x", rows, columns), memory("y", rows, columns)
    row = memory("row", max(columns, 1), scope="local")
    first = Reduce((Axis(v("k"), n(columns)),), (biggest("m", f("a")),),
                   (Load(f("a"), x, (v("r"), v("k"))),))
    e = ex.unary(Op.EXP, f("b") - f("m"))
    second = Reduce((Axis(v("q"), n(columns)),), (total("s", value=f("e")),),
                    (Load(f("b"), x, (v("r"), v("q"))), *_let("e", e),
                     Store(row, (v("q"),), f("e"))))
    third = loop("c", columns, Load(f("d"), row, (v("c"),)),
                 Store(y, (v("r"), v("c")), f("d") / f("s")))
    return Kernel("softmax", (x, y), (loop("r", rows, Alloc(row), first, second, third),),
                  Meta("rowwise"))


def _let(name, value):
    from weft.ir.stmt import Let

    return (Let(v(name, value.dtype), value),)


def column_sum(rows, columns):
    """y[j] = sum over i of x[i, j]"""
    x, y = memory("x", rows, columns), memory("y", columns)
    reduce = Reduce((Axis(v("k"), n(rows)),), (total("s", value=f("a")),),
                    (Load(f("a"), x, (v("k"), v("j"))),))
    return Kernel("column_sum", (x, y),
                  (loop("j", columns, reduce, Store(y, (v("j"),), f("s"))),), Meta("rowwise"))


def argmax(rows, columns):
    """The first index of the largest value of each row."""
    x, y = memory("x", rows, columns), memory("y", rows, dtype=dt.int64)
    best, at = f("best"), v("at")

    def before(value, index, other, place):
        return value.gt(other) | (value.eq(other) & index.lt(place))

    new = before(f("a"), v("k"), best, at)
    second = before(rhs(best), rhs(at), lhs(best), lhs(at))
    accumulators = (
        Accumulator(best, ex.const(float("-inf"), dt.float32), ex.where(new, f("a"), best),
                    ex.where(second, rhs(best), lhs(best))),
        Accumulator(at, ex.index(dt.int64.max), ex.where(new, v("k"), at),
                    ex.where(second, rhs(at), lhs(at))),
    )
    reduce = Reduce((Axis(v("k"), n(columns)),), accumulators,
                    (Load(f("a"), x, (v("r"), v("k"))),))
    return Kernel("argmax", (x, y), (loop("r", rows, reduce, Store(y, (v("r"),), at)),),
                  Meta("rowwise"))


def matmul(rows, columns, inner, left="ik", right="kj", epilogue=True):
    """c[i, j] = relu(sum of a * b + bias[j]), operands in any layout."""
    sizes = {"i": rows, "j": columns, "k": inner}
    a = memory("a", *[sizes[t] for t in left])
    b = memory("b", *[sizes[t] for t in right])
    c, d = memory("c", rows, columns), memory("d", columns)
    reduce = Reduce((Axis(v("k"), n(inner)),), (total("s", value=f("p") * f("q")),),
                    (Load(f("p"), a, tuple(v(t) for t in left)),
                     Load(f("q"), b, tuple(v(t) for t in right))))
    place = (v("i"), v("j"))
    last = (Store(c, place, f("s")),)
    if epilogue:
        last = (Store(c, place, ex.maximum(f("s") + f("t"), 0.0)),)
    first = (Load(f("t"), d, (v("j"),)),) if epilogue else ()
    nest = loop("i", rows, loop("j", columns, *first, reduce, *last))
    return Kernel("matmul", (a, b, d, c) if epilogue else (a, b, c), (nest,),
                  Meta("contraction"))


def vectors_times_matrices(count, columns, inner):
    """c[n, j] = sum over k of a[n, k] * b[n, k, j]: every row has a matrix of its own."""
    a, b = memory("a", count, inner), memory("b", count, inner, columns)
    c = memory("c", count, columns)
    reduce = Reduce((Axis(v("k"), n(inner)),), (total("s", value=f("p") * f("q")),),
                    (Load(f("p"), a, (v("n"), v("k"))), Load(f("q"), b, (v("n"), v("k"), v("j")))))
    nest = loop("n", count, loop("j", columns, reduce, Store(c, (v("n"), v("j")), f("s"))))
    return Kernel("products", (a, b, c), (nest,), Meta("contraction"))


def narrow(rows, columns, inner, left="bf16", right="bf16", left_at="ik", right_at="kj",
           out=None):
    """c[i, j] = sum over k of a * b, each widened first."""
    sizes = {"i": rows, "j": columns, "k": inner}
    x, y = v("x", dt.from_text(left)), v("y", dt.from_text(right))
    wide = dt.float32 if x.dtype.is_float else dt.int32
    out = dt.from_text(out) if out else wide
    total_type = wide if out.is_float or out.bits >= 32 else out
    a = memory("a", *[sizes[t] for t in left_at], dtype=x.dtype)
    b = memory("b", *[sizes[t] for t in right_at], dtype=y.dtype)
    c = memory("c", rows, columns, dtype=out)
    product = ex.cast(x, total_type) * ex.cast(y, total_type)
    reduce = Reduce((Axis(v("k"), n(inner)),), (total("s", total_type, product),),
                    (Load(x, a, tuple(v(t) for t in left_at)),
                     Load(y, b, tuple(v(t) for t in right_at))))
    store = Store(c, (v("i"), v("j")), ex.cast(v("s", total_type), out))
    return Kernel("narrow", (a, b, c), (loop("i", rows, loop("j", columns, reduce, store)),),
                  Meta("contraction"))


def matvec(rows, inner):
    """y[i] = sum over k of a[i, k] * x[k]"""
    a, x, y = memory("a", rows, inner), memory("x", inner), memory("y", rows)
    reduce = Reduce((Axis(v("k"), n(inner)),), (total("s", value=f("p") * f("q")),),
                    (Load(f("p"), a, (v("i"), v("k"))), Load(f("q"), x, (v("k"),))))
    return Kernel("matvec", (a, x, y), (loop("i", rows, reduce, Store(y, (v("i"),), f("s"))),),
                  Meta("contraction"))


def convolution(height, width, stride=1, pad=1, channels=2, outputs=5, kernel=3, flip=False,
                images=2, nested=False, dtype=dt.float32, turned=False, dilation=1):
    """y[b, o] = sum over c of x[b, c], padded, correlated (or convolved) with w[o, c] (or w[c, o]).
    """
    x = memory("x", images, channels, height, width, dtype=dtype)
    sides = (channels, outputs) if turned else (outputs, channels)
    w = memory("w", *sides, kernel, kernel, dtype=dtype)
    rows, columns = ((m + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
                     for m in (height, width))
    y = memory("y", images, outputs, rows, columns)
    p, q = (kernel - 1 - v("p"), kernel - 1 - v("q")) if flip else (v("p"), v("q"))
    i, j = (v(x) * stride + tap * dilation - pad for x, tap in (("i", p), ("j", q)))
    inside = n(0).le(i) & i.lt(height) & n(0).le(j) & j.lt(width) if pad else None
    a, b = v("a", dtype), v("b", dtype)
    read = a if inside is None else ex.where(inside, a, 0.0)
    if pad and nested:  # as in a window that was widened axis by axis
        read = ex.where(n(0).le(i) & i.lt(height), ex.where(n(0).le(j) & j.lt(width), a, 0.0), 0.0)
    axes = (("c", channels), ("p", kernel), ("q", kernel))
    reduce = Reduce(tuple(Axis(v(t), n(m)) for t, m in axes),
                    (total("s", value=ex.cast(read, dt.float32) * ex.cast(b, dt.float32)),),
                    (Load(a, x, (v("n"), v("c"), i, j), inside),
                     Load(b, w, (v("c" if turned else "o"), v("o" if turned else "c"), v("p"),
                                 v("q")))))
    out = Store(y, (v("n"), v("o"), v("i"), v("j")), f("s"))
    nest = loop("n", images, loop("o", outputs, loop("i", rows, loop("j", columns, reduce, out))))
    return Kernel("conv", (x, w, y), (nest,), Meta("contraction"))


def row_of_windows(length, pad=0, channels=8, outputs=12, kernel=3):
    """y[o] = sum over c of x[c], one row, padded, correlated with w[o, c]."""
    x, w = memory("x", channels, length), memory("w", outputs, channels, kernel)
    count = length + 2 * pad - kernel + 1
    i, a = v("i") + v("p") - pad, f("a")
    inside = n(0).le(i) & i.lt(length) if pad else None
    read = a if inside is None else ex.where(inside, a, 0.0)
    reduce = Reduce((Axis(v("c"), n(channels)), Axis(v("p"), n(kernel))),
                    (total("s", value=read * f("b")),),
                    (Load(a, x, (v("c"), i), inside), Load(f("b"), w, (v("o"), v("c"), v("p")))))
    y = memory("y", outputs, count)
    nest = loop("o", outputs, loop("i", count, reduce, Store(y, (v("o"), v("i")), f("s"))))
    return Kernel("row_of_windows", (x, w, y), (nest,), Meta("contraction"))


def running_sum(rows, columns):
    """y[r, k] = y[r, k - 1] + x[r, k]"""
    x, y = memory("x", rows, columns), memory("y", rows, columns)
    before = Load(f("p"), y, (v("r"), v("k") - 1), v("k").gt(0))
    body = loop("r", rows, loop("k", columns, Load(f("a"), x, (v("r"), v("k"))), before,
                                Store(y, (v("r"), v("k")), f("a") + f("p"))))
    return Kernel("running_sum", (x, y), (body,), Meta("scan"))


def guarded(size, limit):
    """y[i] = x[i] for i < limit, else left alone"""
    x, y = memory("x", size), memory("y", size)
    body = loop("i", size, If(v("i").lt(limit), (Load(f("a"), x, (v("i"),)),
                                                 Store(y, (v("i"),), f("a")))))
    return Kernel("guarded", (x, y), (body,))


def written(kernel):
    from weft.ir.traverse import stores

    return [p for p in kernel.params if p in stores(kernel.body)]


def execute(kernel, seed=0, variables=None, outputs=None):
    """Run a kernel by the interpreter on small integers and return what it wrote."""
    rng = np.random.default_rng(seed)
    buffers = {}
    outputs = outputs or {p.name for p in written(kernel)}
    for param in kernel.params:
        size = int(interpret.evaluate(param.size, _values(param, variables)))
        low = 0 if param.dtype.kind == "u" else -4
        data = rng.integers(low, 5, size).astype(param.dtype.numpy)
        if param.name in outputs:
            data[:] = 99
        buffers[param.name] = data
    interpret.run(kernel, buffers, variables or {})
    return {name: buffers[name] for name in outputs}


def _values(param, variables):
    found = ex.variables([param.size])
    return {e: (variables or {})[e.attr.name] for e in found}


def assert_same(before, after, seed=0, variables=None, exact=True):
    """Both kernels are legal IR and write the same values."""
    verify(before)
    verify(after)
    old = execute(before, seed, variables)
    new = execute(after, seed, variables, set(old))
    for name in old:
        if exact:
            np.testing.assert_array_equal(old[name], new[name], err_msg=name)
        else:
            np.testing.assert_allclose(old[name], new[name], rtol=1e-5, atol=1e-6, err_msg=name)


def assert_replays(before, after):
    """The trace of a kernel makes the same nest again of the unscheduled one."""
    again = Schedule.replay(before, after.meta.schedule).kernel
    shown = [print_kernel(k.replace(meta=k.meta.replace(hints=()))) for k in (again, after)]
    assert shown[0] == shown[1]


def carried(rows, size, op=Op.ADD):
    """y[r, k] = x[r, 0] + ... + x[r, k], through a carry."""
    x, y = memory("x", rows, size), memory("y", rows, size)
    carry = memory("carry", 1, scope="register")
    start = 0.0 if op is Op.ADD else float("-inf")
    at = (v("r"), v("k"))
    step = loop("k", size, Load(f("a"), x, at), Load(f("c"), carry, (n(0),)),
                Let(f("s"), ex.binary(op, f("c"), f("a"))), Store(carry, (n(0),), f("s")),
                Store(y, at, f("s")))
    body = loop("r", rows, Alloc(carry), Store(carry, (n(0),), ex.const(start, dt.float32)), step)
    return Kernel("running", (x, y), (body,), Meta(kind="scan"))
