"""What kernels written for numba.cuda use of Python and NumPy, one feature at a time."""

import numpy as np

from weft.compat import cuda


@cuda.jit
def casts(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = np.int8(x[i]) + np.float32(x[i]) / np.float32(3) + np.uint16(x[i] * 2)


def test_types_of_numpy_convert():
    x = np.arange(7.0)
    out = np.zeros(7)
    casts[1, 32](x, out)
    third = (x.astype(np.float32) / np.float32(3)).astype(np.float64)
    np.testing.assert_allclose(out, x + third + 2 * x, rtol=1e-6)


@cuda.jit
def running_sums(x, out):
    held = cuda.shared.array(64, x.dtype)
    t = cuda.threadIdx.x
    held[2 * t], held[2 * t + 1] = x[2 * t], x[2 * t + 1]
    apart = 1
    left = 32
    while left > 0:
        cuda.syncthreads()
        if t < left:
            a = apart * (2 * t + 1) - 1
            b = apart * (2 * t + 2) - 1
            held[b] += held[a]
        apart *= 2
        left >>= 1
    if t == 0:
        held[63] = 0
    left = 1
    while left < 64:
        apart >>= 1
        cuda.syncthreads()
        if t < left:
            a = apart * (2 * t + 1) - 1
            b = apart * (2 * t + 2) - 1
            old = held[a]
            held[a] = held[b]
            held[b] += old
        left *= 2
    cuda.syncthreads()
    out[2 * t], out[2 * t + 1] = held[2 * t], held[2 * t + 1]


def test_names_beside_counters_of_the_whole_block():
    x = np.random.default_rng(1).integers(-9, 9, 64)
    out = np.zeros_like(x)
    running_sums[1, 32](x, out)
    np.testing.assert_array_equal(out, np.cumsum(x) - x)
