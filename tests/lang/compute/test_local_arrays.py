"""Local arrays in loops that the compiler maps: one for each turn, unless turns share it."""

import numpy as np
import pytest

import weft
from weft import gpu

TABLE = np.array([[1, 2], [3, 4]])


def helper(v):
    t = gpu.local.array(2, weft.float64)
    t[0] = v
    t[1] = v * 2
    return t


@weft.compute
def of_a_turn(x, out):
    for i in weft.ndrange(x.shape[0]):
        c = gpu.local.array((3, 2), weft.float64)
        for j in range(3):
            c[j, 0] = x[i] * j
            c[j, 1] = i
        s = 0.0
        for j in range(3):
            s += c[2 - j, 0] * (j + 1) + c[j, 1]
        out[i] = s


@weft.compute
def of_all_turns(x, out):
    c = gpu.local.array(3, weft.float64)
    for j in range(3):
        c[j] = 0
    for i in range(x.shape[0]):
        c[i % 3] += x[i]
    for i in range(x.shape[0]):
        out[i] = c[i % 3]


@weft.compute
def carried(x, out):
    for i in range(x.shape[0]):
        if i == 0:
            c = gpu.local.array(3, weft.float64)
            c[0] = 1
        c[0] += x[i]
        out[i] = c[0]


@weft.compute
def of_a_function(x, out):
    for i in range(x.shape[0]):
        t = helper(x[i])
        if x[i] > 0.5:
            for j in range(2):
                out[i] += t[j]
        else:
            out[i] = -t[1]


@weft.compute
def read_behind(x, out):
    for i in range(x.shape[0]):
        t = gpu.local.array(2, weft.float64)
        t[i % 2] = x[i]
    for i in range(x.shape[0]):
        out[i] = t[(x.shape[0] - 1) % 2]


@weft.compute
def of_a_constant(x, out):
    for i in range(x.shape[0]):
        c = TABLE.copy()
        c[0, 1] += i
        out[i] = c[0, 1] * x[i] + c[1, 1] + TABLE[0, 1]


def places(x):
    return np.arange(len(x))


CASES = {
    of_a_turn: lambda x: 4 * x + 3 * places(x),
    of_all_turns: lambda x: np.array([x[j::3].sum() for j in range(3)])[places(x) % 3],
    carried: lambda x: 1 + np.cumsum(x),
    of_a_function: lambda x: np.where(x > 0.5, 3 * x, -2 * x),
    read_behind: lambda x: np.full_like(x, x[-1]),
    of_a_constant: lambda x: (2 + places(x)) * x + 6,
}


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 5, 100_003])
def test_values(function, n, rng):
    x = rng.random(n)
    for array in (np.asarray, weft.tensor):
        out = array(np.zeros(n))
        function(array(x), out)
        np.testing.assert_allclose(np.asarray(out), CASES[function](x), rtol=1e-9)


def test_turns_with_arrays_of_their_own_run_at_the_same_time():
    x = np.zeros(100_000)
    assert "for i: parallel, vector" in str(of_a_turn.explain(x, x.copy()))
