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
