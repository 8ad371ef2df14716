"""A radix sort: four bits at a time, each pass keeps the order of equal digits.

A pass counts the digits of each block, finds by running sums where each block's keys of each digit
begin, and moves the keys. Within a warp, a vote finds the threads with the same digit.
"""

import numpy as np

import weft
from weft import gpu

THREADS = 64
WARPS = THREADS // 32
DIGITS = 16


@weft.func
def digit_of(key, shift):
    return weft.int32((key >> weft.uint32(shift)) & weft.uint32(DIGITS - 1))


@weft.kernel
def count_digits(keys, shift, counts):
    mine = gpu.shared.array(DIGITS, weft.int32)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    if t < DIGITS:
        mine[t] = 0
    gpu.syncthreads()
    if i < keys.size:
        gpu.atomic.add(mine, digit_of(keys[i], shift), 1)
    gpu.syncthreads()
    if t < DIGITS:
        counts[t, gpu.blockIdx.x] = mine[t]  # all blocks of one digit side by side


@weft.kernel
def running_sums(counts):
    """Replace each number by the sum of those before it: one block, `THREADS` at a time."""
    s = gpu.shared.array((2, THREADS), weft.int32)
    t = gpu.threadIdx.x
    before = 0
    for start in range(0, counts.size, THREADS):
        here = counts[start + t] if start + t < counts.size else 0
        this = 0
        s[this, t] = here
        gpu.syncthreads()
        step = 1
        while step < THREADS:  # Hillis and Steele, from one row of `s` to the other
            s[1 - this, t] = s[this, t] + (s[this, t - step] if t >= step else 0)
            this = 1 - this
            gpu.syncthreads()
            step *= 2
        if start + t < counts.size:
            counts[start + t] = before + s[this, t] - here
        before += s[this, THREADS - 1]
        gpu.syncthreads()  # before the next turn writes to `s`


@weft.kernel
def move_keys(keys, shift, places, out):
    of_warp = gpu.shared.array((WARPS, DIGITS), weft.int32)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    warp = t // 32
    for k in range(t, WARPS * DIGITS, THREADS):
        of_warp[k // DIGITS, k % DIGITS] = 0
    gpu.syncthreads()

    digit = digit_of(keys[i], shift) if i < keys.size else DIGITS  # nobody's digit
    same = gpu.match_any_sync(gpu.ALL, digit)
    rank = gpu.popc(same & gpu.lanemask_lt())  # of those in this warp
    if rank == 0 and digit < DIGITS:
        of_warp[warp, digit] = gpu.popc(same)
    gpu.syncthreads()

    if digit < DIGITS:
        place = places[digit, gpu.blockIdx.x] + rank
        for w in range(warp):
            place += of_warp[w, digit]
        out[place] = keys[i]


def radix_sort(keys: np.ndarray) -> np.ndarray:
    blocks = max(weft.cdiv(keys.size, THREADS), 1)
    source, target = keys.copy(), np.zeros_like(keys)
    for shift in range(0, 32, 4):
        counts = np.zeros((DIGITS, blocks), np.int32)
        count_digits[blocks, THREADS](source, shift, counts)
        running_sums[1, THREADS](counts.reshape(-1))
        move_keys[blocks, THREADS](source, shift, counts, target)
        source, target = target, source
    return source


def check(n: int = 100_003) -> str:
    keys = np.random.default_rng(n).integers(0, 1 << 32, n, np.uint32)
    np.testing.assert_array_equal(radix_sort(keys), np.sort(keys))
    return f"{n} keys in order"


def sides(n: int = 100_003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    keys = np.random.default_rng(n).integers(0, 1 << 32, n, np.uint32)
    return lambda: radix_sort(keys), lambda: np.sort(keys)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
