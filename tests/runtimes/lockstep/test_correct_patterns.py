"""No false alarms: patterns that people know from CUDA, as they write them for numba."""

import math
from typing import Any

import numpy as np
import pytest

from planted import Cases, check_correct, numbers, shuffled, zeros
from weft import gpu
from weft.compat import cuda

f32, i32, i64, u32 = np.float32, np.int32, np.int64, np.uint32
CORRECT = Cases()
correct = CORRECT.correct
FULL = 0xFFFFFFFF


# --- scans


@correct(3, 37, numbers(111), zeros(111))
@cuda.jit
def inclusive_scan_in_place(x: Any, out: Any) -> None:
    s = cuda.shared.array(37, np.float64)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = x[i]
    cuda.syncthreads()
    d = 1
    while d < cuda.blockDim.x:
        v = s[t - d] if t >= d else 0.0
        cuda.syncthreads()
        s[t] += v
        cuda.syncthreads()
        d <<= 1
    out[i] = s[t]


@correct(1, 64, numbers(64), zeros(64))
@cuda.jit
def scan_in_two_rows(x: Any, out: Any) -> None:
    s = cuda.shared.array((2, 64), np.float64)
    t = cuda.threadIdx.x
    now = 0
    s[now, t] = x[t] if t > 0 else 0.0
    cuda.syncthreads()
    for k in range(6):
        now = 1 - now
        if t >= 1 << k:
            s[now, t] = s[1 - now, t] + s[1 - now, t - (1 << k)]
        else:
            s[now, t] = s[1 - now, t]
        cuda.syncthreads()
    out[t] = s[now, t]


@correct(1, 32, numbers(64), zeros(64))
@cuda.jit
def work_efficient_scan(x: Any, out: Any) -> None:
    s = cuda.shared.array(64, np.float64)
    t = cuda.threadIdx.x
    s[2 * t], s[2 * t + 1] = x[2 * t], x[2 * t + 1]
    offset = 1
    d = 32
    while d > 0:
        cuda.syncthreads()
        if t < d:
            s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1]
        offset *= 2
        d >>= 1
    if t == 0:
        s[63] = 0
    d = 1
    while d < 64:
        offset >>= 1
        cuda.syncthreads()
        if t < d:
            a, b = offset * (2 * t + 1) - 1, offset * (2 * t + 2) - 1
            s[a], s[b] = s[b], s[b] + s[a]
        d *= 2
    cuda.syncthreads()
    out[2 * t], out[2 * t + 1] = s[2 * t], s[2 * t + 1]


@correct(1, 96, numbers(96), zeros(96))
@cuda.jit
def scan_of_warps_of_a_block(x: Any, out: Any) -> None:
    sums = cuda.shared.array(3, np.float64)
    t = cuda.threadIdx.x
    lane, warp = t % 32, t // 32
    v = x[t]
    for k in range(5):
        up = cuda.shfl_up_sync(FULL, v, 1 << k)
        if lane >= 1 << k:
            v += up
    if lane == 31:
        sums[warp] = v
    cuda.syncthreads()
    for w in range(warp):
        v += sums[w]
    out[t] = v


@correct(2, 64, numbers(128, dtype=i64), (np.arange(128) % 9 == 0).astype(i64), zeros(128))
@cuda.jit
def segmented_scan(x: Any, head: Any, out: Any) -> None:
    v = cuda.shared.array(64, np.int64)
    f = cuda.shared.array(64, np.int64)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    v[t], f[t] = x[i], head[i] if t else 1
    cuda.syncthreads()
    d = 1
    while d < 64:
        a, g = 0, 0
        if t >= d:
            a, g = v[t - d], f[t - d]
        cuda.syncthreads()
        if not f[t]:
            v[t] += a
            f[t] |= g
        cuda.syncthreads()
        d *= 2
    out[i] = v[t]


# --- sorting


