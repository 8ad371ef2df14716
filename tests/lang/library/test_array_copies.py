"""``array.copy()`` in kernels: an array of the thread's own."""

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda
from weft.errors import KernelError

WHOLE = np.array([[1, 2], [3, 4]])
COMPLEX = np.array([1 + 2j, 3 - 1j])
FLOATS = np.linspace(0, 1, 5).astype(np.float32)


def changed(out):
    i = cuda.grid(1)
    c = WHOLE.copy()
    c[0, 1] += i
    d = c.copy()
    d[1, 0] = 9
    out[i] = c[0, 1] + 10 * c[1, 0] + 100 * d[1, 0] + 1000 * WHOLE[0, 1] + 10000 * d[0, 1]


def complex_numbers(out):
    i = gpu.grid(1)
    c = COMPLEX.copy()
    c[0] = c[0] * 2
    out[i] = c[0].real + 10 * COMPLEX[0].real + 100 * c[1].imag


def part(out):
    i = gpu.grid(1)
    c = FLOATS[1:4].copy()
    c[0] = 5
    out[i] = c[0] + c[1] + c.size + FLOATS[1]


def of_branches(out):
    i = gpu.grid(1)
    if i % 2:  # noqa: SIM108 - not as one expression
        c = WHOLE.copy()
    else:
        c = WHOLE.T.copy()
    c[0, 0] += 1
    out[i] = 10 * c[0, 0] + c[0, 1]


def of_shared(out):
    s = gpu.shared.array(8, weft.int64)
    i = gpu.threadIdx.x
    s[i] = i
    gpu.syncthreads()
    c = s.copy()
    gpu.syncthreads()
    s[i] = 0
    out[i] = c[7 - i]


CASES = {
    changed: lambda i: 2 + i + 30 + 900 + 2000 + 10000 * (2 + i),
    complex_numbers: lambda i: 2 + 10 - 100,
    part: lambda i: 5 + 0.5 + 3 + 0.25,
    of_branches: lambda i: 20 + (2 if i % 2 else 3),
    of_shared: lambda i: 7 - i,
}


@pytest.mark.parametrize("body", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("decorate", [weft.kernel, cuda.jit], ids=["weft", "cuda"])
def test_values(body, decorate):
    kernel = decorate(body)
    out = np.zeros(8)
    kernel[1, 8](out)
    assert out.tolist() == [CASES[body](i) for i in range(8)]


def test_a_copy_of_unknown_size_is_refused():
    @weft.kernel
    def kernel(x):
        c = x.copy()
        x[0] = c[1]

    with pytest.raises(KernelError, match="not known when the kernel is compiled"):
        kernel[1, 1](np.ones(3))


def test_a_copy_with_an_argument_is_refused():
    @weft.kernel
    def kernel(x):
        x[0] = WHOLE.copy("F")[0, 1]

    with pytest.raises(KernelError, match="copy with arguments"):
        kernel[1, 1](np.ones(3))
