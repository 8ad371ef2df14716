"""The meaning of the graph level, in the plainest NumPy, and a driver that runs on it.

`evaluate` gives every node its value by the rules at the head of ``weft/ir/op.py``: sums of floats
are taken in float64 and rounded once, transcendentals are computed in float64, and 16-bit floats
round once an operation. `OracleDriver` has the face of ``weft.driver``, so that the front end can
be tested apart from the compiler.
"""

import ctypes
import math

import numpy as np

from weft.errors import BoundsError
from weft.ir import dtype as dt
from weft.ir import node as nd
from weft.ir.op import Op
from weft.ir.stmt import For
from weft.ir.text_parse import parse_kernel
from weft.ir.traverse import walk
from weft.runtimes.lockstep.run import Grid, run

F64 = np.float64


def array_of(buffer, dtype, shape):
    """Return the buffer's memory as an array (a view; the buffer must outlive it)."""
    raw = (ctypes.c_char * max(buffer.nbytes, 1)).from_address(buffer.address)
    count = math.prod(shape)
    return np.frombuffer(raw, dtype=dtype.numpy, count=count).reshape(shape)


def evaluate(nodes, env=None, variables=None):
    """Return the value of each node; `env` gives arrays for storages that have no buffer."""
    values = {}
    env, variables = env or {}, variables or {}
    with np.errstate(all="ignore"):
        for node in nd.toposort(nodes):
            args = [values[a] for a in node.args]
            value = _one(node, args, env, variables)
            if node.op not in (Op.SORT, Op.PACK, Op.LAUNCH):
                value = np.asarray(value)
                assert value.dtype == node.dtype.numpy, (node, value.dtype)
                assert value.shape == tuple(int(d) for d in node.shape), (node, value.shape)
            values[node] = value
    return [values[n] for n in nodes]


def _one(node, args, env, variables):
    op = node.op
    if op.group in ("unary", "binary", "ternary"):
        return _elementwise(op, node.dtype, args)
    return _SPECIAL[op](node, args, env, variables)


# elementwise


def _widen(x):
    """16- and 8-bit floats compute in float32."""
    d = dt.as_dtype(x.dtype)
    return x.astype(np.float32) if d.is_float and d.bits < 32 else x


def _erf(x, complement=False):
    f = math.erfc if complement else math.erf
    return np.array([f(v) for v in x.ravel().tolist()], F64).reshape(x.shape)


def _sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


_FLOAT = {
    Op.SQRT: np.sqrt, Op.RSQRT: lambda x: 1 / np.sqrt(x), Op.RECIPROCAL: lambda x: 1 / x,
    Op.EXP: np.exp, Op.EXP2: np.exp2, Op.EXPM1: np.expm1, Op.LOG: np.log, Op.LOG2: np.log2,
    Op.LOG10: np.log10, Op.LOG1P: np.log1p, Op.SIN: np.sin, Op.COS: np.cos, Op.TAN: np.tan,
    Op.ASIN: np.arcsin, Op.ACOS: np.arccos, Op.ATAN: np.arctan, Op.SINH: np.sinh,
    Op.COSH: np.cosh, Op.TANH: np.tanh, Op.ASINH: np.arcsinh, Op.ACOSH: np.arccosh,
    Op.ATANH: np.arctanh, Op.ERF: _erf, Op.ERFC: lambda x: _erf(x, True), Op.SIGMOID: _sigmoid,
    Op.FLOOR: np.floor, Op.CEIL: np.ceil, Op.TRUNC: np.trunc, Op.ROUND: np.rint,
    Op.POW: np.power, Op.ATAN2: np.arctan2, Op.FMOD: np.fmod,
}  # fmt: skip


def _elementwise(op, dtype, args):
    if op is Op.WHERE:
        return np.where(*args)
    kind = dt.as_dtype(args[0].dtype).kind
    args = [_widen(a) for a in args]
    out = dtype.numpy
    if op in _COMPARE:
        return _COMPARE[op](*args)
    if kind == "f":
        if op is Op.MAD:
            a, b, c = (x.astype(np.longdouble) for x in args)
            return (a * b + c).astype(args[0].dtype).astype(out)
        if op in _FLOAT:
            return _FLOAT[op](*(a.astype(F64) for a in args)).astype(args[0].dtype).astype(out)
        return np.asarray(_FLOAT_EXACT[op](*args)).astype(out)
    if kind == "b":
        return _BOOL[op](*args)
    return _integer(op, args).astype(out)


