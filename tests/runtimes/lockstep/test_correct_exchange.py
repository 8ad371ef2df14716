"""No false alarms: correct kernels whose threads hand values to each other, in many styles."""

from typing import Any

import numpy as np
import pytest

import weft
from planted import Cases, check_correct, numbers, shuffled, warp_scan, warp_sum, zeros
from weft import cg, gpu

f32, i32, i64, u32 = np.float32, np.int32, np.int64, np.uint32
CORRECT = Cases()
correct = CORRECT.correct


# --- warps


@correct(2, 64, shuffled(128), zeros(128))
@weft.kernel
def softmax_of_a_warp(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    v = x[i]
    top = v
    for d in (16, 8, 4, 2, 1):
        top = max(top, gpu.shfl_xor_sync(gpu.ALL, top, d))
    out[i] = v - top + warp_sum(1.0)


@correct(1, 96, shuffled(96), zeros(96))
@weft.kernel
def scan_by_warps(x: Any, out: Any) -> None:
    sums = gpu.shared.array(3, weft.float64)
    t = gpu.threadIdx.x
    v = warp_scan(x[t])
    if gpu.laneid == 31:
        sums[t // 32] = v
    gpu.syncthreads()
    before = 0.0
    for w in range(t // 32):
        before += sums[w]
    out[t] = v + before


@correct(1, 16, shuffled(16), zeros(2))
@weft.kernel
def two_sums_in_a_local_array(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    parts = gpu.local.array(2, weft.float64)
    parts[0], parts[1] = x[t], x[t] * x[t]
    d = 8
    while d > 0:
        for k in range(2):  # the threads above get what nobody looks at
            parts[k] += gpu.shfl_down_sync(gpu.ALL, parts[k], d)
        d //= 2
    if t == 0:
        out[0], out[1] = parts[0], parts[1]


@correct(1, 16, shuffled(16), zeros(2))
@weft.kernel
def place_of_the_largest(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v, at = x[t], t
    d = 8
    while d > 0:
        other, place = gpu.shfl_down_sync(gpu.ALL, v, d), gpu.shfl_down_sync(gpu.ALL, at, d)
        if other > v or (other == v and place < at):
            v, at = other, place
        d //= 2
    if t == 0:
        out[0], out[1] = v, at


@correct(1, 20, shuffled(20), zeros(20))
@weft.kernel
def the_last_has_no_neighbour(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    ahead = gpu.shfl_down_sync(gpu.ALL, x[t], 1)
    rises = t < 19 and ahead > x[t]
    out[t] = 1.0 if rises else 0.0
    if ahead > x[t] and t < 19:
        out[t] += 2


@correct(1, 20, shuffled(20), zeros(20, dtype=u32))
@weft.kernel
def heads_of_runs(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    ahead = gpu.shfl_down_sync(gpu.ALL, x[t], 1)
    out[t] = gpu.ballot_sync(gpu.ALL, t == 19 or ahead != x[t])


@correct(1, 20, shuffled(20), zeros(1))
@weft.kernel
def nobodys_value_lies_in_shared_memory(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    s[t] = gpu.shfl_down_sync(gpu.ALL, x[t], 4)
    gpu.syncwarp()
    if t == 0:
        total = 0.0
        for k in range(16):
            total += s[k]
        out[0] = total


@correct(1, 32, shuffled(32, i32) % 5, zeros(32, dtype=i32))
@weft.kernel
def one_atomic_for_equal_keys(keys: Any, counts: Any) -> None:
    t = gpu.threadIdx.x
    peers = gpu.match_any_sync(gpu.ALL, keys[t])
    if gpu.ffs(peers) - 1 == gpu.laneid:
        gpu.atomic.add(counts, keys[t], gpu.popc(peers))


@correct(2, 64, shuffled(128, i64), zeros(128, dtype=i64), zeros(1, dtype=i64))
@weft.kernel
def warp_aggregated_push(x: Any, out: Any, count: Any) -> None:
    i = gpu.grid(1)
    wanted = x[i] % 3 == 0
    word = gpu.ballot_sync(gpu.ALL, wanted)
    base = 0
    if gpu.laneid == 0:
        base = gpu.atomic.add(count, 0, gpu.popc(word))
    base = gpu.shfl_sync(gpu.ALL, base, 0)
    if wanted:
        out[base + gpu.popc(word & gpu.lanemask_lt())] = 1


@correct(1, 64, shuffled(64), zeros(64))
@weft.kernel
def groups_of_eight_lanes(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v = x[t]
    for d in (4, 2, 1):
        v += gpu.shfl_xor_sync(gpu.ALL, v, d, 8)
    out[t] = gpu.shfl_sync(gpu.ALL, v, 0, 8)


@correct(1, 32, shuffled(32), zeros(32))
@weft.kernel
def mask_of_those_who_came(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if x[t] > 10:
        mask = gpu.activemask()
        first = gpu.ffs(mask) - 1
        out[t] = gpu.shfl_sync(mask, x[t], first)


@correct(1, 64, shuffled(64), zeros(64))
@weft.kernel
def sort_of_a_warp(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v = x[t]
    k = 2
    while k <= 32:
        j = k // 2
        while j > 0:
            other = gpu.shfl_xor_sync(gpu.ALL, v, j)
            up = (t & k) == 0
            low = (t & j) == 0
            v = min(v, other) if up == low else max(v, other)
            j //= 2
        k *= 2
    out[t] = v


@correct(1, 32, shuffled(32), zeros(32))
@weft.kernel
def warp_transposes_in_its_own_memory(x: Any, out: Any) -> None:
    s = gpu.shared.array((4, 9), weft.float64)
    t = gpu.threadIdx.x
    for _ in range(2):
        s[t // 8, t % 8] = x[t]
        gpu.syncwarp()
        out[t] = s[t % 4, t // 4]
        gpu.syncwarp()


@correct(2, 32, shuffled(64), zeros(64))
@weft.kernel
def all_agree_or_none(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    v = x[i]
    while gpu.any_sync(gpu.ALL, v > 5):
        v = v - 5 if v > 5 else v
    out[i] = v if gpu.all_sync(gpu.ALL, v <= 5) else -1.0


# --- buffers that take turns, pipelines


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def buffers_by_name(x: Any, out: Any) -> None:
    one, two = gpu.shared.array(64, weft.float64), gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    src, dst = one, two
    src[t] = x[t]
    gpu.syncthreads()
    for _ in range(3):
        dst[t] = src[(t + 1) % 64]
        gpu.syncthreads()
        src, dst = dst, src
    out[t] = src[t]


@correct(1, 32, numbers(96), zeros(96))
@weft.kernel
def three_stages(x: Any, out: Any) -> None:
    s = gpu.shared.array((3, 32), weft.float64)
    t = gpu.threadIdx.x
    s[0, t] = x[t]
    s[1, t] = x[32 + t]
    for k in range(3):
        gpu.syncthreads()
        if k + 2 < 3:
            s[(k + 2) % 3, t] = x[(k + 2) * 32 + t]
        out[k * 32 + t] = s[k % 3, 31 - t]


@correct(1, 32, numbers(128, dtype=f32), zeros(128, dtype=f32))
@weft.kernel
def copies_ahead(x: Any, out: Any) -> None:
    s = gpu.shared.array((2, 32), weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[0, t:], x[t:])
    gpu.commit_group()
    for k in range(4):
        if k + 1 < 4:
            gpu.memcpy_async(s[(k + 1) % 2, t:], x[32 * (k + 1) + t:])
            gpu.commit_group()
            gpu.wait_group(1)
        else:
            gpu.wait_group()
        gpu.syncthreads()
        out[32 * k + t] = s[k % 2, 31 - t]
        gpu.syncthreads()


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def one_warp_loads_another_computes(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    for k in range(2):
        if t < 32:
            s[t] = x[k * 32 + t]
        gpu.syncthreads()
        if t >= 32:
            out[k * 32 + t - 32] = s[63 - t]
        gpu.syncthreads()


# --- between blocks


@correct(4, 32, shuffled(128), zeros(128), zeros(4), zeros(4, dtype=i32))
@weft.kernel
def scan_that_looks_back(x: Any, out: Any, sums: Any, ready: Any) -> None:
    s = gpu.shared.array(1, weft.float64)
    t, b = gpu.threadIdx.x, gpu.blockIdx.x
    v = warp_scan(x[gpu.grid(1)])
    if t == 31:
        before = 0.0
        if b > 0:
            while gpu.atomic.add(ready, b - 1, 0) == 0:
                pass
            gpu.threadfence()
            before = sums[b - 1]
        sums[b] = before + v
        gpu.threadfence()
        gpu.atomic.exch(ready, b, 1)
        s[0] = before
    gpu.syncthreads()
    out[gpu.grid(1)] = v + s[0]


@correct(3, 32, shuffled(96), zeros(3), zeros(1, dtype=u32), zeros(1))
@weft.kernel
def last_block_by_a_wrapping_counter(x: Any, partial: Any, ticket: Any, out: Any) -> None:
    last = gpu.shared.array(1, weft.int32)
    t = gpu.threadIdx.x
    v = warp_sum(x[gpu.grid(1)])
    if t == 0:
        partial[gpu.blockIdx.x] = v
        gpu.threadfence()
        last[0] = gpu.atomic.inc(ticket, 0, gpu.gridDim.x - 1) == gpu.gridDim.x - 1
    gpu.syncthreads()
    if last[0] != 0:
        gpu.threadfence()
        total = partial[t] if t < gpu.gridDim.x else 0.0
        total = warp_sum(total)
        if t == 0:
            out[0] = total


@correct(3, 32, numbers(400, dtype=i64), zeros(400, dtype=i64), zeros(1, dtype=i32))
@weft.kernel
def threads_that_fetch_their_work(x: Any, out: Any, next_part: Any) -> None:
    part = gpu.shared.array(1, weft.int32)
    t = gpu.threadIdx.x
    while True:
        if t == 0:
            part[0] = gpu.atomic.add(next_part, 0, 1)
        gpu.syncthreads()
        mine = part[0]
        gpu.syncthreads()
        if mine * 32 >= x.size:
            break
        i = mine * 32 + t
        if i < x.size:
            out[i] = x[i] * 2


@correct(2, 32, zeros(32), zeros(1, dtype=i32), zeros(32))
@weft.kernel
def producer_and_consumer(data: Any, flag: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if gpu.blockIdx.x == 0:
        data[t] = t + 1.0
        gpu.threadfence()
        gpu.syncthreads()
        if t == 0:
            gpu.atomic.exch(flag, 0, 1)
    else:
        if t == 0:
            while gpu.atomic.add(flag, 0, 0) == 0:
                pass
            gpu.threadfence()
        gpu.syncthreads()
        out[t] = data[31 - t]


@correct(4, 16, numbers(64), zeros(64))
@weft.kernel
def all_blocks_meet(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    x[i] = x[i] * 2
    cg.this_grid().sync()
    out[i] = x[(i + 17) % 64]


@correct(4, 16, numbers(64))
@weft.kernel
def relaxation_with_a_grid_barrier(x: Any) -> None:
    i = gpu.grid(1)
    g = cg.this_grid()
    for k in range(4):
        if i % 2 == k % 2:
            x[i] = x[(i + 1) % 64] + x[(i + 63) % 64]
        g.sync()


@correct(3, 32, zeros(1, dtype=i32), zeros(8, dtype=i64))
@weft.kernel
def lock_with_orders(mutex: Any, total: Any) -> None:
    if gpu.threadIdx.x == 0:
        while gpu.atomic.cas(mutex, 0, 0, 1) != 0:
            pass
        gpu.threadfence()
        for k in range(8):
            total[k] += k
        gpu.threadfence()
        gpu.atomic.exch(mutex, 0, 0)


@correct(2, 64, shuffled(128, i64), np.full(256, -1, i64))
@weft.kernel
def hash_table(keys: Any, slots: Any) -> None:
    key = keys[gpu.grid(1)]
    at = key * 7 % slots.size
    while True:
        found = gpu.atomic.cas(slots, at, -1, key)
        if found == -1 or found == key:
            break
        at = (at + 1) % slots.size


@correct(3, 32, shuffled(96), np.full(1, -1.0))
@weft.kernel
def maximum_in_two_steps(x: Any, out: Any) -> None:
    s = gpu.shared.array(1, weft.float64)
    if gpu.threadIdx.x == 0:
        s[0] = -1.0
    gpu.syncthreads()
    gpu.atomic.max(s, 0, x[gpu.grid(1)])
    gpu.syncthreads()
    if gpu.threadIdx.x == 0:
        gpu.atomic.max(out, 0, s[0])


@correct(2, 32, numbers(64, dtype=i64) % 2, zeros(1, dtype=i32))
@weft.kernel
def all_say_found(x: Any, found: Any) -> None:
    if x[gpu.grid(1)] == 1:
        found[0] = 1


@pytest.mark.grid
@pytest.mark.parametrize("name", CORRECT)
def test_correct_kernel(name: str) -> None:
    check_correct(CORRECT[name], (None, 1))
