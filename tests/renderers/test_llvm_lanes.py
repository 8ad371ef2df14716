"""Networks of shuffles and of extremes: fences in the text, which are no instructions."""

import re

import numpy as np
import pytest
from compiled import elementwise, memory, run

from seeds import seeds
from weft.backends import cpu
from weft.compilers.llvm import compiler
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.linear import Compute, LinearBuilder, LinearKernel, LoadInst, StoreInst
from weft.ir.stmt import Meta
from weft.passes.common.straight_line import transpose

FENCE = "@llvm.arithmetic.fence."


def turning(dtype, lanes):
    """Return a kernel that transposes a square of so many rows in registers."""
    x, y = memory("x", dtype), memory("y", dtype)
    rows = [ex.var(f"r{i}", dtype, lanes) for i in range(lanes)]
    columns = transpose(rows, lanes, lambda e: e)
    b, known = LinearBuilder(), {}
    for i, row in enumerate(rows):
        known[row] = b.value("", dtype, lanes)
        b.emit(LoadInst(known[row], x, b.const(i * lanes, dt.int64)))
    for e in ex.toposort(columns):
        if e not in known:
            known[e] = b.value("", dtype, e.lanes)
            b.emit(Compute(known[e], e.op, tuple(known[a] for a in e.args), e.attr))
    for i, column in enumerate(columns):
        b.emit(StoreInst(y, b.const(i * lanes, dt.int64), known[column]))
    return LinearKernel("turning", (x, y), (), tuple(b.code), (), Meta(kind="elementwise"))


def network(dtype, depth):
    """Return minima and maxima of neighbours, level by level, and their inputs."""
    inputs = values = [ex.var(f"x{i}", dtype) for i in range(1 << 4)]
    for level in range(depth):
        far = 1 << level % 4
        values = [(ex.minimum if i & far == 0 else ex.maximum)(v, values[i ^ far])
                  for i, v in enumerate(values)]  # fmt: skip
    return values, inputs


def instructions(text):
    """Return the names of machine instructions, without those that move registers."""
    lines = re.findall(r"^\t([a-z]\w*)", compiler().assembly(text), re.MULTILINE)
    return sorted(name for name in lines if not name.startswith(("vmov", "mov")))


def unfenced(text):
    """Return LLVM IR with its fences replaced by what keeps nothing."""
    return re.sub(rf"call (<\d+ x \w+>) {FENCE}\w+\((.*)\)", r"bitcast \2 to \1", text)


WHOLE = [(dt.float32, 16), (dt.int32, 16), (dt.float64, 8), (dt.int64, 8), (dt.uint32, 8),
         (dt.int16, 16), (dt.bfloat16, 16)]  # fmt: skip


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize(("dtype", "lanes"), WHOLE, ids=str)
def test_turned_squares_have_fences(dtype, lanes, seed):
    kernel = turning(dtype, lanes)
    text = cpu.renderer().render(kernel).text
    is_x86 = cpu.host_target().arch == "x86_64"
    # Of the levels of shuffles every second one has them.
    levels = lanes.bit_length() - 1
    assert len(re.findall(rf"= call .*{FENCE}", text)) == (levels // 2 * lanes if is_x86 else 0)
    random = np.random.default_rng(seed)
    size = lanes * lanes
    x = random.integers(0, 256, size * dtype.itemsize, dtype=np.uint8)
    y = np.zeros_like(x)
    assert run(kernel, [x, y])[0] == 0
    square = x.view(f"V{dtype.itemsize}").reshape(lanes, lanes)
    assert y.tobytes() == square.T.tobytes()


@pytest.mark.parametrize(("dtype", "lanes"), WHOLE[:3], ids=str)
def test_fences_are_no_instructions(dtype, lanes):
    text = cpu.renderer().render(turning(dtype, lanes)).text
    assert instructions(text) == instructions(unfenced(text))


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("dtype", [dt.int32, dt.uint32, dt.int64])
def test_networks_of_extremes(dtype, seed):
    roots, inputs = network(dtype, 8)
    lanes = 64 // dtype.itemsize
    kernel = elementwise(roots, inputs, lanes, lanes)
    text = cpu.renderer().render(kernel).text
    assert (FENCE in text) == (cpu.host_target().arch == "x86_64")
    random = np.random.default_rng(seed)
    given = [random.integers(dtype.min, dtype.max, lanes, dtype.numpy) for _ in inputs]
    made = [np.zeros(lanes, dtype.numpy) for _ in roots]
    assert run(kernel, [*given, *made])[0] == 0
    wanted = list(given)
    for level in range(8):
        far = 1 << level % 4
        wanted = [(np.minimum if i & far == 0 else np.maximum)(v, wanted[i ^ far])
                  for i, v in enumerate(wanted)]  # fmt: skip
    assert all((g == w).all() for g, w in zip(made, wanted, strict=True))


def test_what_is_not_deep_has_no_fence():
    roots, inputs = network(dt.int32, 3)
    assert FENCE not in cpu.renderer().render(elementwise(roots, inputs, 16, 16)).text
    chain = inputs[0]  # the running extreme of a reduction
    for value in inputs[1:]:
        chain = ex.minimum(chain, value)
    assert FENCE not in cpu.renderer().render(elementwise([chain], inputs, 16, 16)).text
    scalars, inputs = network(dt.int32, 8)
    assert FENCE not in cpu.renderer().render(elementwise(scalars, inputs, 16, 1)).text
