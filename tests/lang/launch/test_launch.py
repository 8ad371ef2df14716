"""Kernels from the decorator to their results."""

from typing import Any

import numpy as np
import pytest
from tests.lang.reader.test_language import CASES, VALUES

import weft
from weft import gpu
from weft.errors import BoundsError, KernelError, LaunchError

TILE = 8


@weft.kernel
def saxpy(a: Any, x: Any, y: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@weft.kernel
def block_sums(x: Any, out: Any) -> None:
    part = gpu.shared.array(64, weft.float32)
    t = gpu.threadIdx.x
    i = gpu.grid(1)
    part[t] = x[i] if i < x.size else 0
    gpu.syncthreads()
    s = gpu.blockDim.x // 2
    while s > 0:
        if t < s:
            part[t] += part[t + s]
        gpu.syncthreads()
        s //= 2
    if t == 0:
        gpu.atomic.add(out, 0, part[0])


@weft.kernel
def tiled(a: Any, b: Any, c: Any) -> None:
    left = gpu.shared.array((TILE, TILE), weft.float32)
    right = gpu.shared.array((TILE, TILE), weft.float32)
    j, i = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = weft.float32(0)
    for k in range(0, a.shape[1], TILE):
        left[ty, tx] = a[i, k + tx] if i < a.shape[0] and k + tx < a.shape[1] else 0
        right[ty, tx] = b[k + ty, j] if k + ty < b.shape[0] and j < b.shape[1] else 0
        gpu.syncthreads()
        for m in range(TILE):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


@weft.kernel
def histogram(x: Any, counts: Any) -> None:
    for i in range(gpu.grid(1), x.size, gpu.gridsize(1)):
        gpu.atomic.add(counts, x[i], 1)


@weft.kernel
def leavers(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    held = gpu.shared.array(32, weft.float64)
    if i >= x.size:
        return
    t = gpu.threadIdx.x
    held[t] = x[i]
    gpu.syncthreads()
    mine = held[t] * 2
    gpu.syncthreads()
    if t > 0:
        out[i] = held[t - 1] + mine
    else:
        out[i] = mine


@pytest.mark.parametrize("n", [0, 1, 31, 64, 1000])
def test_saxpy(n: int) -> None:
    """Any size, also strided and reversed arrays."""
    rng = np.random.default_rng(n)
    x, y = rng.random((2, n), np.float32)
    expected = np.float32(2.5) * x + y
    saxpy[max(weft.cdiv(n, 64), 1), 64](np.float32(2.5), x, y)
    np.testing.assert_array_max_ulp(y, expected, 1)  # a sum of a product is rounded once
    wide = rng.random((n, 3), np.float32)
    expected = np.float32(3) * x[::-1] + wide[:, 1]
    saxpy[max(weft.cdiv(n, 64), 1), 64](np.float32(3), x[::-1], wide[:, 1])
    np.testing.assert_array_max_ulp(wide[:, 1], expected, 1)

@pytest.mark.parametrize("n", [1, 63, 64, 1000])
def test_barriers_in_a_loop(n: int) -> None:
    """A reduction in shared memory."""
    x = np.random.default_rng(n).random(n, np.float32)
    out = np.zeros(1, np.float32)
    block_sums[weft.cdiv(n, 64), 64](x, out)
    np.testing.assert_allclose(out[0], x.sum(dtype=np.float64), rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 8, 8), (17, 5, 23)])
def test_tiled_product(shape: tuple[int, int, int]) -> None:
    """Two axes, two shared arrays, barriers in a loop, a value kept over them."""
    m, k, n = shape
    rng = np.random.default_rng(m)
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    c = np.zeros((m, n), np.float32)
    tiled[(weft.cdiv(n, TILE), weft.cdiv(m, TILE)), (TILE, TILE)](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


def test_atomics() -> None:
    """Many threads add to few elements."""
    x = np.random.default_rng(1).integers(0, 7, 5000)
    counts = np.zeros(7, np.int32)
    histogram[3, 128](x, counts)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=7))


@pytest.mark.parametrize("n", [5, 32, 77])
def test_threads_that_left_take_no_part_in_barriers(n: int) -> None:
    """An early return before a barrier."""
    x = np.random.default_rng(n).random(n)
    out = np.zeros(n)
    leavers[weft.cdiv(n, 32), 32](x, out)
    before = np.where(np.arange(n) % 32 > 0, np.concatenate([[0], x[:-1]]), 0)
    np.testing.assert_array_equal(out, before + 2 * x)


@pytest.mark.grid
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_language_in_lanes(function: Any) -> None:
    """Every kind of statement gives in compiled code, side by side, what Python gives."""

    @weft.kernel
    def apply(out: Any, x: Any) -> None:
        i = gpu.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    x = np.array(VALUES * 3)
    out = np.zeros_like(x)
    apply[3, 16](out, x)
    np.testing.assert_allclose(out, [float(function(v)) for v in x], rtol=1e-14)
    apply[len(x), 1](out, -x)  # blocks of one thread
    np.testing.assert_allclose(out, [float(function(-v)) for v in x], rtol=1e-14)


def test_errors_tell_the_line() -> None:
    """What is wrong while a kernel runs is told with its line."""
    with pytest.raises(BoundsError, match=r"found index 7, expected an index from 0 to 6") as error:
        saxpy[1, 64](np.float32(1), np.ones(9, np.float32), np.ones(7, np.float32))
    assert error.value.where is not None
    assert error.value.where.text.startswith("y[i] = a * x[i] + y[i]")

    @weft.kernel
    def checks(x: Any) -> None:
        assert x[gpu.grid(1)] > 0, "positive numbers only"

    with pytest.raises(LaunchError, match="positive numbers only"):
        checks[1, 4](np.array([1.0, 2.0, -1.0, 3.0]))


def test_all_errors_at_once() -> None:
    """Each problem has its line, a caret and perhaps a hint."""

    @weft.kernel
    def bad(x: Any) -> None:
        i = gpu.grid(1)
        x[i] = "text" + x[i]
        x[i] = unknown(i)  # noqa: F821
        import os  # noqa: F401
        x[i, 0] = 1
        x[1.5] = 1
        y = x + 1
        return y

    with pytest.raises(KernelError) as error:
        bad[1, 4](np.zeros(4))
    lines = [p.line for p in error.value.problems]
    assert len(lines) == 6  # y is wrong already
    assert lines == sorted(lines)
    assert "name 'unknown' is not defined" in str(error.value)
    assert "^" in str(error.value)
    with pytest.raises(LaunchError, match="1024"):
        saxpy[1, 2048]
    with pytest.raises(LaunchError, match="missing a required argument"):
        saxpy[1, 32](1.0)
    with pytest.raises(LaunchError, match="without a grid"):
        saxpy(1.0, np.zeros(2), np.zeros(2))


def test_operations_can_be_imported_by_name() -> None:
    """``from weft.gpu import ...`` gives what ``from weft import gpu`` has."""
    module = __import__("weft.gpu", fromlist=["grid"])
    assert module is gpu
