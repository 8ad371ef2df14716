"""A transposition: a tile in shared memory lets both the reads and the writes go along rows."""

import numpy as np

import weft
from weft import gpu

TILE = 32
ROWS = 8  # of threads; each moves four elements


@weft.kernel
def transpose(x, out):
    # One column more, so that the elements of a column lie in different banks.
    tile = gpu.shared.array((TILE, TILE + 1), x.dtype)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    j = gpu.blockIdx.x * TILE + tx
    i = gpu.blockIdx.y * TILE + ty
    for k in range(0, TILE, ROWS):
        if i + k < x.shape[0] and j < x.shape[1]:
            tile[ty + k, tx] = x[i + k, j]
    gpu.syncthreads()

    j = gpu.blockIdx.y * TILE + tx  # the blocks change places, too
    i = gpu.blockIdx.x * TILE + ty
    for k in range(0, TILE, ROWS):
        if i + k < out.shape[0] and j < out.shape[1]:
            out[i + k, j] = tile[tx, ty + k]


def transposed(x: np.ndarray) -> np.ndarray:
    out = np.zeros(x.shape[::-1])
    grid = weft.cdiv(x.shape[1], TILE), weft.cdiv(x.shape[0], TILE)
    transpose[grid, (TILE, ROWS)](x, out)
    return out


def check(n: int = 1001) -> str:
    x = np.random.default_rng(n).random((n, n // 2 + 1))
    np.testing.assert_array_equal(transposed(x), x.T)
    return f"a matrix of {x.shape[0]} × {x.shape[1]}"


def sides(n: int = 1001):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    x = np.random.default_rng(n).random((n, n // 2 + 1))
    return lambda: transposed(x), lambda: x.T.copy()


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
