"""Softmax of each row: a block finds the largest element, then the sum of the exponentials."""

import math

import numpy as np

import weft
from weft import gpu

THREADS = 64


@weft.kernel
def softmax(x, out):
    part = gpu.shared.array(THREADS, weft.float32)
    row, t = gpu.blockIdx.x, gpu.threadIdx.x
    columns = x.shape[1]

    largest = weft.float32(-math.inf)
    for j in range(t, columns, THREADS):
        largest = max(largest, x[row, j])
    part[t] = largest
    gpu.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            part[t] = max(part[t], part[t + half])
        gpu.syncthreads()
        half //= 2
    largest = part[0]
    gpu.syncthreads()  # all have read it: now the array is free for the sum

    total = weft.float32(0)
    for j in range(t, columns, THREADS):
        total += math.exp(x[row, j] - largest)
    part[t] = total
    gpu.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        gpu.syncthreads()
        half //= 2
    for j in range(t, columns, THREADS):
        out[row, j] = math.exp(x[row, j] - largest) / part[0]


def softmax_of(x: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    softmax[x.shape[0], THREADS](x, out)
    return out


def reference(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def check(n: int = 1003) -> str:
    x = np.random.default_rng(n).normal(0, 10, (max(n // 8, 1), n)).astype(np.float32)
    expected = reference(x.astype(np.float64))
    np.testing.assert_allclose(softmax_of(x), expected, rtol=1e-5, atol=1e-12)
    return f"{x.shape[0]} rows of {n}"


def sides(n: int = 1003):
    """Return the work by the kernel, and the same by NumPy, to be timed."""
    x = np.random.default_rng(n).normal(0, 10, (max(n // 8, 1), n)).astype(np.float32)
    return lambda: softmax_of(x), lambda: reference(x)


if __name__ == "__main__":
    from _beside import beside

    print(check(), "--", beside(*sides()))
