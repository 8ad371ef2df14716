"""Random graphs of 1 to 30 operations, and how far two correct evaluations of one may differ.

A node is *exact* when every step to it is: it must then agree bit for bit. Other floats carry a
bound of their error: each operation is evaluated anew at its operands plus and minus their bounds,
and its own rounding is added. Only exact values are compared, converted to integers, sorted by or
used as an index, so that no step turns a small error into a large one.
"""

import math

import numpy as np
from hypothesis import strategies as st
from values import calm, random

import oracle
from graphs import el
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import SCALAR_OPS, Op
from weft.passes.transcendental import TRANSCENDENTALS

DTYPES = (dt.bool_, dt.uint8, dt.int8, dt.uint16, dt.int32, dt.uint32, dt.int64, dt.uint64,
          dt.float16, dt.bfloat16, dt.float32, dt.float32, dt.float64)  # fmt: skip
SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33, 65)
MOST = 5000  # elements of one array
# The sign of a NaN is nobody's business, so nothing may look at it.
ELEMENTWISE = [op for op in SCALAR_OPS
               if op not in (Op.CAST, Op.BITCAST, Op.WHERE, Op.COPYSIGN)]  # fmt: skip
CONTINUOUS = [Op.NEG, Op.ABS, Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MIN, Op.MAX, Op.MAD, Op.SQRT,
              Op.EXP, Op.TANH, Op.SIGMOID, Op.SIN, Op.ERF, Op.ATAN]  # fmt: skip


class Program:
    """A graph that grows: its values, and which of them are exact."""

    def __init__(self, device):
        self.device = device
        self.pool = []
        self.exact = set()

    def add(self, node, *operands, exact=True):
        if math.prod(node.shape) > MOST or node.ndim > 5:
            return
        if exact and all(a in self.exact for a in operands):
            self.exact.add(node)
        self.pool.append(node)


