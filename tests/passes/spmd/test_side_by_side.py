"""Threads of a block as rows of lanes, early returns, and products that are fused into sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import weft
from weft import float32, gpu
from weft import int32 as gpu_int

TILE = 8


@weft.kernel
def product(a: Any, b: Any, c: Any) -> None:
    """Multiply by way of tiles; threads outside of the result leave at once."""
    left = gpu.shared.array((TILE, TILE), float32)
    right = gpu.shared.array((TILE, TILE), float32)
    x, y = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    for i in range((a.shape[1] + TILE - 1) // TILE):
        left[ty, tx] = 0
        right[ty, tx] = 0
        if y < a.shape[0] and i * TILE + tx < a.shape[1]:
            left[ty, tx] = a[y, i * TILE + tx]
        if x < b.shape[1] and i * TILE + ty < b.shape[0]:
            right[ty, tx] = b[i * TILE + ty, x]
        gpu.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        gpu.syncthreads()
    if y < c.shape[0] and x < c.shape[1]:
        c[y, x] = total


@weft.kernel
def leaving(a: Any, out: Any, n: int) -> None:
    """Sum what the threads of a block hold, after two kinds of threads have left."""
    held = gpu.shared.array(64, float32)
    i = gpu.grid(1)
    t = gpu.threadIdx.x
    held[t] = float32(0)
    if i >= n:
        return
    value = a[i]
    if value < float32(0):
        return
    held[t] = value
    step = 32
    while step > 0:
        gpu.syncthreads()
        if t < step:
            held[t] += held[t + step]
        step //= 2
    if t == 0:
        out[gpu.blockIdx.x] = held[0]


@weft.kernel
def leaving_twice(a: Any, out: Any, n: int) -> None:
    """Pass values on after two early returns."""
    held = gpu.shared.array(64, float32)
    i = gpu.grid(1)
    t = gpu.threadIdx.x
    if i >= n:
        return
    value = a[i]
    if value < float32(0):
        return
    total = value
    for k in range(3):
        held[t] = total
        gpu.syncthreads()
        total += held[t - t % 2] * float32(k + 1)
        gpu.syncthreads()
    out[i] = total


@weft.kernel
def escape(limit: int, out: Any) -> None:
    """Count until a threshold, which each thread meets at another turn."""
    x, y = gpu.grid(2)
    if x < out.shape[1] and y < out.shape[0]:
        c = float32(x) * float32(0.25) - float32(1.5)
        z = float32(y) * float32(0.125)
        turns = 0
        big = False
        for _ in range(limit):
            if z * z > float32(4):
                big = True
                break
            z = z * z + c
            turns += 1
        if big:
            turns = -turns
        out[y, x] = turns


@weft.kernel
def rows_of_three_axes(a: Any, out: Any) -> None:
    """Sum with neighbours on three axes of a block."""
    held = gpu.shared.array((4, 3, 16), float32)
    x, y, z = gpu.threadIdx.x, gpu.threadIdx.y, gpu.threadIdx.z
    held[z, y, x] = a[z, y, x]
    gpu.syncthreads()
    total = float32(0)
    for k in range(3):
        total += held[z, k, x] * held[(z + k) % 4, y, 15 - x]
    gpu.syncthreads()
    out[z, y, x] = total


def both(kernel: Any, grid: Any, block: Any, args: list[Any]) -> list[Any]:
    """Run a kernel compiled and on the interpreter; return the arrays, which must be equal."""
    first = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
    second = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
    kernel[grid, block](*first)
    weft.interpret(kernel, grid, block)(*second)
    for x, y in zip(first, second, strict=True):
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y)
            if x.dtype.kind == "f":
                np.testing.assert_array_equal(np.signbit(x[x == x]), np.signbit(y[y == y]))
    return first


@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 8, 8), (7, 13, 5), (16, 24, 17), (33, 1, 9)])
def test_product(shape: tuple[int, int, int]) -> None:
    """Whole blocks and cut ones, and inner lengths that no tile divides."""
    n, k, m = shape
    rng = np.random.default_rng(n)
    a, b = rng.standard_normal((n, k), np.float32), rng.standard_normal((k, m), np.float32)
    grid = weft.cdiv(m, TILE), weft.cdiv(n, TILE)
    found = both(product, grid, (TILE, TILE), [a, b, np.zeros((n, m), np.float32)])[2]
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 63, 64, 100, 128])
@pytest.mark.parametrize("negative", [False, True])
def test_threads_that_leave(n: int, negative: bool) -> None:
    """No thread leaves, some do, or all of a block."""
    rng = np.random.default_rng(n)
    a = rng.integers(1, 9, 128).astype(np.float32)
    if negative:
        a[rng.integers(0, 128, 40)] *= -1
        a[0] = a[64] = 3
    found = both(leaving, 2, 64, [a, np.zeros(2, np.float32), n])[1]
    stays = ((np.arange(128) < n) & (a >= 0)).reshape(2, 64)
    held = np.where(stays, a.reshape(2, 64), 0)
    for step in (32, 16, 8, 4, 2, 1):  # who has left adds nothing
        held[:, :step] += np.where(stays[:, :step], held[:, step:2 * step], 0)
    np.testing.assert_array_equal(found, np.where(stays[:, 0], held[:, 0], 0))


@pytest.mark.parametrize("n", [0, 1, 64, 127, 128])
@pytest.mark.parametrize("negative", [False, True])
def test_two_early_returns(n: int, negative: bool) -> None:
    """Both conditions may hold for all threads of a block or for some."""
    a = np.arange(1, 129, dtype=np.float32)
    if negative:
        a[70:72] *= -1
        a[90:] *= -1
    found = both(leaving_twice, 2, 64, [a, np.zeros(128, np.float32), n & ~1])[1]
    value = a.astype(np.float64)
    for k in range(3):
        value = value + np.repeat(value[::2], 2) * (k + 1)
    stays = (np.arange(128) < (n & ~1)) & (a >= 0)
    np.testing.assert_allclose(found, np.where(stays, value, 0), rtol=1e-6)


@pytest.mark.parametrize("block", [(16, 16), (32, 2), (5, 3), (1, 7), (64, 1)])
@pytest.mark.parametrize("limit", [0, 1, 37])
def test_loops_that_end_at_different_turns(block: tuple[int, int], limit: int) -> None:
    """Flags and counters of lanes that have left a loop stay as they are."""
    shape = 19, 33
    grid = weft.cdiv(shape[1], block[0]), weft.cdiv(shape[0], block[1])
    found = both(escape, grid, block, [limit, np.full(shape, 77, np.int32)])[1]
    expected = np.zeros(shape, np.int32)
    for y, x in np.ndindex(shape):
        c = np.float32(x) * np.float32(0.25) - np.float32(1.5)
        z = np.float32(y) * np.float32(0.125)
        for _ in range(limit):
            if z * z > 4:
                expected[y, x] *= -1
                break
            z = np.float32(np.float32(z * z) + c)
            expected[y, x] += 1
    np.testing.assert_array_equal(found, expected)


def test_three_axes() -> None:
    """The rows of lanes are those of two axes."""
    a = np.random.default_rng(3).standard_normal((4, 3, 16), np.float32)
    found = both(rows_of_three_axes, 1, (16, 3, 4), [a, np.zeros_like(a)])[1]
    expected = sum(a[:, k:k + 1].astype(np.float64) * np.roll(a, -k, 0)[:, :, ::-1]
                   for k in range(3))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# --- products in sums


def sums(a: Any, b: Any, c: Any, out: Any) -> None:
    """Write sums of products in different words."""
    i = gpu.grid(1)
    if i < a.size:
        t = c[i]
        t += a[i] * b[i]
        out[0, i] = t
        t = c[i]
        t = a[i] * b[i] + t
        out[1, i] = t
        out[2, i] = -c[i]
        out[2, i] -= a[i] * b[i]
        t = -c[i]
        t = t - a[i] * b[i]
        out[3, i] = t
        out[4, i] = a[i] * b[i] + c[i]
        out[5, i] = a[i] * b[i] - (-c[i])


@pytest.mark.parametrize("fma", [None, True, False])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_products_in_sums(fma: bool | None, kind: Any) -> None:
    """An accumulation is rounded once, anything else twice, unless the kernel says otherwise."""
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 300)).astype(kind)
    c = (-a * b * (1 + rng.integers(-2, 3, 300) * np.finfo(kind).eps)).astype(kind)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(kind).max, 1e-40], kind)
    a[:7], b[:14:2], c[:21:3] = special, special, special
    found = both(weft.kernel(fma=fma)(sums), 5, 64, [a, b, c, np.zeros((6, 300), kind)])[3]
    with np.errstate(all="ignore"):
        twice = a * b + c
        exact = [np.all(np.isfinite([x, y, z, x * y])) for x, y, z in zip(a, b, c, strict=True)]
    once = [kind(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
            if e else t for x, y, z, t, e in zip(a, b, c, twice, exact, strict=True)]
    if kind is np.float32:
        once = [np.float32(float(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))))
                if e else t for x, y, z, t, e in zip(a, b, c, twice, exact, strict=True)]
    assert (np.asarray(once)[21:] != twice[21:]).any()
    for row in range(6):
        fused = fma or (fma is None and row < 4)
        expected = np.asarray(once if fused else twice)
        if row in (2, 3):
            expected = -expected
        np.testing.assert_array_equal(found[row], expected)


# --- atomic operations on what a block shares


@weft.kernel
def shared_atomics(a: Any, out: Any, olds: Any) -> None:
    """Do every kind of operation on shared memory, by some of the threads."""
    held = gpu.shared.array((9, 4), gpu_int)
    t = gpu.threadIdx.x
    if t == 0:
        for k in range(9):
            for j in range(4):
                held[k, j] = 5
    gpu.syncthreads()
    v = a[t]
    if v > -3:
        j = v % 4
        olds[0, t] = gpu.atomic.add(held, (0, j), v)
        olds[1, t] = gpu.atomic.sub(held, (1, j), v)
        olds[2, t] = gpu.atomic.min(held, (2, j), v)
        olds[3, t] = gpu.atomic.max(held, (3, j), v)
        olds[4, t] = gpu.atomic.xor(held, (4, j), v)
        olds[5, t] = gpu.atomic.exch(held, (5, j), v)
        olds[6, t] = gpu.atomic.cas(held, (6, j), 5, v)
        gpu.atomic.add(held, (7, 0), 1)
        olds[8, t] = gpu.atomic.max(held, (8, 1), t)
    gpu.syncthreads()
    if t == 0:
        for k in range(9):
            for j in range(4):
                out[k, j] = held[k, j]


@pytest.mark.parametrize("threads", [1, 7, 32, 45])
def test_shared_atomics(threads: int) -> None:
    """Lanes act one after another, in their order, and those that are masked not at all."""
    a = np.random.default_rng(threads).integers(-6, 12, threads).astype(np.int32)
    arrays = [a, np.zeros((9, 4), np.int32), np.zeros((9, threads), np.int32)]
    _, out, olds = both(shared_atomics, 1, threads, arrays)
    held = np.full((9, 4), 5)
    rows = [lambda o, v: o + v, lambda o, v: o - v, min, max, lambda o, v: o ^ v,
            lambda o, v: v, lambda o, v: v if o == 5 else o]
    for t, v in enumerate(a.tolist()):
        if v > -3:
            for k, update in enumerate(rows):
                assert olds[k, t] == held[k, v % 4]
                held[k, v % 4] = update(int(held[k, v % 4]), v)
            held[7, 0] += 1
            assert olds[8, t] == held[8, 1]
            held[8, 1] = max(held[8, 1], t)
    np.testing.assert_array_equal(out, held)


# --- loops over a whole grid


@weft.kernel
def while_over_the_grid(a: Any, out: Any, sums: Any) -> None:
    """Write and sum; the counter is used behind the loop, too."""
    i = gpu.grid(1)
    first = i
    total = 0
    while i < a.size:
        if a[i] % 3 != 0:
            total += a[i]
        out[i] = a[i] + i
        i += gpu.gridsize(1)
    sums[first] = total * 1000 + i


@weft.kernel
def for_over_the_grid(a: Any, out: Any, sums: Any) -> None:
    """The same with range, a jump over some turns, and a loop inside."""
    start = gpu.grid(1)
    total = 0
    for i in range(start, a.size, gpu.gridsize(1)):
        out[i] = a[i] + i
        if a[i] % 3 == 0:
            continue
        for k in range(2):
            total += a[i] * k
    last = start
    while last < a.size:
        last += gpu.gridsize(1)
    sums[start] = total * 1000 + last


@weft.kernel
def planes_over_the_grid(a: Any, out: Any) -> None:
    """Loops over a grid of two axes, behind an early return, and a barrier after them."""
    held = gpu.shared.array(64, float32)
    x, y = gpu.grid(2)
    t = gpu.threadIdx.y * 16 + gpu.threadIdx.x
    held[t] = float32(0)
    if x >= a.shape[1]:
        return
    total = float32(0)
    for j in range(y, a.shape[0], gpu.gridsize(2)[1]):
        for i in range(x, a.shape[1], gpu.gridsize(2)[0]):
            total += a[j, i]
    held[t] = total
    gpu.syncthreads()
    if gpu.threadIdx.y == 0:
        for k in range(1, 4):
            total += held[t + 16 * k]
        gpu.atomic.add(out, 0, total)


@pytest.mark.grid
@pytest.mark.parametrize("kernel", [while_over_the_grid, for_over_the_grid])
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 300, 997])
@pytest.mark.parametrize("block", [5, 32, 64])
def test_loops_over_a_grid(kernel: Any, n: int, block: int) -> None:
    """Threads make equally many turns, or some one more, or none at all."""
    a = np.random.default_rng(n).integers(0, 50, n)
    grid = 3
    threads = grid * block
    _, out, sums = both(kernel, grid, block, [a, np.zeros_like(a), np.zeros(threads, np.int64)])
    np.testing.assert_array_equal(out, a + np.arange(n))
    for t in range(threads):
        mine = a[t::threads]
        total = int(mine[mine % 3 != 0].sum())
        assert sums[t] == total * 1000 + t + len(mine) * threads


@pytest.mark.parametrize("shape", [(1, 1), (7, 16), (20, 33), (9, 70)])
def test_planes_over_a_grid(shape: tuple[int, int]) -> None:
    """Whole numbers, so that every order of additions gives the same sum."""
    a = np.random.default_rng(1).integers(0, 9, shape).astype(np.float32)
    out = both(planes_over_the_grid, (2, 2), (16, 4), [a, np.zeros(1, np.float32)])[1]
    assert out[0] == a.sum()


# --- blocks whose first axis is the rows of a matrix


@weft.kernel
def rows_first(a: Any, b: Any, out: Any) -> None:
    """Multiply, with x for the rows: neighbours on y work on neighbouring elements."""
    left = gpu.shared.array((4, 4), float32)
    i, j = gpu.grid(2)
    ti, tj = gpu.threadIdx.x, gpu.threadIdx.y
    total = float32(0)
    for k in range(a.shape[1]):
        if ti < 4 and tj < 4:
            left[ti, tj] = a[(i * 5 + k) % a.shape[0], k]
        gpu.syncthreads()
        if i < out.shape[0] and j < out.shape[1]:
            total += a[i, k] * b[k, j] + left[ti % 4, tj % 4]
        gpu.syncthreads()
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = total


@pytest.mark.parametrize("block", [(4, 4), (8, 8), (4, 32), (32, 4), (16, 16), (4, 7), (64, 1)])
def test_rows_on_the_first_axis(block: tuple[int, int]) -> None:
    """Whichever axis becomes lanes, the result is that of the interpreter."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((19, 3), np.float32), rng.standard_normal((3, 37), np.float32)
    grid = weft.cdiv(19, block[0]), weft.cdiv(37, block[1])
    arrays = both(rows_first, grid, block, [a, b, np.zeros((19, 37), np.float32)])
    assert np.isfinite(arrays[2]).all()


