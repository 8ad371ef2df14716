"""The largest element of each row: the 32 threads of a warp pass values to each other.

One warp takes one row. Shuffles need no shared memory and no barrier; the mask says which threads
of the warp take part, and a thread that is named must come.
"""

import numpy as np

import weft
from weft import gpu

WARPS = 4  # of a block


@weft.func
def warp_max(value):
    step = 16
    while step > 0:
        value = max(value, gpu.shfl_xor_sync(gpu.ALL, value, step))
        step //= 2
    return value  # in every thread of the warp


@weft.kernel
def row_max(x, out):
    row = gpu.blockIdx.x * WARPS + gpu.threadIdx.x // gpu.warpsize
    if row >= x.shape[0]:  # the whole warp leaves, or none of it
        return
    best = x[row, 0]
    for j in range(gpu.laneid, x.shape[1], gpu.warpsize):
        best = max(best, x[row, j])
    best = warp_max(best)
    if gpu.laneid == 0:
        out[row] = best


def largest(x: np.ndarray) -> np.ndarray:
    out = np.zeros(len(x), np.float32)
    row_max[weft.cdiv(len(x), WARPS), WARPS * 32](x, out)
    return out


def check(n: int = 1003) -> str:
    x = np.random.default_rng(n).standard_normal((n, 2 * n + 1)).astype(np.float32)
    np.testing.assert_array_equal(largest(x), x.max(axis=1))
    return f"the largest of {x.shape[1]} numbers in each of {n} rows"


def sides(n: int = 1003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    x = np.random.default_rng(n).standard_normal((n, 2 * n + 1)).astype(np.float32)
    return lambda: largest(x), lambda: x.max(axis=1)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
