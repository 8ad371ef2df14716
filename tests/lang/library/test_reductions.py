"""Reductions of whole arrays by a thread, held against NumPy's."""

from typing import NamedTuple

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError, LaunchError

NAN, INF = float("nan"), float("inf")
REALS = [
    [1.0, 2.0, 0.0, -0.0, 1.0, -1.5], [-0.0, -1.5], [-1.5, 2.5, INF], [-1.5, 2.5, INF, -INF],
    [NAN, -1.5, 2.5, NAN, 3.0], [5.0, NAN, -1.5, NAN], [NAN, NAN], [7.0]]  # fmt: skip
NAMES = ["sum", "prod", "mean", "var", "std", "min", "max", "argmin", "argmax", "ptp", "any", "all",
         "count_nonzero", "nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmin",
         "nanmax"]  # fmt: skip


def reduce_by(name, x, kind=np.float64):
    function = getattr(np, name)

    @weft.kernel
    def apply(x, out):
        out[gpu.grid(1)] = function(x)

    out = np.zeros(1, kind)
    apply[1, 1](x, out)
    return out[0]


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_reals(name):
    for values in REALS:
        x = np.array(values)
        np.testing.assert_allclose(reduce_by(name, x), getattr(np, name)(x), rtol=1e-15)


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["bool", "int8", "uint8", "int64", "float32"])
def test_types_and_axes(name, kind):
    if name == "ptp" and kind == "bool":
        kind = "int16"  # NumPy subtracts no truth values
    x = (np.arange(35).reshape(5, 7) * 3 % 11 - 4 * (kind != "uint8")).astype(kind)[::2, ::-1]
    wanted = getattr(np, name)(x.astype(np.float64) if kind == "float32" else x)
    if name == "ptp" and kind in ("int8", "uint8"):
        wanted = int(x.max()) - int(x.min())
    rtol = 1e-6 if kind == "float32" else 1e-15
    np.testing.assert_allclose(reduce_by(name, x), wanted, rtol=rtol)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "any", "all"])
def test_complex_numbers(name):
    x = np.array([[1 + 2j, -3j], [0.5, 2 - 1j]])
    np.testing.assert_allclose(reduce_by(name, x, np.complex128), getattr(np, name)(x), rtol=1e-15)


def test_methods_and_parts():
    @weft.kernel
    def apply(x, out):
        row = x[gpu.threadIdx.x]
        out[gpu.threadIdx.x, 0] = row.mean()
        out[gpu.threadIdx.x, 1] = row[1:].max()
        out[gpu.threadIdx.x, 2] = row.argmin()
        out[gpu.threadIdx.x, 3] = row.any()
        out[gpu.threadIdx.x, 4] = row.std()

    x = np.random.default_rng(3).normal(size=(6, 13))
    x[2] = 0
    out = np.zeros((6, 5))
    apply[1, 6](x, out)
    wanted = [x.mean(1), x[:, 1:].max(1), x.argmin(1), x.any(1), x.std(1)]
    np.testing.assert_allclose(out, np.stack(wanted, 1), rtol=1e-14)


def test_arrays_without_elements_and_without_axes():
    empty = np.zeros(0)
    assert reduce_by("sum", empty) == 0
    assert reduce_by("prod", empty) == 1
    assert not reduce_by("any", empty)
    assert reduce_by("all", empty)
    with pytest.raises(LaunchError, match="min of an array without elements"):
        reduce_by("min", empty)


class Pair(NamedTuple):
    a: float
    b: float

    def max(self):
        return self.a if self.a > self.b else self.b


@weft.func
def counted(x):
    gpu.atomic.add(x, 0, 1)
    return Pair(x[0], 0.5)


def test_methods_of_structs_by_the_same_names():
    @weft.kernel
    def apply(x):
        x[1] = counted(x).max()
        x[2] = Pair(2.0, 3.0).max()

    x = np.zeros(3)
    apply[1, 1](x)
    assert x.tolist() == [1, 1, 3]


def test_what_has_no_such_reduction_is_refused():
    with pytest.raises(KernelError, match=": max of complex array"):
        reduce_by("max", np.ones(2, complex))

    @weft.kernel
    def along(x, out):
        out[0] = x.sum(axis=0)

    with pytest.raises(KernelError, match="sum with arguments"):
        along[1, 1](np.ones((2, 2)), np.ones(1))
