"""A product of matrices that lie in rows with gaps; two warps take the rows of the left one."""

import numpy as np

import weft
from weft import gpu

wmma = gpu.wmma
WARPS = 2


@weft.kernel
def product(a, b, c, pitch):
    s = gpu.shared.array((32, 20), weft.float32)
    t = gpu.threadIdx.x
    mine = t // 32 * 16
    fa = wmma.fragment(wmma.matrix_a, 16, 16, 16, weft.float16, wmma.row_major)
    fb = wmma.fragment(wmma.matrix_b, 16, 16, 16, weft.float16, wmma.row_major)
    total = wmma.fragment(wmma.accumulator, 16, 16, 16, weft.float32)
    wmma.fill_fragment(total, 0.0)
    for k in range(0, pitch - 8, 16):
        wmma.load_matrix_sync(fa, a[mine * pitch + k:], pitch)
        wmma.load_matrix_sync(fb, b[k * 24:], 24)
        wmma.mma_sync(total, fa, fb, total)
    wmma.store_matrix_sync(s[mine:, 0:], total, 20)
    gpu.syncwarp()
    for e in range(t % 32, 256, 32):
        c[mine + e // 16, e % 16] = s[mine + e // 16, e % 16]


def check(n: int = 3) -> str:
    k = 16 * n
    rng = np.random.default_rng(n)
    a, b = np.zeros((32, k + 8), np.float16), np.zeros((k, 24), np.float16)
    a[:, :k], b[:, :16] = rng.integers(-4, 5, (32, k)), rng.integers(-4, 5, (k, 16))
    c = np.zeros((32, 16), np.float32)
    product[1, WARPS * 32](a.ravel(), b.ravel(), c, k + 8)
    np.testing.assert_array_equal(c, a[:, :k].astype(np.float32) @ b[:, :16].astype(np.float32))
    return f"sums of {k} products"
