"""Blocks that run together: stretches done once for several, and blocks that return as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import float32, gpu
from weft.ir.stmt import Alloc
from weft.ir.traverse import walk
from weft.lang.reader.translate import Launch, translate
from weft.passes.spmd.loop_fission import blocks_to_loops
from weft.passes.spmd.thread_block_coarsening import Room


@weft.kernel
def added(a, b, c):
    """Add to the left tile, and read one's own element before the barrier."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    left[ty, tx] = 0
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        left[ty, tx] += a[y, k + tx]
        right[ty, tx] = b[k + ty, x]
        total += left[ty, tx]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    c[y, x] = total


@weft.kernel
def used_up(a, b, c):
    """Read what the turn before left in both tiles, then fill them."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    left[ty, tx] = right[ty, tx] = 1
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        if (tx + ty) % 2 == 0:
            total += left[ty, tx] * right[ty, tx]
        left[ty, tx] = a[y, k + tx]
        right[ty, tx] = b[k + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    c[y, x] = total


@weft.kernel
def halved(a, b, c):
    """Change what was read of the left tile in a loop of the thread."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        left[ty, tx] = a[y, k + tx]
        right[ty, tx] = b[k + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
        for _ in range(2):
            left[ty, tx] /= 2
            total += left[ty, tx]
        gpu.syncthreads()
    c[y, x] = total


@weft.kernel
def two_places(a, b, c):
    """Fill one place of each tile before the barrier behind which it is multiplied."""
    left = gpu.shared.array((2, 8, 8), float32)
    right = gpu.shared.array((2, 8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    left[0, ty, tx] = a[y, tx]
    right[0, ty, tx] = b[ty, x]
    gpu.syncthreads()
    total = float32(0)
    place = 0
    for k in range(8, a.shape[1] + 8, 8):
        for m in range(8):
            total += left[place, ty, m] * right[place, m, tx]
        if k < a.shape[1]:
            left[1 - place, ty, tx] = a[y, k + tx]
            right[1 - place, ty, tx] = b[k + ty, x]
        place = 1 - place
        gpu.syncthreads()
    c[y, x] = total


def compare(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Run a kernel compiled and on the interpreter, compare the last argument, and return it."""
    *read, result = args
    first, second = result.copy(), result.copy()
    kernel[grid, (8, 8)](*read, first)
    weft.interpret(kernel, grid, (8, 8))(*read, second)
    np.testing.assert_array_equal(first, second)
    return first


def operands(seed: int, m: int, n: int, k: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((m, k)).astype(np.float32),
            rng.standard_normal((k, n)).astype(np.float32), np.full((m, n), np.nan, np.float32))


@pytest.mark.parametrize("kernel", [added, used_up, halved, two_places],
                         ids=lambda k: k.__name__)
@pytest.mark.parametrize("seed", range(3))
def test_a_stretch_that_changes_what_it_reads_is_done_once(kernel: Any, seed: int) -> None:
    m, n, k = (8 * int(v) for v in np.random.default_rng(seed).integers(2, 9, 3))
    compare(kernel, (n // 8, m // 8), operands(seed, m, n, k))


@pytest.mark.parametrize(("kernel", "sizes"), [(added, (2, 2)), (two_places, (4, 4))],
                         ids=["added", "two_places"])
def test_blocks_share_arrays_that_stay_the_same(kernel: Any, sizes: tuple[int, int]) -> None:
    args = operands(0, 16, 16, 16)
    nest = translate(kernel.__weft_function__, kernel[(2, 2), (8, 8)].take(args).types,
                     Launch((8, 8, 1), 2, 0))
    names = {s.memory.name for s in walk(nest.body)
             if isinstance(s, Alloc) and s.memory.scope == "shared"}
    flat = blocks_to_loops(nest, 16, Room(1 << 18, 1))
    found = [len(s.memory.shape) for s in walk(flat.body)
             if isinstance(s, Alloc) and s.memory.name in names]
    assert tuple(found) == sizes


# --- blocks of which some return, which no corner of a rectangle tells


def returning(condition: str) -> Any:
    """Return a kernel whose blocks return where a condition on their indices holds."""
    text = f"""
def returns(a, b, c):
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    u, v = gpu.blockIdx.x, gpu.blockIdx.y
    if {condition}:
        return
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        left[ty, tx] = a[y, k + tx]
        right[ty, tx] = b[k + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    c[y, x] = total
"""
    names = {"gpu": gpu, "float32": float32}
    exec(text, names)
    return weft.kernel(names["returns"])


@pytest.mark.grid
@pytest.mark.parametrize("condition", [
    "u % 3 < 1", "v % 3 >= 1", "((u * 3) >> 1) % 2 > 0", "(u - 4) * (u - 4) < 5", "u * v > 9",
    "min(u, 7 - u) > 1", "abs(v - 3) < 2", "(u ^ v) < 3", "u // 2 == v // 2", "u < v", "8 - u < v",
])
def test_blocks_return_in_the_middle_of_a_rectangle(condition: str) -> None:
    args = operands(len(condition), 56, 80, 24)
    c = compare(returning(condition), (10, 7), args)
    u, v = np.meshgrid(np.arange(10), np.arange(7))
    names = {"u": u, "v": v, "abs": np.abs, "min": np.minimum}
    left = np.kron(eval(condition, names), np.ones((8, 8), bool))
    np.testing.assert_array_equal(np.isnan(c), left)
    expected = args[0].astype(np.float64) @ args[1]
    np.testing.assert_allclose(c[~left], expected[~left], rtol=1e-4, atol=1e-4)
