"""The sanitiser finds planted bugs of every kind, at the line marked with BUG."""

from typing import Any

import numpy as np
import pytest

import weft
from planted import NATIVE, Cases, check_bug, check_bug_natively, numbers, zeros
from weft import gpu

BUGS = Cases()
bug = BUGS.bug


# --- missing barriers


@bug("missing-barrier", 2, 64, numbers(128), zeros(128))
@weft.kernel
def reversal(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    s[t] = x[i]
    out[i] = s[63 - t]  # BUG


@bug("missing-barrier", 1, 64, numbers(64), zeros(1))
@weft.kernel
def sum_without_barrier_in_the_loop(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    gpu.syncthreads()
    d = 32
    while d > 0:
        if t < d:
            s[t] += s[t + d]  # BUG
        d //= 2
    if t == 0:
        out[0] = s[0]


@bug("missing-barrier", 1, 64, numbers(64), zeros(64))
@weft.kernel
def sum_without_first_barrier(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    d = 32
    while d > 0:
        if t < d:
            s[t] += s[t + d]  # BUG
        gpu.syncthreads()
        d //= 2
    out[t] = s[0]


@bug("missing-barrier", 1, 64, numbers(64), zeros(64))
@weft.kernel
def sum_read_too_early(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    d = 32
    while d > 0:
        gpu.syncthreads()
        if t < d:
            s[t] += s[t + d]
        d //= 2
    out[t] = s[0]  # BUG


@bug("missing-barrier", (2, 2), (8, 8), zeros(16, 16), zeros(16, 16), zeros(16, 16))
@weft.kernel
def matmul_second_barrier(a: Any, b: Any, c: Any) -> None:
    left = gpu.shared.array((8, 8), weft.float64)
    right = gpu.shared.array((8, 8), weft.float64)
    j, i = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = 0.0
    for k in range(0, a.shape[1], 8):
        left[ty, tx] = a[i, k + tx] + 1 + k  # BUG
        right[ty, tx] = b[k + ty, j] + 1 + k  # BUG
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
    c[i, j] = total


@bug("missing-barrier", 1, 64, numbers(64), zeros(64))
@weft.kernel
def warp_code_without_syncwarp(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    out[t] = s[t ^ 1]  # BUG


@bug("missing-barrier", 1, 64, numbers(64), zeros(64))
@weft.kernel
def syncwarp_between_warps(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    gpu.syncwarp()
    out[t] = s[t ^ 32]  # BUG


@bug("missing-barrier", 1, 32, zeros(32))
@weft.kernel
def syncwarp_of_half_a_warp(out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    s[t] = t
    if t < 16:
        gpu.syncwarp(0xFFFF)
        out[t] = s[t + 16]  # BUG


@bug("missing-barrier", 1, 64, zeros(64))
@weft.kernel
def neighbours_in_global_memory(x: Any) -> None:
    t = gpu.threadIdx.x
    x[t] = t
    x[(t + 1) % 64] += 1.0  # BUG


@bug("missing-barrier", 1, 33, zeros(33, dtype=np.int32))
@weft.kernel
def counter_reset_without_barrier(out: Any) -> None:
    s = gpu.shared.array(1, weft.int32)
    t = gpu.threadIdx.x
    if t == 0:
        s[0] = 0
    out[t] = gpu.atomic.add(s, 0, 1)  # BUG


@bug("missing-barrier", 1, 64, numbers(64), zeros(64))
@weft.kernel
def single_buffer(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    for k in range(3):
        s[t] = x[t] * (k + 1)  # BUG
        gpu.syncthreads()
        out[t] += s[(t + 1) % 64]


# --- races that no barrier cures


@bug("race", 1, 32, numbers(32), zeros(32))
@weft.kernel
def scan_in_place(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t] + 1
    d = 1
    while d < 32:
        gpu.syncthreads()
        if t >= d:
            s[t] += s[t - d]  # BUG
        d *= 2
    gpu.syncthreads()
    out[t] = s[t]


@bug("race", 1, 64, zeros(1))
@weft.kernel
def all_write_one_shared(out: Any) -> None:
    s = gpu.shared.array(1, weft.float64)
    t = gpu.threadIdx.x
    s[0] = t  # BUG
    gpu.syncthreads()
    if t == 0:
        out[0] = s[0]


@bug("race", 1, 64, zeros(32))
@weft.kernel
def pairs_write_one_element(out: Any) -> None:
    i = gpu.grid(1)
    out[i // 2] = i  # BUG


@bug("race", 4, 32, zeros(1))
@weft.kernel
def blocks_write_one_element(out: Any) -> None:
    if gpu.threadIdx.x == 0:
        out[0] = gpu.blockIdx.x  # BUG


@bug("race", 4, 1, zeros(1))
@weft.kernel
def count_without_atomic(out: Any) -> None:
    out[0] += 1  # BUG


@bug("race", 4, 32, zeros(128))
@weft.kernel
def stencil_in_place_between_blocks(x: Any) -> None:
    i = gpu.grid(1)
    v = x[(i + 32) % 128]
    gpu.syncthreads()
    x[i] = v + 1  # BUG


@bug("race", 2, 32, zeros(2), zeros(2, dtype=np.int32))
@weft.kernel
def message_without_fence(data: Any, flag: Any) -> None:
    b = gpu.blockIdx.x
    if gpu.threadIdx.x == 0:
        data[b] = b + 1
        if gpu.atomic.add(flag, 0, 1) == 1:
            data[0] += data[1]  # BUG


@bug("race", 1, 64, numbers(64, dtype=np.int64) % 7, zeros(7, dtype=np.int64))
@weft.kernel
def histogram_without_atomics(x: Any, counts: Any) -> None:
    i = gpu.grid(1)
    counts[x[i]] += 1  # BUG


@bug("race", 1, 64, zeros(64))
@weft.kernel
def reader_and_writer_in_two_branches(out: Any) -> None:
    s = gpu.shared.array(1, weft.float64)
    t = gpu.threadIdx.x
    s[0] = 0.0
    gpu.syncthreads()
    if t == 0:
        s[0] = 1.0  # BUG
    else:
        out[t] = s[0]  # BUG


@bug("race", 2, 32, zeros(1, dtype=np.int32), zeros(2))
@weft.kernel
def atomic_against_plain(total: Any, out: Any) -> None:
    if gpu.threadIdx.x == 0:
        gpu.atomic.add(total, 0, 1)  # BUG
        out[gpu.blockIdx.x] = total[0]  # BUG


@bug("race", 3, 20, zeros(1, dtype=np.int64))
@weft.kernel
def guess_against_plain_write(out: Any) -> None:
    i = gpu.grid(1)
    old = out[0]  # BUG
    gpu.atomic.cas(out, 0, old, i + 1)  # BUG
    if i == 59:
        out[0] = -1  # BUG


@bug("race", 3, 20, zeros(1, dtype=np.int64), zeros(60, dtype=np.int64))
@weft.kernel
def plain_read_behind_a_swap(total: Any, out: Any) -> None:
    i = gpu.grid(1)
    gpu.atomic.cas(total, 0, 0, i)  # BUG
    out[i] = total[0]  # BUG


@bug("missing-barrier", 2, 32, zeros(4, dtype=np.int64))
@weft.kernel
def plain_write_by_the_last_that_updated(total: Any) -> None:
    i = gpu.grid(1)
    gpu.atomic.add(total, i // 32, 1)  # BUG
    if gpu.threadIdx.x == 31:
        total[i // 32] = -1  # BUG


@bug("race", 5, 1, zeros(1, dtype=np.int64), zeros(5, dtype=np.int64))
@weft.kernel
def plain_read_by_the_last_that_updated(total: Any, out: Any) -> None:
    i = gpu.grid(1)
    gpu.atomic.max(total, 0, i)  # BUG
    if i == 4:
        out[i] = total[0]  # BUG


@bug("race", 2, 32, zeros(2), zeros(1, dtype=np.int32), zeros(1))
@weft.kernel
def message_behind_a_fence_of_the_block(data: Any, flag: Any, out: Any) -> None:
    if gpu.threadIdx.x == 0:
        data[gpu.blockIdx.x] = 1.0
        gpu.threadfence_block()  # the other block needs one of the device
        if gpu.atomic.add(flag, 0, 1) == 1:
            out[0] = data[0] + data[1]  # BUG


# --- uninitialised memory


@bug("uninitialised", 1, 32, zeros(32))
@weft.kernel
def shared_never_written(out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    out[t] = s[t]  # BUG


@bug("uninitialised", 1, 32, numbers(32), zeros(32))
@weft.kernel
def halo_never_written(x: Any, out: Any) -> None:
    s = gpu.shared.array(34, weft.float64)
    t = gpu.threadIdx.x
    s[t + 1] = x[t]
    gpu.syncthreads()
    out[t] = s[t] + s[t + 1]  # BUG


@bug("uninitialised", 1, 4, zeros(4))
@weft.kernel
def local_sum_without_start(out: Any) -> None:
    a = gpu.local.array(4, weft.float64)
    t = gpu.threadIdx.x
    for k in range(4):
        a[k] += k  # BUG
    out[t] = a[t]


@bug("uninitialised", 1, 4, zeros(4))
@weft.kernel
def local_partly_written(out: Any) -> None:
    a = gpu.local.array(5, weft.float64)
    t = gpu.threadIdx.x
    for k in range(4):
        a[k] = k
    out[t] = a[t + 1]  # BUG


@bug("uninitialised", 1, 32, zeros(1, dtype=np.int32))
@weft.kernel
def shared_counter_without_start(out: Any) -> None:
    s = gpu.shared.array(1, weft.int32)
    gpu.atomic.add(s, 0, 1)  # BUG
    gpu.syncthreads()
    if gpu.threadIdx.x == 0:
        out[0] = s[0]  # BUG


@bug("uninitialised", 1, 8, zeros(8))
@weft.kernel
def name_set_in_one_branch(out: Any) -> None:
    t = gpu.threadIdx.x
    if t > 3:
        v = 1.0
    out[t] = v  # BUG


@bug("uninitialised", 1, 8, zeros(8))
@weft.kernel
def name_set_in_a_loop_that_may_not_run(out: Any) -> None:
    t = gpu.threadIdx.x
    for k in range(t):
        last = k * 2.0
    out[t] = last  # BUG


# --- bounds


@bug("out-of-bounds", 2, 32, zeros(50))
@weft.kernel
def no_guard(out: Any) -> None:
    i = gpu.grid(1)
    out[i] = i  # BUG


@bug("out-of-bounds", 2, 32, numbers(64), zeros(64))
@weft.kernel
def right_neighbour(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    out[i] = x[i] + x[i + 1]  # BUG


@bug("out-of-bounds", 2, 32, numbers(64), zeros(64))
@weft.kernel
def left_neighbour(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    out[i] = x[i] + x[i - 1]  # BUG


@bug("out-of-bounds", 1, 33, zeros(33))
@weft.kernel
def guard_with_less_or_equal(out: Any) -> None:
    i = gpu.grid(1) + 1
    if i <= out.size:
        out[i] = 1  # BUG


@bug("out-of-bounds", 1, 32, numbers(32), zeros(32))
@weft.kernel
def shared_too_small(x: Any, out: Any) -> None:
    s = gpu.shared.array(31, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]  # BUG
    gpu.syncthreads()
    if t > 0:
        out[t] = s[t - 1]


@bug("out-of-bounds", 1, 4, zeros(4))
@weft.kernel
def local_past_the_end(out: Any) -> None:
    a = gpu.local.array(4, weft.float64)
    for k in range(4):
        a[k] = k
    t = gpu.threadIdx.x
    out[t] = a[t * 2]  # BUG


@bug("out-of-bounds", (2, 1), (8, 8), zeros(8, 16))
@weft.kernel
def axes_exchanged(out: Any) -> None:
    x, y = gpu.grid(2)
    out[x, y] = 1  # BUG


@bug("out-of-bounds", 1, 8, numbers(8, dtype=np.int64) - 3, zeros(8))
@weft.kernel
def negative_from_data(index: Any, out: Any) -> None:
    i = gpu.grid(1)
    out[index[i]] = i  # BUG


@bug("out-of-bounds", 1, 8, numbers(8, dtype=np.int64), zeros(4, dtype=np.int64))
@weft.kernel
def histogram_of_too_few(x: Any, counts: Any) -> None:
    gpu.atomic.add(counts, x[gpu.grid(1)], 1)  # BUG


@bug("out-of-bounds", 1, 8, numbers(8), zeros(8))
@weft.kernel
def the_last_as_in_python(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    out[t] = x[-1]  # BUG


@bug("out-of-bounds", 1, 8, zeros(8))
@weft.kernel
def always_past_the_end(out: Any) -> None:
    s = gpu.shared.array(8, weft.float64)
    t = gpu.threadIdx.x
    s[t] = t
    gpu.syncthreads()
    out[t] = s[8]  # BUG


@bug("out-of-bounds", 2, 16, zeros(64)[::2])
@weft.kernel
def strided_past_the_end(out: Any) -> None:
    i = gpu.grid(1)
    out[i + 1] = i  # BUG


# --- barriers that not all threads reach


@bug("barrier-divergence", 1, 64, zeros(64))
@weft.kernel
def barrier_under_a_condition(out: Any) -> None:
    t = gpu.threadIdx.x
    if t < 32:
        gpu.syncthreads()  # BUG
    out[t] = t


@bug("barrier-divergence", 1, 64, zeros(64))
@weft.kernel
def barrier_at_the_end_under_a_condition(out: Any) -> None:
    t = gpu.threadIdx.x
    if t < 16:
        out[t] = 1
        gpu.syncthreads()  # BUG


@bug("barrier-divergence", 1, 64, zeros(64))
@weft.kernel
def two_barriers_in_two_branches(out: Any) -> None:
    t = gpu.threadIdx.x
    if t % 2 == 0:
        out[t] = 1
        gpu.syncthreads()  # BUG
    else:
        out[t] = 2
        gpu.syncthreads()  # BUG


@bug("barrier-divergence", 1, 32, zeros(32))
@weft.kernel
def barrier_in_a_loop_of_unlike_length(out: Any) -> None:
    t = gpu.threadIdx.x
    for k in range(t + 1):
        out[t] += k
        gpu.syncthreads()  # BUG


@bug("barrier-divergence", 1, 32, numbers(32), zeros(32))
@weft.kernel
def barrier_depends_on_data(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if x[t] > 10:
        out[t] = gpu.syncthreads_count(x[t] > 12)  # BUG


@bug("barrier-divergence", 1, 32, zeros(32))
@weft.kernel
def barrier_behind_break(out: Any) -> None:
    t = gpu.threadIdx.x
    for k in range(4):
        if k == t:
            break
        gpu.syncthreads()  # BUG
    out[t] = 1


# --- warps


@bug("warp-mask", 1, 32, numbers(32), zeros(32))
@weft.kernel
def full_mask_in_half_a_warp(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v = x[t]
    if t < 16:
        v += gpu.shfl_down_sync(gpu.ALL, v, 8)  # BUG
    out[t] = v


@bug("warp-mask", 1, 32, numbers(32), zeros(32))
@weft.kernel
def mask_without_a_lane(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    out[t] = gpu.shfl_xor_sync(0x7FFFFFFF, x[t], 1)  # BUG


@bug("warp-mask", 1, 64, numbers(64), zeros(64, dtype=np.uint32))
@weft.kernel
def ballot_in_a_branch(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if x[t] > 5:
        out[t] = gpu.ballot_sync(gpu.ALL, x[t] > 7)  # BUG


@bug("warp-mask", 1, 32, numbers(32), zeros(32))
@weft.kernel
def reads_from_outside_the_mask(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if t < 16:
        out[t] = gpu.shfl_sync(0xFFFF, x[t], t + 16)  # BUG


@bug("warp-mask", 1, 32, zeros(32))
@weft.kernel
def syncwarp_with_a_wrong_mask(out: Any) -> None:
    t = gpu.threadIdx.x
    out[t] = t
    if t > 7:
        gpu.syncwarp(0xFF)  # BUG


@bug("warp-mask", 2, 32, numbers(40), zeros(2))
@weft.kernel
def sum_of_a_warp_that_is_not_full(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if i >= x.size:
        return
    v = x[i]
    d = 16
    while d > 0:
        v += gpu.shfl_down_sync(gpu.ALL, v, d)  # BUG
        d //= 2
    if gpu.laneid == 0:
        out[gpu.blockIdx.x] = v


@bug("warp-mask", 1, 24, numbers(24), zeros(24))
@weft.kernel
def broadcast_from_a_thread_that_is_not_there(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    last = gpu.shfl_sync(gpu.ALL, x[t], 31)  # BUG
    twice = last * 2 if t > 3 else 0.0
    out[t] = twice


# --- assertions


@bug("assertion", 1, 32, numbers(32))
@weft.kernel
def assertion_fails(x: Any) -> None:
    t = gpu.threadIdx.x
    assert x[t] < 20, "too large"  # BUG
    x[t] = 0


@pytest.mark.grid
@pytest.mark.parametrize("name", BUGS)
@pytest.mark.parametrize("seed", [None, 1])
def test_planted_bug(name: str, seed: int | None) -> None:
    check_bug(BUGS[name], __file__, seed)


@pytest.mark.grid
@pytest.mark.parametrize("name", [n for n in BUGS if BUGS[n].kind in NATIVE])
def test_planted_bug_in_compiled_code(name: str) -> None:
    check_bug_natively(BUGS[name], __file__)
