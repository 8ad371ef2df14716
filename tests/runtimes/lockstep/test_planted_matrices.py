"""Planted bugs with matrix fragments, each beside a correct kernel of the same form."""

from typing import Any

import numpy as np
import pytest

import weft
from planted import NATIVE, Cases, check_bug, check_bug_natively, check_correct
from weft import gpu

f16, f32, i8 = np.float16, np.float32, np.int8
wm = gpu.wmma
CASES = Cases()
bug, correct = CASES.bug, CASES.correct


def matrix(*shape: int, dtype: Any = f16) -> Any:
    return (np.arange(int(np.prod(shape))) % 7 - 3).astype(dtype).reshape(shape)


# --- where a matrix lies


@bug("out-of-bounds", 1, 32, matrix(24, 16), matrix(16, 16, dtype=f32))
@weft.kernel
def rows_past_the_end(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, x[16:, 0:], 16)  # BUG
    out[gpu.threadIdx.x // 2, gpu.threadIdx.x % 2] = 1.0


@bug("out-of-bounds", 1, 32, matrix(256), matrix(16, 16, dtype=f32))
@weft.kernel
def rows_too_far_apart(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, x, 24)  # BUG
    out[gpu.threadIdx.x // 2, gpu.threadIdx.x % 2] = 1.0


@bug("out-of-bounds", 1, 64, matrix(16, 16, dtype=f32))
@weft.kernel
def second_warp_stores_outside(out: Any) -> None:
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 1.0)
    wm.store_matrix_sync(out[gpu.threadIdx.x // 32 * 16:, 0:], c)  # BUG


@bug("out-of-bounds", 1, 32, matrix(16, 40), matrix(16, 16, dtype=f32))
@weft.kernel
def last_part_is_narrower(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    for k in range(0, x.shape[1], 16):
        wm.load_matrix_sync(a, x[0:, k:])  # BUG
    out[gpu.threadIdx.x // 2, gpu.threadIdx.x % 2] = 1.0


@bug("assertion", 1, 32, matrix(16, 32), matrix(16, 16, dtype=f32))
@weft.kernel
def pitch_of_another_array(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, x, 16)  # BUG
    out[gpu.threadIdx.x // 2, gpu.threadIdx.x % 2] = a[0]


@bug("misaligned", 1, 32, matrix(17 * 16), matrix(16, 16, dtype=f32))
@weft.kernel
def odd_pitch(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, x, 17)  # BUG
    out[gpu.threadIdx.x // 2, gpu.threadIdx.x % 2] = a[0]


@bug("misaligned", 1, 32, matrix(16, 32), matrix(16, 16, dtype=f32))
@weft.kernel
def one_column_later(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, x[0:, 1:])  # BUG
    out[gpu.threadIdx.x // 2, gpu.threadIdx.x % 2] = a[0]


@bug("misaligned", 1, 32, matrix(16, 33), matrix(16, 16, dtype=f32))
@weft.kernel
def rows_of_odd_length(x: Any, out: Any) -> None:
    b = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.col_major)
    wm.load_matrix_sync(b, x)  # BUG
    out[gpu.threadIdx.x // 2, gpu.threadIdx.x % 2] = b[0]


@bug("misaligned", 1, 32, matrix(16, 16, dtype=f32))
@weft.kernel
def shared_rows_with_one_more(out: Any) -> None:
    s = gpu.shared.array((16, 17), weft.float32)  # against conflicts of banks
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 1.0)
    wm.store_matrix_sync(s, c)  # BUG
    gpu.syncthreads()
    for e in range(gpu.threadIdx.x, 256, 32):
        out[e // 16, e % 16] = s[e // 16, e % 16]


@bug("misaligned", 1, 32, matrix(17 * 16 + 1, dtype=i8)[1:], matrix(16, 16, dtype=f32))
@weft.kernel
def array_that_begins_oddly(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.int8, wm.row_major)
    wm.load_matrix_sync(a, x, 16)  # BUG
    out[gpu.threadIdx.x // 2, gpu.threadIdx.x % 2] = a[0]


@correct(1, 64, matrix(32, 48), matrix(32, 40, dtype=f32))
@weft.kernel
def parts_of_wider_matrices(x: Any, out: Any) -> None:
    mine = gpu.threadIdx.x // 32 * 16
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    b = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.col_major)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    for column in range(0, 32, 16):
        wm.fill_fragment(c, 0.0)
        for k in range(0, 48, 16):
            wm.load_matrix_sync(a, x[mine:, k:])
            wm.load_matrix_sync(b, x[column:, k:], 48)
            wm.mma_sync(c, a, b, c)
        wm.store_matrix_sync(out[mine:, column + 4:], c)


@correct(1, 32, matrix(16 * 24), matrix(16, 16, dtype=f32))
@weft.kernel
def rows_with_a_gap(x: Any, out: Any) -> None:
    s = gpu.shared.array((16, 20), weft.float32)
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    b = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.row_major)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.load_matrix_sync(a, x[8:], 24)
    wm.load_matrix_sync(b, x, 24)
    wm.fill_fragment(c, 0.5)
    wm.mma_sync(c, a, b, c)
    wm.store_matrix_sync(s, c)
    gpu.syncwarp()
    for e in range(gpu.threadIdx.x, 256, 32):
        out[e // 16, e % 16] = s[e // 16, e % 16]


# --- used before it is set


@bug("uninitialised", 1, 32, matrix(16, 16), matrix(16, 16, dtype=f32))
@weft.kernel
def factor_that_was_never_loaded(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    b = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.row_major)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 0.0)
    wm.load_matrix_sync(a, x, 16)
    wm.mma_sync(c, a, b, c)  # BUG
    wm.store_matrix_sync(out, c, 16)


@bug("uninitialised", 1, 64, matrix(16, 16), matrix(32, 16, dtype=f32))
@weft.kernel
def loaded_by_one_warp_only(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 0.0)
    b = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(b, x, 16)
    if gpu.threadIdx.x < 32:
        wm.load_matrix_sync(a, x, 16)
    gpu.syncthreads()
    wm.mma_sync(c, a, b, c)  # BUG
    wm.store_matrix_sync(out[gpu.threadIdx.x // 32 * 16:, 0:], c, 16)


@bug("uninitialised", 1, 32, matrix(16, 16), matrix(16, 16, dtype=f32))
@weft.kernel
def tile_with_a_row_that_is_not_there(x: Any, out: Any) -> None:
    s = gpu.shared.array((16, 16), weft.float16)
    for e in range(gpu.threadIdx.x, 240, 32):
        s[e // 16, e % 16] = x[e // 16, e % 16]
    gpu.syncthreads()
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, s)  # BUG
    out[gpu.threadIdx.x // 2, 0] = 1.0


@bug("uninitialised", 1, 32, matrix(16, 16, dtype=f32))
@weft.kernel
def reads_beside_what_was_stored(out: Any) -> None:
    s = gpu.shared.array((16, 32), weft.float32)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 1.0)
    wm.store_matrix_sync(s[0:, 16:], c)
    gpu.syncthreads()
    t = gpu.threadIdx.x
    out[0, t // 2] = s[0, t]  # BUG


# --- a part of the warp


@bug("warp-mask", 1, 32, matrix(16, 16, dtype=f32))
@weft.kernel
def part_of_a_warp_stores(out: Any) -> None:
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 1.0)
    if gpu.threadIdx.x % 4:
        wm.store_matrix_sync(out, c, 16)  # BUG


@bug("warp-mask", 1, 64, matrix(16, 16), matrix(32, 16, dtype=f32))
@weft.kernel
def part_of_a_warp_multiplies(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    b = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.row_major)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 0.0)
    wm.load_matrix_sync(a, x)
    wm.load_matrix_sync(b, x)
    if gpu.threadIdx.x < 48:
        wm.mma_sync(c, a, b, c)  # BUG
    wm.store_matrix_sync(out[gpu.threadIdx.x // 32 * 16:, 0:], c)


@bug("warp-mask", 1, 64, matrix(16, 16), matrix(32, 16, dtype=f32))
@weft.kernel
def some_left_before_the_load(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    if t >= 60:
        return
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, x)  # BUG
    out[t // 2, 0] = 1.0


# --- between warps


@bug("race", 1, 64, matrix(16, 16, dtype=f32))
@weft.kernel
def two_warps_store_one_matrix(out: Any) -> None:
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, gpu.threadIdx.x // 32)
    wm.store_matrix_sync(out, c, 16)  # BUG


@bug("race", 1, 64, matrix(24, 16, dtype=f32))
@weft.kernel
def matrices_of_two_warps_overlap(out: Any) -> None:
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, gpu.threadIdx.x // 32)
    wm.store_matrix_sync(out[gpu.threadIdx.x // 32 * 8:, 0:], c)  # BUG


@bug("missing-barrier", 1, 64, matrix(16, 16, dtype=f32))
@weft.kernel
def other_warp_reads_what_was_stored(out: Any) -> None:
    s = gpu.shared.array((32, 16), weft.float32)
    t = gpu.threadIdx.x
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 1.0)
    wm.store_matrix_sync(s[t // 32 * 16:, 0:], c)
    gpu.syncwarp()
    for e in range(t, 256, 64):
        out[e // 16, e % 16] = s[e // 16, e % 16] + s[e // 16 + 16, e % 16]  # BUG


@bug("missing-barrier", 1, 32, matrix(16, 16, dtype=f32))
@weft.kernel
def relies_on_which_thread_has_an_element(out: Any) -> None:
    s = gpu.shared.array((16, 16), weft.float32)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, 1.0)
    wm.store_matrix_sync(s, c)
    for e in range(gpu.threadIdx.x, 256, 32):
        out[e // 16, e % 16] = s[e // 16, e % 16]  # BUG


@bug("missing-barrier", 1, 64, matrix(64, 16), matrix(32, 16, dtype=f32))
@weft.kernel
def next_tile_before_all_have_loaded(x: Any, out: Any) -> None:
    s = gpu.shared.array((16, 16), weft.float16)
    t = gpu.threadIdx.x
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    total = 0.0
    for k in range(4):
        for e in range(t, 256, 64):
            s[e // 16, e % 16] = x[k * 16 + e // 16, e % 16]  # BUG
        gpu.syncthreads()
        wm.load_matrix_sync(a, s)
        total += a[0]
    out[t // 2, 0] = 1.0


@correct(2, 96, matrix(16, 16), matrix(2, 48, 16, dtype=f32))
@weft.kernel
def each_warp_and_block_has_its_own(x: Any, out: Any) -> None:
    s = gpu.shared.array((48, 16), weft.float32)
    t = gpu.threadIdx.x
    mine = t // 32 * 16
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    b = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.row_major)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.load_matrix_sync(a, x)
    wm.load_matrix_sync(b, x)
    wm.fill_fragment(c, gpu.blockIdx.x)
    for _ in range(3):
        wm.mma_sync(c, a, b, c)
        for e in range(c.num_elements):
            c[e] = c[e] * 0.5
    wm.store_matrix_sync(s[mine:, 0:], c)
    gpu.syncthreads()
    for e in range(t, 768, 96):
        out[gpu.blockIdx.x, e // 16, e % 16] = s[47 - e // 16, e % 16]


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].kind])
def test_planted_bug_of_matrices(name: str) -> None:
    check_bug(CASES[name], __file__, None)


@pytest.mark.grid
@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].kind in NATIVE])
def test_planted_bug_of_matrices_in_compiled_code(name: str) -> None:
    check_bug_natively(CASES[name], __file__)


@pytest.mark.parametrize("name", [n for n in CASES if not CASES[n].kind])
def test_correct_matrices(name: str) -> None:
    check_correct(CASES[name])
