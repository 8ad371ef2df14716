"""A kernel with a signature is read when it is decorated: what is wrong in it is said there."""

import numpy as np
import pytest
from weft.compat.core.errors import TypingError

from weft.compat import cuda, float32, int32, void


@pytest.mark.parametrize("signature", [
    "void(float32[:], int32)", void(float32[:], int32),
    ["void(float32[:], int32)", "void(float64[:], int32)"],
])  # fmt: skip
def test_what_is_wrong_is_said_at_the_decorator(signature):
    with pytest.raises(TypingError, match="name 'missing'"):
        @cuda.jit(signature)
        def kernel(x, n):
            x[0] = missing(n)  # noqa: F821


def test_without_a_signature_it_is_said_at_the_launch():
    @cuda.jit
    def kernel(x, n):
        x[0] = missing(n)  # noqa: F821

    with pytest.raises(TypingError, match="name 'missing'"):
        kernel[1, 1](np.zeros(1, np.float32), 1)


def test_kernels_of_any_shape_of_a_launch_pass():
    @cuda.jit("void(float64[:, :, :], int64)")
    def kernel(x, n):
        i, j, k = cuda.grid(3)
        part = cuda.shared.array(0, cuda.float64)
        rows = cuda.shared.array((8, 8), cuda.float64)
        t = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        rows[cuda.threadIdx.y, cuda.threadIdx.x] = part[t] = n
        if cuda.blockDim.y > 1:
            cuda.syncthreads()
        cuda.cg.this_grid().sync()
        if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
            x[i, j, k] = part[t] + rows[cuda.threadIdx.y, cuda.threadIdx.x]

    x = np.zeros((8, 8, 2))
    kernel[(1, 1, 2), (8, 8, 1), 0, 64 * 8](x, 3)
    assert (x == 6).all()


def test_launch_bounds_below_a_warp():
    @cuda.jit("void(int32[:])", launch_bounds=8)
    def kernel(x):
        x[cuda.grid(1)] = cuda.blockDim.x

    x = np.zeros(8, np.int32)
    kernel[1, 8](x)
    assert x.tolist() == [8] * 8


def test_kernels_that_are_compiled_for_a_signature_show_their_texts():
    @cuda.jit
    def kernel(x, n):
        i = cuda.grid(1)
        if i < n:
            x[i] += n

    signature = (float32[:], int32)
    kernel.compile(signature)
    assert len(kernel.overloads) == 1
    assert "define" in kernel.inspect_llvm(signature)
    x = np.ones(8, np.float32)
    kernel[1, 8](x, np.int32(3))
    assert x.tolist() == [4] * 3 + [1] * 5

    @cuda.jit
    def wrong(x, n):
        x[0] = missing(n)  # noqa: F821

    with pytest.raises(TypingError, match="name 'missing'"):
        wrong.compile(signature)


def test_bfloat16_by_its_names():
    @cuda.jit
    def kernel(out):
        part = cuda.shared.array(4, dtype=cuda.bfloat16)
        part[0] = cuda.types.bfloat16(0.9375)
        out[0] = part[0] + cuda.bfloat16(1)

    out = np.zeros(1)
    kernel[1, 1](out)
    assert out[0] == 1.9375
    assert isinstance(cuda.types.bfloat16, cuda.types.Float)
    assert cuda.types.bfloat16.bitwidth == 16
    assert repr(cuda.bfloat16[:, ::1]) == "array(bfloat16, 2d, C)"
