"""Symbolic sizes: spelling, division, comparison, values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import DTypeError, ShapeError, UnsupportedError
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir import node as nd
from weft.ir.size import canonical, evaluate, exact_quotient, span_of

N, M = ex.Variable("n", 1, 100), ex.Variable("m", 2, 50)


def test_equal_sizes_have_one_spelling():
    assert canonical(8 * N) is canonical(N * 8) is canonical(N * 2 * 4) is canonical(N * 9 - N)
    assert canonical(N * M + M) is canonical(M * (1 + N))
    assert canonical(N - N) == 0
    assert canonical((N + 1) * (N - 1) - N * N) == -1
    assert canonical((N * 2 + N) // 2) is canonical((3 * N) // 2)
    assert infer.same_dim(N * M, M * N)
    assert not infer.same_dim(N, M)
    assert nd.size((N, 2, M)) is canonical(2 * M * N)


def polynomials():
    return st.lists(st.tuples(st.integers(-4, 4), st.integers(0, 2), st.integers(0, 2)),
                    min_size=1, max_size=4)  # fmt: skip


def built(terms):
    total = ex.index(0)
    for c, a, b in terms:
        term = ex.index(c)
        for v in [N] * a + [M] * b:
            term = term * v
        total = total + term
    return total


@given(polynomials(), polynomials())
def test_division_undoes_multiplication(p, q):
    a, b = built(p), built(q)
    if canonical(b) == 0:
        return
    assert exact_quotient(a * b, b) is canonical(a) or exact_quotient(a * b, b) == canonical(a)
    assert exact_quotient(a * b * M + 1, M) is None


@given(polynomials(), st.integers(1, 100), st.integers(2, 50))
def test_values_and_ranges(p, n, m):
    size = built(p)
    wanted = sum(c * n**a * m**b for c, a, b in p)
    values = {"n": n, "m": m}
    assert evaluate(size, values) == evaluate(canonical(size), values) == wanted
    low, high = span_of(size)
    assert low <= wanted <= high


def test_comparisons_hold_for_every_value_or_raise():
    assert N > 0
    assert N - 1 < N
    assert -N <= -1
    assert N * M >= 2
    assert not N > 100
    assert N
    assert not (N - N)
    for undecided in (lambda: N > 5, lambda: N < M, lambda: bool(N - 1), lambda: N <= 99):
        with pytest.raises(UnsupportedError, match="not every size decides"):
            undecided()
    for wanted in (int, float, range, list):
        with pytest.raises(UnsupportedError, match="the size n"):
            wanted(N)
    with pytest.raises(DTypeError):
        bool(ex.var("i"))


def test_shapes():
    flat = nd.buffer(nd.Storage(infer.dt.float32, canonical(N * 8)))
    x = infer.reshape(flat, (N, 8))
    assert infer.reshape(x, (2, N * 4)).shape == (2, canonical(4 * N))
    for wrong in ((N, 4), (8,), (M, 8)):
        with pytest.raises(ShapeError):
            infer.reshape(x, wrong)
    with pytest.raises(ShapeError, match="as small as -2"):
        infer.check_shape((N - 3,), "test")
    with pytest.raises(ShapeError, match="up to"):
        infer.check_shape((ex.Variable("k", 1, 1 << 40), 1 << 30), "test")
