"""hasattr and getattr in kernels: answered when the kernel is compiled, as numba answers them."""

# ruff: noqa: B009 - getattr is what is tested

from typing import NamedTuple

import numpy as np
import pytest

from weft.compat import cuda
from weft.errors import KernelError


class Point(NamedTuple):
    x: float
    y: float

    def norm(self):
        return self.x * self.x + self.y * self.y


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_branches_by_what_an_array_has(shape):
    @cuda.jit
    def kernel(a, out):
        if hasattr(a, "ndim") and a.ndim > 1:
            out[0] = a.shape[1]
        else:
            out[0] = -1
        out[1] = hasattr(a, "nothing")
        out[2] = getattr(a, "size")
        out[3] = getattr(a, "nothing", 7)
        out[4] = getattr(a, "ndim", 7)

    out = np.zeros(5)
    kernel[1, 1](np.ones(shape), out)
    assert out.tolist() == [3 if len(shape) == 2 else -1, 0, 6, 7, len(shape)]


def test_structs_records_and_numbers():
    @cuda.jit
    def kernel(p, r, z, out):
        out[0] = getattr(p, "y") + getattr(p, "z", 100.0)
        out[1] = hasattr(p, "x") and not hasattr(p, "w")
        out[2] = getattr(r[0], "mass") if hasattr(r[0], "mass") else -1
        out[3] = hasattr(r[0], "charge")
        out[4] = getattr(z, "imag")
        out[5] = p.norm() if hasattr(p, "norm") else 0

    r = np.zeros(2, [("mass", "f4"), ("id", "i4")])
    r["mass"] = 2.5
    out = np.zeros(6)
    kernel[1, 1](Point(3.0, 4.0), r, 1 + 8j, out)
    assert out.tolist() == [104, 1, 2.5, 0, 8, 25]


def test_a_branch_for_what_is_not_there_is_not_compiled():
    @cuda.jit
    def kernel(x, out):
        out[0] = x.weight[0] if hasattr(x, "weight") else x

    out = np.zeros(1)
    kernel[1, 1](5.0, out)
    assert out[0] == 5


def test_what_is_wrong_is_said():
    @cuda.jit
    def missing(x, out):
        out[0] = getattr(x, "nothing")

    @cuda.jit
    def unknown(x, out):
        out[0] = hasattr(x, x.shape)

    x = np.ones(3)
    with pytest.raises(KernelError, match="no 'nothing'"):
        missing[1, 1](x, x)
    with pytest.raises(KernelError, match="a literal text names it"):
        unknown[1, 1](x, x)
