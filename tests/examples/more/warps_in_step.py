"""Sums of blocks: each warp adds up in shared memory, in step, and groups of 8 lanes shuffle."""

import numpy as np

import weft
from weft import gpu

WARPS = 2
THREADS = WARPS * 32


@weft.kernel
def sums(x, out):
    s = gpu.shared.array(THREADS, weft.int64)
    t = gpu.threadIdx.x
    first = t // 32 * 32
    lane = t - first
    total = 0
    for i in range(gpu.grid(1), x.size, gpu.gridsize(1)):
        total += x[i]
    s[t] = total
    gpu.syncwarp()
    step = 16
    while step >= 8:
        if lane < step:
            s[t] += s[t + step]
        gpu.syncwarp()
        step //= 2
    value = s[first + lane % 8]
    gpu.syncwarp()
    for k in (4, 2, 1):
        value += gpu.shfl_down_sync(gpu.ALL, value, k, 8)
    if lane == 0:
        s[first] = value
    gpu.syncthreads()
    if t == 0:
        out[gpu.blockIdx.x] = s[0] + s[32]


def check(n: int = 1003) -> str:
    x = np.random.default_rng(n).integers(-50, 100, n)
    out = np.zeros(3, np.int64)
    sums[3, THREADS](x, out)
    assert out.sum() == x.sum()
    return f"the sum of {n} numbers"
