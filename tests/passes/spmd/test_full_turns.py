"""Loops over a grid: turns that all threads of a block make, and those at the end that few make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import BoundsError


@weft.kernel
def counted(values: Any, counts: Any, last: Any) -> None:
    """The textbook's histogram; the counter is read behind the loop, too."""
    mine = gpu.shared.array(16, weft.int32)
    t = gpu.threadIdx.x
    if t < 16:
        mine[t] = 0
    gpu.syncthreads()
    i = gpu.grid(1)
    while i < values.size:
        gpu.atomic.add(mine, values[i], 1)
        i += gpu.gridsize(1)
    last[gpu.grid(1)] = i
    gpu.syncthreads()
    if t < 16:
        gpu.atomic.add(counts, t, mine[t])


@weft.kernel
def summed(values: Any, counts: Any, last: Any) -> None:
    """The same with range, two sums and a jump, from the second element on, of all but the last."""
    first = 0
    second = 0
    for i in range(gpu.grid(1) + 1, values.size - 1, gpu.gridsize(1)):
        if values[i] == 3:
            continue
        first += values[i]
        second += values[i - 1] * values[i + 1]
        last[i % last.size] = 1
    gpu.atomic.add(counts, 0, first)
    gpu.atomic.add(counts, 1, second)


@weft.kernel
def squares(values: Any, counts: Any, last: Any) -> None:
    """A condition that includes its end, and two axes of threads."""
    i = gpu.threadIdx.x + gpu.blockDim.x * (gpu.threadIdx.y + gpu.blockDim.y * gpu.blockIdx.x)
    top = values.size - 1
    while i <= top:
        last[i % last.size] = 2
        gpu.atomic.add(counts, values[top - i], i)
        i += gpu.gridDim.x * gpu.blockDim.x * gpu.blockDim.y


@pytest.mark.grid
@pytest.mark.grid
@pytest.mark.parametrize("n", [0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 1000, 4099])
def test_every_length(n: int) -> None:
    rng = np.random.default_rng(n)
    values = rng.integers(0, 16, n).astype(np.int32)
    for kernel, grid, block in ((counted, 2, 32), (counted, 1, 64), (counted, 3, 40),
                                (summed, 2, 32), (summed, 1, 50), (squares, 2, (16, 4)),
                                (squares, 1, (5, 7))):
        threads = grid * int(np.prod(block))
        first = [values.copy(), np.zeros(16, np.int64), np.zeros(threads, np.int64)]
        second = [a.copy() for a in first]
        kernel[grid, block](*first)
        weft.interpret(kernel, grid, block)(*second)
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
        if kernel is counted:
            np.testing.assert_array_equal(first[1], np.bincount(values, minlength=16))


@weft.kernel
def past_the_end(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    while i < out.size:
        out[i] = x[i]
        i += gpu.gridsize(1)


def test_an_index_out_of_bounds_is_still_found() -> None:
    """The check for all threads at once fails first; each thread's own check tells the index."""
    x = np.arange(100.0)
    for n in (101, 130, 500):
        out = np.zeros(n)
        with pytest.raises(BoundsError, match="index 100"):
            past_the_end[1, 64](x, out)
        np.testing.assert_array_equal(out[:64], x[:64])
    out = np.zeros(100)
    past_the_end[1, 64](x, out)
    np.testing.assert_array_equal(out, x)
