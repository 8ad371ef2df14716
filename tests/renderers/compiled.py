"""Run kernel-level lists natively, one ctypes call each: what tests of the renderer share."""

import ctypes

import numpy as np

from weft.backends import cpu
from weft.compilers.llvm import compiler, session
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.linear import (
    Compute,
    EndLoop,
    LinearBuilder,
    LinearKernel,
    LoadInst,
    Loop,
    StoreInst,
    Value,
)
from weft.ir.op import Op
from weft.ir.stmt import Memory, Meta
from weft.passes.legalize import Legalizer

POOL = """
define void @weft_parallel_for(ptr %fn, ptr %env, i64 %n) {
  %a = sdiv i64 %n, 3
  %b = sub i64 %n, %a
  call void %fn(ptr %env, i64 0, i64 %a)
  call void %fn(ptr %env, i64 %a, i64 %b)
  call void %fn(ptr %env, i64 %b, i64 %n)
  ret void
}
"""


class Status(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in ("code", "kernel", "statement", "pad")] + [
        (name, ctypes.c_int64) for name in ("index", "bound")
    ]


class Code(LinearBuilder):
    """A builder with one-word methods."""

    def i(self, value):
        return self.const(value, dt.int64)

    def op(self, op, *args, dtype=None, attr=None, lanes=None):
        kind = dt.bool_ if op.result == "bool" else dtype or args[-1].dtype
        return self.compute(op, kind, lanes or args[0].lanes, args, attr)

    def load(self, mem, offset, lanes=1, **rest):
        value = self.value(mem.name, mem.dtype, lanes)
        self.emit(LoadInst(value, mem, offset, **rest))
        return value

    def store(self, mem, offset, value, **rest):
        self.emit(StoreInst(mem, offset, value, **rest))

    def loop(self, extent, kind="serial"):
        var = self.value("i", dt.int64)
        self.emit(Loop(var, extent if isinstance(extent, Value) else self.i(extent), kind))
        return var

    def end(self, kind=EndLoop):
        self.emit(kind())

    def kernel(self, *params, variables=(), messages=(), **meta):
        return LinearKernel("k", params, variables, tuple(self.code), messages,
                            Meta(**{"kind": "elementwise", **meta}))  # fmt: skip


def load(kernel, target=None, pipeline="short"):
    """Return (native function, library) of a kernel."""
    source = cpu.renderer(target).render(kernel)
    objects = [compiler().compile(source.text, pipeline)]
    if source.imports:
        objects.append(compiler().compile(POOL))
    library = session().load(objects, [source.name])
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    return kind(library[source.name]), library


def run(kernel, arrays, variables=(), target=None, pipeline="short"):
    """Run a kernel in place on NumPy arrays; return its code and its status record."""
    function, library = load(kernel, target, pipeline)
    buffers = (ctypes.c_void_p * max(len(arrays), 1))(*(a.ctypes.data for a in arrays))
    values = (ctypes.c_int64 * max(len(variables), 1))(*variables)
    status = Status()
    code = function(buffers, values, ctypes.byref(status))
    library.unload()
    return code, status


def memory(name, dtype, size=1 << 20):
    return Memory(name, dtype, (ex.index(size),))


def emit(b, roots, known, lanes):
    """Append expressions as vector instructions; `known` maps VARs to values and is extended."""
    for e in ex.toposort(roots):
        if e not in known:
            args = tuple(known[a] for a in e.args)
            known[e] = b.value("", e.dtype, lanes)
            b.emit(Compute(known[e], e.op, args, e.attr))
    return [known[r] for r in roots]


def elementwise(roots, inputs, size, lanes, target=None, legal=True, meta=None):
    """Return the kernel ``out[k][i] = roots[k](inputs[i])`` over flat arrays of `size`."""
    if legal:
        roots = Legalizer(target or cpu.host_target()).all(roots)
    b = LinearBuilder()
    params = [memory(v.attr, v.dtype) for v in inputs]
    outputs = [memory(f"out{k}", r.dtype) for k, r in enumerate(roots)]
    count, width = b.const(size // lanes, dt.int64), b.const(lanes, dt.int64)
    i = b.value("i", dt.int64)
    b.emit(Loop(i, count))
    offset = b.compute(Op.MUL, dt.int64, 1, (i, width))
    known = {}
    for v, mem in zip(inputs, params, strict=True):
        known[v] = b.value(v.attr, v.dtype, lanes)
        b.emit(LoadInst(known[v], mem, offset))
    for value, mem in zip(emit(b, roots, known, lanes), outputs, strict=True):
        b.emit(StoreInst(mem, offset, value))
    b.emit(EndLoop())
    return LinearKernel("kernel", (*params, *outputs), (), tuple(b.code), (),
                        meta or Meta(kind="elementwise"))  # fmt: skip


def evaluate(roots, inputs, arrays, lanes=16, target=None, pipeline="short"):
    """Return the arrays of expressions of VARs, computed natively; sizes are padded to lanes."""
    size = len(arrays[0])
    padded = -(-size // lanes) * lanes
    given = [np.concatenate([a, np.zeros(padded - size, a.dtype)]) for a in arrays]
    made = [np.zeros(padded, r.dtype.numpy) for r in roots]
    code, _ = run(elementwise(roots, inputs, padded, lanes, target), [*given, *made],
                  target=target, pipeline=pipeline)  # fmt: skip
    assert code == 0
    return [m[:size] for m in made]
