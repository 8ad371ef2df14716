"""Loops in one another that become one loop: which, and that their results stay."""

import numpy as np
import pytest
from nests import F32, I64, kernel, loop, memory, var, vector

from seeds import seeds
from weft.ir import expr as ex
from weft.ir.interpret.interpret import run, run_linear
from weft.ir.linear import Compute, Loop
from weft.ir.stmt import Load, Store
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize

ROW, J, K, LANE = (var(name) for name in "ijkl")
X, Y = ex.var("x", F32), ex.var("y", F32)


def copies(columns, depth, value=X):
    """Return b[i, j, k, l] = a value of a[i, j, k, l], l in vectors of 4 of `columns` elements."""
    a, b = memory("a", 3, 5, 2, columns), memory("b", 3, 5, 2, columns)
    at = (ROW, J, K, LANE)
    body = vector(LANE, 4, Load(X, a, at), Store(b, at, value))
    for v, n in ((K, 2), (J, 5), (ROW, 3))[:depth]:
        body = loop(v, n, body)
    return a, b, body


def turns(made):
    """Return how often each loop of a list turns."""
    numbers = {i.result.id: i.attr for i in made.code if isinstance(i, Compute)}
    return [numbers[i.extent.id] for i in made.code if isinstance(i, Loop)]


@pytest.mark.parametrize(("columns", "value", "expected"), [
    (4, X, [30]),
    (5, X, [30]),  # every row has the same gap behind it
    (4, X + ex.cast(K, F32), [15, 2]),  # which row it is counts
    (4, X + ex.cast(ROW, F32), [3, 10]),
    (4, X + ex.cast(J, F32), [3, 5, 2]),
])  # fmt: skip
@pytest.mark.parametrize("seed", seeds(1))
def test_loops_over_one_run_are_one_loop(columns, value, expected, seed):
    a, b, body = copies(columns, 3, value)
    nest = kernel([a, b], body)
    made = linearize(vectorize(nest))
    assert turns(made) == expected
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((3, 5, 2, columns), np.float32) for _ in "ab"]
    wanted = [array.copy() for array in arrays]
    run(nest, wanted)
    run_linear(made, arrays)
    np.testing.assert_array_equal(arrays[1], wanted[1])


@pytest.mark.parametrize("seed", seeds(1))
def test_loops_across_a_run_stay(seed):
    a, b = memory("a", 3, 5), memory("b", 5, 3)
    nest = kernel([a, b], loop(ROW, 3, loop(J, 5, Load(X, a, (ROW, J)), Store(b, (J, ROW), X))))
    made = linearize(vectorize(nest))
    assert turns(made) == [3, 5]
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((3, 5), np.float32), np.zeros((5, 3), np.float32)]
    run_linear(made, arrays)
    np.testing.assert_array_equal(arrays[1], arrays[0].T)


def test_loops_that_clamp_or_wrap_stay():
    a, b = memory("a", 15), memory("b", 3, 5)
    wrapped = (ROW * 5 + J + 1) % 15
    nest = kernel([a, b], loop(ROW, 3, loop(J, 5, Load(X, a, (wrapped,)), Store(b, (ROW, J), X))))
    made = linearize(vectorize(nest))
    assert turns(made) == [3, 5]


def test_an_index_that_is_stored_counts():
    a = memory("a", 15, dtype=I64)
    nest = kernel([a], loop(ROW, 3, loop(J, 5, Store(a, (ROW * 5 + J,), ROW * 5 + J))))
    arrays = [np.zeros(15, np.int64)]
    run_linear(linearize(vectorize(nest)), arrays)
    np.testing.assert_array_equal(arrays[0], np.arange(15))


def test_a_loop_of_one_turn_is_none():
    a, b = memory("a", 4, 7), memory("b", 4, 7)
    nest = kernel([a, b], loop(ROW, 1, loop(J, 7, Load(X, a, (ROW + 2, J)), Store(b, (ROW, J), X))))
    made = linearize(vectorize(nest))
    assert turns(made) == [7]
    arrays = [np.arange(28, dtype=np.float32).reshape(4, 7), np.zeros((4, 7), np.float32)]
    run_linear(made, arrays)
    np.testing.assert_array_equal(arrays[1][0], arrays[0][2])


def test_variables_of_other_loops_of_a_name_count_again():
    """After the joined loops their variables are those of other loops."""
    a, b = memory("a", 3, 4), memory("b", 4, 3)
    nest = kernel(
        [a, b],
        loop(ROW, 3, loop(J, 4, Store(a, (ROW, J), ex.const(2.0, F32)))),
        loop(ROW, 3, loop(J, 4, Load(Y, a, (ROW, J)), Store(b, (J, ROW), Y + ex.cast(ROW, F32)))),
    )
    made = linearize(vectorize(nest))
    assert turns(made) == [12, 3, 4]
    arrays = [np.zeros((3, 4), np.float32), np.zeros((4, 3), np.float32)]
    run_linear(made, arrays)
    np.testing.assert_array_equal(arrays[1], np.tile(np.arange(3, dtype=np.float32) + 2, (4, 1)))
