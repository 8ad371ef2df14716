"""Blocks that fill the same tiles are run together, and nothing else changes by that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import float32, float64, gpu, int32
from weft.driver import pipeline
from weft.errors import BoundsError
from weft.ir.stmt import PARALLEL, Alloc, For, Kernel
from weft.ir.traverse import walk
from weft.lang.reader.translate import Launch, translate
from weft.passes.spmd.loop_fission import blocks_to_loops
from weft.passes.spmd.thread_block_coarsening import Room

LANES = 16
ROOM = Room(1 << 18, 1)


def product(tile: int, dtype: Any = float32, pad: int = 0) -> Any:
    @weft.kernel
    def guarded(a, b, c):
        left = gpu.shared.array((tile, tile + pad), dtype)
        right = gpu.shared.array((tile, tile + pad), dtype)
        x, y = gpu.grid(2)
        tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
        total = dtype(0)
        for i in range((a.shape[1] + tile - 1) // tile):
            left[ty, tx] = 0
            right[ty, tx] = 0
            if y < a.shape[0] and tx + i * tile < a.shape[1]:
                left[ty, tx] = a[y, tx + i * tile]
            if x < b.shape[1] and ty + i * tile < b.shape[0]:
                right[ty, tx] = b[ty + i * tile, x]
            gpu.syncthreads()
            for k in range(tile):
                total += left[ty, k] * right[k, tx]
            gpu.syncthreads()
        if y < c.shape[0] and x < c.shape[1]:
            c[y, x] = total

    return guarded


@weft.kernel
def unguarded(a, b, c):
    """Indices are checked: nothing says that they are right."""
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
    c[y, x] = total


@weft.kernel
def rows_first(a, b, c):
    """Call the first axis the rows, and fill the right tile transposed."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 9), float32)
    y, x = gpu.grid(2)
    ty, tx = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        left[ty, tx] = a[y, k + tx] if y < a.shape[0] and k + tx < a.shape[1] else 0
        right[tx, ty] = b[k + ty, x] if k + ty < b.shape[0] and x < b.shape[1] else 0
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[tx, m]
        gpu.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@weft.kernel
