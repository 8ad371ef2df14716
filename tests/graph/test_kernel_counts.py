"""How many kernels gradients take: fusion sees what simplification prepares for it."""

import compositions as c
import pytest

from weft.graph.autodiff import gradients
from weft.graph.simplify import simplify
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op
from weft.kernelize.build import kernelize


def leaf(*shape):
    size = 1
    for d in shape:
        size *= d
    return infer.reshape(nd.buffer(nd.Storage(dt.float32, size)), shape)


def steps_of(build, *shapes):
    """The kernels of the gradients, given the inputs and the gradient of the output."""
    leaves = [leaf(*s) for s in shapes]
    output = build(*leaves)
    found = gradients([output], [leaf(*output.shape)], leaves)
    return kernelize(simplify(found))


COUNTS = {
    "softmax": (1, c.softmax, [(64, 256)]),
    "softmax_middle": (1, lambda x: c.softmax(x, 1), [(8, 64, 25)]),
    "log_softmax": (1, c.log_softmax, [(64, 256)]),
    "layer_norm": (2, c.layer_norm, [(64, 256), (256,), (256,)]),
    "batch_norm": (2, c.batch_norm, [(8, 16, 10, 10), (16,), (16,)]),
    "matmul": (2, c.matmul, [(64, 32), (32, 48)]),
    "convolution": (2, lambda x, w: c.conv2d(x, w, 1, 1), [(8, 3, 10, 10), (16, 3, 3, 3)]),
    "max_pool": (2, lambda x: c.max_pool(x, 2, 2), [(8, 3, 10, 10)]),
    "max_pool_overlap": (2, lambda x: c.max_pool(x, 3, 2), [(8, 3, 11, 11)]),
    "average_pool": (1, lambda x: c.average_pool(x, 2, 2), [(8, 3, 10, 10)]),
    "gelu": (1, c.gelu, [(1000,)]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_kernels_of_gradients(name):
    most, build, shapes = COUNTS[name]
    assert len(steps_of(build, *shapes)) <= most


def test_the_gradient_of_a_tied_table_is_summed_where_the_product_stored_it():
    ids, table = infer.cast(leaf(4), dt.int64), leaf(9, 6)
    places = infer.expand(infer.reshape(ids, (4, 1)), (4, 6))
    logits = c.matmul(infer.gather(table, places, 0), infer.permute(table, (1, 0)))
    (found,) = gradients([logits], [leaf(4, 9)], [table])
    kinds = [s.kernel.meta.kind for s in kernelize(simplify([found]))]
    assert kinds.count("scatter") == 1
    assert kinds[-1] == "scatter"
    assert found.op is Op.SCATTER


def test_gradients_of_parts_of_a_product_are_plain_products():
    """The parts' gradients are put together in the order in which the products read them."""
    x, w = leaf(6, 24), leaf(24, 3 * 2 * 16)
    parts = infer.permute(infer.reshape(c.matmul(x, w), (6, 3, 2, 16)), (1, 2, 0, 3))
    q, k, v = (infer.reshape(infer.slice_(parts, (i, 0, 0, 0), (1, 2, 6, 16), (1, 1, 1, 1)),
                             (2, 6, 16)) for i in range(3))
    output = c.e(Op.MUL, c.e(Op.EXP, q), c.e(Op.MUL, k, v))
    found = gradients([output], [leaf(2, 6, 16)], [x, w])
    products = [s.kernel for s in kernelize(simplify(found)) if s.kernel.meta.kind == "contraction"]
    assert len(products) == 3  # one makes q, k and v
    assert all(len(p.shape) == 2 for kernel in products[1:] for p in kernel.params)


@pytest.mark.parametrize("name", ["matmul", "convolution"])
def test_gradients_of_contractions_are_contractions(name):
    _, build, shapes = COUNTS[name]
    assert [s.kernel.meta.kind for s in steps_of(build, *shapes)] == ["contraction"] * 2