# --- division by what is known only when the kernel runs


@weft.kernel
def quotients(sizes: Any, out: Any) -> None:
    """Divide indices of either sign by sizes less a few, also by 0."""
    i = gpu.grid(1)
    m = sizes.size
    for j in range(m):
        d = m - j - 3
        out[0, j, i] = (i - 2000) % d
        out[1, j, i] = (i - 2000) // d
        out[2, j, i] = (i * i * i * 31 + 7) % (m + j)
        out[3, j, i] = (i * 1000003 - 5000000) // (j - d)
        out[4, j, i] = i % (m + 1)


def test_division_of_indices() -> None:
    """Python's signs, and 0 for a division by 0."""
    m, i = 7, np.arange(4096)
    found = both(quotients, 16, 256, [np.zeros(m), np.zeros((5, m, 4096), np.int64)])[1]

    def checked(function: Any, a: Any, b: int) -> Any:
        return function(a, b) if b else np.zeros_like(a)

    for j in range(m):
        d = m - j - 3
        np.testing.assert_array_equal(found[:, j], [
            checked(np.mod, i - 2000, d), checked(np.floor_divide, i - 2000, d),
            checked(np.mod, i**3 * 31 + 7, m + j),
            checked(np.floor_divide, i * 1000003 - 5000000, j - d), i % (m + 1)])