@st.composite
def programs(draw, device, most=30):
    """Draw (program, outputs)."""
    p = Program(device)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    for _ in range(draw(st.integers(1, 3))):
        d = draw(st.sampled_from(DTYPES))
        shape = tuple(draw(st.lists(st.sampled_from(SIZES), max_size=3)))
        make = draw(st.sampled_from((calm, calm, random)))
        p.add(device.leaf(make(d, shape, rng), shift=draw(st.integers(0, 1))))
    p.pool = p.pool or [device.leaf(np.ones(3, np.float32))]
    p.exact.update(p.pool)
    leaves = len(p.pool)
    steps = draw(st.one_of(st.integers(1, 8), st.integers(1, most), st.integers(most // 2, most)))
    for _ in range(steps):
        step = draw(st.sampled_from(STEPS))
        step(draw, p, draw(st.sampled_from(p.pool)), rng)
    made = p.pool[leaves:] or [infer.contiguous(p.pool[0])]
    p.exact.update(n for n in made if n.op is Op.CONTIGUOUS and n.args[0] in p.exact)
    used = {a for n in nd.toposort(made) for a in n.args}
    ends = [n for n in made if n not in used]  # nothing that was made is left out
    more = draw(st.lists(st.sampled_from(made), max_size=2))
    return p, list(dict.fromkeys([*ends, *more]))


# steps: each adds a node made from x, or nothing where none would be allowed


def _matching(draw, p, x, dtype=None):
    """Return another value of the shape of x, made by broadcasting, or x itself."""
    dtype = x.dtype if dtype is None else dtype
    fitting = [n for n in p.pool if n.dtype is dtype and n.ndim <= x.ndim and all(
        a in (1, b) for a, b in zip(n.shape, x.shape[x.ndim - n.ndim:], strict=True))]
    if not fitting:
        return None
    n = draw(st.sampled_from(fitting))
    wide = infer.expand(n, x.shape)
    if n in p.exact:
        p.exact.add(wide)
    return wide


def _elementwise(draw, p, x, rng):
    ops = ELEMENTWISE if x in p.exact else CONTINUOUS
    ops = [op for op in ops if x.dtype.kind in op.kinds]
    if not ops:
        return
    op = draw(st.sampled_from(ops))
    args = [x, *(_matching(draw, p, x) for _ in range(op.arity - 1))]
    if op.arity > 1 and draw(st.booleans()):
        value = draw(st.sampled_from((0, 1, 2, 3) if x.dtype.kind in "bu" else (0, 1, -1, 2, 3)))
        args[1] = infer.full(x.shape, value if not x.dtype.is_bool else bool(value & 1), x.dtype)
        p.exact.add(args[1])
    if op not in CONTINUOUS and not all(a in p.exact for a in args):
        return
    exact = not x.dtype.is_float or op not in TRANSCENDENTALS or op is Op.RECIPROCAL
    if op is Op.MAD and x.dtype is dt.float64:
        return  # the oracle does not round it rightly
    p.add(el(op, *args), *args, exact=exact)


def _where(draw, p, x, rng):
    condition, other = _matching(draw, p, x, dt.bool_), _matching(draw, p, x)
    if condition is not None:
        p.add(el(Op.WHERE, condition, x, other), condition, x, other)


def _cast(draw, p, x, rng):
    targets = DTYPES if x in p.exact else [d for d in DTYPES if d.is_float]
    d = draw(st.sampled_from(targets))
    if d is not x.dtype:
        p.add(infer.cast(x, d), x)


def _permute(draw, p, x, rng):
    if x.ndim > 1:
        p.add(infer.permute(x, draw(st.permutations(range(x.ndim)))), x)


def _reshape(draw, p, x, rng):
    size = math.prod(x.shape)
    divisors = [k for k in range(1, min(size, 70) + 1) if size % k == 0] or [1]
    first = draw(st.sampled_from(divisors))
    shape = draw(st.sampled_from([(size,), (first, size // first), (first, 1, size // first)]))
    p.add(infer.reshape(x, shape), x)


def _expand(draw, p, x, rng):
    shape = tuple(draw(st.sampled_from((2, 3, 17))) if n == 1 else n for n in x.shape)
    if draw(st.booleans()):
        shape = (draw(st.sampled_from((1, 2, 5))), *shape)
    p.add(infer.expand(x, shape), x)


def _slice(draw, p, x, rng):
    starts, sizes, steps = [], [], []
    for n in x.shape:
        step = draw(st.sampled_from((1, 1, 2, 3)))
        size = draw(st.integers(1, (n - 1) // step + 1)) if n else 0
        start = draw(st.integers(0, n - 1 - (size - 1) * step)) if n else 0
        if n and draw(st.booleans()):
            start, step = start + (size - 1) * step, -step
        starts.append(start)
        sizes.append(size)
        steps.append(step)
    p.add(infer.slice_(x, starts, sizes, steps), x)


def _pad(draw, p, x, rng):
    amounts = st.lists(st.integers(0, 3), min_size=x.ndim, max_size=x.ndim)
    value = draw(st.sampled_from((0, 1)))
    p.add(infer.pad(x, draw(amounts), draw(amounts), value), x)


def _window(draw, p, x, rng):
    if not x.ndim:
        return
    axis = draw(st.integers(0, x.ndim - 1))
    n = x.shape[axis]
    if n:
        size = draw(st.integers(1, min(n, 4)))
        dilation = draw(st.integers(1, 2)) if (size - 1) * 2 < n else 1
        p.add(infer.window(x, axis, size, draw(st.integers(1, 3)), dilation), x)


def _fold(draw, p, x, rng):
    if x.ndim > 1 and 0 not in x.shape:
        axis = draw(st.integers(0, x.ndim - 2))
        step = draw(st.integers(1, 2))
        length = (x.shape[axis] - 1) * step + x.shape[-1]
        p.add(infer.unwindow(x, axis, step, 1, length), x)


def _axes(draw, x):
    return draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, max_size=x.ndim, unique=True))


def _reduce(draw, p, x, rng):
    if not x.ndim or 0 in x.shape:
        return
    axes = _axes(draw, x)
    kinds = ("any", "all") if x.dtype.is_bool else ("sum", "sum", "max", "min", "prod")
    kind = draw(st.sampled_from(kinds))
    if kind == "prod" and x.dtype.is_float:
        kind = "sum"
    exact = not x.dtype.is_float or kind in ("max", "min")
    out = infer.reduce(x, kind, axes)
    p.add(out, x, exact=exact)
    if draw(st.booleans()):  # spread again, as in a softmax
        shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
        p.add(infer.expand(infer.reshape(out, shape), x.shape), *([out] if out in p.exact else [x]),
              exact=out in p.exact)  # fmt: skip


def _arg(draw, p, x, rng):
    if x.ndim and 0 not in x.shape and x in p.exact and not x.dtype.is_bool:
        axis = draw(st.integers(0, x.ndim - 1))
        p.add(infer.argreduce(x, draw(st.sampled_from(("max", "min"))), axis), x)


def _scan(draw, p, x, rng):
    if x.ndim and not x.dtype.is_bool:
        kind = draw(st.sampled_from(("sum", "max", "min")))
        out = infer.scan(x, kind, draw(st.integers(0, x.ndim - 1)))
        p.add(out, x, exact=not x.dtype.is_float or kind != "sum")


def _sort(draw, p, x, rng):
    if x.ndim:
        both = infer.sort(x, draw(st.integers(0, x.ndim - 1)), draw(st.booleans()))
        for out in both if x in p.exact else both[:1]:
            p.add(out, x)


def _index(draw, p, x, axis, n):
    """Return an index of at most the shape of x with values below the size of its axis."""
    shape = tuple(n if a == axis else s for a, s in enumerate(x.shape))
    d = draw(st.sampled_from((dt.int32, dt.int64, dt.uint8)))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    return p.device.leaf(rng.integers(0, x.shape[axis], shape).astype(d.numpy))


def _gather(draw, p, x, rng):
    if x.ndim and 0 not in x.shape:
        axis = draw(st.integers(0, x.ndim - 1))
        index = _index(draw, p, x, axis, draw(st.sampled_from((1, 3, 8))))
        p.add(infer.gather(x, index, axis), x)


def _scatter(draw, p, x, rng):
    if x.ndim and 0 not in x.shape and not x.dtype.is_bool:
        axis = draw(st.integers(0, x.ndim - 1))
        updates = _matching(draw, p, x)
        kind = draw(st.sampled_from(("set", "add", "max", "min")))
        index = _index(draw, p, x, axis, x.shape[axis])
        p.add(infer.scatter(x, index, updates, axis, kind), x, updates)


def _matmul(draw, p, x, rng):
    """Multiply x by one of its own axes' transposes: batched where there are more than two."""
    if x.ndim < 2 or x.dtype.is_bool or 0 in x.shape:
        return
    *batch, m, k = x.shape
    turned = infer.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    left = infer.expand(infer.reshape(x, (*batch, m, 1, k)), (*batch, m, m, k))
    right = infer.permute(turned, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    right = infer.expand(infer.reshape(right, (*batch, 1, m, k)), (*batch, m, m, k))
    if math.prod(left.shape) <= 20 * MOST:
        out = infer.reduce(el(Op.MUL, left, right), "sum", (left.ndim - 1,))
        p.add(out, x, exact=not x.dtype.is_float)


def _contiguous(draw, p, x, rng):
    p.add(infer.contiguous(x), x)


STEPS = (_elementwise,) * 12 + (_where, _cast, _cast, _permute, _reshape, _expand, _slice, _slice,
         _pad, _window, _fold, _reduce, _reduce, _reduce, _arg, _scan, _sort, _gather, _scatter,
         _matmul, _contiguous)  # fmt: skip


# errors


def bounds(outputs, exact):
    """Return {node: (value, error bound)}; a bound is infinite where none is known."""
    order = nd.toposort(outputs)
    values = dict(zip(order, _values(order), strict=True))
    errors = {}
    with np.errstate(all="ignore"):
        for node in order:
            value = values[node]
            if node.op is Op.SORT:
                errors[node] = errors[node.args[0]]
                continue
            if node in exact or not node.dtype.is_float or not node.args:
                errors[node] = np.zeros(node.shape)
                continue
            own = [errors[a] for a in node.args]
            error = _error(node, [values[a] for a in node.args], own, value)
            wide = value.astype(np.float64)
            top = float(np.float64(2.0) ** (1 << (node.dtype.exponent - 1)))
            lost = ~np.isfinite(wide) | ~(np.abs(wide) + error < top * (1 - node.dtype.eps))
            errors[node] = np.where(lost, np.inf, error)
    return {n: (values[n], errors[n]) for n in outputs}


def _values(order):
    kept = [n for n in order if n.op is not Op.SORT]
    found = dict(zip(kept, oracle.evaluate(kept), strict=True))
    return [found.get(n) for n in order]


def _rounding(node, value):
    eps = max(node.dtype.eps, 2.0**-52)
    return eps * np.abs(value.astype(np.float64)) + 2.0 ** (2 - (1 << (node.dtype.exponent - 1)))


def _error(node, args, errors, value):
    op = node.op
    if op is Op.CAST:
        return errors[0] + _rounding(node, value)
    if op.is_elementwise:
        return _shaken(node, args, errors, value) * 1.5 + 3 * _rounding(node, value)
    if op is Op.PROJECT:
        (x,) = node.args[0].args
        return np.broadcast_to(np.max(errors[0], initial=0), x.shape)
    if op is Op.SCATTER:
        return _scattered(node, args, errors)
    if op in (Op.REDUCE, Op.SCAN):
        return _summed(node, args[0], errors[0], value)
    if op is Op.PAD:
        attr = node.attr.replace(value=0.0)
        return oracle._SPECIAL[op](nd.make(op, dt.float64, node.shape, (), attr), errors, {}, {})
    like = nd.make(op, dt.float64, node.shape, node.args, node.attr)
    return oracle._SPECIAL[op](like, [errors[0], *args[1:]], {}, {})


def _shaken(node, args, errors, value):
    """Return how far the result moves when operands move by their errors."""
    wide = [a.astype(np.float64) if a.dtype != bool else a for a in args]
    middle = oracle._elementwise(node.op, dt.float64, wide)
    moved = np.zeros(node.shape)
    for corner in range(1 << len(args)):
        signs = [1 if corner >> k & 1 else -1 for k in range(len(args))]
        shaken = [w if w.dtype == bool else w + s * e
                  for w, s, e in zip(wide, signs, errors, strict=True)]
        there = oracle._elementwise(node.op, dt.float64, shaken)
        moved = np.maximum(moved, np.abs(there - middle))
    if node.op is Op.SIN:  # its ends say nothing of a whole period
        moved = np.where(errors[0] < 0.3, moved, np.inf)
    return np.where(np.isnan(moved), np.inf, moved)


def _summed(node, x, error, value):
    axes = node.attr.axes if node.op is Op.REDUCE else node.attr.axis
    if node.attr.kind != "sum":
        most = np.max(error, axis=axes, keepdims=node.op is Op.SCAN)
        return np.broadcast_to(most, node.shape)
    total = np.sum if node.op is Op.REDUCE else np.cumsum
    n = x.size if node.op is Op.REDUCE else x.shape[axes]
    step = 2.0 ** (-52 if node.dtype is dt.float64 else -23)
    size = total(np.abs(x.astype(np.float64)) + error, axis=axes)
    return total(error, axis=axes) + n * step * size + 2 * _rounding(node, value) * (
        1 if node.op is Op.REDUCE else 2)


def _scattered(node, args, errors):
    base, index, updates = args
    if node.attr.kind != "add":
        most = max(np.max(errors[0], initial=0), np.max(errors[2], initial=0))
        return np.broadcast_to(most, node.shape)
    out = errors[0].copy()
    place = oracle._open_index(index, node.attr.axis)
    np.add.at(out, place, errors[2])
    size = np.abs(base.astype(np.float64))
    np.add.at(size, place, np.abs(updates.astype(np.float64)))
    steps = np.ones(node.shape)
    np.add.at(steps, place, 1)
    return out + steps * node.dtype.eps * size


def compare(got, outputs, exact):
    """Check results: exact ones bit for bit, others within their bounds."""
    from values import assert_same

    expected = bounds(outputs, exact)
    for node, found in zip(outputs, got, strict=True):
        value, error = expected[node]
        if node in exact or not node.dtype.is_float:
            assert_same(found, np.asarray(value, order="C"), what=repr(node))
            continue
        known = np.isfinite(error)
        wide, want = found.astype(np.float64)[known], value.astype(np.float64)[known]
        off = ~(np.abs(wide - want) <= error[known])
        assert not off.any(), (
            f"{node!r}: got {wide[off][:3]}, expected {want[off][:3]}, "
            f"within {error[known][off][:3]}"
        )


def describe(outputs):
    """Return a graph as text, a node a line, for reports of failures."""
    number = {}
    lines = []
    for node in nd.toposort(outputs):
        number[node] = len(number)
        args = " ".join(f"%{number[a]}" for a in node.args)
        lines.append(f"%{number[node]} = {node!r} {args}")
    return "\n".join([*lines, "outputs " + " ".join(f"%{number[o]}" for o in outputs)])
