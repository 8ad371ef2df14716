"""No false alarms: correct kernels by what they hold and how they run, in many styles."""

import math
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weft
from planted import Cases, check_correct, numbers, shuffled, warp_scan, warp_sum, zeros
from weft import cg, gpu

f32, i8, i64 = np.float32, np.int8, np.int64
CORRECT = Cases()
correct = CORRECT.correct

TILE = 8
WEIGHTS = np.array([1.0, 2.0, 4.0, 2.0, 1.0])
POINT = np.dtype([("x", np.float64), ("y", np.float64), ("hits", np.int64)])
Range = namedtuple("Range", "first last")


@dataclass
class Limits:
    """Bounds of a value."""

    low: float
    high: float


# --- shared memory


@correct(1, 64, numbers(64, dtype=f32), zeros(64), shared=64 * 4 + 64 * 8)
@weft.kernel
def dynamic_memory_of_two_types(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    values = gpu.shared.array(0, weft.float32)[:64]
    counts = gpu.shared.array(0, weft.int64)[32:]
    values[t] = x[t]
    counts[t] = 63 - t
    gpu.syncthreads()
    out[t] = values[counts[t]]


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def memory_used_twice(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    gpu.syncthreads()
    v = s[63 - t]
    gpu.syncthreads()
    s[(t + 5) % 64] = v
    gpu.syncthreads()
    out[t] = s[t]


@correct((2, 2), (TILE, TILE), numbers(13 * 11).reshape(13, 11), zeros(13, 11))
@weft.kernel
def blur_with_a_halo(x: Any, out: Any) -> None:
    s = gpu.shared.array((TILE + 2, TILE + 2), weft.float64)
    j, i = gpu.grid(2)
    h, w = x.shape
    top, left = gpu.blockIdx.y * TILE - 1, gpu.blockIdx.x * TILE - 1
    number = gpu.threadIdx.y * TILE + gpu.threadIdx.x
    for k in range(number, (TILE + 2) * (TILE + 2), TILE * TILE):
        r, c = k // (TILE + 2), k % (TILE + 2)
        s[r, c] = x[min(max(top + r, 0), h - 1), min(max(left + c, 0), w - 1)]
    gpu.syncthreads()
    if i >= h or j >= w:
        return
    total = 0.0
    for di in range(3):
        for dj in range(3):
            total += s[gpu.threadIdx.y + di, gpu.threadIdx.x + dj]
    out[i, j] = total


@correct(1, 64, shuffled(64), zeros(64), zeros(1, dtype=i64))
@weft.kernel
def partition_by_a_block_scan(x: Any, out: Any, count: Any) -> None:
    s = gpu.shared.array((2, 64), weft.int64)
    t = gpu.threadIdx.x
    small = 1 if x[t] < 20 else 0
    s[0, t] = small
    gpu.syncthreads()
    now, d = 0, 1
    while d < 64:
        s[1 - now, t] = s[now, t] + (s[now, t - d] if t >= d else 0)
        gpu.syncthreads()
        now = 1 - now
        d *= 2
    total = s[now, 63]
    at = s[now, t] - 1 if small else total + t - s[now, t]
    out[at] = x[t]
    if t == 0:
        count[0] = total


@correct(1, 64, shuffled(64, i64), zeros(64, dtype=i64))
@weft.kernel
def radix_sort_of_a_block(x: Any, out: Any) -> None:
    keys = gpu.shared.array(64, weft.int64)
    ones = gpu.shared.array(2, weft.int32)
    t = gpu.threadIdx.x
    keys[t] = x[t]
    gpu.syncthreads()
    for bit in range(6):
        key = keys[t]
        one = key >> bit & 1
        word = gpu.ballot_sync(gpu.ALL, one != 0)
        if gpu.laneid == 0:
            ones[t // 32] = gpu.popc(word)
        gpu.syncthreads()
        before = gpu.popc(word & gpu.lanemask_lt()) + (ones[0] if t >= 32 else 0)
        zeros_ = 64 - ones[0] - ones[1]
        place = zeros_ + before if one else t - before
        keys[place] = key
        gpu.syncthreads()
    out[t] = keys[t]


@correct(2, 64, shuffled(100, i64) % 16, zeros(16, dtype=i64))
@weft.kernel
def histogram_by_warps(x: Any, counts: Any) -> None:
    s = gpu.shared.array((2, 16), weft.int64)
    t = gpu.threadIdx.x
    if t < 32:
        s[t // 16, t % 16] = 0
    gpu.syncthreads()
    i = gpu.grid(1)
    if i < x.size:
        gpu.atomic.add(s, (t // 32, x[i]), 1)
    gpu.syncthreads()
    if t < 16:
        gpu.atomic.add(counts, t, s[0, t] + s[1, t])


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def barriers_that_count(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    few = gpu.syncthreads_count(x[t] < 7)
    every = gpu.syncthreads_and(x[t] >= 0)
    some = gpu.syncthreads_or(x[t] > 62)
    out[t] = few + 100 * (every != 0) + 1000 * (some != 0)


@correct(3, 64, numbers(130), zeros(3))
@weft.kernel
def leavers_before_the_tree(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    s[t] = 0.0
    gpu.syncthreads()
    if i < x.size:
        s[t] = x[i]
    gpu.syncthreads()
    if t >= 32:
        return
    v = s[t] + s[t + 32]
    v = warp_sum(v)
    if t == 0:
        out[gpu.blockIdx.x] = v


@correct(1, (8, 8), numbers(64).reshape(8, 8), zeros(8))
@weft.kernel
def sums_of_rows_in_shared_memory(x: Any, out: Any) -> None:
    s = gpu.shared.array((8, 8), weft.float64)
    i, j = gpu.threadIdx.y, gpu.threadIdx.x
    s[i, j] = x[i, j]
    d = 4
    while d > 0:
        gpu.syncthreads()
        if j < d:
            s[i, j] += s[i, j + d]
        d >>= 1
    if j == 0:
        out[i] = s[i, 0]


@correct(1, 32, numbers(32), zeros(32))
@weft.kernel
def barrier_in_a_function(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    _put(s, t, x[t])
    out[t] = _put(s, 31 - t, s[31 - t])


@weft.func
def _put(s: Any, t: Any, v: Any) -> Any:
    gpu.syncthreads()
    s[t] = v
    gpu.syncthreads()
    return s[gpu.threadIdx.x]


@correct(1, 32, numbers(32), zeros(32), 3)
@weft.kernel
def uniform_jumps_around_barriers(x: Any, out: Any, n: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    for k in range(8):
        if k % 2 == 1:
            continue
        if k > n:
            break
        s[t] = x[t] + k
        gpu.syncthreads()
        out[t] += s[(t + k) % 32]
        gpu.syncthreads()


# --- vectors, records, tuples, constants


@correct(1, 16, numbers(64, dtype=f32), zeros(64, dtype=f32))
@weft.kernel
def vectors_of_four(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x * 4
    a, b, c, d = gpu.load(x, t, 4)
    gpu.store(out, t, (d, c, b, a))


@correct(1, 16, numbers(64, dtype=f32), zeros(32, dtype=f32))
@weft.kernel
def vectors_in_shared_memory(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float32)
    t = gpu.threadIdx.x
    a, b, c, d = gpu.load(x, t * 4, 4)
    gpu.store(s, (15 - t) * 4, (a, b, c, d))
    gpu.syncthreads()
    a, b = gpu.load(s, t * 2, 2)
    out[t * 2], out[t * 2 + 1] = a, b


@correct(2, 16, np.zeros(32, POINT), numbers(32))
@weft.kernel
def records(points: Any, x: Any) -> None:
    i = gpu.grid(1)
    points[i].x = x[i]
    points[i].y = -x[i]
    gpu.syncthreads()
    points[i].hits = int(points[i].x - points[i ^ 1].y)


@correct(2, 16, numbers(32), zeros(32), Limits(3.0, 20.0), Range(2, 30))
@weft.kernel
def structs_of_numbers(x: Any, out: Any, limits: Any, span: Any) -> None:
    i = gpu.grid(1)
    if span.first <= i < span.last:
        out[i] = min(max(x[i], limits.low), limits.high)


@correct(2, 16, numbers(36), zeros(32))
@weft.kernel
def constant_weights(x: Any, out: Any) -> None:
    w = gpu.const.array_like(WEIGHTS)
    i = gpu.grid(1)
    total = 0.0
    for k in range(w.size):
        total += w[k] * x[i + k]
    out[i] = total


@correct(2, 32, numbers(64, dtype=i8), zeros(64, dtype=i8))
@weft.kernel
def bytes_side_by_side(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.int8)
    t = gpu.threadIdx.x
    s[t] = x[gpu.grid(1)]
    gpu.syncthreads()
    out[gpu.grid(1)] = s[31 - t]


@correct(1, 32, numbers(32) + 1j, zeros(32, dtype=np.complex128))
@weft.kernel
def complex_numbers(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, np.complex128)
    t = gpu.threadIdx.x
    s[t] = x[t] * x[t]
    gpu.syncthreads()
    out[t] = s[31 - t].conjugate()


@correct(2, 16, numbers(32).reshape(4, 8).T, zeros(8, 4))
@weft.kernel
def views_and_rows(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    row, target = x[i % 8], out[i % 8]
    target[i // 8] = row[i // 8] + row[0]


# --- control flow


@correct(1, 16, numbers(16, dtype=i64), zeros(16, dtype=i64))
@weft.kernel
def loops_with_else(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    for k in range(2, x[t]):
        if x[t] % k == 0:
            out[t] = k
            break
    else:
        out[t] = 1
    k = 0
    while k < 3:
        if k == t:
            break
        k += 1
    else:
        out[t] += 100


@correct(1, 16, numbers(16), zeros(16))
@weft.kernel
def names_set_under_the_same_condition(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    inside = x[t] > 4
    if inside:
        v = x[t]
    if inside:
        out[t] = v


@correct(1, 8, zeros(8, dtype=i64))
@weft.kernel
def stack_in_a_local_array(out: Any) -> None:
    stack = gpu.local.array(16, weft.int64)
    t = gpu.threadIdx.x
    stack[0] = t + 3
    top, total = 1, 0
    while top > 0:
        top -= 1
        n = stack[top]
        if n < 2:
            total += n
        else:
            stack[top] = n - 1
            stack[top + 1] = n - 2
            top += 2
    out[t] = total


@correct(2, 32, numbers(64), zeros(64))
@weft.kernel
def nested_function_and_default(x: Any, out: Any) -> None:
    i = gpu.grid(1)

    def shifted(v: Any, by: Any = 2.0) -> Any:
        return v + by

    out[i] = shifted(x[i]) + shifted(x[i], by=10)


@correct(2, 32, zeros(64))
@weft.kernel
def monte_carlo_without_memory(out: Any) -> None:
    i = gpu.grid(1)
    state = weft.uint32(i * 747796405 + 2891336453)
    hits = 0
    for _ in range(20):
        state = weft.uint32(state * 1664525 + 1013904223)
        u = state * 2.0**-32
        if math.sqrt(u) < 0.5:
            hits += 1
    out[i] = hits


@correct((2, 1, 2), (4, 2, 2), zeros(4, 2, 8, dtype=i64))
@weft.kernel
def volume(out: Any) -> None:
    x, y, z = gpu.grid(3)
    if x < 8 and y < 2 and z < 4:
        out[z, y, x] = x + 10 * y + 100 * z


@correct(5, 32, numbers(500), zeros(1))
@weft.kernel
def persistent_reduction(x: Any, out: Any) -> None:
    total = 0.0
    for i in range(gpu.grid(1), x.size, gpu.gridsize(1)):
        total += x[i]
    total = warp_sum(total)
    if gpu.laneid == 0:
        gpu.atomic.add(out, 0, total)


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def groups_of_threads(x: Any, out: Any) -> None:
    tile = cg.tiled_partition(cg.this_thread_block(), 16)
    t = gpu.threadIdx.x
    v = x[t]
    d = 8
    while d > 0:
        v += tile.shfl_xor(v, d)
        d //= 2
    out[t] = v + tile.thread_rank()


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def tile_of_a_warp_meets(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    tile = cg.tiled_partition(cg.this_thread_block(), 8)
    t = gpu.threadIdx.x
    s[t] = x[t]
    tile.sync()
    out[t] = s[t ^ 7]


@correct(1, 64, zeros(64))
@weft.kernel
def warps_with_roles(out: Any) -> None:
    s = gpu.shared.array(2, weft.float64)
    t = gpu.threadIdx.x
    if t // 32 == 0:
        v = warp_sum(1.0 * t)
        if t == 0:
            s[0] = v
    else:
        v = warp_scan(1.0 * t)
        if t == 63:
            s[1] = v
    gpu.syncthreads()
    out[t] = s[0] + s[1]


@pytest.mark.grid
@pytest.mark.parametrize("name", CORRECT)
def test_correct_kernel(name: str) -> None:
    check_correct(CORRECT[name], (None, 1))