_COMPARE = {Op.LT: np.less, Op.LE: np.less_equal, Op.EQ: np.equal, Op.NE: np.not_equal}
_BOOL = {
    Op.NOT: np.logical_not, Op.AND: np.logical_and, Op.OR: np.logical_or, Op.XOR: np.logical_xor,
    Op.MIN: np.logical_and, Op.MAX: np.logical_or,
}  # fmt: skip


def _zero_aware(pick_negative):
    def pick(a, b):
        both = (a == 0) & (b == 0)
        if pick_negative:
            zero = np.where(np.signbit(a), a, b)
            return np.where(both, zero, np.minimum(a, b))
        zero = np.where(np.signbit(a), b, a)
        return np.where(both, zero, np.maximum(a, b))

    return pick


def _float_mod(a, b):
    r = np.fmod(a, b)
    r = np.where((r != 0) & (np.signbit(r) != np.signbit(b)), r + b, r)
    r = np.where(r == 0, np.copysign(np.zeros_like(r), b), r)
    return r


def _float_floordiv(a, b):
    return np.floor_divide(a.astype(F64), b.astype(F64)).astype(a.dtype)


_FLOAT_EXACT = {
    Op.NEG: np.negative, Op.ABS: np.abs, Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply,
    Op.DIV: np.divide, Op.MIN: _zero_aware(True), Op.MAX: _zero_aware(False),
    Op.COPYSIGN: np.copysign, Op.MOD: _float_mod, Op.FLOORDIV: _float_floordiv,
}  # fmt: skip


def _integer(op, args):
    dtype = dt.as_dtype(args[0].dtype)
    simple = {
        Op.NEG: np.negative, Op.NOT: np.invert, Op.ABS: np.abs, Op.ADD: np.add,
        Op.SUB: np.subtract, Op.MUL: np.multiply, Op.MIN: np.minimum, Op.MAX: np.maximum,
        Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor,
    }  # fmt: skip
    if op in simple:
        return simple[op](*args)
    exact = np.frompyfunc(lambda *v: dt.wrap(_EXACT[op](dtype, *map(int, v)), dtype), len(args), 1)
    return np.asarray(exact(*args)).astype(args[0].dtype)


def _fmod(d, a, b):
    return int(math.copysign(1, a)) * (abs(a) % abs(b)) if b else 0


def _int_pow(d, a, b):
    if b >= 0:
        return pow(a, b, 1 << d.bits)
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


def _shl(d, a, b):
    return a << b if 0 <= b < d.bits else 0


def _shr(d, a, b):
    if 0 <= b < d.bits:
        return a >> b
    return -1 if a < 0 else 0


_EXACT = {
    Op.FLOORDIV: lambda d, a, b: a // b if b else 0,
    Op.MOD: lambda d, a, b: a % b if b else 0,
    Op.FMOD: _fmod,
    Op.POW: _int_pow,
    Op.SHL: _shl,
    Op.SHR: _shr,
    Op.MULHI: lambda d, a, b: (a * b) >> d.bits,
    Op.POPCOUNT: lambda d, a: (a & ((1 << d.bits) - 1)).bit_count(),
    Op.CLZ: lambda d, a: d.bits - (a & ((1 << d.bits) - 1)).bit_length(),
}


def cast(x, dtype):
    """Convert an array by the cast rules of the IR."""
    source = dt.as_dtype(x.dtype)
    if dtype.is_bool:
        return (_widen(x) != 0).astype(bool)
    if source.is_float and dtype.is_integer:
        wide = x.astype(F64)
        whole = np.where(np.isnan(wide), 0, np.trunc(wide))
        flat = [min(max(int(v), dtype.min), dtype.max) if math.isfinite(v)
                else (dtype.max if v > 0 else dtype.min) for v in whole.ravel().tolist()]
        return np.array(flat, dtype.numpy).reshape(x.shape)
    if dtype.is_float and dtype.bits < 32 and source.is_float and source.bits == 64:
        return _round_narrow(x, dtype)
    if dtype.is_float and dtype.bits < 32 and source.is_integer:
        exact = F64 if dtype is dt.float16 else np.longdouble  # float16 ends before 2**53
        return _round_narrow(x.astype(exact), dtype)
    return x.astype(dtype.numpy)


