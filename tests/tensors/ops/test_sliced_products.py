"""Gradients of products of which a slice leaves rows out: what is infinite there stays there."""

import numpy as np
import pytest

import weft
from seeds import seeds

pytestmark = pytest.mark.usefixtures("compiled")
SLICES = [slice(None, None, 2), slice(1, None), slice(None, -1), slice(1, None, 3),
          slice(None, None, -3)]  # fmt: skip


def whole_numbers(random, *shape):
    """Small numbers, of which all sums are exact."""
    return random.integers(-4, 5, shape).astype(np.float32)


@pytest.mark.grid
@pytest.mark.parametrize("taken", SLICES, ids=str)
@pytest.mark.parametrize("seed", seeds(3))
def test_rows_that_are_taken_have_the_gradients_of_float64(taken, seed):
    random = np.random.default_rng(seed)
    rows, terms, columns = (int(n) for n in random.integers(4, 70, 3))
    x, w = whole_numbers(random, rows, terms), whole_numbers(random, terms, columns)
    term, column = int(random.integers(terms)), int(random.integers(columns))
    w[term, column] = np.inf
    by_x = weft.grad(lambda v: (v @ weft.tensor(w))[taken].sum())(weft.tensor(x)).numpy()
    kept = np.zeros(rows, bool)
    kept[taken] = True
    np.testing.assert_array_equal(by_x[kept], np.broadcast_to(w.sum(1), (kept.sum(), terms)))
    left = by_x[~kept]
    assert ((left == 0) | np.isnan(left)).all()
    assert (np.delete(left, term, axis=1) == 0).all()

    w[term, column] = 1
    at = int(random.choice(np.flatnonzero(~kept)))
    x[at, term] = np.inf
    by_w = weft.grad(lambda v: (weft.tensor(x) @ v)[taken].sum())(weft.tensor(w)).numpy()
    want = np.broadcast_to(x[kept].sum(0)[:, None], (terms, columns))
    others = np.arange(terms) != term
    np.testing.assert_array_equal(by_w[others], want[others])
    assert ((by_w[term] == want[term]) | np.isnan(by_w[term])).all()
