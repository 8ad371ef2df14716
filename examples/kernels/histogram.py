"""A histogram: each block counts in shared memory, which is nearer, and adds to the whole once."""

import numpy as np

import weft
from weft import gpu

BINS = 64


@weft.kernel
def histogram(values, low, high, counts):
    mine = gpu.shared.array(BINS, weft.int32)
    for b in range(gpu.threadIdx.x, BINS, gpu.blockDim.x):
        mine[b] = 0
    gpu.syncthreads()

    for i in range(gpu.grid(1), values.size, gpu.gridsize(1)):
        x = values[i]
        if low <= x < high:
            b = int((x - low) * BINS / (high - low))
            gpu.atomic.add(mine, min(b, BINS - 1), 1)
    gpu.syncthreads()

    for b in range(gpu.threadIdx.x, BINS, gpu.blockDim.x):
        if mine[b] > 0:
            gpu.atomic.add(counts, b, mine[b])


def counted(values: np.ndarray) -> np.ndarray:
    counts = np.zeros(BINS, np.int64)
    blocks = min(max(weft.cdiv(values.size, 96), 1), 32)
    histogram[blocks, 96](values, -2.0, 2.0, counts)
    return counts


def check(n: int = 500_009) -> str:
    values = np.random.default_rng(n).standard_normal(n)
    values[: min(n, 4)] = [-2.0, 2.0, np.nan, -np.inf][: min(n, 4)]
    counts = counted(values)
    expected, _ = np.histogram(values[values < 2.0], BINS, (-2.0, 2.0))
    np.testing.assert_array_equal(counts, expected)
    return f"{counts.sum()} of {n} numbers lie in [-2, 2), most of them in bin {counts.argmax()}"


def sides(n: int = 500_009):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    values = np.random.default_rng(n).standard_normal(n)
    return lambda: counted(values), lambda: np.histogram(values, BINS, (-2.0, 2.0))[0]


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
