"""hasattr and getattr in kernels: answered when the kernel is compiled, as numba answers them."""

# ruff: noqa: B009 - getattr is what is tested

import linecache
from typing import NamedTuple

import numpy as np
import pytest

from weft.compat import cuda, extending, types
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


NUMBAS = (
    "T", "all", "any", "argmax", "argmin", "astype", "clip", "conj", "conjugate", "copy", "ctypes",
    "cumprod", "cumsum", "dot", "dtype", "fill", "flags", "flat", "flatten", "imag", "item",
    "itemsize", "max", "mean", "min", "nbytes", "ndim", "nonzero", "prod", "ravel", "real",
    "repeat", "reshape", "shape", "size", "sort", "std", "strides", "sum", "take", "transpose",
    "var", "view",
)  # fmt: skip  # what numba's typing has for arrays of numbers
OTHERS = sorted(set(dir(np.ndarray)) - set(NUMBAS))


def asked(names):
    """Return a kernel that asks an array for each of some names."""
    lines = "".join(f"    out[{k}] = hasattr(a, {n!r})\n" for k, n in enumerate(names))
    text, space = f"def kernel(a, out):\n{lines}", {}
    file = f"<asked {names[0]}>"
    exec(compile(text, file, "exec"), space)
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    return cuda.jit(space["kernel"])


@pytest.mark.parametrize("array", [np.ones(3), np.ones((2, 3), "i4")[:, ::2], np.ones(2, "c8")],
                         ids=["floats", "parts of ints", "complex"])  # fmt: skip
def test_arrays_have_what_numba_knows(array):
    """Not what NumPy has besides: a program asks before it uses it."""
    out = np.full(len(NUMBAS), -1)
    asked(NUMBAS)[1, 1](array, out)
    assert [n for n, has in zip(NUMBAS, out, strict=True) if has != 1] == []
    out = np.full(len(OTHERS), -1)
    asked(OTHERS)[1, 1](array, out)
    assert [n for n, has in zip(OTHERS, out, strict=True) if has != 0] == []
    assert {"tolist", "argsort", "data", "squeeze"} <= set(OTHERS)


def test_local_chosen_and_record_arrays():
    @cuda.jit
    def kernel(a, b, r, flags, out):
        held = cuda.local.array(4, np.float32)
        one = a if out[0] > 0 else b
        out[1] = hasattr(held, "size") + 2 * hasattr(held, "tolist")
        out[2] = hasattr(one, "shape") + 2 * hasattr(one, "tolist") + 4 * hasattr(one, "real")
        out[3] = hasattr(r, "mass") + 2 * hasattr(r, "charge") + 4 * hasattr(r, "size")
        out[4] = hasattr(flags, "real") + 2 * hasattr(flags, "ndim")
        out[5] = getattr(a, "tolist", 7)

    out = np.zeros(6)
    r = np.zeros(2, [("mass", "f4"), ("id", "i4")])
    kernel[1, 1](np.ones(3), np.ones(4), r, np.ones(2, bool), out)
    assert out.tolist() == [0, 1, 5, 5, 2, 7]


def test_attributes_that_a_program_adds():
    @extending.overload_attribute(types.Array, "middle")
    def middle(array):
        def impl(array):
            return array[array.size // 2]
        return impl

    @cuda.jit
    def kernel(a, out):
        out[0] = a.middle if hasattr(a, "middle") else -1

    out = np.zeros(1)
    kernel[1, 1](np.arange(5.0), out)
    assert out[0] == 2
