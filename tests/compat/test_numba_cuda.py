"""Programs for numba.cuda, with only their import lines changed."""

import math

import numpy as np
import pytest

from weft.compat import cuda, float32, int32, void
from weft.compat.signatures import parse_signature
from weft.errors import DTypeError, LaunchError


@cuda.jit("void(float32[:], float32[:], int32)")
def roots(x, y, n):
    i = cuda.grid(1)
    held = cuda.shared.array(0, float32)
    if i < n:
        held[cuda.threadIdx.x] = x[i]
        y[-1 - i] = math.sqrt(held[cuda.threadIdx.x])


def test_signature_dynamic_shared_memory_and_negative_indices():
    x = np.arange(10, dtype=np.float32)
    there = cuda.to_device(x)
    out = cuda.device_array_like(there)
    roots[1, 32, cuda.stream(), 128](there, out, 10)
    np.testing.assert_allclose(out.copy_to_host(), np.sqrt(x)[::-1], rtol=1e-6)
    with pytest.raises(DTypeError, match="expected an array of float32"):
        roots[1, 32, 0, 128](np.zeros(3), out, 3)


@cuda.jit(device=True)
def clamp(x, low, high):
    return min(max(x, low), high)


@cuda.jit
def clamped(x, out):
    for i in range(cuda.grid(1), len(x), cuda.gridsize(1)):
        out[i] = clamp(x[i], -1.0, 1.0)


def test_device_functions_and_grid_stride_loops():
    x = np.random.default_rng(0).normal(size=1000)
    out = np.zeros_like(x)
    start, end = cuda.event(), cuda.event()
    start.record()
    clamped[2, 64](x, out)
    end.record()
    end.synchronize()
    assert cuda.event_elapsed_time(start, end) > 0
    np.testing.assert_array_equal(out, np.clip(x, -1, 1))
    clamped.forall(len(x))(x * 2, out)
    np.testing.assert_array_equal(out, np.clip(x * 2, -1, 1))


@cuda.reduce
def total(a, b):
    return a + b


def test_reduce():
    x = np.arange(100.0)
    assert total(x) == x.sum()
    assert cuda.reduce(lambda a, b: max(a, b))(x, init=-1.0) == 99
    res = cuda.device_array(1)
    total(x, size=10, res=res)
    assert res[0] == 45


@pytest.mark.grid
@pytest.mark.parametrize("n", [0, 1, 2, 255, 256, 257, 8191, 8192, 8193, 100003])
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.complex64])
def test_reduce_by_many_threads(n, dtype):
    """Every length that ends within, at and behind a block, and a second level of blocks."""
    x = (np.arange(n) * 7919 % 17 - 8).astype(dtype)
    assert total(x) == x.sum()
    assert total(x, init=3) == x.sum() + 3
    if n > 1:
        assert total(x, size=n - 1) == x[:-1].sum()


def test_a_reduction_of_floats_does_not_depend_on_the_number_of_threads(rng):
    x = rng.standard_normal(70001).astype(np.float32)
    assert abs(float(total(x)) - x.sum(dtype=np.float64)) < 1e-2
    assert len({total(x).tobytes() for _ in range(5)}) == 1


@cuda.jit
def swaps(cells, old, values):
    i = cuda.grid(1)
    if i < cells.size:
        old[i] = cuda.atomic.compare_and_swap(cells[i:], -1, values[i])
        cuda.atomic.nanmax(values, 0, i)


def test_atomics_of_numba():
    cells = np.array([-1, 5, -1, 7])
    before, old, values = cells.copy(), np.zeros(4, np.int64), np.arange(4) + 10
    swaps[1, 4](cells, old, values.copy())
    np.testing.assert_array_equal(old, before)
    np.testing.assert_array_equal(cells, np.where(before == -1, values, before))


@cuda.jit
def raising(x):
    if x[cuda.grid(1)] < 0:
        raise ValueError("negative")


def test_exceptions():
    raising[1, 4](np.zeros(4))
    with pytest.raises(LaunchError, match="ValueError: negative"):
        raising[1, 4](np.array([0.0, 1.0, -1.0, 0.0]))


def test_signatures():
    made = parse_signature("void(float32[:, ::1], int64)")
    assert made.args[0].order == "C"
    assert made.args[0].ndim == 2
    assert parse_signature(void(int32, float32[:])).args[0] is int32
    for text in ("void(", "void(nothing)", "__import__('os')", "void(float32[1:])"):
        with pytest.raises(DTypeError):
            parse_signature(text)
