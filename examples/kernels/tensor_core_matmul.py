"""A matrix product by matrix fragments, as for tensor cores: float16 in, float32 sums.

A warp holds a piece of the result in a fragment and multiplies fragments of 16 × 16; the block
loads the tiles into shared memory, with zeros beyond the edges of the matrices.
"""

import numpy as np

import weft
from weft import gpu

wmma = gpu.wmma
M = N = K = 16  # of a fragment
WARPS = 2  # of a block, one below the other
THREADS = WARPS * 32
ROWS = WARPS * M


@weft.kernel
def matmul(a, b, c):
    left = gpu.shared.array((ROWS, K), weft.float16)
    right = gpu.shared.array((K, N), weft.float16)
    out = gpu.shared.array((ROWS, N), weft.float32)
    t = gpu.threadIdx.x
    mine = (t // 32) * M  # the first row of this warp
    top, edge = gpu.blockIdx.y * ROWS, gpu.blockIdx.x * N

    fa = wmma.fragment(wmma.matrix_a, M, N, K, weft.float16, wmma.row_major)
    fb = wmma.fragment(wmma.matrix_b, M, N, K, weft.float16, wmma.row_major)
    total = wmma.fragment(wmma.accumulator, M, N, K, weft.float32)
    wmma.fill_fragment(total, 0.0)

    for k in range(0, a.shape[1], K):
        for e in range(t, ROWS * K, THREADS):
            i, j = top + e // K, k + e % K
            left[e // K, e % K] = a[i, j] if i < a.shape[0] and j < a.shape[1] else 0
        for e in range(t, K * N, THREADS):
            i, j = k + e // N, edge + e % N
            right[e // N, e % N] = b[i, j] if i < b.shape[0] and j < b.shape[1] else 0
        gpu.syncthreads()  # the tiles are there
        wmma.load_matrix_sync(fa, left[mine:, 0:])
        wmma.load_matrix_sync(fb, right)
        wmma.mma_sync(total, fa, fb, total)
        gpu.syncthreads()  # nobody reads them any more

    wmma.store_matrix_sync(out[mine:, 0:], total)
    gpu.syncthreads()
    for e in range(t, ROWS * N, THREADS):
        i, j = top + e // N, edge + e % N
        if i < c.shape[0] and j < c.shape[1]:
            c[i, j] = out[e // N, e % N]


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    matmul[(weft.cdiv(c.shape[1], N), weft.cdiv(c.shape[0], ROWS)), THREADS](a, b, c)
    return c


def check(n: int = 211) -> str:
    rng = np.random.default_rng(n)
    a = rng.standard_normal((n, n + 3)).astype(np.float16)
    b = rng.standard_normal((n + 3, n + 6)).astype(np.float16)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(product(a, b), expected, rtol=1e-4, atol=1e-4 * n**0.5)
    return f"({n}, {n + 3}) @ ({n + 3}, {n + 6}) of float16, summed in float32"


def sides(n: int = 211):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    a, b = np.random.default_rng(n).standard_normal((2, n, n)).astype(np.float16)
    return lambda: product(a, b), lambda: a.astype(np.float32) @ b.astype(np.float32)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
