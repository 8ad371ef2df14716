"""Groups of threads of a warp: tiles and those that are at one place together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import cg, gpu
from weft.compat import cuda

RNG = np.random.default_rng(0)


def both(kernel: Any, grid: int, block: int, *args: Any) -> None:
    """Run natively and with the sanitiser, which must find nothing and write the same."""
    others = [a.copy() for a in args]
    kernel[grid, block](*args)
    report = weft.sanitize(kernel, grid, block)(*others)
    assert not report.findings, str(report)
    for a, b in zip(args, others, strict=True):
        np.testing.assert_array_equal(a, b)


@weft.kernel
def of_some(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if x[i] % 3 != 0:
        g = cg.coalesced_threads()
        out[i, 0] = g.num_threads() + 100 * g.size()
        out[i, 1] = g.thread_rank()
        out[i, 2] = g.shfl(x[i], 0)
        out[i, 3] = g.shfl_up(x[i], 1)
        out[i, 4] = g.shfl_down(x[i], 2)
        out[i, 5] = g.any(x[i] > 90) * 2 + g.all(x[i] > 3)
        out[i, 6] = g.ballot(x[i] > 50)
        out[i, 7] = cg.reduce(g, x[i], cg.plus)
        out[i, 8] = cg.reduce(g, x[i], cg.greater)
        out[i, 9] = cg.inclusive_scan(g, x[i], cg.plus)
        out[i, 10] = cg.exclusive_scan(g, x[i], cg.plus)
        out[i, 11] = g.match_any(x[i] // 50)
        cg.sync(g)


@pytest.mark.grid
@pytest.mark.parametrize(("grid", "block"), [(1, 1), (2, 32), (1, 45), (3, 64)])
def test_threads_that_are_at_one_place(grid: int, block: int) -> None:
    n = grid * block
    x = RNG.integers(0, 100, n)
    out = np.zeros((n, 12), np.int64)
    both(of_some, grid, block, x, out)
    expected = np.zeros_like(out)
    for b in range(grid):
        for w in range(0, block, 32):
            at = [i for i in range(b * block + w, b * block + min(w + 32, block)) if x[i] % 3]
            v = [int(x[i]) for i in at]
            for r, i in enumerate(at):
                expected[i] = [
                    len(at) * 101, r, v[0], v[max(r - 1, 0)], v[r + 2 if r + 2 < len(v) else r],
                    any(y > 90 for y in v) * 2 + all(y > 3 for y in v),
                    sum((y > 50) << k for k, y in enumerate(v)), sum(v), max(v), sum(v[:r + 1]),
                    sum(v[:r]), sum((y // 50 == v[r] // 50) << k for k, y in enumerate(v))]
    np.testing.assert_array_equal(out, expected)


def odd(a: Any, b: Any) -> Any:
    return a ^ b


def in_tiles(width: int) -> Any:
    @weft.kernel
    def tiles(x: Any, out: Any) -> None:
        i = gpu.grid(1)
        tile = cg.tiled_partition(cg.this_thread_block(), width)
        out[i, 0] = tile.num_threads() * 100 + tile.thread_rank()
        out[i, 1] = cg.reduce(tile, x[i], cg.plus)
        out[i, 2] = cg.reduce(tile, x[i], cg.less)
        out[i, 3] = cg.inclusive_scan(tile, x[i], cg.plus)
        out[i, 4] = cg.exclusive_scan(tile, x[i], cg.plus, 7)
        out[i, 5] = tile.ballot(x[i] > 50)
        out[i, 6] = cg.reduce(tile, x[i], odd)
        out[i, 7] = tile.match_any(x[i] > 50)
        cg.sync(tile)

    return tiles


@pytest.mark.grid
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
def test_tiles_of_every_width(width: int) -> None:
    x = RNG.integers(0, 100, 128)
    out = np.zeros((128, 8), np.int64)
    both(in_tiles(width), 2, 64, x, out)
    rows = x.reshape(-1, width)

    def each(v: Any) -> Any:
        return np.repeat(v, width)

    bits = (rows > 50).astype(np.int64) << np.arange(width)
    mine = each(bits.sum(1))
    expected = [
        width * 100 + np.arange(128) % width, each(rows.sum(1)), each(rows.min(1)),
        rows.cumsum(1).ravel(), 7 + (rows.cumsum(1) - rows).ravel(), mine,
        each(np.bitwise_xor.reduce(rows, 1)),
        np.where(x > 50, mine, ((1 << width) - 1) ^ mine)]
    for k, column in enumerate(expected):
        np.testing.assert_array_equal(out[:, k], column)


@weft.kernel
def scans(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    tile = cg.tiled_partition(cg.this_thread_block(), 8)
    out[i, 0] = cg.exclusive_scan(tile, x[i], cg.greater)
    out[i, 1] = cg.exclusive_scan(tile, x[i], cg.less)
    out[i, 2] = cg.exclusive_scan(tile, x[i], cg.bit_and)
    out[i, 3] = cg.exclusive_scan(tile, x[i])
    out[i, 4] = cg.inclusive_scan(tile, x[i])
    out[i, 5] = cg.exclusive_scan(tile, x[i], cg.greater, -5)


@pytest.mark.parametrize(("low", "high"), [(-100, -1), (1, 100)])
def test_scans_without_a_first_value(low: int, high: int) -> None:
    """Nothing joins what the threads have; where none is below, the value is 0."""
    x = RNG.integers(low, high, 64)
    out = np.zeros((64, 6), np.int64)
    both(scans, 2, 32, x, out)
    for k, function in enumerate(
            [np.maximum, np.minimum, np.bitwise_and, np.add, np.add, np.maximum]):
        for mine, of in zip(out[:, k].reshape(-1, 8), x.reshape(-1, 8), strict=True):
            running = function.accumulate(of)
            if k == 5:
                expected = np.maximum([-5, *running[:-1]], -5)
            else:
                expected = running if k == 4 else np.array([0, *running[:-1]])
            np.testing.assert_array_equal(mine, expected)


def test_parts_of_groups() -> None:
    """Of a tile a smaller tile; of threads that are together as many as follow each other."""

    @cuda.jit
    def parts(x, out):
        i = cuda.grid(1)
        half = cuda.cg.tiled_partition(cuda.cg.tiled_partition(cuda.cg.this_thread_block(), 16), 4)
        out[i, 0] = cuda.cg.reduce(half, x[i], cuda.cg.plus)
        if x[i] % 2 == 1:
            g = cuda.cg.tiled_partition(cuda.cg.coalesced_threads(), 4)
            out[i, 1] = g.num_threads()
            out[i, 2] = cuda.cg.reduce(g, x[i], cuda.cg.plus)

    x = RNG.integers(0, 100, 64)
    out = np.zeros((64, 3), np.int64)
    both(parts, 1, 64, x, out)
    np.testing.assert_array_equal(out[:, 0], np.repeat(x.reshape(-1, 4).sum(1), 4))
    for w in (0, 32):
        at = w + np.flatnonzero(x[w:w + 32] % 2)
        for k in range(0, len(at), 4):
            np.testing.assert_array_equal(out[at[k:k + 4], 1], len(at[k:k + 4]))
            np.testing.assert_array_equal(out[at[k:k + 4], 2], x[at[k:k + 4]].sum())


def test_one_atomic_operation_for_a_group() -> None:
    """The textbook's filter: the first of the group reserves places for all of it."""

    @weft.kernel
    def keep(x: Any, out: Any, count: Any) -> None:
        i = gpu.grid(1)
        if i < x.shape[0] and x[i] > 60:
            g = cg.coalesced_threads()
            first = 0
            if g.thread_rank() == 0:
                first = gpu.atomic.add(count, 0, g.num_threads())
            first = g.shfl(first, 0)
            out[first + g.thread_rank()] = x[i]

    x = RNG.integers(0, 100, 1000)
    out, count = np.full(1000, -1), np.zeros(1, np.int64)
    keep[8, 128](x, out, count)
    assert count[0] == (x > 60).sum()
    np.testing.assert_array_equal(np.sort(out[:count[0]]), np.sort(x[x > 60]))
    assert not weft.sanitize(keep, 8, 128)(x, out, np.zeros(1, np.int64)).findings
