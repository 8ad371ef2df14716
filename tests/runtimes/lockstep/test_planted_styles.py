"""Planted bugs in the styles of kernels that people write for GPUs."""

import math
from typing import Any

import numpy as np
import pytest

import weft
from planted import NATIVE, Cases, check_bug, check_bug_natively, numbers, zeros
from weft import gpu

f32, i32, i64, u32 = np.float32, np.int32, np.int64, np.uint32
BUGS = Cases()
bug = BUGS.bug


# --- what a shuffle takes from nobody


@bug("warp-mask", 1, 24, numbers(24), zeros(24))
@weft.kernel
def branch_on_a_value_from_nobody(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v = gpu.shfl_down_sync(gpu.ALL, x[t], 4)  # BUG
    if v > 3:
        out[t] = 1.0


@bug("warp-mask", 1, 24, zeros(24), zeros(24))
@weft.kernel
def branch_not_taken(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if gpu.shfl_sync(gpu.ALL, x[t], 30) > 3:  # BUG
        out[t] = 1.0


@bug("warp-mask", 1, 24, numbers(24), zeros(24))
@weft.kernel
def flag_from_a_value_from_nobody(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    ahead = gpu.shfl_down_sync(gpu.ALL, x[t], 1)  # BUG
    peak = False
    if ahead < x[t]:
        peak = True
    out[t] = 1.0 if peak else 0.0


@bug("warp-mask", 1, 24, numbers(24), zeros(24))
@weft.kernel
def early_return_by_a_value_from_nobody(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v = gpu.shfl_down_sync(gpu.ALL, x[t], 8)  # BUG
    if v < 100:
        return
    out[t] = v


@bug("warp-mask", 1, 20, numbers(20, dtype=i64), zeros(20, dtype=i64))
@weft.kernel
def loop_of_as_many_turns_as_nobody_says(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    count = gpu.shfl_sync(gpu.ALL, x[t], 25)  # BUG
    total = 0
    for k in range(count):
        total += k
    out[t] = total


@bug("warp-mask", 1, 20, numbers(20, dtype=i64), zeros(20, dtype=i64))
@weft.kernel
def index_from_nobody(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    out[t] = x[gpu.shfl_sync(gpu.ALL, t, 31)]  # BUG


@bug("warp-mask", 1, 20, numbers(20), zeros(20, dtype=u32))
@weft.kernel
def vote_about_a_value_from_nobody(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    differs = gpu.shfl_down_sync(gpu.ALL, x[t], 1) != x[t]  # BUG
    out[t] = gpu.ballot_sync(gpu.ALL, differs)


@bug("warp-mask", 1, 20, numbers(20), zeros(2))
@weft.kernel
def through_shared_memory(x: Any, out: Any) -> None:
    s = gpu.shared.array(20, weft.float64)
    t = gpu.threadIdx.x
    s[t] = gpu.shfl_down_sync(gpu.ALL, x[t], 1)  # BUG
    gpu.syncthreads()
    if t == 0:
        out[0] = s[19]


@bug("warp-mask", 1, 20, numbers(20), zeros(1))
@weft.kernel
def atomic_sum_of_what_nobody_gave(x: Any, out: Any) -> None:
    v = gpu.shfl_down_sync(gpu.ALL, x[gpu.threadIdx.x], 16)  # BUG
    gpu.atomic.add(out, 0, v)


@bug("warp-mask", 1, 64, numbers(64), zeros(64))
@weft.kernel
def inactive_partner_in_a_branch(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if t % 2 == 0:
        out[t] = gpu.shfl_xor_sync(0x55555555, x[t], 1)  # BUG


# --- buffers that take turns


@bug("missing-barrier", 1, 64, numbers(64), zeros(64))
@weft.kernel
def buffers_by_name_in_one_line(x: Any, out: Any) -> None:
    one, two = gpu.shared.array(64, weft.float64), gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    src, dst = one, two
    src[t] = x[t]
    gpu.syncthreads()
    for _ in range(3):
        dst[t] = src[(t + 1) % 64]  # BUG
        src, dst = dst, src
    gpu.syncthreads()
    out[t] = src[t]


@bug("missing-barrier", 1, 64, numbers(64), zeros(64))
@weft.kernel
def scan_in_buffers_by_name(x: Any, out: Any) -> None:
    one, two = gpu.shared.array(64, weft.float64), gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    src, dst = one, two
    src[t] = x[t]
    gpu.syncthreads()
    d = 1
    while d < 64:
        if t >= d:
            dst[t] = src[t] + src[t - d]  # BUG
        else:
            dst[t] = src[t]  # BUG
        src, dst = dst, src
        d *= 2
    gpu.syncthreads()
    out[t] = src[t]


@bug("missing-barrier", 1, 32, numbers(128), zeros(128))
@weft.kernel
def prefetch_into_the_buffer_in_use(x: Any, out: Any) -> None:
    s = gpu.shared.array((2, 32), weft.float64)
    t = gpu.threadIdx.x
    s[0, t] = x[t]
    for k in range(4):
        gpu.syncthreads()
        if k + 1 < 4:
            s[k % 2, t] = x[(k + 1) * 32 + t]
        out[k * 32 + t] = s[k % 2, 31 - t]  # BUG


# --- shared memory


@bug("missing-barrier", 1, (8, 8), numbers(64).reshape(8, 8), zeros(8, 8))
@weft.kernel
def transpose_without_barrier(x: Any, out: Any) -> None:
    tile = gpu.shared.array((8, 9), weft.float64)
    i, j = gpu.threadIdx.y, gpu.threadIdx.x
    tile[i, j] = x[i, j]
    out[j, i] = tile[i, j] + tile[j, i]  # BUG


@bug("missing-barrier", 1, 64, numbers(64), zeros(1))
@weft.kernel
def warp_sums_read_too_early(x: Any, out: Any) -> None:
    s = gpu.shared.array(2, weft.float64)
    t = gpu.threadIdx.x
    v = x[t]
    for d in (16, 8, 4, 2, 1):
        v += gpu.shfl_down_sync(gpu.ALL, v, d)
    if gpu.laneid == 0:
        s[t // 32] = v
    if t == 0:
        out[0] = s[0] + s[1]  # BUG


@bug("missing-barrier", 1, 64, numbers(64, dtype=i64) % 5, zeros(5, dtype=i64))
@weft.kernel
def private_histogram_not_cleared_in_time(x: Any, counts: Any) -> None:
    s = gpu.shared.array(5, weft.int64)
    t = gpu.threadIdx.x
    if t < 5:
        s[t] = 0
    gpu.syncwarp()
    gpu.atomic.add(s, x[t], 1)  # BUG
    gpu.syncthreads()
    if t < 5:
        counts[t] = s[t]


@bug("missing-barrier", 1, 64, numbers(64, dtype=i64) % 5, zeros(5, dtype=i64))
@weft.kernel
def private_histogram_read_too_early(x: Any, counts: Any) -> None:
    s = gpu.shared.array(5, weft.int64)
    t = gpu.threadIdx.x
    if t < 5:
        s[t] = 0
    gpu.syncthreads()
    gpu.atomic.add(s, x[t], 1)
    if t < 5:
        counts[t] = s[t]  # BUG


@bug("missing-barrier", 1, 64, numbers(64), zeros(64))
@weft.kernel
def broadcast_from_the_first_thread(x: Any, out: Any) -> None:
    s = gpu.shared.array(1, weft.float64)
    t = gpu.threadIdx.x
    if t == 0:
        s[0] = x[0]
    out[t] = x[t] - s[0]  # BUG


@bug("missing-barrier", 1, 64, numbers(192), zeros(3))
@weft.kernel
def scratch_used_again(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    for part in range(3):
        s[t] = x[part * 64 + t]  # BUG
        gpu.syncthreads()
        if t == 0:
            total = 0.0
            for k in range(64):
                total += s[k]
            out[part] = total


@bug("missing-barrier", 1, 64, zeros(64))
@weft.kernel
def barrier_in_one_branch_of_a_uniform_choice(out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = t
    if gpu.gridDim.x > 1:
        gpu.syncthreads()
    out[t] = s[(t + 33) % 64]  # BUG


@bug("missing-barrier", 1, 64, numbers(64), zeros(64), shared=512)
@weft.kernel
def fence_in_place_of_a_barrier(x: Any, out: Any) -> None:
    s = gpu.shared.array(0, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    gpu.threadfence_block()
    out[t] = s[63 - t]  # BUG


@bug("race", 1, 64, numbers(65), zeros(64))
@weft.kernel
def shift_within_one_statement(x: Any, out: Any) -> None:
    s = gpu.shared.array(65, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    if t == 0:
        s[64] = x[64]
    gpu.syncthreads()
    s[t] = s[t + 1]  # BUG
    gpu.syncthreads()
    out[t] = s[t]


@bug("race", 1, (8, 8), zeros(8))
@weft.kernel
def rows_write_one_element(out: Any) -> None:
    out[gpu.threadIdx.x] = gpu.threadIdx.y  # BUG


@bug("race", 1, 64, numbers(64), zeros(1))
@weft.kernel
def maximum_without_atomic(x: Any, out: Any) -> None:
    s = gpu.shared.array(1, weft.float64)
    t = gpu.threadIdx.x
    if t == 0:
        s[0] = 0.0
    gpu.syncthreads()
    if x[t] > s[0]:  # BUG
        s[0] = x[t]  # BUG
    gpu.syncthreads()
    if t == 0:
        out[0] = s[0]


# --- global memory, between blocks


@bug("race", 4, 32, numbers(128), zeros(128))
@weft.kernel
def in_place_shift_over_blocks(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    v = x[(i + 1) % 128]
    gpu.syncthreads()
    x[i] = v  # BUG
    out[i] = v


@bug("race", 4, 32, numbers(128), zeros(4), zeros(1, dtype=i32), zeros(1))
@weft.kernel
def last_block_without_fence(x: Any, partial: Any, ticket: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t, b = gpu.threadIdx.x, gpu.blockIdx.x
    s[t] = x[gpu.grid(1)]
    gpu.syncthreads()
    if t == 0:
        total = 0.0
        for k in range(32):
            total += s[k]
        partial[b] = total
        if gpu.atomic.add(ticket, 0, 1) == gpu.gridDim.x - 1:
            total = 0.0
            for k in range(gpu.gridDim.x):
                total += partial[k]  # BUG
            out[0] = total


@bug("race", 4, 32, zeros(1, dtype=i32), zeros(1))
@weft.kernel
def lock_without_fences(mutex: Any, total: Any) -> None:
    if gpu.threadIdx.x == 0:
        while gpu.atomic.cas(mutex, 0, 0, 1) != 0:
            pass
        total[0] += 1.0  # BUG
        gpu.atomic.exch(mutex, 0, 0)


@bug("race", 3, 32, numbers(96, dtype=i64), zeros(96, dtype=i64), zeros(1, dtype=i64))
@weft.kernel
def compaction_by_a_plain_counter(x: Any, out: Any, count: Any) -> None:
    i = gpu.grid(1)
    if x[i] % 3 == 0:
        place = count[0]  # BUG
        count[0] = place + 1  # BUG
        out[place % 96] = x[i]  # BUG


@bug("race", 4, 16, numbers(64), zeros(16))
@weft.kernel
def blocks_add_to_one_row(x: Any, out: Any) -> None:
    out[gpu.threadIdx.x] += x[gpu.grid(1)]  # BUG


@bug("race", 2, 32, zeros(64), zeros(2, dtype=i32), zeros(64))
@weft.kernel
def flag_set_before_the_data(data: Any, flag: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if gpu.blockIdx.x == 0:
        if t == 0:
            gpu.threadfence()
            gpu.atomic.exch(flag, 0, 1)
        data[t] = t + 1.0
    elif gpu.atomic.add(flag, 0, 0) == 1:
        gpu.threadfence()
        out[t] = data[t]  # BUG


@bug("race", 2, 32, zeros(1), zeros(1, dtype=i32), zeros(1))
@weft.kernel
def consumer_looks_at_a_plain_flag(data: Any, flag: Any, out: Any) -> None:
    if gpu.threadIdx.x == 0:
        if gpu.blockIdx.x == 0:
            data[0] = 5.0
            gpu.threadfence()
            flag[0] = 1
        elif flag[0] == 1:  # BUG
            out[0] = data[0]  # BUG


@bug("race", 3, 8, numbers(27), zeros(25))
@weft.kernel
def parts_that_overlap_by_one(x: Any, out: Any) -> None:
    i = gpu.blockIdx.x * 8 + gpu.threadIdx.x
    out[i] = x[i]  # BUG
    gpu.syncthreads()
    out[i + 1] = x[i + 1] + 1  # BUG


@bug("race", 2, 32, numbers(64), numbers(64))
@weft.kernel
def red_and_black_without_a_grid_barrier(x: Any, y: Any) -> None:
    i = gpu.grid(1)
    if i % 2 == 0:
        x[i] = x[(i + 1) % 64]  # BUG
    gpu.syncthreads()
    if i % 2 == 1:
        x[i] = x[(i + 1) % 64] + y[i]  # BUG


# --- what nobody has written


@bug("uninitialised", 1, 32, numbers(30), zeros(32))
@weft.kernel
def tile_with_a_hole(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    if t < x.size:
        s[t] = x[t]
    gpu.syncthreads()
    out[t] = s[31 - t]  # BUG


@bug("uninitialised", 1, (4, 4), numbers(16).reshape(4, 4), zeros(4, 4))
@weft.kernel
def border_of_a_tile(x: Any, out: Any) -> None:
    s = gpu.shared.array((6, 6), weft.float64)
    i, j = gpu.threadIdx.y, gpu.threadIdx.x
    s[i + 1, j + 1] = x[i, j]
    if i == 0:
        s[0, j + 1] = s[5, j + 1] = 0.0
    gpu.syncthreads()
    out[i, j] = s[i, j + 1] + s[i + 2, j + 1] + s[i + 1, j] + s[i + 1, j + 2]  # BUG


@bug("uninitialised", 1, 16, zeros(16))
@weft.kernel
def stack_popped_too_often(out: Any) -> None:
    stack = gpu.local.array(8, weft.int32)
    t = gpu.threadIdx.x
    top = 0
    for k in range(3):
        stack[top] = k * t
        top += 1
    out[t] = stack[top]  # BUG


@bug("uninitialised", 1, 8, numbers(8), zeros(8))
@weft.kernel
def best_so_far_without_a_start(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    for k in range(8):
        if x[k] > 6 + t:
            best = x[k]
    out[t] = best  # BUG


@bug("uninitialised", 1, 32, zeros(32), shared=256)
@weft.kernel
def dynamic_memory_never_written(out: Any) -> None:
    s = gpu.shared.array(0, weft.float64)
    t = gpu.threadIdx.x
    if t < 31:
        s[t] = t
    gpu.syncthreads()
    out[t] = s[t]  # BUG


@bug("uninitialised", 1, 4, zeros(4))
@weft.kernel
def local_matrix_above_the_diagonal(out: Any) -> None:
    a = gpu.local.array((4, 4), weft.float64)
    t = gpu.threadIdx.x
    for i in range(4):
        for j in range(i + 1):
            a[i, j] = i + j
    out[t] = a[1, t]  # BUG


@bug("uninitialised", 1, 32, zeros(1, dtype=i32))
@weft.kernel
def compare_and_swap_of_nothing(out: Any) -> None:
    s = gpu.shared.array(1, weft.int32)
    gpu.atomic.cas(s, 0, 0, 1)  # BUG
    gpu.syncthreads()
    if gpu.threadIdx.x == 0:
        out[0] = s[0]  # BUG


# --- bounds


@bug("out-of-bounds", 2, 32, numbers(50), zeros(64))
@weft.kernel
def guard_of_the_other_array(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if i < out.size:
        out[i] = x[i]  # BUG


@bug("out-of-bounds", 2, 32, numbers(50), zeros(50))
@weft.kernel
def stride_goes_one_too_far(x: Any, out: Any) -> None:
    for i in range(gpu.grid(1), x.size + 1, gpu.gridsize(1)):
        out[i] = 2.0  # BUG


@bug("out-of-bounds", (2, 2), (8, 8), zeros(12, 14))
@weft.kernel
def guard_with_axes_exchanged(out: Any) -> None:
    i, j = gpu.grid(2)
    if i < out.shape[1] and j < out.shape[0]:
        out[i, j] = 1  # BUG


@bug("out-of-bounds", 1, 32, numbers(32), zeros(32))
@weft.kernel
def scan_reads_below_zero(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    gpu.syncthreads()
    v = s[t - 1]  # BUG
    out[t] = v if t > 0 else 0.0


@bug("out-of-bounds", 1, 16, np.array([3, 1, -1, 2] * 4), numbers(4), zeros(16))
@weft.kernel
def gather_with_a_missing_value(index: Any, table: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    out[t] = table[index[t]]  # BUG


@bug("out-of-bounds", 1, 8, np.array([0, 2, 5, 9]), numbers(8), zeros(3))
@weft.kernel
def sparse_row_past_the_end(starts: Any, values: Any, out: Any) -> None:
    row = gpu.threadIdx.x
    if row < 3:
        total = 0.0
        for k in range(starts[row], starts[row + 1]):
            total += values[k]  # BUG
        out[row] = total


@bug("out-of-bounds", 1, 32, zeros(32), shared=128)
@weft.kernel
def dynamic_memory_too_small(out: Any) -> None:
    s = gpu.shared.array(0, weft.float64)
    t = gpu.threadIdx.x
    s[t] = t  # BUG
    gpu.syncthreads()
    if t < 16:
        out[t] = s[t]


@bug("out-of-bounds", 1, 40, numbers(40, dtype=i64), zeros(1, dtype=i64))
@weft.kernel
def atomic_at_the_length(x: Any, out: Any) -> None:
    gpu.atomic.max(out, x[gpu.threadIdx.x] // 20, 1)  # BUG


@bug("out-of-bounds", 1, 32, numbers(16), zeros(32))
@weft.kernel
def texture_without_clamp(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    at = t * 0.5 + 0.5
    low = math.floor(at)
    out[t] = x[low] * (low + 1 - at) + x[low + 1] * (at - low)  # BUG


# --- vector accesses


@bug("misaligned", 1, 8, numbers(40, dtype=f32), zeros(8, dtype=f32))
@weft.kernel
def vector_behind_a_header(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    a, b, c, d = gpu.load(x, 1 + t * 4, 4)  # BUG
    out[t] = a + b + c + d


@bug("misaligned", 1, 8, numbers(9, 6, dtype=f32), zeros(8, dtype=f32))
@weft.kernel
def vector_in_rows_of_six(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    a, b, c, d = gpu.load(x, (t, 0), 4)  # BUG
    out[t] = a + b + c + d


@bug("misaligned", 1, 8, zeros(17))
@weft.kernel
def pair_stored_at_an_odd_place(out: Any) -> None:
    t = gpu.threadIdx.x
    gpu.store(out, 2 * t + 1, (1.0, 2.0))  # BUG


# --- barriers that not all threads reach


@bug("barrier-divergence", 2, 32, numbers(40), zeros(40))
@weft.kernel
def barrier_under_the_guard(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    if i < x.size:
        s[t] = x[i]
        gpu.syncthreads()  # BUG
        out[i] = s[t] * 2


@bug("barrier-divergence", 3, 32, numbers(80), zeros(80))
@weft.kernel
def barrier_in_a_grid_stride_loop(x: Any, out: Any) -> None:
    for i in range(gpu.grid(1), x.size, gpu.gridsize(1)):
        out[i] = x[i]
        gpu.syncthreads()  # BUG


@bug("barrier-divergence", 1, 64, numbers(64), zeros(64))
@weft.kernel
def one_warp_waits(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    out[t] = x[t]
    if t // 32 == 0:
        gpu.syncthreads()  # BUG
    out[t] += 1


@bug("barrier-divergence", 1, 32, numbers(32), zeros(32))
@weft.kernel
def iteration_until_each_is_done(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v = x[t]
    while v > 1:
        v = v / 2
        gpu.syncthreads()  # BUG
    out[t] = v


# --- warps


@bug("warp-mask", 1, 32, numbers(32), zeros(32))
@weft.kernel
def mask_of_yesterday(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    mask = gpu.ballot_sync(gpu.ALL, x[t] > 10)
    if x[t] > 20:
        out[t] = gpu.shfl_sync(mask, x[t], 25)  # BUG


@bug("warp-mask", 1, 64, numbers(64), zeros(64, dtype=i32))
@weft.kernel
def any_in_a_loop_that_some_leave(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    k = 0
    while k < x[t] % 5:
        out[t] += 1 if gpu.any_sync(gpu.ALL, x[t] > 30) else 2  # BUG
        k += 1


@bug("warp-mask", 1, 32, numbers(32, dtype=i32) % 4, zeros(32, dtype=u32))
@weft.kernel
def match_with_a_mask_that_is_too_large(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if t < 30:
        out[t] = gpu.match_any_sync(gpu.ALL, x[t])  # BUG


@bug("warp-mask", 1, 32, numbers(32), zeros(32))
@weft.kernel
def two_masks_in_one_shuffle(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    mask = 0xFFFF if t < 16 else 0xFFFFFFFF
    out[t] = gpu.shfl_xor_sync(mask, x[t], 1)  # BUG


@bug("warp-mask", 1, 32, zeros(32))
@weft.kernel
def syncwarp_of_all_in_a_branch(out: Any) -> None:
    t = gpu.threadIdx.x
    if t < 10:
        gpu.syncwarp()  # BUG
    out[t] = 1


# --- copies on the side


@bug("uncommitted-copy", 1, 32, numbers(128, dtype=f32), zeros(128, dtype=f32))
@weft.kernel
def pipeline_that_waits_for_too_little(x: Any, out: Any) -> None:
    s = gpu.shared.array((2, 32), weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[0, t:], x[t:])
    gpu.commit_group()
    for k in range(4):
        if k + 1 < 4:
            gpu.memcpy_async(s[(k + 1) % 2, t:], x[32 * (k + 1) + t:])
            gpu.commit_group()
        gpu.wait_group(1)
        gpu.syncthreads()
        out[32 * k + t] = s[k % 2, 31 - t]  # BUG
        gpu.syncthreads()


@bug("uncommitted-copy", 1, 32, numbers(32, dtype=f32), zeros(32, dtype=f32))
@weft.kernel
def own_element_before_the_wait(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[t:], x[t:])
    gpu.commit_group()
    out[t] = s[t]  # BUG
    gpu.wait_group()


@bug("uncommitted-copy", 1, 64, numbers(64, dtype=f32), zeros(64, dtype=f32))
@weft.kernel
def only_one_warp_waits_for_its_copies(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[t:], x[t:])
    gpu.commit_group()
    if t < 32:
        gpu.wait_group()
    gpu.syncthreads()
    out[t] = s[63 - t]  # BUG


@pytest.mark.grid
@pytest.mark.parametrize("name", BUGS)
@pytest.mark.parametrize("seed", [None, 1])
def test_planted_bug(name: str, seed: int | None) -> None:
    check_bug(BUGS[name], __file__, seed)


@pytest.mark.grid
@pytest.mark.parametrize("name", [n for n in BUGS if BUGS[n].kind in NATIVE])
def test_planted_bug_in_compiled_code(name: str) -> None:
    check_bug_natively(BUGS[name], __file__)


def test_neighbours_of_the_block_and_of_the_next_one() -> None:
    """No barrier of the block is enough, so what is told is the race with the other block."""

    @weft.kernel
    def smooth(x: Any, out: Any) -> None:
        i = gpu.grid(1)
        x[i] = i
        if i + 1 < x.size:
            out[i] = x[i + 1]

    for blocks, kind in ((1, "missing-barrier"), (3, "race")):
        report = weft.sanitize(smooth, blocks, 8)(zeros(8 * blocks), zeros(8 * blocks))
        assert [f.kind for f in report.findings] == [kind], str(report)
        assert report.findings[0].lines[1] - report.findings[0].lines[0] == 2
