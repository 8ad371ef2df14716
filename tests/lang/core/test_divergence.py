"""Barriers that not all threads of a block reach: errors where indices prove it, else failures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError, LaunchError

SAID = "a barrier that some threads of a block reach and others do not"


@weft.kernel
def under_grid(x: Any) -> None:
    if gpu.grid(1) < 40:
        gpu.syncthreads()


@weft.kernel
def in_first_block(x: Any) -> None:
    if gpu.blockIdx.x == 0 and gpu.grid(1) < 40:
        gpu.syncthreads()


@weft.kernel
def not_in_first_block(x: Any) -> None:
    if gpu.blockIdx.x > 0 and gpu.grid(1) < 40:
        gpu.syncthreads()


@weft.kernel
def in_second_block(x: Any) -> None:
    if gpu.blockIdx.x == 1:  # noqa: SIM102 - two tests, the first one is the block's
        if gpu.threadIdx.x < 4:
            gpu.syncthreads()


@pytest.mark.parametrize("kernel", [under_grid, in_first_block, in_second_block])
def test_indices_of_the_first_block_prove_it(kernel: Any) -> None:
    """Every launch has a first block."""
    with pytest.raises(KernelError, match=SAID):
        kernel[2, 64](np.zeros(1))


@pytest.mark.parametrize(("kernel", "block"), [
    (under_grid, 20), (in_first_block, 32), (not_in_first_block, 64),
])  # fmt: skip
def test_where_nothing_is_wrong_nothing_is_said(kernel: Any, block: int) -> None:
    kernel[2, block](np.zeros(1))
    assert not weft.sanitize(kernel, 2, block)(np.zeros(1)).findings


@weft.kernel(check=True)
def by_data_at_the_end(x: Any) -> None:
    t = gpu.threadIdx.x
    if x[t] > 0:
        gpu.syncthreads()
        x[t] = 5


@weft.kernel(check=True)
def by_data_after_others(x: Any) -> None:
    t = gpu.threadIdx.x
    if x[t] > 0:
        x[t] += 1
    else:
        gpu.syncthreads()


@weft.kernel(check=True)
def after_a_return(x: Any) -> None:
    """Threads that have returned are not waited for."""
    t = gpu.threadIdx.x
    if x[t] <= 0:
        return
    gpu.syncthreads()
    x[t] = 5


@pytest.mark.parametrize("block", [3, 16, 33])
def test_data_decide_when_the_kernel_runs(block: int) -> None:
    mixed = np.arange(block) - block // 2
    for kernel in (by_data_at_the_end, by_data_after_others):
        with pytest.raises(LaunchError, match=SAID):
            kernel[1, block](mixed.copy())
        kernel[1, block](np.ones(block))
        kernel[1, block](-np.ones(block))
    x = mixed.copy()
    after_a_return[1, block](x)
    np.testing.assert_array_equal(x, np.where(mixed > 0, 5, mixed))
