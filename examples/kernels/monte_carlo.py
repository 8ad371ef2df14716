"""Monte Carlo: pi from random points, which depend on nothing but the number of the thread.

A generator that is counted (Philox) needs no state in memory: any thread computes any number.
Ref: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

import numpy as np

import weft
from weft import gpu

ROUNDS = 10
POINTS = 8  # of a thread


@weft.func
def philox(counter, key):
    """Return two random uint32 for a counter and a key (Philox-2x32)."""
    low = weft.uint32(counter)
    high = weft.uint32(counter >> 32)
    for _ in range(ROUNDS):
        product = weft.uint64(low) * weft.uint64(0xD256D193)
        low = weft.uint32(product >> weft.uint64(32)) ^ key ^ high
        high = weft.uint32(product)
        key = weft.uint32(key + weft.uint32(0x9E3779B9))
    return low, high


@weft.func
def unit(bits):
    """Return random bits as a float64 in [0, 1)."""
    return bits * (1.0 / 4294967296.0)


@weft.kernel
def count_inside(seed, threads, inside):
    hits = gpu.shared.array(1, weft.int64)
    if gpu.threadIdx.x == 0:
        hits[0] = 0
    gpu.syncthreads()

    i = gpu.grid(1)
    if i < threads:
        mine = 0
        for k in range(POINTS):
            a, b = philox(i * POINTS + k, seed)
            x, y = unit(a), unit(b)
            if x * x + y * y < 1.0:
                mine += 1
        gpu.atomic.add(hits, 0, mine)
    gpu.syncthreads()
    if gpu.threadIdx.x == 0:
        gpu.atomic.add(inside, 0, hits[0])


def count(seed: int, threads: int) -> int:
    inside = np.zeros(1, np.int64)
    count_inside[max(weft.cdiv(threads, 128), 1), 128](np.uint32(seed), threads, inside)
    return int(inside[0])


def reference(seed: int, count: int) -> int:
    """Return how many of the first points lie inside, by NumPy."""
    low, high = np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)
    key = seed
    for _ in range(ROUNDS):
        product = low * np.uint64(0xD256D193)
        low = (product >> np.uint64(32)) ^ np.uint64(key) ^ high
        high = product & np.uint64(0xFFFFFFFF)
        key = (key + 0x9E3779B9) & 0xFFFFFFFF
    x, y = low / 2.0**32, high / 2.0**32
    return int((x * x + y * y < 1.0).sum())


def check(n: int = 100_003) -> str:
    inside = count(n + 7, n)
    assert inside == reference(n + 7, n * POINTS), inside
    return f"of {n * POINTS} points: pi is about {4 * inside / max(n * POINTS, 1):.4f}"


def sides(n: int = 100_003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    return lambda: count(n + 7, n), lambda: reference(n + 7, n * POINTS)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
