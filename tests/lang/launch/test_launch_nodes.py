"""Launches as nodes of a graph: text, verifier, joining, and what they mean."""

import numpy as np
import pytest

import weft
from weft import gpu
from weft.graph.launches import join_launches
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.node import Storage
from weft.ir.op import Op
from weft.ir.text.text_graph import parse_graph, print_graph
from weft.ir.verify.verify_graph import verify_graph


@weft.kernel
def add(x, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] += x[i]


def graph():
    """Return a launch as a node, made by hand."""
    code = ("kernel k kind=custom\nparam x: f32[40]\nparam y: f32[40]\n{\n"
            "  for %block.x in 2 block.x {\n    for %thread.x in 20 thread.x {\n"
            "      $0 = (%block.x * 20) + %thread.x\n      load %v: f32 = x[$0]\n"
            "      store y[$0] = %v\n    }\n  }\n}\n")  # fmt: skip
    x, y = (nd.buffer(Storage(weft.float32, 40)) for _ in range(2))
    return infer.launch(code, "k", [x, y], [1], [1])[0]


def test_text_and_verifier():
    node = graph()
    verify_graph([node])
    text = print_graph([node])
    assert print_graph(parse_graph(text)) == text
    broken = nd.make(Op.PROJECT, node.dtype, node.shape, node.args, 1)
    with pytest.raises(weft.WeftError, match="part 1 of a launch"):
        verify_graph([broken])
    with pytest.raises(weft.ShapeError):
        infer.launch("", "k", node.args[0].args, [2])


def test_joined_graph_verifies():
    first = graph()
    second = infer.launch(first.args[0].attr.code, "k",
                          [first, nd.buffer(Storage(weft.float32, 40))], [1], [1])[0]
    found = join_launches([second])
    verify_graph(found)
    assert sum(n.op is Op.LAUNCH for n in nd.toposort(found)) == 1
    assert len(found[0].args[0].args) == 2  # the array between is gone


def test_a_launch_is_a_function_of_values():
    @weft.jit
    def f(x, y):
        before = y + 0
        add[1, 64](x, y)
        add[1, 64](y, x)
        return before, y + 0, x + 0

    x, y = np.arange(40, dtype=np.float32), np.full(40, 3, np.float32)
    given = weft.tensor(y)
    before, second, third = f(weft.tensor(x), given)
    np.testing.assert_array_equal(before.numpy(), y)
    np.testing.assert_array_equal(second.numpy(), y + x)
    np.testing.assert_array_equal(third.numpy(), x + (y + x))
    np.testing.assert_array_equal(given.numpy(), y + x)