def _round_narrow(x, dtype):
    """Round a wide float to a narrow one once (through float32 to odd, against double rounding)."""
    if dtype is dt.float16:
        return x.astype(np.float16)
    single = x.astype(np.float32)
    bits = single.view(np.uint32)
    inexact = (single.astype(x.dtype) != x) & np.isfinite(x)
    grew = np.abs(single.astype(x.dtype)) > np.abs(x)
    odd = np.where(grew, bits - 1, bits) | np.uint32(1)
    return np.where(inexact, odd, bits).astype(np.uint32).view(np.float32).astype(dtype.numpy)


# the rest


def _buffer(node, args, env, variables):
    storage = node.attr
    if storage in env:
        return env[storage]
    assert storage.buffer is not None, "a placeholder without a value"
    return array_of(storage.buffer, storage.dtype, (int(storage.size),)).copy()


def _iota(node, args, env, variables):
    return np.arange(int(node.shape[0])).astype(node.dtype.numpy)


def _slice(node, args, env, variables):
    index = tuple(
        (np.arange(n) * step + start)
        for start, step, n in zip(node.attr.starts, node.attr.steps, node.shape, strict=True)
    )
    return args[0][np.ix_(*index)] if index else args[0]


def _pad(node, args, env, variables):
    out = np.full(node.shape, node.attr.value, node.dtype.numpy)
    x = args[0]
    out[tuple(slice(b, b + n) for b, n in zip(node.attr.before, x.shape, strict=True))] = x
    return out


def _window(node, args, env, variables):
    a = node.attr
    count = node.shape[a.axis]
    index = np.arange(count)[:, None] * a.step + np.arange(a.size)[None] * a.dilation
    taken = np.take(args[0], index, axis=a.axis)
    return np.moveaxis(taken, a.axis + 1, -1)


def _unwindow(node, args, env, variables):
    a, x = node.attr, args[0]
    out = np.zeros(node.shape, x.dtype)
    for w in range(x.shape[-1]):
        for o in range(x.shape[a.axis]):
            i = o * a.step + w * a.dilation
            if i < node.shape[a.axis]:
                target = [slice(None)] * x.ndim
                target[a.axis], target[-1] = i, w
                source = list(target)
                source[a.axis] = o
                out[tuple(target)] = x[tuple(source)]
    return out


def _strided(node, args, env, variables):
    index = np.full(node.shape, node.attr.offset)
    for axis, stride in enumerate(node.attr.strides):
        shape = [1] * len(node.shape)
        shape[axis] = node.shape[axis]
        index = index + (np.arange(node.shape[axis]) * stride).reshape(shape)
    return args[0][index]


def _reduce(node, args, env, variables):
    kind, axes, x = node.attr.kind, node.attr.axes, args[0]
    dtype = node.dtype
    if kind in ("any", "all"):
        return getattr(np, kind)(x, axis=axes)
    if kind in ("max", "min"):
        wide = _widen(x)
        found = np.asarray(getattr(np, "a" + kind)(wide, axis=axes))
        if dtype.is_float:  # -0 is below +0
            zero = (wide == 0) & (np.signbit(wide) == (kind == "min"))
            sign = np.where(np.any(zero, axis=axes) == (kind == "min"), -1.0, 1.0)
            found = np.where(found == 0, np.copysign(found, sign), found)
        return found.astype(dtype.numpy)
    f = np.sum if kind == "sum" else np.prod
    if dtype.is_float:
        wide = np.float32 if dtype.bits < 32 else x.dtype
        return f(x.astype(F64), axis=axes).astype(wide).astype(dtype.numpy)
    return f(x, axis=axes, dtype=x.dtype)


def _argreduce(node, args, env, variables):
    f = np.argmax if node.attr.kind == "max" else np.argmin
    return f(_widen(args[0]), axis=node.attr.axis).astype(np.int64)


