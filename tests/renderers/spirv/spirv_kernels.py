"""Kernels of work-items, written as SPIR-V: what tests of the renderer share."""

import re
import shutil
import subprocess

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.linear import LinearBuilder, LinearKernel, Value
from weft.ir.op import Op
from weft.ir.stmt import Memory, Meta
from weft.passes.legalize import Legalizer
from weft.renderers.launches.work_items import Launch, Launches
from weft.renderers.spirv.image import image, module_of
from weft.renderers.spirv.renderer import SpirvRenderer
from weft.renderers.spirv.target import FEATURES, vulkan_target
from weft.target import Target

FACTS = {name: True for name in FEATURES} | {"maxComputeSharedMemorySize": 32 << 10}
HOST = Target("cpu", "x86_64")


def target(without=(), **more):
    """Return the target of a device that has everything but some features."""
    return vulkan_target(HOST, {k: v for k, v in FACTS.items() if k not in without} | more)


class Code(LinearBuilder):
    """A builder with one-word methods."""

    def i(self, value):
        return self.const(value, dt.int64)

    def op(self, op, *args, dtype=None, attr=None):
        kind = dt.bool_ if op.result == "bool" else dtype or args[-1].dtype
        return self.compute(op, kind, 1, args, attr)

    def load(self, mem, offset, **rest):
        value = self.value(mem.name, mem.dtype)
        self.emit(li.LoadInst(value, mem, offset, **rest))
        return value

    def store(self, mem, offset, value, **rest):
        self.emit(li.StoreInst(mem, offset, value, **rest))

    def loop(self, extent, kind="serial", **rest):
        var = self.value("i", dt.int64)
        extent = extent if isinstance(extent, Value) else self.i(extent)
        self.emit(li.Loop(var, extent, kind, **rest))
        return var

    def end(self, kind=li.EndLoop):
        self.emit(kind())

    def storage(self, name, dtype, size, scope="register", base=None):
        made = memory(name, dtype, size, scope)
        self.emit(li.StorageInst(made, size, base))
        return made

    def special(self, register):
        value = self.value(register, dt.int64)
        self.emit(li.SpecialInst(value, register))
        return value

    def atomic(self, kind, mem, offset, value, compare=None):
        result = self.value("old", mem.dtype)
        self.emit(li.AtomicInst(result, kind, mem, offset, value, compare))
        return result

    def kernel(self, *params, variables=(), messages=()):
        return LinearKernel("k", params, variables, tuple(self.code), messages,
                            Meta(kind="custom"))  # fmt: skip


def memory(name, dtype, size=64, scope="global"):
    return Memory(name, dtype, (ex.index(size),), scope)


def source(kernel, goal=None):
    return SpirvRenderer(goal or target()).render(kernel, "k")


def launched(kernel, items, goal=None, groups=0):
    """Return the source of a kernel that is a launch already."""
    cut = Launches((Launch(tuple(kernel.code), groups, items),), {}, 0, 0)
    return SpirvRenderer(goal or target()).written(kernel, cut, "k")


def words(made):
    return module_of(image(made.text))


def checked(made):
    """Return the words of a module that the validator takes."""
    code = words(made)
    done = tool("spirv-val", "--target-env", "vulkan1.2", "-", given=code)
    assert done.returncode == 0, done.stderr.decode() + shown(code)
    return code


def shown(code):
    """Return a module as text, with numbers in the place of names that the tool makes up."""
    done = tool("spirv-dis", "--raw-id", "--no-header", "-", given=code)
    assert done.returncode == 0, done.stderr.decode()
    return re.sub(r"[ \t]+\n", "\n", done.stdout.decode())


def tool(name, *args, given):
    path = shutil.which(name)
    assert path, f"{name} is not on PATH"
    return subprocess.run([path, *args], input=given, capture_output=True, check=False)


def elementwise(roots, inputs, goal=None):
    """Return the kernel ``out[k][i] = roots[k](inputs[i])``."""
    b = Code()
    goal = goal or target()
    params = [memory(v.attr, v.dtype) for v in inputs]
    legal = Legalizer(goal).all(roots)
    outputs = [memory(f"out{k}", r.dtype) for k, r in enumerate(legal)]
    i = b.loop(64, "parallel")
    known = {v: b.load(m, i) for v, m in zip(inputs, params, strict=True)}
    for e in ex.toposort(legal):
        if e not in known:
            known[e] = b.compute(e.op, e.dtype, 1, tuple(known[a] for a in e.args), e.attr)
    for root, out in zip(legal, outputs, strict=True):
        b.store(out, i, known[root])
    b.end()
    return b.kernel(*params, *outputs)


def named(op, d):
    """Return one operation on fresh operands, and these."""
    inputs = [ex.var(f"x{k}", d) for k in range(op.arity)]
    result = dt.bool_ if op.result == "bool" else d
    return ex.make(op, result, tuple(inputs)), inputs


def capabilities(code):
    return set(re.findall(r"OpCapability (\w+)", shown(code)))


__all__ = ["Code", "Op", "capabilities", "checked", "elementwise", "launched", "memory", "named",
           "shown", "source", "target", "words"]  # fmt: skip
