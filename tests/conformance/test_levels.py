"""One kernel at every level: loop nest, scheduled nest, kernel level and native code agree."""

import numpy as np
import pytest
from values import assert_same, calm, random

import graphs
from graphs import el
from weft.driver import counters
from weft.driver.context import context
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.interpret import interpret
from weft.ir.node import buffer
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.passes.legalize import legalize
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize
from weft.strategies import choose
from weft.strategies.threads.choose import choose_for_threads
from weft.target import SIMT


def interpreted(nodes, level, device):
    """Run the kernels of a graph one by one in an interpreter; return the nodes' arrays."""
    import oracle

    arrays = {}
    for step in kernelize(nodes):
        operands = []
        for node in step.inputs:
            if node.op is Op.BUFFER and node not in arrays:
                held = node.attr
                arrays[node] = oracle.array_of(held.buffer, held.dtype, (held.size,)).copy()
            operands.append(arrays[node])
        for node in step.outputs:
            arrays[node] = np.zeros(node.shape, node.dtype.numpy)
            operands.append(arrays[node])
        operands += [np.zeros(int(m.size.attr), m.dtype.numpy) for m in step.scratch]
        kernel = step.kernel
        if level == "nest":
            interpret.run(kernel, operands)
            continue
        target = context(device.name).target
        kernel = (choose_for_threads if target.style == SIMT else choose)(kernel, target, 2)
        if level == "scheduled":
            interpret.run(kernel, operands)
        else:
            flat = vectorize(legalize(kernel, target))
            interpret.run_linear(linearize(flat), operands)
    return [arrays[n] for n in nodes]


def leaf(device, d, *shape, rng, values=random):
    return device.leaf(values(d, shape, rng))


def chain(device, rng):
    x, y = (leaf(device, dt.float32, 5, 13, rng=rng) for _ in range(2))
    return el(Op.MAX, el(Op.SUB, el(Op.MUL, x, y), x), el(Op.ABS, y)), el(Op.LT, x, y)


def halves(device, rng):
    x, y = (leaf(device, dt.bfloat16, 67, rng=rng) for _ in range(2))
    return el(Op.ADD, el(Op.MUL, x, y), y), infer.cast(el(Op.SUB, x, y), dt.int8)


def integers(device, rng):
    x, y = (leaf(device, dt.int32, 33, rng=rng) for _ in range(2))
    return tuple(el(op, x, y) for op in (Op.FLOORDIV, Op.MOD, Op.SHR, Op.POW, Op.MULHI, Op.FMOD))


def movement(device, rng):
    x = leaf(device, dt.int16, 5, 7, rng=rng)
    seen = infer.window(infer.pad(x, (1, 0), (1, 2), 9), 0, 3, 2)
    turned = infer.permute(infer.slice_(x, (4, 6), (5, 4), (-1, -2)), (1, 0))
    return infer.contiguous(seen), infer.contiguous(infer.reshape(turned, (20,)))


def sums(device, rng):
    x = leaf(device, dt.int64, 3, 17, 5, rng=rng)
    y = leaf(device, dt.float32, 7, 35, rng=rng)
    return (infer.reduce(x, "sum", (1,)), infer.reduce(x, "min", (0, 2)),
            infer.reduce(y, "max", (1,)), infer.argreduce(y, "min", 0))  # fmt: skip


def orders(device, rng):
    x = leaf(device, dt.float32, 4, 9, rng=rng)
    whole = infer.cast(x, dt.int32)
    return (*infer.sort(x, 1), infer.scan(x, "max", 0), infer.scan(whole, "sum", 1))


def indices(device, rng):
    x = leaf(device, dt.float32, 6, 5, rng=rng)
    index = device.leaf(rng.integers(0, 6, (4, 5)))
    return (infer.gather(x, index, 0),
            infer.scatter(x, index, infer.gather(x, index, 0), 0, "add"))  # fmt: skip


EXACT = (chain, halves, integers, movement, sums, orders, indices)


@pytest.mark.parametrize("level", ["nest", "scheduled", "linear"])
@pytest.mark.parametrize("program", EXACT, ids=lambda f: f.__name__)
def test_exact_kernels(program, level, device, rng):
    nodes = program(device, rng)
    others = interpreted(nodes, level, device)
    for native, other in zip(device.compute(*nodes), others, strict=True):
        assert_same(native, other)


FLOATING = {
    "softmax": lambda x, w: graphs.softmax(x),
    "layer_norm": lambda x, w: graphs.layer_norm(x),
    "matmul": graphs.matmul,
    "sum": lambda x, w: infer.reduce(x, "sum", (0, 1)),
    "sines": lambda x, w: el(Op.SIN, el(Op.EXP, x)),
}


@pytest.mark.parametrize("name", FLOATING)
def test_float_kernels(name, device, rng):
    """The scheduled nest says in which order a sum is taken: native code follows it to the bit."""
    x, w = (leaf(device, dt.float32, *shape, rng=rng, values=calm) for shape in ((7, 33), (33, 5)))
    node = FLOATING[name](x, w)
    (native,) = device.compute(node)
    (nest,), (linear,) = (interpreted([node], level, device) for level in ("nest", "linear"))
    np.testing.assert_allclose(native, nest, rtol=1e-5, atol=1e-5)
    assert_same(native, linear)


def test_what_is_recorded_is_what_runs(device, rng):
    """The artifacts that explain shows are the kernels of the plan."""
    x = leaf(device, dt.int32, 19, rng=rng)
    with counters.record() as recording:
        (native,) = device.compute(el(Op.MUL, x, x))
    (built,) = recording.built
    out = np.zeros(19, np.int32)
    interpret.run_linear(built.linear, [device.value(buffer(x.attr)), out])
    assert_same(native, out)