def _scan(node, args, env, variables):
    kind, axis, x = node.attr.kind, node.attr.axis, args[0]
    if kind in ("max", "min"):
        out = np.moveaxis(_widen(x).copy(), axis, 0)
        pick = _zero_aware(kind == "min") if node.dtype.is_float else getattr(np, kind + "imum")
        for i in range(1, len(out)):
            out[i] = pick(out[i - 1], out[i])
        return np.moveaxis(out, 0, axis).astype(x.dtype)
    if kind == "logsumexp":
        wide = np.float32 if node.dtype.bits < 32 else x.dtype
        found = np.logaddexp.accumulate(x.astype(F64), axis=axis)
        return found.astype(wide).astype(x.dtype)
    f = np.cumsum if kind == "sum" else np.cumprod
    if node.dtype.is_float:
        wide = np.float32 if node.dtype.bits < 32 else x.dtype
        return f(x.astype(F64), axis=axis).astype(wide).astype(x.dtype)
    return f(x, axis=axis, dtype=x.dtype)


def _backwards(function):
    """Apply a scan from the end of its axis if the node says so."""
    def run(node, args, env, variables):
        if not node.attr.reverse:
            return function(node, args, env, variables)
        turned = [np.flip(a, node.attr.axis) for a in args]
        return np.flip(function(node, turned, env, variables), node.attr.axis)
    return run


def _recurrence(node, args, env, variables):
    a, b = (np.moveaxis(x.astype(F64), node.attr.axis, 0) for x in args)
    out = b.copy()
    for i in range(1, len(out)):
        out[i] = a[i] * out[i - 1] + b[i]
    wide = np.float32 if node.dtype.bits < 32 else args[0].dtype
    return np.moveaxis(out, 0, node.attr.axis).astype(wide).astype(args[0].dtype)


def _sort(node, args, env, variables):
    axis, x = node.attr.axis, _widen(args[0])
    if not node.attr.descending:
        order = np.argsort(x, axis=axis, kind="stable")
    else:
        order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(order, axis)
    if node.attr.keep >= 0:
        order = np.take(order, range(node.attr.keep), axis)
    return np.take_along_axis(args[0], order, axis), order.astype(np.int64)


def _open_index(index, axis):
    grid = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    grid[axis] = index
    return tuple(grid)


def _check(node, index, bound):
    bad = (index < 0) | (index >= bound)
    if bad.any():
        place = nd.locations.get(node)
        raise BoundsError(
            node.attr.what,
            found=f"index {int(index[bad].ravel()[0])}",
            expected=f"0 to {bound - 1}",
            where=None if place is None else (place.file, place.line),
        )


def _gather(node, args, env, variables):
    x, index = args
    _check(node, index, x.shape[node.attr.axis])
    return x[_open_index(index, node.attr.axis)]


def _scatter(node, args, env, variables):
    base, index, updates = args
    axis, kind = node.attr.axis, node.attr.kind
    _check(node, index, base.shape[axis])
    low = node.dtype.is_float and node.dtype.bits < 32
    out = base.astype(np.float32) if low else base.copy()
    combine = {"add": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}.get(kind)
    if node.dtype.is_float and kind in ("max", "min"):
        combine = _zero_aware(kind == "min")
    for place in np.ndindex(*index.shape):
        target = (*place[:axis], int(index[place]), *place[axis + 1:])
        value = updates[place].astype(out.dtype)
        if kind != "set":
            value = combine(out[target], value)
        out[target] = value.astype(base.dtype)  # each update rounds
    return out.astype(base.dtype)


def _pack(node, args, env, variables):
    x, flags = args
    chosen = x[flags]
    row = np.concatenate([chosen, np.zeros(len(x) - len(chosen), x.dtype)])
    return row, np.asarray(len(chosen), np.int64)


def _launch(node, args, env, variables):
    """What a kernel leaves in the arrays that it writes to, as the interpreter device runs it."""
    kernel = parse_kernel(node.attr.code)
    arrays = [np.array(a, order="C") if k in node.attr.writes else np.ascontiguousarray(a)
              for k, a in enumerate(args)]
    sizes = {s.kind: int(s.extent.attr) for s in walk(kernel.body)
             if isinstance(s, For) and s.kind.startswith(("block.", "thread."))}
    shape = [tuple(sizes.get(f"{level}.{axis}", 1) for axis in "xyz")
             for level in ("block", "thread")]
    run(kernel, [a.__array_interface__["data"][0] for a in arrays], {}, Grid(*shape))
    return [arrays[w] for w in node.attr.writes]