# --- what does not fit in many versions


@weft.kernel
def much_of_its_own(a: Any, out: Any, n: int) -> None:
    """Keep a long array of each thread over barriers, behind an early return."""
    own = gpu.local.array(96, float32)
    i = gpu.grid(1)
    if i >= n:
        return
    for k in range(96):
        own[k] = a[i] + float32(k)
    gpu.syncthreads()
    total = float32(0)
    for k in range(96):
        total += own[95 - k]
    gpu.syncthreads()
    out[i] = total + own[3]


@weft.kernel
def much_in_a_loop(a: Any, out: Any) -> None:
    """Use a long array of each thread in a loop over the grid."""
    own = gpu.local.array(512, float32)
    own[7] = float32(1)
    for i in range(gpu.grid(1), a.size, gpu.gridsize(1)):
        for k in range(8):
            own[k] = a[i] * float32(k)
        out[i] = own[7] + own[1]


def test_long_arrays_of_threads() -> None:
    """As many bytes as one version may take."""
    a = np.arange(600, dtype=np.float32)
    found = both(much_of_its_own, 2, 512, [a, np.zeros(600, np.float32), 590])[1]
    expected = a * 96 + 95 * 48 + a + 3
    np.testing.assert_array_equal(found, np.where(np.arange(600) < 590, expected, 0))
    found = both(much_in_a_loop, 2, 128, [a, np.zeros(600, np.float32)])[1]
    np.testing.assert_array_equal(found, a * 8)