def by_number(a, b, c):
    """Number the threads of a block along one axis, each with four sums."""
    left = gpu.shared.array((16, 8), float32)
    right = gpu.shared.array((8, 16), float32)
    t = gpu.threadIdx.x
    top, edge = gpu.blockIdx.y * 16, gpu.blockIdx.x * 16
    sums = gpu.local.array(4, float32)
    for e in range(4):
        sums[e] = 0
    for k in range(0, a.shape[1], 8):
        for e in range(t, 128, 64):
            i, j = e // 8, e % 8
            inside = top + i < a.shape[0] and k + j < a.shape[1]
            left[i, j] = a[top + i, k + j] if inside else 0
            i, j = e // 16, e % 16
            inside = k + i < b.shape[0] and edge + j < b.shape[1]
            right[i, j] = b[k + i, edge + j] if inside else 0
        gpu.syncthreads()
        for m in range(8):
            for e in range(4):
                sums[e] += left[t // 16 * 4 + e, m] * right[m, t % 16]
        gpu.syncthreads()
    for e in range(4):
        i, j = top + t // 16 * 4 + e, edge + t % 16
        if i < c.shape[0] and j < c.shape[1]:
            c[i, j] = sums[e]


@weft.kernel
def squares(a, b, c):
    """Four by four sums a thread, one of which changes where a condition holds."""
    left = gpu.shared.array((16, 8), float32)
    right = gpu.shared.array((8, 64), float32)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    top, edge = gpu.blockIdx.y * 16, gpu.blockIdx.x * 64
    sums = gpu.local.array((4, 4), float32)
    for i in range(4):
        for j in range(4):
            sums[i, j] = 0
    for k in range(0, a.shape[1], 8):
        for e in range(tx + 16 * ty, 128, 64):
            i, j = e // 8, e % 8
            inside = top + i < a.shape[0] and k + j < a.shape[1]
            left[i, j] = a[top + i, k + j] if inside else 0
        for e in range(tx + 16 * ty, 512, 64):
            i, j = e // 64, e % 64
            inside = k + i < b.shape[0] and edge + j < b.shape[1]
            right[i, j] = b[k + i, edge + j] if inside else 0
        gpu.syncthreads()
        for m in range(8):
            for i in range(4):
                for j in range(4):
                    sums[i, j] += left[ty * 4 + i, m] * right[m, tx + 16 * j]
            if left[ty, m] > 1:
                sums[1, 2] += 0.5
        gpu.syncthreads()
    for i in range(4):
        for j in range(4):
            y, x = top + ty * 4 + i, edge + tx + 16 * j
            if y < c.shape[0] and x < c.shape[1]:
                c[y, x] = sums[i, j]


@weft.kernel
def ahead(a, b, c):
    """Read the next tiles into registers while the present ones are multiplied."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    p = a[y, tx] if y < a.shape[0] and tx < a.shape[1] else float32(0)
    q = b[ty, x] if ty < b.shape[0] and x < b.shape[1] else float32(0)
    for k in range(0, a.shape[1], 8):
        left[ty, tx] = p
        right[ty, tx] = q
        gpu.syncthreads()
        p = a[y, k + 8 + tx] if y < a.shape[0] and k + 8 + tx < a.shape[1] else float32(0)
        q = b[k + 8 + ty, x] if k + 8 + ty < b.shape[0] and x < b.shape[1] else float32(0)
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@weft.kernel
def scaled(a, b, c):
    """Sum the rows of both tiles on the way, each in an array of the block."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    seen = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    seen[ty, tx] = gpu.blockIdx.x + 2 * gpu.blockIdx.y
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        left[ty, tx] = a[y, k + tx] if y < a.shape[0] and k + tx < a.shape[1] else 0
        right[ty, tx] = b[k + ty, x] if k + ty < b.shape[0] and x < b.shape[1] else 0
        seen[ty, tx] += left[ty, tx] - right[ty, tx]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx] + seen[m, tx]
        gpu.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@weft.kernel
def chosen(a, b, c):
    """A loop that ends by a condition, tiles by nested choices."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    k = 0
    while k < a.shape[1]:
        p = float32(0)
        if y < a.shape[0]:
            p = a[y, k + tx] if k + tx < a.shape[1] else float32(0)
        left[ty, tx] = p
        right[ty, tx] = b[k + ty, x] if k + ty < b.shape[0] and x < b.shape[1] else 0
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
        k += 8
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@weft.kernel
def mixed(a, b, c):
    """Set a register of both tiles in one condition, and count in what outlives the turn."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total, turns = float32(0), 0
    for k in range(0, a.shape[1], 8):
        p = q = float32(0)
        if k + tx < a.shape[1] and k + ty < a.shape[1]:
            if y < a.shape[0]:
                p = a[y, k + tx]
            if x < b.shape[1]:
                q = b[k + ty, x]
        elif k + tx < a.shape[1]:
            p = a[y, k + tx] if y < a.shape[0] else float32(0)
        elif k + ty < a.shape[1] and x < b.shape[1]:
            q = b[k + ty, x]
        left[ty, tx] = p
        turns += 2
        right[ty, tx] = q * turns
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx] / turns
        gpu.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


TILED = {
    "squares": (squares, (64, 16), (16, 4)),
    "chosen": (chosen, (8, 8), (8, 8)), "mixed": (mixed, (8, 8), (8, 8)),
    "16": (product(16), (16, 16), (16, 16)), "8 padded": (product(8, pad=1), (8, 8), (8, 8)),
    "5": (product(5), (5, 5), (5, 5)), "float64": (product(16, float64), (16, 16), (16, 16)),
    "rows first": (rows_first, (8, 8), (8, 8)), "by number": (by_number, (16, 16), (64, 1)),
    "ahead": (ahead, (8, 8), (8, 8)), "scaled": (scaled, (8, 8), (8, 8)),
}  # fmt: skip


