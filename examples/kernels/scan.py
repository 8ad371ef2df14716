"""Running sums (Blelloch): blocks scan their parts, the sums of the blocks are scanned, and added.

Ref: G. E. Blelloch, "Prefix sums and their applications", 1990.
"""

import numpy as np

import weft
from weft import gpu

THREADS = 64
PART = 2 * THREADS  # elements of a block


@weft.kernel
def scan_parts(x, out, sums):
    """Write the sum of all elements before each one in its part, and the sum of each part."""
    s = gpu.shared.array(PART, weft.int64)
    t = gpu.threadIdx.x
    start = gpu.blockIdx.x * PART
    for k in range(t, PART, THREADS):
        s[k] = x[start + k] if start + k < x.size else 0

    step = 1
    while step < PART:  # up: the last of each pair gets the sum of the pair
        gpu.syncthreads()
        last = (t + 1) * 2 * step - 1
        if last < PART:
            s[last] += s[last - step]
        step *= 2
    gpu.syncthreads()
    if t == 0:
        sums[gpu.blockIdx.x] = s[PART - 1]
        s[PART - 1] = 0

    step = PART // 2
    while step > 0:  # down: the first gets what comes before the pair, the last both
        gpu.syncthreads()
        last = (t + 1) * 2 * step - 1
        if last < PART:
            before = s[last]
            s[last] = before + s[last - step]
            s[last - step] = before
        step //= 2
    gpu.syncthreads()
    for k in range(t, PART, THREADS):
        if start + k < x.size:
            out[start + k] = s[k]


@weft.kernel
def add_before(out, before):
    i = gpu.grid(1)
    if i < out.size:
        out[i] += before[i // PART]


def exclusive_scan(x: np.ndarray) -> np.ndarray:
    out = np.zeros(x.shape, np.int64)
    blocks = max(weft.cdiv(x.size, PART), 1)
    sums = np.zeros(blocks, np.int64)
    scan_parts[blocks, THREADS](x, out, sums)
    if blocks > 1:
        add_before[weft.cdiv(x.size, THREADS), THREADS](out, exclusive_scan(sums))
    return out


def check(n: int = 100_003) -> str:
    x = np.random.default_rng(n).integers(-50, 100, n)
    found = exclusive_scan(x)
    np.testing.assert_array_equal(found, np.cumsum(x) - x)
    return f"running sums of {n} integers" + (f", up to {found[-1]}" if n else "")


def sides(n: int = 100_003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    x = np.random.default_rng(n).integers(-50, 100, n)
    return lambda: exclusive_scan(x), lambda: np.cumsum(x) - x


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
