"""What Weft writes in place of a call stands where the call is: in errors and in findings."""

import numpy as np
import pytest

import weft
from weft import errors
from weft.compat import cuda


@cuda.jit
def no_barrier(out):
    held = cuda.shared.array(32, np.float32)
    i = cuda.threadIdx.x
    held[i] = i
    out[i] = held.sum()


@cuda.jit
def not_set(out):
    held = cuda.local.array(4, np.float32)
    held[0] = 1
    out[0] = held.max()


@pytest.mark.parametrize(("kernel", "threads", "kind"), [
    (no_barrier, 32, "missing-barrier"), (not_set, 1, "uninitialised")])
def test_findings_of_reductions(kernel, threads, kind):
    report = weft.sanitize(kernel, 1, threads)(np.zeros(32))
    code = kernel.py_func.__code__
    last = max(line for _, _, line in code.co_lines() if line)
    assert {(f.kind, f.file, f.line) for f in report.findings} == {(kind, __file__, last)}


def test_problems():
    @cuda.jit
    def kernel(a, out):
        np.bitwise_and(a, a, out)

    with pytest.raises(errors.KernelError, match="unsupported operands for &") as caught:
        kernel[1, 1](np.ones(3), np.ones(3))
    assert [p.file for p in caught.value.problems] == [__file__]
    assert "called at" not in str(caught.value)


@pytest.mark.parametrize("name", ["min", "argmax", "ptp", "nanmax"])
def test_arrays_without_elements(name):
    function = getattr(np, name)

    @cuda.jit
    def kernel(a, out):
        out[0] = function(a)

    with pytest.raises(ValueError, match=f"{name} of an array without elements"):
        kernel[1, 1](np.zeros((0, 3)), np.zeros(1))


def test_the_range_of_bools():
    @cuda.jit
    def kernel(a, out):
        out[0] = np.ptp(a)

    with pytest.raises(errors.KernelError, match="ptp of bool array of 1 axis"):
        kernel[1, 1](np.ones(3, bool), np.zeros(1))


def test_means_of_halves_do_not_overflow():
    @cuda.jit
    def kernel(a, out):
        out[0], out[1] = np.mean(a), np.nanmean(a)

    out = np.zeros(2)
    kernel[1, 1](np.full(2000, 100, np.float16), out)
    assert out.tolist() == [100, 100]


def test_other_code_is_not_linked():
    def kernel(a):
        a[0] = 1

    with pytest.raises(errors.KernelError, match=r"jit\(link=\.\.\.\)"):
        cuda.jit(link=["other.cu"])(kernel)
    out = np.zeros(1)
    cuda.jit(link=[])(kernel)[1, 1](out)
    assert out[0] == 1


def test_bounds_of_launches_that_say_nothing():
    with pytest.raises(ValueError, match="Got 0 launch bounds"):
        cuda.jit(launch_bounds=())


class Foreign:
    """An array of another library, which always says its strides."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        held = self.array.__array_interface__
        return {**held, "strides": self.array.strides, "version": 3}


@pytest.mark.parametrize("shape", [(4,), (1, 3), (3, 1), (0, 2)])
def test_strides_of_arrays_without_gaps(shape):
    kinds = ":, " * (len(shape) - 1) + "::1"

    @cuda.jit([f"void(float32[{kinds}])", f"void(float64[{kinds}])"])
    def kernel(a):
        for place in np.ndindex(a.shape):
            a[place] += 1

    a = np.zeros(shape, np.float32)
    kernel[1, 1](Foreign(a))
    np.testing.assert_array_equal(a, np.ones(shape))


def test_strides_of_arrays_with_gaps():
    @cuda.jit(["void(float32[::1])", "void(float64[::1])"])
    def kernel(a):
        a[0] = 1

    with pytest.raises(TypeError, match="No matching definition"):
        kernel[1, 1](Foreign(np.zeros(8, np.float32)[::2]))
