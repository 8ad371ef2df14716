"""The sanitiser is silent about correct kernels, which compute what the compiled ones do."""

import math
from typing import Any

import numpy as np
import pytest

import weft
from planted import Cases, check_correct, zeros
from planted import shuffled as numbers
from weft import gpu

f64, f32, i32, i64 = np.float64, np.float32, np.int32, np.int64
CORRECT = Cases()
correct = CORRECT.correct


@correct(4, 32, 2.0, numbers(101), numbers(101))
@weft.kernel
def saxpy(a: Any, x: Any, y: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@correct(3, 32, numbers(1000), zeros(1000))
@weft.kernel
def grid_stride(x: Any, out: Any) -> None:
    for i in range(gpu.grid(1), x.size, gpu.gridsize(1)):
        out[i] = x[i] * 2


@correct(3, 64, numbers(170), zeros(1))
@weft.kernel
def reduction(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    s[t] = x[i] if i < x.size else 0.0
    d = 32
    while d > 0:
        gpu.syncthreads()
        if t < d:
            s[t] += s[t + d]
        d //= 2
    if t == 0:
        gpu.atomic.add(out, 0, s[0])


@correct(2, 64, numbers(128), zeros(2))
@weft.kernel
def reduction_with_the_last_warp_in_step(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[gpu.grid(1)]
    gpu.syncthreads()
    if t < 32:
        v = s[t] + s[t + 32]
        gpu.syncwarp()
        s[t] = v
        gpu.syncwarp()
        d = 16
        while d > 0:
            v += s[t + d] if t + d < 32 else 0.0
            gpu.syncwarp()
            s[t] = v
            gpu.syncwarp()
            d //= 2
    if t == 0:
        out[gpu.blockIdx.x] = s[0]


@correct(2, 64, numbers(128), zeros(2))
@weft.kernel
def reduction_by_shuffles(x: Any, out: Any) -> None:
    s = gpu.shared.array(2, weft.float64)
    t = gpu.threadIdx.x
    v = x[gpu.grid(1)]
    d = 16
    while d > 0:
        v += gpu.shfl_down_sync(gpu.ALL, v, d)
        d //= 2
    if gpu.laneid == 0:
        s[t // 32] = v
    gpu.syncthreads()
    if t == 0:
        out[gpu.blockIdx.x] = s[0] + s[1]


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def scan_in_two_buffers(x: Any, out: Any) -> None:
    s = gpu.shared.array((2, 64), weft.float64)
    t = gpu.threadIdx.x
    this = 0
    s[0, t] = x[t]
    gpu.syncthreads()
    d = 1
    while d < 64:
        v = s[this, t]
        if t >= d:
            v += s[this, t - d]
        s[1 - this, t] = v
        this = 1 - this
        gpu.syncthreads()
        d *= 2
    out[t] = s[this, t]


@correct(1, 32, numbers(32), zeros(32))
@weft.kernel
def scan_with_two_barriers(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    d = 1
    while d < 32:
        gpu.syncthreads()
        v = s[t - d] if t >= d else 0.0
        gpu.syncthreads()
        s[t] += v
        d *= 2
    out[t] = s[t]


@correct((3, 2), (8, 8), numbers(15 * 21).reshape(15, 21), zeros(21, 15))
@weft.kernel
def transpose(x: Any, out: Any) -> None:
    tile = gpu.shared.array((8, 9), weft.float64)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    j, i = gpu.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        tile[ty, tx] = x[i, j]
    gpu.syncthreads()
    i, j = gpu.blockIdx.x * 8 + ty, gpu.blockIdx.y * 8 + tx
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = tile[tx, ty]


@correct((3, 2), (8, 8), numbers(130).reshape(10, 13), numbers(221).reshape(13, 17), zeros(10, 17))
@weft.kernel
def matmul(a: Any, b: Any, c: Any) -> None:
    left = gpu.shared.array((8, 8), weft.float64)
    right = gpu.shared.array((8, 8), weft.float64)
    j, i = gpu.grid(2)
    tx, ty = gpu.threadIdx.x, gpu.threadIdx.y
    total = 0.0
    for k in range(0, a.shape[1], 8):
        left[ty, tx] = a[i, k + tx] if i < a.shape[0] and k + tx < a.shape[1] else 0.0
        right[ty, tx] = b[k + ty, j] if k + ty < b.shape[0] and j < b.shape[1] else 0.0
        gpu.syncthreads()
        for m in range(8):
            total += left[ty, m] * right[m, tx]
        gpu.syncthreads()
    if i < c.shape[0] and j < c.shape[1]:
        c[i, j] = total


@correct(2, 64, numbers(500, i64) % 7, zeros(7, dtype=i64))
@weft.kernel
def histogram(x: Any, counts: Any) -> None:
    s = gpu.shared.array(7, weft.int64)
    t = gpu.threadIdx.x
    if t < 7:
        s[t] = 0
    gpu.syncthreads()
    for i in range(gpu.grid(1), x.size, gpu.gridsize(1)):
        gpu.atomic.add(s, x[i], 1)
    gpu.syncthreads()
    if t < 7:
        gpu.atomic.add(counts, t, s[t])


@correct(1, 32, numbers(128), zeros(128))
@weft.kernel
def double_buffer(x: Any, out: Any) -> None:
    s = gpu.shared.array((2, 32), weft.float64)
    t = gpu.threadIdx.x
    s[0, t] = x[t]
    for k in range(4):
        gpu.syncthreads()
        if k + 1 < 4:
            s[(k + 1) % 2, t] = x[(k + 1) * 32 + t]
        out[k * 32 + t] = s[k % 2, 31 - t]


@correct(3, 32, numbers(80), zeros(80))
@weft.kernel
def leavers(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    if i >= x.size:
        return
    s[t] = x[i]
    gpu.syncthreads()
    out[i] = s[t - 1] if t > 0 else 0.0


@correct(3, 32, numbers(80), zeros(80))
@weft.kernel
def leavers_behind_a_barrier(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    s[t] = 0
    gpu.syncthreads()
    if i < x.size:
        s[31 - t] = x[i]
    else:
        return
    gpu.syncthreads()
    out[i] = s[31 - t] * 2


@correct(4, 32, numbers(128), zeros(4), zeros(1, dtype=i32), zeros(1))
@weft.kernel
def last_block_adds_up(x: Any, partial: Any, ticket: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    last = gpu.shared.array(1, weft.int32)
    t, b = gpu.threadIdx.x, gpu.blockIdx.x
    s[t] = x[gpu.grid(1)]
    gpu.syncthreads()
    if t == 0:
        total = 0.0
        for k in range(32):
            total += s[k]
        partial[b] = total
        gpu.threadfence()
        last[0] = 1 if gpu.atomic.add(ticket, 0, 1) == gpu.gridDim.x - 1 else 0
    gpu.syncthreads()
    if last[0] == 1 and t == 0:
        total = 0.0
        for k in range(gpu.gridDim.x):
            total += partial[k]
        out[0] = total


@correct(2, 32, numbers(64), zeros(1))
@weft.kernel
def same_value_from_all(x: Any, found: Any) -> None:
    if x[gpu.grid(1)] > 3:
        found[0] = 1.0


@correct(2, 40, numbers(80, i64), zeros(80, dtype=i64))
@weft.kernel
def compaction_by_ballot(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    t = gpu.threadIdx.x
    if t < 32:
        word = gpu.ballot_sync(gpu.ALL, x[i] % 2 == 0)
        if x[i] % 2 == 0:
            place = gpu.popc(word & gpu.lanemask_lt())
            out[gpu.blockIdx.x * 40 + place] = x[i]


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def half_a_warp_with_its_mask(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if t % 32 < 16:
        out[t] = gpu.shfl_xor_sync(0xFFFF, x[t], 3)
    else:
        out[t] = gpu.shfl_xor_sync(0xFFFF0000, x[t], 1)


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def neighbours_in_a_warp(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    for k in range(3):
        s[t] = x[t] + k
        gpu.syncwarp()
        out[t] += s[t ^ 5]
        gpu.syncwarp()


@correct(3, 16, numbers(48), zeros(3))
@weft.kernel
def reduction_of_half_a_warp(x: Any, out: Any) -> None:
    v = x[gpu.grid(1)]
    d = 8
    while d > 0:
        v += gpu.shfl_down_sync(gpu.ALL, v, d)  # the upper threads get what nobody looks at
        d //= 2
    if gpu.threadIdx.x == 0:
        out[gpu.blockIdx.x] = v


@correct(2, 32, numbers(40), zeros(40))
@weft.kernel
def scan_of_a_warp_that_is_not_full(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        v = x[i]
        below = gpu.shfl_down_sync(gpu.ALL, v, 1)
        out[i] = v + (below if i + 1 < x.size and gpu.laneid < 31 else 0.0)
    else:
        return


@correct(1, 48, numbers(48), zeros(48))
@weft.kernel
def order_through_a_third_lane(x: Any, out: Any) -> None:
    s = gpu.shared.array(48, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    if t < 4:
        gpu.syncwarp(0xF)
    if t > 1 and t < 6:
        gpu.syncwarp(0x3C)
    if t > 3 and t < 6:
        out[t] = s[t - 4]


@correct(2, 32, numbers(64), zeros(64))
@weft.kernel
def uniform_barrier_in_a_branch(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    s[t] = x[i]
    if gpu.blockIdx.x == 0:
        gpu.syncthreads()
        out[i] = s[31 - t]
    else:
        out[i] = s[t]


@correct(2, 32, numbers(64), zeros(64), 5)
@weft.kernel
def uniform_break(x: Any, out: Any, n: Any) -> None:
    s = gpu.shared.array(32, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    for k in range(10):
        if k == n:
            break
        s[t] = x[i] + k
        gpu.syncthreads()
        out[i] += s[31 - t]
        gpu.syncthreads()


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def loop_until_all_agree(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v = x[t]
    while gpu.syncthreads_or(v > 10) != 0:
        v = v - 7 if v > 10 else v
    out[t] = v


@correct((2, 3), (8, 4), numbers(192, i64).reshape(12, 16) % 2, zeros(12, 16, dtype=i64))
@weft.kernel
def game_of_life(old: Any, new: Any) -> None:
    j, i = gpu.grid(2)
    h, w = old.shape
    alive = 0
    for di in range(-1, 2):
        for dj in range(-1, 2):
            if di != 0 or dj != 0:
                alive += old[(i + di + h) % h, (j + dj + w) % w]
    new[i, j] = 1 if alive == 3 or (alive == 2 and old[i, j] == 1) else 0


@correct((2, 2), (16, 8), zeros(16, 32, dtype=i32))
@weft.kernel
def mandelbrot(out: Any) -> None:
    j, i = gpu.grid(2)
    c_re, c_im = j / 16 - 1.5, i / 8 - 1.0
    re, im = 0.0, 0.0
    count = 0
    while count < 30 and re * re + im * im < 4.0:
        re, im = re * re - im * im + c_re, 2 * re * im + c_im
        count += 1
    out[i, j] = count


@correct(2, 32, numbers(64, f32), zeros(64, dtype=f32))
@weft.kernel
def local_arrays(x: Any, out: Any) -> None:
    a = gpu.local.array(5, weft.float32)
    i = gpu.grid(1)
    for k in range(5):
        a[k] = x[i] * k
    total = weft.float32(0)
    for k in range(5):
        total += a[4 - k]
    out[i] = total


@correct(1, 64, numbers(64), zeros(64))
@weft.kernel
def bitonic_sort(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    s[t] = x[t]
    k = 2
    while k <= 64:
        j = k // 2
        while j > 0:
            gpu.syncthreads()
            other = t ^ j
            if other > t:
                a, b = s[t], s[other]
                if (a > b) == ((t & k) == 0):
                    s[t], s[other] = b, a
            j //= 2
        k *= 2
    gpu.syncthreads()
    out[t] = s[t]


@correct(2, 32, numbers(70), zeros(64))
@weft.kernel
def stencil_with_halo(x: Any, out: Any) -> None:
    s = gpu.shared.array(38, weft.float64)
    t, i = gpu.threadIdx.x, gpu.grid(1)
    s[t] = x[i]
    if t < 6:
        s[t + 32] = x[i + 32]
    gpu.syncthreads()
    total = 0.0
    for k in range(7):
        total += s[t + k]
    out[i] = total


@correct(1, 16, numbers(16), zeros(16))
@weft.kernel
def names_of_some_ways(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if x[t] > 5:
        v = x[t] * 2
    for k in range(3):
        if k > 0:
            w = k * 2.0
        if k > 1:
            out[t] += w
    if x[t] > 5:
        out[t] += v


@correct(2, 32, numbers(64, i64), zeros(64, dtype=i64))
@weft.kernel
def returns_out_of_loops(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    for k in range(1, 100):
        if k * k > x[i]:
            out[i] = k
            return
    out[i] = -1


@correct(2, 33, zeros(4, dtype=i64), numbers(66, i64))
@weft.kernel
def atomics_of_many_kinds(out: Any, x: Any) -> None:
    i = gpu.grid(1)
    gpu.atomic.add(out, 0, x[i])
    gpu.atomic.max(out, 1, x[i] * 3)
    gpu.atomic.min(out, 2, -x[i])
    gpu.atomic.xor(out, 3, x[i])


@correct(3, 20, numbers(50), np.full(3, -1.0))
@weft.kernel
def maximum_by_comparing_and_swapping(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        old = out[i % 3]  # may be out of date: the comparison looks again
        while x[i] > old:
            found = gpu.atomic.cas(out, i % 3, old, x[i])
            if found == old:
                break
            old = found


@correct(2, 64, numbers(77), zeros(1))
@weft.kernel
def sum_of_those_that_are_there(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    mask = gpu.ballot_sync(gpu.ALL, i < x.size)
    if i < x.size:
        v = x[i]
        for d in (16, 8, 4, 2, 1):
            other = gpu.shfl_down_sync(mask, v, d)
            if gpu.laneid + d < 32 and mask >> (gpu.laneid + d) & 1:
                v += other
        if gpu.laneid == 0:
            gpu.atomic.add(out, 0, v)


@correct(1, 32, numbers(32), zeros(2))
@weft.kernel
def sums_of_half_warps(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    v = x[t]
    if t < 16:
        for d in (8, 4, 2, 1):
            v += gpu.shfl_down_sync(0xFFFF, v, d)  # of whom the first half of a warp has no need
        if t == 0:
            out[0] = v
    else:
        for d in (8, 4, 2, 1):
            v += gpu.shfl_down_sync(0xFFFF0000, v, d)
        if t == 16:
            out[1] = v


@correct(2, 64, zeros(2), zeros(2, dtype=i32), zeros(2))
@weft.kernel
def message_to_another_warp(data: Any, flag: Any, out: Any) -> None:
    t, b = gpu.threadIdx.x, gpu.blockIdx.x
    if t == 0:
        data[b] = b + 1.0
        gpu.threadfence_block()
        gpu.atomic.exch(flag, b, 1)
    if t == 32 and gpu.atomic.add(flag, b, 0) == 1:
        out[b] = data[b]


@correct(4, 32, zeros(1, dtype=i32), zeros(1))
@weft.kernel
def lock(mutex: Any, total: Any) -> None:
    if gpu.threadIdx.x == 0:
        while gpu.atomic.cas(mutex, 0, 0, 1) != 0:
            pass
        gpu.threadfence()
        total[0] += gpu.blockIdx.x + 1
        gpu.threadfence()
        gpu.atomic.exch(mutex, 0, 0)


@correct(6, 1, zeros(6, dtype=i64), zeros(1, dtype=i64))
@weft.kernel
def locks_that_are_tried_again(out: Any, mutex: Any) -> None:
    done = False
    while not done:
        if gpu.atomic.cas(mutex, 0, 0, 1) == 0:
            gpu.threadfence()
            out[0] += gpu.blockIdx.x
            gpu.threadfence()
            gpu.atomic.exch(mutex, 0, 0)
            done = True


@correct(2, 32, numbers(64), numbers(64), zeros(64, dtype=i64))
@weft.kernel
def binary_search(x: Any, keys: Any, out: Any) -> None:
    i = gpu.grid(1)
    low, high = 0, x.size
    while low < high:
        middle = (low + high) // 2
        if x[middle] < keys[i]:
            low = middle + 1
        else:
            high = middle
    out[i] = low


@correct(1, 64, zeros(64, dtype=i32))
@weft.kernel
def exchange_as_the_first_write(out: Any) -> None:
    s = gpu.shared.array(64, weft.int32)
    t = gpu.threadIdx.x
    gpu.atomic.exch(s, 63 - t, t)
    gpu.syncthreads()
    out[t] = s[t]


@correct(2, (4, 2, 3), zeros(2, 3, 2, 4))
@weft.kernel
def three_axes(out: Any) -> None:
    t = gpu.threadIdx
    out[gpu.blockIdx.x, t.z, t.y, t.x] = t.x + 10 * t.y + 100 * t.z


@correct(3, 32, numbers(90)[::-1], zeros(180)[::2])
@weft.kernel
def strided_arguments(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        out[i] = x[i] * 3


@weft.func
def _square(x: Any) -> Any:
    if x < 0:
        return 0.0
    return x * x


@correct(2, 32, numbers(60), zeros(60))
@weft.kernel
def device_function(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        out[i] = _square(x[i] - 30) + math.sqrt(x[i])


@correct(1, 32, zeros(0), zeros(32))
@weft.kernel
def nothing_to_read(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    out[i] = x[i] if i < x.size else 1.0


@pytest.mark.grid
@pytest.mark.parametrize("name", CORRECT)
def test_correct_kernel(name: str) -> None:
    check_correct(CORRECT[name])