_SPECIAL = {
    Op.CONST: lambda n, a, e, v: np.asarray(n.attr, n.dtype.numpy),
    Op.VARIABLE: lambda n, a, e, v: np.asarray(v[n.attr.name], np.int64),
    Op.CAST: lambda n, a, e, v: cast(a[0], n.dtype),
    Op.BITCAST: lambda n, a, e, v: a[0].view(n.dtype.numpy),
    Op.BUFFER: _buffer,
    Op.IOTA: _iota,
    Op.RESHAPE: lambda n, a, e, v: a[0].reshape(n.shape),
    Op.PERMUTE: lambda n, a, e, v: a[0].transpose(n.attr),
    Op.EXPAND: lambda n, a, e, v: np.broadcast_to(a[0], n.shape),
    Op.SLICE: _slice,
    Op.PAD: _pad,
    Op.WINDOW: _window,
    Op.UNWINDOW: _unwindow,
    Op.STRIDED: _strided,
    Op.REDUCE: _reduce,
    Op.ARGREDUCE: _argreduce,
    Op.SCAN: _backwards(_scan),
    Op.RECURRENCE: _backwards(_recurrence),
    Op.SORT: _sort,
    Op.LAUNCH: _launch,
    Op.PROJECT: lambda n, a, e, v: a[0][n.attr],
    Op.GATHER: _gather,
    Op.SCATTER: _scatter,
    Op.PACK: _pack,
    Op.CONTIGUOUS: lambda n, a, e, v: a[0],
    Op.DETACH: lambda n, a, e, v: a[0],
}


# the driver


class HostBuffer:
    """Memory with the face of the runtime's buffers."""

    def __init__(self, nbytes, owner=None, address=None, readonly=False):
        self.nbytes, self.readonly = nbytes, readonly
        self.exposed, self.version = False, 0
        self.owner = np.zeros(max(nbytes, 1), np.uint8) if owner is None else owner
        self.address = self.owner.ctypes.data if address is None else address


def _leaf(value, dtype, shape):
    buffer = _store(value, dtype)
    size = math.prod(shape)
    flat = nd.buffer(nd.Storage(dtype, size, buffer))
    return flat if tuple(shape) == (size,) else nd.make(Op.RESHAPE, dtype, tuple(shape), (flat,))


def _store(value, dtype):
    flat = np.array(value, dtype.numpy, order="C").reshape(-1)
    buffer = HostBuffer(flat.nbytes)
    buffer.owner[: flat.nbytes] = flat.view(np.uint8)
    return buffer


class OracleCompiled:
    """What `OracleDriver.compile` gives: the graph itself."""

    def __init__(self, outputs, inputs):
        self.outputs, self.inputs = list(outputs), list(inputs)
        leaves = {n.attr: None for n in nd.toposort(self.outputs) if n.op is Op.BUFFER}
        self.captured = [s for s in leaves if s not in set(self.inputs)]
        self.panels = ()

    def call(self, inputs, captured, variables=None):
        env = {
            s: array_of(b, s.dtype, (int(s.size),)).copy()
            for s, b in zip([*self.inputs, *self.captured], [*inputs, *captured], strict=True)
        }
        values = evaluate(self.outputs, env, dict(variables or {}))
        return [_store(v, n.dtype) for v, n in zip(values, self.outputs, strict=True)]

    def forget(self):
        """Keep the arrays: the graph is evaluated at every call."""


class OracleDriver:
    """``weft.driver``, by way of `evaluate`."""

    @staticmethod
    def realize(nodes):
        return [_leaf(v, n.dtype, n.shape) for v, n in zip(evaluate(nodes), nodes, strict=True)]

    @staticmethod
    def compute(node, known):
        return None  # knows no short way

    @staticmethod
    def compile(outputs, inputs, updates=None, resident=()):
        return OracleCompiled(outputs, inputs)

    @staticmethod
    def allocate(nbytes):
        return HostBuffer(nbytes)

    @staticmethod
    def from_host(address, nbytes, owner, readonly):
        return HostBuffer(nbytes, owner, address, readonly)