def shared_shapes(kernel: Any, args: tuple[Any, ...], block: tuple[int, int],
                  room: Room = ROOM) -> list[tuple[int, ...]]:  # fmt: skip
    """Return the shapes of the shared arrays of what is compiled."""
    nest = translate(kernel.__weft_function__, kernel[(2, 2), block].take(args).types,
                     Launch((*block, 1), 2, 0))
    flat = blocks_to_loops(nest, LANES, room)
    names = {s.memory.name for s in walk(nest.body)
             if isinstance(s, Alloc) and s.memory.scope == "shared"}
    return [tuple(int(e.attr) for e in s.memory.shape) for s in walk(flat.body)
            if isinstance(s, Alloc) and s.memory.name in names]


def operands(seed: int, m: int, n: int, k: int, dtype: Any = np.float32) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype),
            np.full((m, n), np.nan, dtype))


def both(kernel: Any, grid: Any, block: Any, args: tuple[Any, ...]) -> list[np.ndarray[Any, Any]]:
    """Run a kernel compiled and on the interpreter, compare all arguments, and return them."""
    first, second = ([np.copy(a) if isinstance(a, np.ndarray) else a for a in args]
                     for _ in range(2))
    kernel[grid, block](*first)
    weft.interpret(kernel, grid, block)(*second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    return first


@pytest.mark.grid
@pytest.mark.parametrize("name", TILED)
@pytest.mark.parametrize("seed", range(4))
def test_products_have_the_bits_of_blocks_by_themselves(name: str, seed: int) -> None:
    kernel, tile, block = TILED[name]
    rng = np.random.default_rng(seed + 100)
    m, n, k = (int(v) for v in rng.integers(1, 90, 3))
    dtype = np.float64 if name == "float64" else np.float32
    args = operands(seed, m, n, k, dtype)
    sizes = (m, n) if name == "rows first" else (n, m)
    grid = tuple(weft.cdiv(v, t) for v, t in zip(sizes, tile, strict=True))
    *_, c = both(kernel, grid, block, args)
    if name not in {"scaled", "squares"}:
        expected = args[0].astype(np.float64) @ args[1]
        np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4)
    assert len(shared_shapes(kernel, args, block)[0]) == 3, "blocks were not run together"


