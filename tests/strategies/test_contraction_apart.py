"""Products of a matrix with itself take the form that those of two matrices take."""

import ml_dtypes
import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_costs import Cost
from weft.driver import counters
from weft.errors import ScheduleError
from weft.ir.traverse import stores
from weft.schedule import Schedule

PRODUCTS = {
    "gram": lambda a, b: a.T @ b, "rows": lambda a, b: a @ b.T,
    "einsum": lambda a, b: weft.einsum("ki,kj->ij", a, b),
}
SHAPES = [(96, 130), (300, 257), (700, 65), (40, 24)]
TYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16,
         "float16": np.float16, "int8": np.int8}


def ran(fn, *arrays):
    """Return what a function gave, and what its kernels cost as they are scheduled."""
    with counters.record() as record:
        result = weft.jit(fn)(*map(weft.tensor, arrays)).numpy()
    return result, [Cost(built.scheduled) for built in record.built]


def plain(costs):
    """Return what does not depend on the names of operands."""
    return [(c.form, c.products, c.computed, c.shares, sum(c.read.values()),
             sorted(c.written.values()), sorted(c.private.values())) for c in costs]


def numbers(shape, kind, rng):
    if kind == "int8":
        return rng.integers(-8, 8, shape).astype(np.int8)
    return rng.integers(-4, 5, shape).astype(TYPES[kind])  # sums are exact


@pytest.mark.grid
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("product", ["gram", "rows", "einsum"])
def test_the_form_is_that_of_two_matrices(product, shape, kind, request):
    a = numbers(shape, kind, np.random.default_rng([*request.node.name.encode()]))
    fn = PRODUCTS[product]
    got, one = ran(lambda a: fn(a, a), a)
    want, two = ran(fn, a, a.copy())
    np.testing.assert_array_equal(got, want)
    assert plain(one) == plain(two)
    exact = a.astype(np.float64)
    sums = exact @ exact.T if product == "rows" else exact.T @ exact
    if kind == "int8":
        sums = (sums.astype(np.int64)).astype(got.dtype)
    np.testing.assert_array_equal(got.astype(np.float64),
                                  sums.astype(got.dtype).astype(np.float64))


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 70, 3, 32), (1, 130, 2, 64)])
def test_slices_of_one_array_are_two_operands(shape, kind, request):
    n, rows, heads, size = shape
    rng = np.random.default_rng([*request.node.name.encode()])
    qkv = numbers((n, rows, 3, heads, size), kind, rng)

    def scores(q, k):
        return q.permute(0, 2, 1, 3) @ k.permute(0, 2, 3, 1)

    got, one = ran(lambda x: scores(x[:, :, 0], x[:, :, 1]), qkv)
    exact = qkv.astype(np.float64)
    want = np.einsum("nihd,njhd->nhij", exact[:, :, 0], exact[:, :, 1])
    np.testing.assert_array_equal(got.astype(np.float64),
                                  want.astype(got.dtype).astype(np.float64))
    assert one[0].form


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("n", [24, 150, 300])
def test_what_is_added_is_no_operand(n, kind, request):
    a = numbers((n, n), kind, np.random.default_rng([*request.node.name.encode()]))
    got, one = ran(lambda a: a.T @ a + a * a.T, a)
    np.testing.assert_array_equal(got, a.T @ a + a * a.T)
    assert one[0].form


def test_loops_that_read_one_array_twice():
    @weft.compute
    def gram(a, c):
        for i in range(a.shape[1]):
            for j in range(a.shape[1]):
                total = np.float32(0)
                for k in range(a.shape[0]):
                    total += a[k, i] * a[k, j]
                c[i, j] = total

    a = numbers((140, 90), "float32", np.random.default_rng(5))
    c = np.zeros((90, 90), np.float32)
    gram(a, c)
    np.testing.assert_array_equal(c, a.T @ a)
    assert "contraction: " in gram.explain(a, c).why


def test_what_is_written_keeps_its_name():
    kernel = nests.matmul(4, 8, 4)
    with pytest.raises(ScheduleError, match="which the kernel allocates or writes"):
        Schedule(kernel).alias(next(iter(stores(kernel.body))).name, "x")
    with pytest.raises(ScheduleError, match="found loads zz of a"):
        Schedule(kernel).alias("a", "zz")
    assert Schedule(kernel).unite().kernel.params == kernel.params
