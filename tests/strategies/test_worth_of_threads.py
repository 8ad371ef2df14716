"""From which size on threads share what takes long: functions, elements looked up, running sums."""

import pytest

from weft import strategies
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.op import Op
from weft.ir.stmt import PARALLEL, For
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize


def leaf(kind, rows, columns):
    return infer.reshape(nd.buffer(nd.Storage(kind, rows * columns)), (rows, columns))


def is_shared(node, threads=2):
    """Return whether threads share a loop of the kernel of a node."""
    (step,) = kernelize([node], cpu.host_target())
    made = strategies.choose(step.kernel, cpu.host_target(), threads)
    return any(isinstance(s, For) and s.kind == PARALLEL for s in walk(made.body))


@pytest.mark.parametrize("op", [Op.SIN, Op.COS, Op.TAN, Op.ERFC])
@pytest.mark.parametrize(("kind", "elements", "shared"), [
    (dt.float32, 7_000, False), (dt.float32, 13_000, True),
    (dt.float64, 3_500, False), (dt.float64, 7_000, True),
])  # fmt: skip
def test_functions_that_take_long_are_shared_earlier(op, kind, elements, shared):
    assert is_shared(infer.elementwise(op, leaf(kind, 1, elements))) == shared
    assert not is_shared(infer.elementwise(op, leaf(kind, 1, elements)), threads=1)


@pytest.mark.parametrize(("kind", "elements", "shared"), [
    (dt.float32, 13_000, False), (dt.float32, 18_000, True),
    (dt.float64, 7_000, False), (dt.float64, 13_000, True),
])  # fmt: skip
def test_vectors_of_float64_have_half_the_lanes(kind, elements, shared):
    assert is_shared(infer.elementwise(Op.EXP, leaf(kind, 1, elements))) == shared


@pytest.mark.parametrize(("rows", "width", "count", "shared"), [
    (300, 46, 32, False), (700, 46, 32, True), (919, 64, 40, True),
])  # fmt: skip
def test_few_elements_that_are_looked_up_are_shared(rows, width, count, shared):
    found = infer.gather(leaf(dt.float32, rows, width), leaf(dt.int64, rows, count), 1, "gather")
    assert is_shared(found) == shared


@pytest.mark.parametrize(("rows", "shared"), [(500, False), (3_017, True)])
def test_running_sums_of_short_rows_are_shared(rows, shared):
    assert is_shared(infer.scan(leaf(dt.float32, rows, 11), "sum", 1)) == shared


def test_running_sums_in_lanes_of_columns_are_not():
    """Lanes of columns do not wait for one another: so few elements take one thread less."""
    assert not is_shared(infer.scan(leaf(dt.float32, 300, 100), "sum", 0))
