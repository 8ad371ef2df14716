"""A matrix product: a block loads tiles of both matrices into shared memory and reuses them."""

import numpy as np

import weft
from weft import gpu

TILE = 16


@weft.kernel
def matmul(a, b, c):
    left = gpu.shared.array((TILE, TILE), weft.float32)
    right = gpu.shared.array((TILE, TILE), weft.float32)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    j, i = gpu.grid(2)

    total = weft.float32(0)
    for k in range(0, a.shape[1], TILE):
        left[ty, tx] = a[i, k + tx] if i < a.shape[0] and k + tx < a.shape[1] else 0
        right[ty, tx] = b[k + ty, j] if k + ty < b.shape[0] and j < b.shape[1] else 0
        gpu.syncthreads()  # the tiles are there
        for m in range(TILE):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()  # nobody reads them any more
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    grid = weft.cdiv(c.shape[1], TILE), weft.cdiv(c.shape[0], TILE)
    matmul[grid, (TILE, TILE)](a, b, c)
    return c


def check(n: int = 211) -> str:
    rng = np.random.default_rng(n)
    a = rng.random((n, n + 3), np.float32)
    b = rng.random((n + 3, n + 6), np.float32)
    np.testing.assert_allclose(product(a, b), a.astype(np.float64) @ b, rtol=1e-5)
    return f"({n}, {n + 3}) @ ({n + 3}, {n + 6})"


def sides(n: int = 211):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    a, b = np.random.default_rng(n).random((2, n, n), np.float32)
    return lambda: product(a, b), lambda: a @ b


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
