"""Cooperative groups: barriers of the whole grid, blocks, and tiles of a warp."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import cg, gpu
from weft.compat import cuda
from weft.errors import KernelError, LaunchError

RNG = np.random.default_rng(0)


@weft.kernel
def sweeps(x: Any, y: Any, count: Any) -> None:
    """Average neighbours `count` times: each sweep needs all of the sweep before."""
    i = gpu.grid(1)
    for _ in range(count):
        if i < x.shape[0]:
            left = x[i - 1] if i > 0 else x[i]
            right = x[i + 1] if i + 1 < x.shape[0] else x[i]
            y[i] = (left + right) / 2
        cg.this_grid().sync()
        if i < x.shape[0]:
            x[i] = y[i]
        cg.this_grid().sync()


def swept(x: Any, count: int) -> Any:
    for _ in range(count):
        x = (np.concatenate([x[:1], x[:-1]]) + np.concatenate([x[1:], x[-1:]])) / 2
    return x


@pytest.mark.parametrize(("n", "count"), [(1, 1), (37, 5), (256, 3), (250, 0)])
def test_barriers_of_the_grid_in_a_loop(n: int, count: int) -> None:
    x = RNG.standard_normal(n)
    for grid, block in ((-(-n // 32), 32), (8, 33)):
        a, b, y = x.copy(), x.copy(), np.zeros(n)
        sweeps[grid, block](a, y, count)
        np.testing.assert_allclose(a, swept(x, count), rtol=1e-12)
        report = weft.sanitize(sweeps, grid, block)(b, y, count)
        assert not report.findings, str(report)
        np.testing.assert_array_equal(a, b)


@weft.kernel
def whole_sum(x: Any, parts: Any, out: Any) -> None:
    """Add up in blocks, by shared memory, and then the sums of the blocks in each block."""
    s = gpu.shared.array(64, weft.float64)
    t, block = gpu.threadIdx.x, gpu.blockIdx.x + gpu.gridDim.x * gpu.blockIdx.y
    total = 0.0
    for i in range(cg.this_grid().thread_rank(), x.shape[0], cg.this_grid().size()):
        total += x[i]
    s[t] = total
    cg.this_thread_block().sync()
    d = 32
    while d > 0:
        if t < d:
            s[t] += s[t + d]
        gpu.syncthreads()
        d //= 2
    if t == 0:
        parts[block] = s[0]
    cg.this_grid().sync()
    found = 0.0
    for k in range(parts.shape[0]):
        found += parts[k]
    if t == 0:
        out[block] = found + s[0]


def test_shared_memory_lives_on_over_a_barrier_of_the_grid() -> None:
    x = RNG.integers(0, 1000, 3001).astype(np.float64)
    for grid in ((5, 1), (2, 3)):
        n = grid[0] * grid[1]
        parts, out, other = np.zeros(n), np.zeros(n), np.zeros(n)
        whole_sum[grid, 64](x, parts, out)
        np.testing.assert_array_equal(out, x.sum() + parts)
        assert not weft.sanitize(whole_sum, grid, 64)(x, parts, other).findings
        np.testing.assert_array_equal(out, other)


def test_a_missing_barrier_of_the_grid_is_a_race() -> None:
    @weft.kernel
    def racy(x: Any, y: Any) -> None:
        i = gpu.grid(1)
        x[i] = i
        gpu.syncthreads()
        y[i] = x[(i + 32) % x.shape[0]]

    findings = weft.sanitize(racy, 4, 32)(np.zeros(128), np.zeros(128)).findings
    assert [f.kind for f in findings] == ["race"]


def test_numba_names() -> None:
    @cuda.jit
    def both(x: Any, y: Any) -> None:
        grid = cuda.cg.this_grid()
        i = cuda.grid(1)
        x[i] = i
        grid.sync()
        y[i] = x[x.shape[0] - 1 - i]

    x, y = np.zeros(96), np.zeros(96)
    both[3, 32](x, y)
    np.testing.assert_array_equal(y, np.arange(96)[::-1])


def test_limits_are_errors() -> None:
    @weft.kernel
    def counted(x: Any) -> None:
        gpu.grid_sync()
        x[gpu.grid(1)] = gpu.syncthreads_count(gpu.threadIdx.x < 3)

    @weft.kernel
    def many(x: Any) -> None:
        x[gpu.grid(1)] = 1
        gpu.grid_sync()

    @weft.kernel
    def apart(x: Any) -> None:
        gpu.grid_sync()
        for _ in range(x[gpu.blockIdx.x]):
            gpu.syncthreads()

    with pytest.raises(KernelError, match="counts the threads"):
        counted[2, 32](np.zeros(64))
    with pytest.raises(KernelError, match="262144 threads"):
        many[257, 1024](np.zeros(257 << 10))
    with pytest.raises(LaunchError, match="waits for its grid"):
        apart[2, 32](np.arange(64))
    many[256, 1024](np.zeros(256 << 10))


@weft.kernel
def tiles(x: Any, out: Any) -> None:
    tile = cg.tiled_partition(cg.this_thread_block(), 8)
    i = gpu.grid(1)
    total = x[i]
    d = tile.size() // 2
    while d > 0:
        total += tile.shfl_down(total, d)
        d //= 2
    total = tile.shfl(total, 0)
    tile.sync()
    out[i, 0] = total
    out[i, 1] = tile.thread_rank() + 100 * tile.meta_group_rank()
    out[i, 2] = tile.ballot(x[i] > 5)
    out[i, 3] = tile.any(x[i] > 8) * 2 + tile.all(x[i] > 0)
    out[i, 4] = tile.shfl_xor(x[i], 1)


def test_tiles_of_a_warp() -> None:
    x = RNG.integers(0, 10, 128)
    out, other = np.zeros((128, 5), np.int64), np.zeros((128, 5), np.int64)
    tiles[2, 64](x, out)
    assert not weft.sanitize(tiles, 2, 64)(x, other).findings
    np.testing.assert_array_equal(out, other)
    rows = x.reshape(-1, 8)
    np.testing.assert_array_equal(out[:, 0], np.repeat(rows.sum(1), 8))
    np.testing.assert_array_equal(out[:, 1], np.arange(128) % 8 + 100 * (np.arange(128) % 64 // 8))
    bits = ((rows > 5) << np.arange(8)).sum(1)
    np.testing.assert_array_equal(out[:, 2], np.repeat(bits, 8))
    flags = (rows > 8).any(1) * 2 + (rows > 0).all(1)
    np.testing.assert_array_equal(out[:, 3], np.repeat(flags, 8))
    np.testing.assert_array_equal(out[:, 4], rows.reshape(-1, 2)[:, ::-1].ravel())


@weft.kernel
def votes_by_group(x: Any, out: Any) -> None:
    """Vote in groups of 4 and 8 lanes at once: each names its own."""
    t = gpu.threadIdx.x
    width = 4 if t < 16 else 8
    mask = weft.uint32(((1 << width) - 1) << (t // width * width % 32))
    out[t, 0] = gpu.any_sync(mask, x[t] == 3)
    out[t, 1] = gpu.all_sync(mask, x[t] < 3)
    out[t, 2] = gpu.eq_sync(mask, x[t] == 1)
    out[t, 3] = gpu.ballot_sync(mask, x[t] > 1)
    out[t, 4] = gpu.match_any_sync(mask, x[t])
    found, same = gpu.match_all_sync(mask, x[t])
    out[t, 5] = found + (same << 40)


def test_groups_of_a_warp_vote_for_themselves() -> None:
    for most in (2, 3, 4):
        x = RNG.integers(most - 2, most, 32)
        out, other = np.zeros((32, 6), np.int64), np.zeros((32, 6), np.int64)
        votes_by_group[1, 32](x, out)
        assert not weft.sanitize(votes_by_group, 1, 32)(x, other).findings
        np.testing.assert_array_equal(out, other)


def test_a_cooperative_program_of_numba() -> None:
    """numba's example of a cooperative launch: each row needs all of the row before."""
    signature = cuda.void(cuda.int32[:, ::1])

    @cuda.jit(signature)
    def sequential_rows(m: Any) -> None:
        col = cuda.grid(1)
        group = cuda.cg.this_grid()
        cols = m.shape[1]
        for row in range(1, m.shape[0]):
            m[row, col] = m[row - 1, cols - col - 1] + 1
            group.sync()

    overload = sequential_rows.overloads[signature]
    assert overload.max_cooperative_grid_blocks(32) == 8192
    assert overload.max_cooperative_grid_blocks((32, 32)) == 256
    m = np.zeros((100, 256), np.int32)
    sequential_rows[8, 32](m)
    np.testing.assert_array_equal(m, np.tile(np.arange(100), (256, 1)).T)