@correct(2, 32, shuffled(128), zeros(128))
@cuda.jit
def bitonic_sort_two_a_thread(x: Any, out: Any) -> None:
    s = cuda.shared.array(64, np.float64)
    t = cuda.threadIdx.x
    base = cuda.blockIdx.x * 64
    s[t], s[t + 32] = x[base + t], x[base + t + 32]
    size = 2
    while size <= 64:
        step = size // 2
        while step > 0:
            cuda.syncthreads()
            a = 2 * t - (t & (step - 1))
            up = (a & size) == 0
            if (s[a] > s[a + step]) == up:
                s[a], s[a + step] = s[a + step], s[a]
            step //= 2
        size *= 2
    cuda.syncthreads()
    out[base + t], out[base + t + 32] = s[t], s[t + 32]


@correct(1, 33, shuffled(66), zeros(66))
@cuda.jit
def odd_even_sort(x: Any, out: Any) -> None:
    s = cuda.shared.array(66, np.float64)
    t = cuda.threadIdx.x
    n = 66
    for k in range(t, n, cuda.blockDim.x):
        s[k] = x[k]
    for turn in range(n):
        cuda.syncthreads()
        a = 2 * t + (turn & 1)
        if a + 1 < n and s[a] > s[a + 1]:
            s[a], s[a + 1] = s[a + 1], s[a]
    cuda.syncthreads()
    for k in range(t, n, cuda.blockDim.x):
        out[k] = s[k]


@correct(1, 41, shuffled(41), zeros(41))
@cuda.jit
def rank_sort(x: Any, out: Any) -> None:
    t = cuda.threadIdx.x
    rank = 0
    for k in range(x.size):
        rank += x[k] < x[t] or (x[k] == x[t] and k < t)
    out[rank] = x[t]


@correct(1, 32, shuffled(64), zeros(64))
@cuda.jit
def merge_by_ranks(x: Any, out: Any) -> None:
    s = cuda.shared.array(64, np.float64)
    t = cuda.threadIdx.x
    s[t], s[t + 32] = x[t], x[t + 32]
    cuda.syncthreads()
    width = 1
    while width < 64:
        for part in range(2):
            k = t + 32 * part
            v = s[k]
            group = k // (2 * width) * 2 * width
            other = group if k >= group + width else group + width
            low, high = other, other + width
            while low < high:
                mid = (low + high) // 2
                if s[mid] < v or (s[mid] == v and other == group):
                    low = mid + 1
                else:
                    high = mid
            out[group + (k - group) % width + low - other] = v
        cuda.syncthreads()
        s[t], s[t + 32] = out[t], out[t + 32]
        cuda.syncthreads()
        width *= 2


