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


def check(n: int = 2003) -> str:
    rng = np.random.default_rng(n)
    lengths = rng.integers(0, min(n, 90) + 1, n)  # some rows are empty
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns = rng.integers(0, n, starts[-1], np.int32)
    values, x, y = rng.random(starts[-1]), rng.random(n), np.zeros(n)
    multiply[weft.cdiv(n, WARPS), WARPS * 32](starts, columns, values, x, y)
    expected = np.zeros(n)
    np.add.at(expected, np.repeat(np.arange(n), lengths), values * x[columns])
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    return f"{n} rows with {starts[-1]} elements that are not zero"


if __name__ == "__main__":
    print(check())
