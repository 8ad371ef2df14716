"""A sparse matrix (CSR) times a vector: a warp takes a row and adds by shuffles."""

import numpy as np

import weft
from weft import gpu

WARPS = 4


@weft.func
def warp_sum(value):
    for step in (16, 8, 4, 2, 1):
        value += gpu.shfl_down_sync(gpu.ALL, value, step)
    return value  # in the first thread


@weft.kernel
def multiply(starts, columns, values, x, y):
    row = gpu.blockIdx.x * WARPS + gpu.threadIdx.x // 32
    if row >= y.size:  # a whole warp
        return
    total = 0.0
    for k in range(starts[row] + gpu.laneid, starts[row + 1], 32):
        total += values[k] * x[columns[k]]
    total = warp_sum(total)
    if gpu.laneid == 0:
        y[row] = total


def matrix(n: int) -> tuple[np.ndarray, ...]:
    """Return a sparse matrix (where its rows start, columns, values) and a vector."""
    rng = np.random.default_rng(n)
    lengths = rng.integers(0, min(n, 90) + 1, n)  # some rows are empty
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = rng.integers(0, n, starts[-1], np.int32)
    return starts, columns, rng.random(starts[-1]), rng.random(n)


def product(starts: np.ndarray, columns: np.ndarray, values: np.ndarray,
            x: np.ndarray) -> np.ndarray:  # fmt: skip
    y = np.zeros(starts.size - 1)
    multiply[weft.cdiv(y.size, WARPS), WARPS * 32](starts, columns, values, x, y)
    return y


def check(n: int = 2003) -> str:
    starts, columns, values, x = matrix(n)
    expected = np.zeros(n)
    np.add.at(expected, np.repeat(np.arange(n), np.diff(starts)), values * x[columns])
    np.testing.assert_allclose(product(starts, columns, values, x), expected, rtol=1e-12)
    return f"{n} rows with {starts[-1]} elements that are not zero"


def sides(n: int = 2003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    starts, columns, values, x = matrix(n)
    rows = np.repeat(np.arange(n), np.diff(starts))  # NumPy takes coordinates

    def by_numpy() -> np.ndarray:
        return np.bincount(rows, values * x[columns], n)

    return lambda: product(starts, columns, values, x), by_numpy


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