@correct(1, 64, (np.arange(64) * 37 % 64).astype(i64), zeros(64, dtype=i64))
@cuda.jit
def split_by_bits(x: Any, out: Any) -> None:
    s = cuda.shared.array(64, np.int64)
    f = cuda.shared.array(65, np.int64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    for bit in range(6):
        key = s[t]
        zero = 1 - ((key >> bit) & 1)
        if t == 0:
            f[0] = 0
        f[t + 1] = zero
        cuda.syncthreads()
        d = 1
        while d < 64:
            v = f[t + 1 - d] if t + 1 >= d else 0
            cuda.syncthreads()
            f[t + 1] += v
            cuda.syncthreads()
            d *= 2
        place = f[t] if zero else f[64] + t - f[t]
        s[place] = key
        cuda.syncthreads()
    out[t] = s[t]


# --- compaction, histograms


@correct(4, 32, shuffled(128), zeros(128), zeros(1, dtype=i64))
@cuda.jit
def compaction_in_any_order(x: Any, out: Any, kept: Any) -> None:
    i = cuda.grid(1)
    if x[i] > 40:
        place = cuda.atomic.add(kept, 0, 1)
        cuda.atomic.max(out, 127, place)  # where each goes depends on who comes first


@correct(1, 64, shuffled(64), zeros(64))
@cuda.jit
def compaction_in_order(x: Any, out: Any) -> None:
    offset = cuda.shared.array(2, np.int32)
    t = cuda.threadIdx.x
    keep = x[t] % 3 == 0
    votes = cuda.ballot_sync(FULL, keep)
    before = cuda.popc(votes & ((1 << (t % 32)) - 1))
    if t % 32 == 0:
        offset[t // 32] = cuda.popc(votes)
    cuda.syncthreads()
    if keep:
        out[before + (offset[0] if t >= 32 else 0)] = x[t]


@correct(2, 64, (np.arange(500) * 7 % 16).astype(i32), zeros(16, dtype=i64))
@cuda.jit
def histogram_of_each_warp(x: Any, bins: Any) -> None:
    mine = cuda.shared.array((2, 16), np.int32)
    t = cuda.threadIdx.x
    warp = t // 32
    if t < 32:
        mine[t // 16, t % 16] = 0
    cuda.syncthreads()
    for k in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(mine, (warp, x[k]), 1)
    cuda.syncthreads()
    if t < 16:
        cuda.atomic.add(bins, t, mine[0, t] + mine[1, t])


@correct(2, 32, (np.arange(300) * 5 % 8).astype(i32), zeros(8, dtype=i64))
@cuda.jit
def histogram_of_each_thread(x: Any, bins: Any) -> None:
    mine = cuda.shared.array((8, 32), np.uint8)
    t = cuda.threadIdx.x
    for b in range(8):
        mine[b, t] = 0
    for k in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        mine[x[k], t] += 1
    cuda.syncthreads()
    if t < 8:
        total = 0
        for k in range(32):
            total += mine[t, (k + t) % 32]
        cuda.atomic.add(bins, t, total)


@correct(2, 48, (np.arange(96) % 5).astype(i32), zeros(5, dtype=i64))
@cuda.jit
def histogram_by_matching_lanes(x: Any, bins: Any) -> None:
    active = cuda.ballot_sync(FULL, True)
    key = x[cuda.grid(1)]
    same = cuda.match_any_sync(active, key)
    if cuda.ffs(same) - 1 == cuda.laneid:
        cuda.atomic.add(bins, key, cuda.popc(same))


# --- reductions


@correct(2, 128, numbers(300), zeros(2))
@cuda.jit
def reduction_with_a_tail(x: Any, out: Any) -> None:
    s = cuda.shared.array(128, np.float64)
    t = cuda.threadIdx.x
    total = 0.0
    for k in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[k]
    s[t] = total
    cuda.syncthreads()
    half = 64
    while half >= 32:
        if t < half:
            s[t] += s[t + half]
        cuda.syncthreads()
        half //= 2
    if t < 32:
        v = s[t]
        for k in (16, 8, 4, 2, 1):
            v += cuda.shfl_down_sync(FULL, v, k)
        if t == 0:
            out[cuda.blockIdx.x] = v


@correct(1, 64, numbers(64), zeros(1), shared=512)
@cuda.jit
def reduction_of_odd_strides(x: Any, out: Any) -> None:
    s = cuda.shared.array(0, np.float64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    n = 64
    while n > 1:
        cuda.syncthreads()
        half = (n + 1) // 2
        v = s[t + half] if t + half < n else 0.0
        cuda.syncthreads()
        s[t] += v
        n = half
    if t == 0:
        out[0] = s[0]


@correct(5, 32, numbers(160), zeros(5), zeros(1, dtype=u32), zeros(1))
@cuda.jit
def last_block_sums(x: Any, part: Any, count: Any, out: Any) -> None:
    t = cuda.threadIdx.x
    last = cuda.shared.array(1, np.bool_)
    v = x[cuda.grid(1)]
    for k in (16, 8, 4, 2, 1):
        v += cuda.shfl_xor_sync(FULL, v, k)
    if t == 0:
        part[cuda.blockIdx.x] = v
        cuda.threadfence()
        last[0] = cuda.atomic.inc(count, 0, cuda.gridDim.x - 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if last[0]:
        cuda.threadfence()
        if t == 0:
            total = 0.0
            for b in range(cuda.gridDim.x):
                total += part[b]
            out[0] = total


@correct(3, 64, shuffled(192), np.full(1, -1e300))
@cuda.jit
def largest_of_all(x: Any, out: Any) -> None:
    v = x[cuda.grid(1)]
    for k in range(5):
        v = max(v, cuda.shfl_xor_sync(FULL, v, 1 << k))
    if cuda.threadIdx.x % 32 == 0:
        cuda.atomic.max(out, 0, v)


# --- pictures and matrices


@correct((2, 2), (8, 8), numbers(16, 16), zeros(16, 16))
@cuda.jit
def blur_by_halves(x: Any, out: Any) -> None:
    s = cuda.shared.array((10, 10), np.float64)
    h = cuda.shared.array((10, 8), np.float64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    left, top = cuda.blockIdx.x * 8 - 1, cuda.blockIdx.y * 8 - 1
    for e in range(ty * 8 + tx, 100, 64):
        i, j = top + e // 10, left + e % 10
        inside = 0 <= i < x.shape[0] and 0 <= j < x.shape[1]
        s[e // 10, e % 10] = x[i, j] if inside else 0.0
    cuda.syncthreads()
    for r in range(ty, 10, 8):
        h[r, tx] = s[r, tx] + 2 * s[r, tx + 1] + s[r, tx + 2]
    cuda.syncthreads()
    i, j = cuda.blockIdx.y * 8 + ty, cuda.blockIdx.x * 8 + tx
    out[i, j] = h[ty, tx] + 2 * h[ty + 1, tx] + h[ty + 2, tx]


@correct((2, 3), (8, 4), numbers(16, 24), zeros(24, 16))
@cuda.jit
def transpose_with_few_rows(x: Any, out: Any) -> None:
    s = cuda.shared.array((8, 9), np.float64)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    for k in range(0, 8, 4):
        s[ty + k, tx] = x[cuda.blockIdx.x * 8 + ty + k, cuda.blockIdx.y * 8 + tx]
    cuda.syncthreads()
    for k in range(0, 8, 4):
        out[cuda.blockIdx.y * 8 + ty + k, cuda.blockIdx.x * 8 + tx] = s[tx, ty + k]


@correct((2, 2), (4, 4), numbers(7, 6), numbers(6, 5), zeros(7, 5))
@cuda.jit
def product_of_odd_sizes(a: Any, b: Any, c: Any) -> None:
    sa = cuda.shared.array((4, 4), np.float64)
    sb = cuda.shared.array((4, 4), np.float64)
    j, i = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = 0.0
    for k in range(0, a.shape[1], 4):
        sa[ty, tx] = a[i, k + tx] if i < a.shape[0] and k + tx < a.shape[1] else 0.0
        sb[ty, tx] = b[k + ty, j] if k + ty < b.shape[0] and j < b.shape[1] else 0.0
        cuda.syncthreads()
        for q in range(4):
            total += sa[ty, q] * sb[q, tx]
        cuda.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


@correct(1, (4, 4), np.eye(12) * 9 + numbers(12, 12) % 5, zeros(12, 12))
@cuda.jit
def elimination_with_one_block(x: Any, out: Any) -> None:
    n = x.shape[0]
    t = cuda.threadIdx.x + 4 * cuda.threadIdx.y
    for e in range(t, n * n, 16):
        out[e // n, e % n] = x[e // n, e % n]
    cuda.syncthreads()
    for p in range(n - 1):
        for i in range(p + 1 + t, n, 16):
            out[i, p] /= out[p, p]
        cuda.syncthreads()
        for i in range(p + 1 + cuda.threadIdx.y, n, 4):
            for j in range(p + 1 + cuda.threadIdx.x, n, 4):
                out[i, j] -= out[i, p] * out[p, j]
        cuda.syncthreads()


@correct(1, 32, numbers(32), zeros(32))
@cuda.jit
def fast_transform(x: Any, out: Any) -> None:
    v = x[cuda.threadIdx.x]
    lane = cuda.laneid
    for k in range(5):
        other = cuda.shfl_xor_sync(FULL, v, 1 << k)
        v = other - v if lane & (1 << k) else v + other
    out[cuda.threadIdx.x] = v


# --- copies on the side


@correct(1, 32, numbers(32 * 6, dtype=f32), zeros(32 * 6, dtype=f32))
@cuda.jit
def two_buffers_of_copies(x: Any, out: Any) -> None:
    s = cuda.shared.array((2, 32), np.float32)
    t = cuda.threadIdx.x
    gpu.memcpy_async(s[0, t:], x[t:])
    gpu.commit_group()
    for k in range(6):
        if k < 5:
            gpu.memcpy_async(s[(k + 1) % 2, t:], x[(k + 1) * 32 + t:])
        gpu.commit_group()
        gpu.wait_group(1)
        cuda.syncthreads()
        out[k * 32 + t] = s[k % 2, 31 - t] * 2
        cuda.syncthreads()


@correct(2, 64, numbers(512, dtype=f32), zeros(2, dtype=f32))
@cuda.jit
def ring_of_three_copies(x: Any, out: Any) -> None:
    s = cuda.shared.array((3, 64), np.float32)
    t = cuda.threadIdx.x
    base = cuda.blockIdx.x * 256 + t
    for k in range(2):
        gpu.memcpy_async(s[k, t:], x[base + 64 * k:])
        gpu.commit_group()
    total = f32(0)
    for k in range(4):
        gpu.wait_group(1)
        cuda.syncthreads()
        if k + 2 < 4:
            gpu.memcpy_async(s[(k + 2) % 3, t:], x[base + 64 * (k + 2):])
        gpu.commit_group()
        total += s[k % 3, (t + 1) % 64] * s[k % 3, t]
    cuda.syncthreads()
    s[0, t] = total
    cuda.syncthreads()
    if t == 0:
        total = f32(0)
        for k in range(64):
            total += s[0, k]
        out[cuda.blockIdx.x] = total


@correct(1, 32, numbers(64, dtype=f32), zeros(64, dtype=f32))
@cuda.jit
def each_thread_reads_its_own_copy(x: Any, out: Any) -> None:
    s = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    gpu.memcpy_async(s[2 * t:], x[2 * t:], 2)
    gpu.commit_group()
    gpu.wait_group()
    out[2 * t], out[2 * t + 1] = s[2 * t + 1], s[2 * t]


# --- warps


@correct(1, 64, numbers(64), zeros(64))
@cuda.jit
def warp_in_step_by_hand(x: Any, out: Any) -> None:
    s = cuda.shared.array(64, np.float64)
    t = cuda.threadIdx.x
    first = t // 32 * 32
    s[t] = x[t]
    cuda.syncwarp()
    for d in (16, 8, 4, 2, 1):
        v = s[first + (t + d) % 32]
        cuda.syncwarp()
        s[t] += v
        cuda.syncwarp()
    out[t] = s[first]


@correct(1, 32, numbers(32), zeros(32))
@cuda.jit
def halves_of_a_warp_apart(x: Any, out: Any) -> None:
    s = cuda.shared.array(32, np.float64)
    t = cuda.threadIdx.x
    s[t] = x[t]
    mask = 0xFFFF if t < 16 else 0xFFFF0000
    cuda.syncwarp(mask)
    if t < 16:
        v = s[15 - t]
        cuda.syncwarp(0xFFFF)
        s[t] = v
    else:
        v = s[t] + s[t ^ 1]
        cuda.syncwarp(0xFFFF0000)
        s[t] = v
    cuda.syncwarp()
    out[t] = s[(t + 16) % 32]


@correct(1, 40, numbers(40), zeros(40))
@cuda.jit
def warp_with_a_tail(x: Any, out: Any) -> None:
    t = cuda.threadIdx.x
    mask = cuda.ballot_sync(FULL, t < x.size)
    v = x[t]
    k = 1
    while k < 32:
        up = cuda.shfl_up_sync(mask, v, k)
        if t % 32 >= k:
            v += up
        k *= 2
    out[t] = v


@correct(1, 32, (np.arange(32) % 4).astype(i32), numbers(32), zeros(32))
@cuda.jit
def groups_of_equal_keys(key: Any, x: Any, out: Any) -> None:
    t = cuda.threadIdx.x
    mask = cuda.match_any_sync(FULL, key[t])
    leader = cuda.ffs(mask) - 1
    total = 0.0
    rest = mask
    while rest:
        lane = cuda.ffs(rest) - 1
        total += cuda.shfl_sync(mask, x[t], lane)
        rest &= rest - 1
    out[t] = total if t == leader else -1.0


@correct(2, 32, numbers(64), zeros(64), zeros(2, dtype=i64))
@cuda.jit
def loop_until_no_lane_wants(x: Any, out: Any, turns: Any) -> None:
    i = cuda.grid(1)
    v = x[i]
    n = 0
    while cuda.any_sync(FULL, v > 1.0):
        if v > 1.0:
            v /= 2
        n += 1
    out[i] = v
    if cuda.laneid == 0:
        turns[cuda.blockIdx.x] = n


# --- between blocks


@correct(4, 32, zeros(1, dtype=i32), zeros(1, dtype=i64))
@cuda.jit
def spin_lock_of_one_thread(lock: Any, out: Any) -> None:
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        out[0] += cuda.blockIdx.x + 1
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


@correct(5, 32, numbers(160, dtype=i64), zeros(5, dtype=i64), zeros(5, dtype=i32),
         zeros(160, dtype=i64), zeros(1, dtype=i32))
@cuda.jit
def chained_scan_with_tickets(x: Any, total: Any, ready: Any, out: Any, ticket: Any) -> None:
    s = cuda.shared.array(2, np.int64)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = cuda.atomic.add(ticket, 0, 1)
    cuda.syncthreads()
    part = s[0]
    v = x[part * 32 + t]
    for k in range(5):
        up = cuda.shfl_up_sync(FULL, v, 1 << k)
        if t >= 1 << k:
            v += up
    if t == 31:
        before = 0
        if part > 0:
            while cuda.atomic.add(ready, part - 1, 0) == 0:
                pass
            cuda.threadfence()
            before = total[part - 1]
        total[part] = before + v
        cuda.threadfence()
        cuda.atomic.exch(ready, part, 1)
        s[1] = before
    cuda.syncthreads()
    out[part * 32 + t] = v + s[1]


@correct(2, 32, numbers(32 * 7), zeros(32 * 7), zeros(1, dtype=i32))
@cuda.jit
def persistent_blocks(x: Any, out: Any, queue: Any) -> None:
    work = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    while True:
        if t == 0:
            work[0] = cuda.atomic.add(queue, 0, 1)
        cuda.syncthreads()
        w = work[0]
        cuda.syncthreads()
        if w >= 7:
            break
        out[w * 32 + t] = math.sqrt(x[w * 32 + t]) * w


@correct(2, 32, numbers(32), zeros(32), zeros(1, dtype=i32))
@cuda.jit
def producer_block_and_consumer_block(x: Any, out: Any, flag: Any) -> None:
    box = out
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0:
        box[t] = x[t] * 3
        cuda.threadfence()
        cuda.atomic.add(flag, 0, 1)
    elif t == 0:
        while cuda.atomic.add(flag, 0, 0) < 32:
            pass
        cuda.threadfence()
        for k in range(32):
            box[k] += 1


@correct(3, 32, numbers(96), zeros(96))
@cuda.jit
def grid_in_phases(x: Any, out: Any) -> None:
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    n = x.size
    out[i] = x[i]
    grid.sync()
    for _ in range(3):
        v = out[(i + 33) % n]
        grid.sync()
        out[i] = v + 1
        grid.sync()


@correct(2, (8, 4), numbers(64), zeros(64))
@cuda.jit
def leavers_of_a_loop(x: Any, out: Any) -> None:
    s = cuda.shared.array(32, np.float64)
    t = cuda.threadIdx.x + 8 * cuda.threadIdx.y
    i = cuda.blockIdx.x * 32 + t
    v = x[i]
    for k in range(6):
        s[t] = v
        cuda.syncthreads()
        if t % 7 == k + 1:
            out[i] = -v
            return
        near = s[(t + 1) % 32]
        cuda.syncthreads()
        v += near * 0.5
    out[i] = v


@correct(1, (16, 2, 1), zeros(1, dtype=i64))
@cuda.jit
def votes_of_a_block(out: Any) -> None:
    t = cuda.threadIdx.x + 16 * cuda.threadIdx.y
    n = 0
    while cuda.syncthreads_or(n < t):
        if n < t:
            n += 1
    if cuda.syncthreads_and(n == t):
        cuda.atomic.add(out, 0, n)


@correct(1, 64, zeros(64, dtype=i64), zeros(16, dtype=i64))
@cuda.jit
def open_addresses(found: Any, table: Any) -> None:
    key = cuda.threadIdx.x % 11 + 1
    place = key * 7 % 16
    while True:
        old = cuda.atomic.cas(table, place, 0, key)
        if old == 0 or old == key:
            break
        place = (place + 1) % 16
    found[cuda.threadIdx.x] = key


@pytest.mark.grid
@pytest.mark.parametrize("name", CORRECT)
def test_correct_pattern(name: str) -> None:
    check_correct(CORRECT[name])
