"""The steps of random programs: each returns the text of a value, or None where none is possible.

A step is given the program so far (`drawn.Program`) and its random numbers. Only values that are
the same in every correct evaluation decide on something: they are compared, converted to integers,
or used as an index, so that no step makes a large error of a small one.
"""

import math

from weft.ir import dtype as dt
from weft.ir.op import SCALAR_OPS, Op

# What changes little where its operands do; others are given exact values.
_CONTINUOUS = [Op.NEG, Op.ABS, Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MIN, Op.MAX, Op.MAD, Op.SQRT,
               Op.EXP, Op.TANH, Op.SIGMOID, Op.SIN, Op.ERF, Op.ATAN]  # fmt: skip
# The sign of a NaN is nobody's business, so nothing may look at it.
_ELEMENTWISE = [op for op in SCALAR_OPS
                if op not in (Op.CAST, Op.BITCAST, Op.WHERE, Op.COPYSIGN)]  # fmt: skip
_CONVERSIONS = ("bool", "uint8", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16",
                "bfloat16", "float32", "float32", "float64")  # fmt: skip


def _float(t):
    return t.dtype.is_float


def _some(t):
    return t.ndim > 0 and t.numel() > 0


def _unary(p, r):
    x = p.pick(_float)
    return x and r.choice((
        f"{x}.exp()", f"{x}.tanh()", f"{x}.sigmoid()", f"{x}.sin()", f"{x}.relu()", f"{x}.erf()",
        f"{x}.abs().sqrt()", f"({x} * {x} + 1).log()", f"({x}.abs() + 0.5).rsqrt()", f"-{x}",
        f"{x}.gelu()", f"{x}.softplus()", f"{x}.clamp(-0.5, 0.75)", f"1 - {x}", f"{x} * 0.5 + 2",
        f"{x} / 3", f"{x}.square()", f"{x}.silu()"))


def _plain(p, r):
    x = p.pick(lambda t: not t.dtype.is_bool)
    return x and r.choice((f"{x} * 2", f"{x} + 1", f"{x} * {x}", f"{x}.clamp(1, 3)", f"3 - {x}"))


def _fitting(p, x):
    shape = p.scope[x].shape

    def fits(t):
        return t.ndim <= len(shape) and all(
            a in (1, b) for a, b in zip(t.shape[::-1], shape[::-1], strict=False))
    return p.pick(fits)


def _binary(p, r):
    x = p.pick(lambda t: not t.dtype.is_bool)
    y = x and _fitting(p, x)
    if not y:
        return None
    a, b = (x, y) if r.random() < 0.6 else (y, x)
    return r.choice((f"{a} + {b}", f"{a} - {b}", f"{a} * {b}", f"{a} - {b}",
                     f"weft.maximum({a}, {b})", f"{a} / ({b}.abs() + 1)"))


def _compared(p, r):
    x = p.pick()
    if x is None or not p.exact(x):
        return None
    t = p.scope[x]
    if t.dtype.is_bool:
        return r.choice((f"~{x}", f"{x} & ({x}.numel() > 3)", f"{x}.any({_axis(r, t)})"
                         if t.ndim else f"~{x}"))
    return r.choice((f"{x} > {r.choice((0, 1, 2))}", f"{x} == {x}.floor()" if _float(t) else
                     f"{x} % 3 == 1", f"{x}.to(weft.int32)", f"{x}.floor()" if _float(t) else
                     f"{x} // 2"))


def _where(p, r):
    x = p.pick()
    if x is None or not p.scope[x].ndim:
        return None
    t = p.scope[x]
    axis = _axis(r, t)
    n = t.shape[axis]
    tail = ", None" * (t.ndim - 1 - axis % t.ndim)
    place = f"weft.arange({n})[:{tail}]" if tail else f"weft.arange({n})"
    condition = r.choice((f"{place} < {r.randint(0, n)}", f"{place} >= {r.randint(0, n)}",
                          f"{place} % 2 == 0", f"{place} != {r.randint(0, n)}"))
    flags = p.pick(lambda m: m.dtype.is_bool and m.shape == t.shape)
    if flags and r.random() < 0.3:
        condition = flags
    other = _fitting(p, x) if r.random() < 0.3 else None
    fill = other if other else "False" if t.dtype.is_bool else r.choice(("0", "0", "1", "-1"))
    fill = fill if not t.dtype.is_float or other else fill + ".0"
    return f"weft.where({condition}, {x}, {fill})"


def _axis(r, t):
    axis = r.randrange(t.ndim)
    return axis if r.random() < 0.5 else axis - t.ndim