@pytest.mark.grid
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("grid", [(1, 1), (3, 1), (1, 3), (40, 33), (7, 50)])
def test_every_block_runs_once(grid: tuple[int, int], threads: int,
                               monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """The shape of the groups follows from the grid; their edges are not those of tiles."""
    monkeypatch.setattr(pipeline, "Room", lambda nbytes, _: Room(nbytes, threads))
    args = operands(1, grid[1] * 5, grid[0] * 5, 7)
    c = np.zeros_like(args[2])
    kernel = product(5, pad=10 + threads)  # a text that was not compiled before
    kernel[grid, (5, 5)](args[0], args[1], c)
    np.testing.assert_allclose(c, args[0].astype(np.float64) @ args[1], rtol=1e-4, atol=1e-4)


def test_infinite_and_missing_values_stay_where_they_are() -> None:
    a, b, c = operands(3, 37, 41, 29)
    a[3, 5], a[7, 28], b[2, 9], b[28, 40] = np.inf, np.nan, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        both(TILED["8 padded"][0], (6, 5), (8, 8), (a, b, c))


def test_arrays_of_one_tile_for_a_row_and_a_column() -> None:
    """The left tile is there for each row of blocks, the right one for each column."""
    shapes = shared_shapes(product(16), operands(0, 9, 9, 9), (16, 16))
    (rows, *left), (columns, *right) = shapes
    assert left == right == [16, 16]
    assert 1 < rows < columns
    assert shared_shapes(product(16), operands(0, 9, 9, 9), (16, 16), Room(1 << 12, 1)) == [
        (16, 16), (16, 16)], "no room"


def test_one_block_may_write_to_what_it_read() -> None:
    """The product is written where the left matrix was, after the last barrier."""
    for seed in range(3):
        a, b, _ = operands(seed, 8, 8, 8)
        first, second = a.copy(), a.copy()
        unguarded[(1, 1), (8, 8)](first, b, first)
        weft.interpret(unguarded, (1, 1), (8, 8))(second, b, second)
        np.testing.assert_array_equal(first, second)


def test_an_index_out_of_bounds_is_still_found() -> None:
    a, b, c = operands(0, 40, 48, 32)
    *_, found = both(unguarded, (6, 5), (8, 8), (a, b, c))
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    for grid in ((7, 5), (6, 6)):
        with pytest.raises(BoundsError, match="unguarded"):
            unguarded[grid, (8, 8)](a, b, c)
    with pytest.raises(BoundsError, match="unguarded"):
        unguarded[(6, 5), (8, 8)](a, b[:-3], c)


# --- what is not the same for a row or a column of blocks


@weft.kernel
def shifted(a, b, c):
    """The left tile depends on the column by a value that is read."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    shift = int32(b[0, gpu.blockIdx.x] > 0)
    total = float32(0)
    for k in range(0, a.shape[1] - 8, 8):
        left[ty, tx] = a[y, k + tx + shift]
        right[ty, tx] = b[k + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    c[y, x] = total


@weft.kernel
def filled_where(a, b, c):
    """Whether the left tile is filled depends on the column, and where on a counter."""
    left = gpu.shared.array((2, 8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    left[0, ty, tx] = 1
    left[1, ty, tx] = 2
    place = 0
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        if gpu.blockIdx.x % 2 == 1:
            left[place, ty, tx] = a[y, k + tx]
        place = 1 - place
        right[ty, tx] = b[k + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[place, ty, m] * right[m, tx]
        gpu.syncthreads()
    c[y, x] = total


@weft.kernel
def triangular(a, b, c):
    """Blocks make as many turns as their row says."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    for k in range(gpu.blockIdx.y + 1):
        left[ty, tx] = a[y, k * 8 + tx]
        right[ty, tx] = b[k * 8 + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    c[y, x] = total


@weft.kernel
def own_rows(a, b, c):
    """The left tile is read from what the block has written itself, to a place of its own."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    c[y, x] = a[y, x]
    total = float32(0)
    for k in range(0, a.shape[1], 8):
        left[ty, tx] = c[y, x] + k
        right[ty, tx] = b[k + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
        c[y, x] = total


@weft.kernel
def counted(a, b, c):
    """Tiles are filled by atomics."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    left[ty, tx] = 0
    gpu.syncthreads()
    for k in range(0, a.shape[1], 8):
        gpu.atomic.add(left, (ty, tx), a[y, k + tx])
        right[ty, tx] = b[k + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    c[y, x] = total


@weft.kernel
def until_found(a, b, c):
    """The number of turns is read by each block for itself."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    k = 0
    while k < 32 and b[0, gpu.blockIdx.x] > 0:
        left[ty, tx] = a[y, k + tx]
        right[ty, tx] = b[k + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
        k += 8
    c[y, x] = total


@pytest.mark.grid
@pytest.mark.parametrize("kernel", [shifted, filled_where, triangular, own_rows, counted,
                                    until_found],
                         ids=lambda k: k.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_tiles_that_differ_are_not_shared(kernel: Any, seed: int) -> None:
    args = operands(seed, 40, 40, 40)
    both(kernel, (5, 5), (8, 8), args)
    assert shared_shapes(kernel, args, (8, 8))[0][-2:] == (8, 8)
    assert len(shared_shapes(kernel, args, (8, 8))[1]) == 2, "blocks were run together"


# --- threads that return early


@weft.kernel
def returning(a, b, c, spare):
    """Whole blocks return, at the end of the grid and at its beginning."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    if x >= c.shape[1] or y >= c.shape[0]:
        return
    row = y - spare
    if row < 0:
        return
    total = float32(0)
    for k in range(a.shape[1] // 8):
        left[ty, tx] = a[row, k * 8 + tx]
        right[ty, tx] = b[k * 8 + ty, x]
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    c[y, x] = total


@weft.kernel
def returning_rows(a, b, c):
    """x is the row; both have to be too large, which never is so for one that works."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    if x >= c.shape[0] and y >= c.shape[1]:
        return
    total = float32(0)
    for k in range(gpu.gridDim.x):
        left[tx, ty] = a[x, ty + k * 8]
        right[tx, ty] = b[tx + k * 8, y]
        gpu.syncthreads()
        for m in range(8):
            total += left[tx, m] * right[m, ty]
        gpu.syncthreads()
    c[x, y] = total


@pytest.mark.grid
@pytest.mark.parametrize("more", [(0, 0), (1, 0), (0, 2), (9, 1)])
@pytest.mark.parametrize("spare", [0, 8, 24])
def test_blocks_that_return_early(more: tuple[int, int], spare: int) -> None:
    a, b, _ = operands(spare, 40, 96, 24)
    c = np.full((40 + spare, 96), np.nan, np.float32)
    args = (a, b, c, spare)
    found = both(returning, (12 + more[0], (40 + spare) // 8 + more[1]), (8, 8), args)[2]
    expected = a.astype(np.float64) @ b
    np.testing.assert_allclose(found[spare:], expected, rtol=1e-4, atol=1e-4)
    assert np.isnan(found[:spare]).all()
    assert len(shared_shapes(returning, args, (8, 8))[0]) == 3, "blocks were not run together"


def test_conditions_that_both_have_to_hold() -> None:
    for seed, n in enumerate((8, 40, 136)):
        args = operands(seed, n, n, n)
        *_, c = both(returning_rows, (n // 8, n // 8), (8, 8), args)
        np.testing.assert_allclose(c, args[0].astype(np.float64) @ args[1], rtol=1e-4, atol=1e-4)
    assert len(shared_shapes(returning_rows, args, (8, 8))[0]) == 3, "blocks were not run together"


@weft.kernel
def halves(a, b, c, parts):
    """A third axis of the grid takes part of the sum; a barrier stands in a condition of sizes."""
    left = gpu.shared.array((8, 8), float32)
    right = gpu.shared.array((8, 8), float32)
    x, y = gpu.grid(3)[0], gpu.grid(3)[1]
    tx, ty, z = gpu.threadIdx.x, gpu.threadIdx.y, gpu.blockIdx.z
    total = float32(0)
    for k in range(a.shape[1] // 8):
        if k % parts < parts - 1:
            left[ty, tx] = a[y, k * 8 + tx] if (k + z) % 2 == 0 else 0
            right[ty, tx] = b[k * 8 + ty, x]
            gpu.syncthreads()
            for m in range(8):
                total += left[ty, m] * right[m, tx]
            gpu.syncthreads()
    c[z, y, x] = total


def test_more_axes_and_conditions() -> None:
    a, b, _ = operands(4, 32, 40, 64)
    c = np.full((3, 32, 40), np.nan, np.float32)
    found = both(halves, (5, 4, 3), (8, 8, 1), (a, b, c, 3))[2]
    terms = a.reshape(32, 8, 8), b.reshape(8, 8, 40)
    for z in range(3):
        expected = sum(terms[0][:, k].astype(np.float64) @ terms[1][k] for k in range(8)
                       if k % 3 < 2 and (k + z) % 2 == 0)
        np.testing.assert_allclose(found[z], expected, rtol=1e-4, atol=1e-4)


def test_one_parallel_loop() -> None:
    nest: Kernel = translate(
        product(16).__weft_function__,
        product(16)[(1, 1), (16, 16)].take(operands(0, 3, 3, 3)).types, Launch((16, 16, 1), 2, 0))
    flat = blocks_to_loops(nest, LANES, ROOM)
    assert [s.kind for s in flat.body if isinstance(s, For)] == [PARALLEL]
