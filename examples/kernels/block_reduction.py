"""A sum: each block adds its elements in shared memory, then all blocks add to one number."""

import numpy as np

import weft
from weft import gpu

THREADS = 128


@weft.kernel
def block_sums(x, total):
    part = gpu.shared.array(THREADS, weft.float64)
    t = gpu.threadIdx.x

    mine = 0.0
    for i in range(gpu.grid(1), x.size, gpu.gridsize(1)):  # a grid of any size does any array
        mine += x[i]
    part[t] = mine
    gpu.syncthreads()

    half = THREADS // 2
    while half > 0:  # a tree: half of the threads add the other half
        if t < half:
            part[t] += part[t + half]
        gpu.syncthreads()
        half //= 2

    if t == 0:
        gpu.atomic.add(total, 0, part[0])


def total_of(x: np.ndarray) -> float:
    total = np.zeros(1)
    blocks = min(max(weft.cdiv(x.size, THREADS), 1), 64)
    block_sums[blocks, THREADS](x, total)
    return float(total[0])


def check(n: int = 1_000_003) -> str:
    x = np.random.default_rng(n).random(n, np.float32)
    found = total_of(x)
    np.testing.assert_allclose(found, x.sum(dtype=np.float64), rtol=1e-12)
    return f"the sum of {n} numbers is {found:.6f}"


def sides(n: int = 1_000_003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    x = np.random.default_rng(n).random(n, np.float32)
    return lambda: total_of(x), lambda: x.sum(dtype=np.float64)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
