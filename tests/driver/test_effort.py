"""How much work a kernel is to compile: passes are counted, and there are few of them."""

import pytest

import graphs
from graphs import el, leaf
from weft.driver import pipeline
from weft.driver.context import host_context
from weft.ir import infer
from weft.ir.op import Op
from weft.kernelize.build import kernelize

MOST_PASSES = 10


def pooled(x):
    """Return the sum over windows of 2 along the last two axes, and its maximum."""
    windows = infer.window(infer.window(x, 2, 2, 2), 3, 2, 2)
    return [infer.reduce(el(Op.EXP, windows), "max", (4, 5))]


CASES = {
    "chain": lambda: [el(Op.EXP, el(Op.ADD, leaf(7, 9), leaf(7, 9)))],
    "softmax": lambda: [graphs.softmax(leaf(4, 5, 6))],
    "layer norm": lambda: [graphs.layer_norm(leaf(2, 3, 16))],
    "layer norm backward": lambda: list(
        graphs.layer_norm_backward(leaf(5, 7), leaf(7), leaf(5, 7))),
    "matmul": lambda: [el(Op.TANH, graphs.matmul(leaf(33, 17), leaf(17, 65)))],
    "convolution": lambda: [graphs.conv2d(leaf(2, 3, 9, 9), leaf(8, 3, 3, 3))],
    "pooling": lambda: pooled(leaf(2, 4, 12, 12)),
    "sort": lambda: list(infer.sort(leaf(3, 9), 1)),
    "scan": lambda: [infer.scan(leaf(5, 7), "sum", 0)],
    "attention": lambda: [graphs.matmul(
        graphs.softmax(graphs.matmul(leaf(9, 4), infer.permute(leaf(6, 4), (1, 0)))), leaf(6, 4))],
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_passes_over_a_kernel_are_few(name):
    for step in kernelize(CASES[name]()):
        effort = pipeline.build(step.kernel, "kernel", host_context()).effort
        assert step.lowering.passes >= 1
        assert effort.passes >= 4
        assert step.lowering.passes + effort.passes <= MOST_PASSES
        assert min(step.lowering.milliseconds, effort.python, effort.llvm) > 0


def test_passes_do_not_grow_with_the_kernel():
    """No stage repeats itself until nothing changes."""
    x = y = leaf(8)
    counts = set()
    for _ in range(3):
        for _ in range(100):
            y = el(Op.ADD, el(Op.MUL, y, x), x)
        (step,) = kernelize([y])[:1]
        built = pipeline.build(step.kernel, "kernel", host_context())
        counts.add(step.lowering.passes + built.effort.passes)
    assert len(counts) == 1
