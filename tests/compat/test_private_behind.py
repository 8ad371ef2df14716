"""Arrays of a thread that a branch or a loop makes and that are read behind it."""

from typing import Any

import numpy as np
import pytest

import weft
from weft.compat import cuda, float32

PAIR = np.dtype([("a", np.float32), ("hit", np.bool_)])


@cuda.jit
def in_a_branch_of_a_loop(x, out):
    t = cuda.grid(1)
    for i in range(x.shape[1]):
        if x[t, i] > 0:
            a = cuda.local.array(1, float32)
            a[0] = x[t, i]
    out[t] = a[0]


@cuda.jit
def in_two_branches(x, out):
    t = cuda.grid(1)
    if x[t, 0] > 0:
        a = cuda.local.array(2, float32)
        a[0] = x[t, 0]
    else:
        a = cuda.local.array(2, float32)
        a[0] = -7
    for k in range(2):
        a[0] += k
    out[t] = a[0]


@cuda.jit
def in_a_loop(x, out):
    t = cuda.grid(1)
    for i in range(x.shape[1]):
        a = cuda.local.array((1, 2), float32)
        a[0, 1] = x[t, i]
    out[t] = a[0, 1]


@cuda.jit
def of_records(x, out):
    t = cuda.grid(1)
    for i in range(x.shape[1]):
        if x[t, i] > 0:
            ray = cuda.local.array(shape=(1), dtype=PAIR)
            ray[0]["a"] = x[t, i]
            ray[0]["hit"] = False
            for k in range(i):
                if x[t, k] > x[t, i]:
                    ray[0]["hit"] = True
    out[t] = ray[0]["a"] + (100 if ray[0]["hit"] else 0)


@cuda.jit(device=True)
def largest(row):
    top = row[0]
    for i in range(row.shape[0]):
        if row[i] >= top:
            best = cuda.local.array(1, float32)
            best[0] = top = row[i]
    return best[0]


@cuda.jit
def in_a_function(x, out):
    t = cuda.grid(1)
    out[t] = largest(x[t]) - largest(x[t, 1:])


def last(row: Any) -> Any:
    return row[row > 0][-1]


def of_record(row: Any) -> Any:
    i = np.flatnonzero(row > 0)[-1]
    return row[i] + (100 if (row[:i] > row[i]).any() else 0)


EXPECTED = {
    in_a_branch_of_a_loop: last,
    in_two_branches: lambda row: (row[0] if row[0] > 0 else -7) + np.float32(1),
    in_a_loop: lambda row: row[-1],
    of_records: of_record,
    in_a_function: lambda row: row.max() - row[1:].max(),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kernel", EXPECTED, ids=lambda k: k.__name__)
def test_arrays_of_a_thread_outlive_their_body(kernel: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(37, 5)).astype(np.float32)
    x[:, 1] = abs(x[:, 1])
    expected = np.array([EXPECTED[kernel](row) for row in x])
    out = np.zeros(37, np.float32)
    kernel[1, 37](x, out)
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    out[:] = 0
    assert not weft.sanitize(kernel, 1, 37)(x, out).findings
    np.testing.assert_allclose(out, expected, rtol=1e-6)