def _move(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    d = _axis(r, t)
    n = t.shape[d]
    order = r.sample(range(t.ndim), t.ndim)
    head = ":, " * (d % t.ndim)
    low = r.randint(0, n - 1)
    high = r.randint(low + 1, n)
    size = t.numel()
    first = r.choice([k for k in range(1, min(size, 40) + 1) if size % k == 0])
    amounts = tuple(r.randint(0, 3) for _ in range(2 * r.randint(1, min(t.ndim, 2))))
    return r.choice((
        f"{x}.flip({d})", f"{x}.roll({r.randint(-2, 3)}, {d})", f"{x}.permute({order})",
        f"{x}.reshape({first}, {size // first})", f"{x}[{head}{low}:{high}]",
        f"{x}[{head}::2]", f"{x}[{head}{low}]", f"{x}[{head}1:]" if n > 1 else f"{x}.clone()",
        f"{x}[{head}:-1]" if n > 1 else f"{x}.reshape(-1)", f"weft.diff({x}, dim={d})",
        f"{x}.pad({amounts})", f"{x}.tril({r.randint(-1, 2)})", f"{x}.triu({r.randint(-1, 2)})",
        f"{x}.unsqueeze({d})", f"{x}.unsqueeze({d}).expand({_grown(r, t, d)})",
        f"{x}.squeeze()", f"{x}.repeat_interleave(2, {d})", f"{x}.diagonal()",
        f"{x}.unfold({d}, {min(n, r.randint(1, 3))}, {r.randint(1, 2)})",
        f"{x}.flatten()", f"{x}.contiguous()", f"{x}.narrow({d}, {low}, {high - low})"))


def _grown(r, t, d):
    sizes = list(t.shape)
    sizes.insert(d if d >= 0 else d + t.ndim + 1, r.choice((2, 3, 5)))
    return ", ".join(map(str, sizes))


def _join(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    y = p.pick(lambda o: o.shape == t.shape and o.dtype is t.dtype)
    d = _axis(r, t)
    z = p.pick(lambda o: o.ndim == t.ndim and o.dtype is t.dtype and all(
        a == b for k, (a, b) in enumerate(zip(o.shape, t.shape, strict=True)) if k != d % t.ndim))
    return r.choice((f"weft.stack([{x}, {y}], {d})", f"weft.cat([{x}, {z}], {d})",
                     f"weft.cat([{x}, {y}, {x}], {d})"))


def _index(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    d = _axis(r, t)
    n = t.shape[d]
    places = [r.randrange(n) for _ in range(r.choice((1, 2, 3, 5)))]
    head = ":, " * (d % t.ndim)
    named = p.pick(lambda i: i.dtype.is_integer and i.ndim <= 2 and i.numel() < 50)
    if named and r.random() < 0.6 and p.exact(named):
        return f"{x}[{head}{named}.long() % {n}]"
    shape = [len(places) if k == d % t.ndim else s for k, s in enumerate(t.shape)]
    flat = [r.randrange(n) for _ in range(math.prod(shape))]
    return r.choice((
        f"{x}[{head}weft.tensor({places})]", f"{x}.index_select({d}, weft.tensor({places}))",
        f"weft.gather({x}, {d}, weft.tensor({flat}).reshape({shape}))"
        if len(flat) < 60 else f"weft.roll({x}, 1, {d})"))


def _total(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    d = _axis(r, t)
    if t.dtype.is_bool:
        return r.choice((f"{x}.any({d})", f"{x}.all({d})", f"{x}.sum({d})"))
    keep = r.choice(("", ", keepdim=True", ", keepdim=True"))
    if not _float(t):
        return r.choice((f"{x}.sum({d}{keep})", f"{x}.amax({d}{keep})", f"{x}.argmax({d}{keep})",
                         f"{x}.sum()", f"{x}.prod({d}{keep})"))
    dims = r.choice((d, d, tuple(r.sample(range(t.ndim), r.randint(1, t.ndim)))))
    return r.choice((
        f"{x}.sum({dims}{keep})", f"{x}.sum({dims}{keep})", f"{x}.mean({dims}{keep})",
        f"{x}.amax({dims}{keep})", f"{x}.amin({dims}{keep})", f"{x}.max({d}{keep})[0]",
        f"{x}.min({d})[0]", f"{x}.var({dims}{keep})",
        f"({x}.var({dims}, keepdim=True) + 0.1).sqrt()", f"{x}.norm(dim={d}{keep})",
        f"{x}.logsumexp({dims}{keep})", f"({x} * {x}).sum({dims}{keep})", f"{x}.sum()",
        f"{x} - {x}.mean({dims}, keepdim=True)", f"{x}.abs().sum({d}{keep})"))


def _rowwise(p, r):
    x = p.pick(lambda t: _float(t) and _some(t))
    if x is None:
        return None
    t = p.scope[x]
    d = _axis(r, t)
    rows = r.choice((
        f"{x}.softmax({d})", f"{x}.softmax({d})", f"{x}.log_softmax({d})", f"{x}.cumsum({d})",
        f"{x}.layer_norm(({t.shape[-1]},))", f"{x}.normalize(dim={d})", f"{x}.rms_norm("
        f"({t.shape[-1]},))", f"{x}.cummax({d})[0]", f"{x}.sort(dim={d}, stable=True)[0]",
        f"{x}.topk({r.randint(1, t.shape[d])}, {d})[0]",
        f"{x}.sort(dim={d}, descending=True, stable=True)[0]"))
    if p.exact(x) and r.random() < 0.3:
        return r.choice((f"{x}.median({d})[0]", f"{x}.argmax({d})", f"{x}.argmin({d})",
                         f"{x}.argsort({d})", f"{x}.topk(1, {d})[1]", f"{x}.max({d})[1]",
                         f"{x}.cummax({d})[1]", f"{x}.cummin({d})[1]", f"{x}.median({d})[1]",
                         f"{x}.sort(dim={d}, descending=True, stable=True)[1]",
                         f"{x}.kthvalue({r.randint(1, t.shape[d])}, {d})[1]"))
    return rows


def _product(p, r):
    x = p.pick(lambda t: _float(t) and t.ndim in (2, 3, 4) and _some(t))
    if x is None:
        return None
    t = p.scope[x]
    y = p.pick(lambda o: o.ndim == 2 and o.dtype is t.dtype and o.shape[0] == t.shape[-1])
    if y and r.random() < 0.5:
        return f"{x} @ {y}"
    if r.random() < 0.5:
        shape = t.shape[-1], r.choice((2, 5, 8, 16))
        y = p.leaf(shape, t.dtype.name)
        return y and f"{x} @ {y}"
    softmax = f"({x} @ {x}.transpose(-1, -2)).softmax(-1) @ {x}"
    return r.choice((f"{x} @ {x}.transpose(-1, -2)", f"{x}.transpose(-1, -2) @ {x}", softmax))


def attend(p, r):
    """Return attention, or what is nearly one: with weights, masks, scales, batches or without."""
    x = p.pick(lambda t: t.dtype is dt.float32 and t.ndim > 1 and t.shape[-2] > 7)
    if x is None:
        return None
    t = p.scope[x]
    n, d = t.shape[-2:]

    def fitting(accept):
        return p.pick(lambda o: o.dtype is t.dtype and o.ndim == t.ndim and (
            o.shape[:-2] == t.shape[:-2]) and accept(o))

    def leaf_of(*shape):
        return p.leaf(shape, "float32")

    wide = r.choice((4, d, d))
    same = fitting(lambda o: o.shape[-1] == d)
    key = r.choice((x, same or x, f"({x} @ {leaf_of(d, d)})" if r.random() < 0.5 else x))
    scores = f"{x} @ {key}.transpose(-1, -2)"
    scores = f"{x} @ {leaf_of(d, 16)}" if r.random() < 0.25 else scores
    count = 16 if "transpose" not in scores else p.scope[key].shape[-2] if key in p.scope else n
    scores = r.choice((f"({scores})", f"({scores} * 0.35)", None)) or (
        f"({scores} / 3 + {leaf_of(n, count)})")
    if r.random() < 0.3:
        visible = r.choice((f"weft.arange({n})[:, None] >= weft.arange({count})",
                            f"weft.arange({count}) < {r.randint(1, count)}"))
        scores = f"weft.where({visible}, {scores}, float('-inf'))"
    value = fitting(lambda o: o.shape[-2] == count)
    value = value if value and r.random() < 0.5 else leaf_of(count, wide)
    return f"{scores}.softmax(-1) @ {value}"


def _window(p, r):
    x = p.pick(lambda t: _float(t) and t.ndim == 3 and min(t.shape) > 1)
    if x is None:
        return None
    t = p.scope[x]
    k = r.randint(1, min(3, t.shape[-1]))
    if r.random() < 0.6:
        return r.choice((f"{x}.avg_pool1d({k})", f"{x}.max_pool1d({k}, stride=1)"))
    w = p.leaf((3, t.shape[1], k), t.dtype.name)
    return f"{x}.conv1d({w}, padding={r.randint(0, k - 1)}, stride={r.randint(1, 2)})"


def _convert(p, r):
    x = p.pick()
    if x is None:
        return None
    floats = ("float32", "float32", "float64", "bfloat16", "float16")
    if p.exact(x):
        return f"{x}.to(weft.{r.choice((*floats, 'int32', 'int64', 'bool'))})"
    return f"{x}.to(weft.{r.choice(floats)})"


def _write(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    d = _axis(r, t)
    places = [r.randrange(t.shape[d]) for _ in range(t.shape[d])]
    column = [-1 if k == d % t.ndim else 1 for k in range(t.ndim)]
    index = f"weft.tensor({places}).reshape({column}).expand({list(t.shape)})"
    y = p.pick(lambda o: o.shape == t.shape and o.dtype is t.dtype)
    if t.dtype.is_bool or t.numel() > 200:
        return None
    return r.choice((f"{x}.scatter_add({d}, {index}, {y})", f"{x}.scatter_add({d}, {index}, {y})",
                     f"{x}.index_fill({d}, weft.tensor({places[:2]}), 1)"))


def _gradient(p, r):
    x, y = (p.pick(lambda t: _float(t) and t.requires_grad) for _ in range(2))
    start = p.pick(lambda t: t.requires_grad and t.is_leaf)
    if x is None or start is None:
        return None
    loss = r.choice((f"{x}.sum()", f"({x} * {x}).sum()", f"{x}.mean() + {y}.sum()"))
    return f"weft.grad({loss}, {start})[0]"


STEPS = ((_unary,) * 3 + (_plain,) * 2 + (_binary,) * 5 + (_compared,) * 2 + (_where,) * 3
         + (_move,) * 7 + (_join,) * 2 + (_index,) * 2 + (_total,) * 6 + (_rowwise,) * 4
         + (_product,) * 2 + (_window, _convert, _write) + (_gradient,) * 3)  # fmt: skip
# what is likely to share a kernel with what went before
AFTER = {
    _unary: (_move, _move, _join, _total, _rowwise), _where: (_total, _total, _rowwise, _product),
    _move: (_total, _total, _rowwise, _binary), _join: (_total, _rowwise, _where),
    _total: (_binary, _binary, _move, _where), _rowwise: (_move, _move, _total, _product),
    _binary: (_total, _where), _product: (_rowwise, _unary, _where, _binary),
}  # fmt: skip


# operations of graphs, with what no method of tensors reaches


def _sizes(p, x):
    return tuple(p.scope[x].shape)


def _beside(p, x, dtype=None):
    """Return the text of another value of the shape of x, broadcast; None if none fits."""
    t = p.scope[x]
    dtype = dtype or t.dtype
    y = p.pick(lambda o: o.dtype is dtype and o.ndim <= t.ndim and all(
        a in (1, b) for a, b in zip(o.shape[::-1], t.shape[::-1], strict=False)))
    return y and (y, f"{y}.expand({_sizes(p, x)})" if t.ndim else y)


def _scalar_operation(p, r):
    x = p.pick()
    t = p.scope[x]
    exact = p.exact(x)
    ops = [op for op in (_ELEMENTWISE if exact else _CONTINUOUS) if t.dtype.kind in op.kinds]
    if not ops:
        return None
    op = r.choice(ops)
    args = [x]
    for k in range(op.arity - 1):
        y, text = _beside(p, x)
        if k == 0 and r.random() < 0.5:
            number = r.choice((0, 1, 2, 3) if t.dtype.kind in "bu" else (0, 1, -1, 2, 3))
            number = bool(number & 1) if t.dtype.is_bool else number
            y, text = x, f"weft.full({_sizes(p, x)}, {number}, dtype=weft.{t.dtype.name})"
        if op not in _CONTINUOUS and not p.exact(y):
            return None
        args.append(text)
    return f"node('elementwise', Op.{op.name.upper()}, {', '.join(args)})"


def _choice(p, r):
    x = p.pick()
    condition, other = _beside(p, x, dt.bool_), _beside(p, x)
    return condition and f"weft.where({condition[1]}, {x}, {other[1]})"


def _conversion(p, r):
    x = p.pick()
    targets = _CONVERSIONS if p.exact(x) else [c for c in _CONVERSIONS if "float" in c]
    return f"{x}.to(weft.{r.choice(targets)})"


def _strided(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    starts, sizes, strides = [], [], []
    for n in p.scope[x].shape:
        step = r.choice((1, 1, 2, 3))
        size = r.randint(1, (n - 1) // step + 1)
        start = r.randint(0, n - 1 - (size - 1) * step)
        if r.random() < 0.5:
            start, step = start + (size - 1) * step, -step
        starts.append(start)
        sizes.append(size)
        strides.append(step)
    return f"node('slice_', {x}, {starts}, {sizes}, {strides})"


def _padded(p, r):
    x = p.pick()
    before, after = ([r.randint(0, 3) for _ in _sizes(p, x)] for _ in range(2))
    return f"node('pad', {x}, {before}, {after}, {r.randint(0, 1)})"


def _windows(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    axis = r.randrange(t.ndim)
    n = t.shape[axis]
    size = r.randint(1, min(n, 4))
    dilation = r.randint(1, 2) if (size - 1) * 2 < n else 1
    return f"node('window', {x}, {axis}, {size}, {r.randint(1, 3)}, {dilation})"


def _folded(p, r):
    x = p.pick(lambda t: t.ndim > 1 and t.numel() and not t.dtype.is_bool)
    if x is None:
        return None
    t = p.scope[x]
    axis, step = r.randrange(t.ndim - 1), r.randint(1, 2)
    length = (t.shape[axis] - 1) * step + t.shape[-1]
    return f"node('unwindow', {x}, {axis}, {step}, 1, {length})"


def _spread(p, r):
    x = p.pick()
    shape = tuple(r.choice((2, 3, 17)) if n == 1 else n for n in _sizes(p, x))
    return f"{x}.expand({(r.choice((1, 2, 5)), *shape) if r.random() < 0.5 else shape})"


def _reduced(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    axes = tuple(r.sample(range(t.ndim), r.randint(1, t.ndim)))
    kinds = ("any", "all") if t.dtype.is_bool else ("sum", "sum", "max", "min", "prod")
    kind = r.choice(kinds)
    return f"node('reduce', {x}, {'sum' if kind == 'prod' and _float(t) else kind!r}, {axes})"


def _along(p, r):
    """Return something along one axis: where extremes are, running values, a sort."""
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    axis = r.randrange(t.ndim)
    ordered = f"node('sort', {x}, {axis}, {r.random() < 0.5})"
    if t.dtype.is_bool:
        return ordered
    scan = f"node('scan', {x}, {r.choice(('sum', 'max', 'min'))!r}, {axis}, {r.random() < 0.3})"
    if not p.exact(x):
        return r.choice((scan, ordered))
    kind = r.choice(("max", "min"))
    return r.choice((scan, ordered, f"node('argreduce', {x}, {kind!r}, {axis})"))


def _moved_by_data(p, r):
    x = p.pick(lambda t: t.ndim and t.numel() and t.numel() < 400)
    if x is None:
        return None
    t = p.scope[x]
    axis = r.randrange(t.ndim)
    gathers = r.random() < 0.5
    n = r.choice((1, 3, 8)) if gathers else t.shape[axis]
    shape = tuple(n if k == axis else s for k, s in enumerate(t.shape))
    places = [r.randrange(t.shape[axis]) for _ in range(math.prod(shape))]
    dtype = r.choice(("int32", "int64", "uint8"))
    index = f"weft.tensor({places}, dtype=weft.{dtype}).reshape({shape})"
    if gathers:
        return f"node('gather', {x}, {index}, {axis})"
    if t.dtype.is_bool:
        return None
    kind = r.choice(("set", "add", "max", "min"))
    return f"node('scatter', {x}, {index}, {_beside(p, x)[1]}, {axis}, {kind!r})"


def _self_product(p, r):
    x = p.pick(lambda t: t.ndim > 1 and t.numel() and not t.dtype.is_bool)
    return x and f"{x} @ {x}.transpose(-1, -2)"


def _rearranged(p, r):
    x = p.pick(_some)
    if x is None:
        return None
    t = p.scope[x]
    size = t.numel()
    first = r.choice([k for k in range(1, min(size, 70) + 1) if size % k == 0])
    return r.choice((f"{x}.permute({r.sample(range(t.ndim), t.ndim)})", f"{x}.reshape({size})",
                     f"{x}.reshape({first}, 1, {size // first})", f"node('contiguous', {x})"))


OPERATIONS = (_scalar_operation,) * 12 + (
    _choice, _conversion, _conversion, _rearranged, _rearranged, _spread, _strided, _strided,
    _padded, _windows, _folded, _reduced, _reduced, _reduced, _along, _along, _along,
    _moved_by_data, _moved_by_data, _self_product)  # fmt: skip
