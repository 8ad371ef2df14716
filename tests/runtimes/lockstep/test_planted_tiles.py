"""Planted bugs with fragments, copies on the side and vector accesses; and correct kernels."""

from typing import Any

import numpy as np
import pytest

import weft
from planted import NATIVE, Cases, check_bug, check_bug_natively
from weft import gpu

f16, f32, f64 = np.float16, np.float32, np.float64
wm = gpu.wmma
BUGS = Cases()
bug = BUGS.bug


def numbers(*shape: int, dtype: Any = f32, skip: int = 0) -> Any:
    """Return 0, 1, 2 ..., perhaps from another address on."""
    count = int(np.prod(shape))
    return (np.arange(count + skip) % 64).astype(dtype)[skip:].reshape(shape)


# --- misaligned


@bug("misaligned", 1, 16, numbers(64, skip=1), numbers(64))
@weft.kernel
def load_from_an_odd_address(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x * 4
    a, b, c, d = gpu.load(x, t, 4)  # BUG
    out[t] = a + b + c + d


@bug("misaligned", 1, 16, numbers(64), numbers(64))
@weft.kernel
def load_at_an_odd_index(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    a, b = gpu.load(x, t, 2)  # BUG
    out[t] = a + b


@bug("misaligned", 1, 16, numbers(5, 33), numbers(5, 33))
@weft.kernel
def rows_of_odd_length(x: Any, out: Any) -> None:
    t = gpu.threadIdx.x
    for row in range(x.shape[0]):
        a, b = gpu.load(x, (row, 2 * t), 2)  # BUG
        out[row, t] = a + b


@bug("misaligned", 1, 16, numbers(64), numbers(64))
@weft.kernel
def store_to_shared_memory(x: Any, out: Any) -> None:
    s = gpu.shared.array(66, weft.float32)
    t = gpu.threadIdx.x * 4
    gpu.store(s, t + 2, (x[t], x[t + 1], x[t + 2], x[t + 3]))  # BUG
    gpu.syncthreads()
    out[t] = s[t + 2]


@bug("misaligned", 1, 16, numbers(72), numbers(64))
@weft.kernel
def copy_from_an_odd_index(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float32)
    t = gpu.threadIdx.x * 4
    gpu.memcpy_async(s[t:], x[t + 1:], 4)  # BUG
    gpu.commit_group()
    gpu.wait_group()


# --- copies that nobody has waited for


@bug("uncommitted-copy", 1, 32, numbers(32), numbers(32))
@weft.kernel
def copy_without_wait(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[t:], x[t:])
    gpu.commit_group()
    gpu.syncthreads()
    out[t] = s[31 - t]  # BUG


@bug("uncommitted-copy", 1, 32, numbers(32), numbers(32))
@weft.kernel
def copy_without_commit(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[t:], x[t:])
    gpu.wait_group()
    gpu.syncthreads()
    out[t] = s[31 - t]  # BUG


@bug("uncommitted-copy", 1, 32, numbers(96), numbers(32))
@weft.kernel
def wait_for_one_group_too_few(x: Any, out: Any) -> None:
    s = gpu.shared.array((3, 32), weft.float32)
    t = gpu.threadIdx.x
    for k in range(3):
        gpu.memcpy_async(s[k, t:], x[32 * k + t:])
        gpu.commit_group()
    gpu.wait_group(2)
    gpu.syncthreads()
    out[t] = s[0, t] + s[1, t]  # BUG


@bug("uncommitted-copy", 1, 32, numbers(32), numbers(32))
@weft.kernel
def write_under_a_copy(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[t:], x[t:])
    gpu.commit_group()
    s[t] = 1.0  # BUG
    gpu.wait_group()
    gpu.syncthreads()
    out[t] = s[t]


@bug("missing-barrier", 1, 64, numbers(64), numbers(64))
@weft.kernel
def copy_without_barrier(x: Any, out: Any) -> None:
    s = gpu.shared.array(64, weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[t:], x[t:])
    gpu.commit_group()
    gpu.wait_group()
    out[t] = s[63 - t]  # BUG


@bug("missing-barrier", 1, 32, numbers(64), numbers(32))
@weft.kernel
def next_copy_before_all_have_read(x: Any, out: Any) -> None:
    s = gpu.shared.array(32, weft.float32)
    t = gpu.threadIdx.x
    for k in range(2):
        gpu.memcpy_async(s[t:], x[32 * k + t:])  # BUG
        gpu.commit_group()
        gpu.wait_group()
        gpu.syncthreads()
        out[t] = s[31 - t]


@bug("missing-barrier", 1, 32, numbers(96), numbers(96))
@weft.kernel
def copy_begins_before_all_have_read(x: Any, out: Any) -> None:
    """It ends behind a barrier, but it may write from where it is asked for."""
    s = gpu.shared.array((2, 32), weft.float32)
    t = gpu.threadIdx.x
    gpu.memcpy_async(s[0, t:], x[t:])
    gpu.commit_group()
    for k in range(3):
        if k < 2:
            gpu.memcpy_async(s[(k + 1) % 2, t:], x[32 * k + 32 + t:])  # BUG
        gpu.commit_group()
        gpu.wait_group(1)
        gpu.syncthreads()
        out[32 * k + t] = s[k % 2, 31 - t]


# --- fragments


@bug("uninitialised", 1, 32, numbers(16, 16, dtype=f16), numbers(16, 16))
@weft.kernel
def sum_that_was_never_set(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    b = wm.fragment(wm.matrix_b, 16, 16, 16, weft.float16, wm.row_major)
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.load_matrix_sync(a, x, 16)
    wm.load_matrix_sync(b, x, 16)
    wm.mma_sync(c, a, b, c)  # BUG
    wm.store_matrix_sync(out, c, 16)


@bug("out-of-bounds", 1, 32, numbers(16, 24, dtype=f16), numbers(16, 16))
@weft.kernel
def matrix_past_the_end(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    for k in range(0, 24, 16):
        wm.load_matrix_sync(a, x[0:, k:])  # BUG
    if gpu.threadIdx.x < 16:
        out[0, gpu.threadIdx.x] = a[0]


@bug("warp-mask", 1, 32, numbers(16, 16, dtype=f16), numbers(16, 16))
@weft.kernel
def half_a_warp_loads(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.fill_fragment(a, 0)
    if gpu.threadIdx.x < 16:
        wm.load_matrix_sync(a, x, 16)  # BUG
    out[gpu.threadIdx.x // 2, 0] = 1.0


@bug("warp-mask", 1, 32, numbers(48, 16, dtype=f16), numbers(16, 16))
@weft.kernel
def threads_name_two_matrices(x: Any, out: Any) -> None:
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, x[gpu.threadIdx.x // 16 * 16:], 16)  # BUG
    out[gpu.threadIdx.x // 2, 0] = 1.0


@bug("missing-barrier", 1, 64, numbers(16, 16, dtype=f16), numbers(16, 16))
@weft.kernel
def matrix_before_all_have_written(x: Any, out: Any) -> None:
    s = gpu.shared.array((16, 16), weft.float16)
    t = gpu.threadIdx.x
    for e in range(t, 256, 64):
        s[e // 16, e % 16] = x[e // 16, e % 16]
    a = wm.fragment(wm.matrix_a, 16, 16, 16, weft.float16, wm.row_major)
    wm.load_matrix_sync(a, s, 16)  # BUG
    out[t // 4, 0] = 1.0


@bug("race", 2, 32, numbers(16, 16), numbers(16, 16))
@weft.kernel
def blocks_store_one_matrix(x: Any, out: Any) -> None:
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    wm.fill_fragment(c, gpu.blockIdx.x)
    wm.store_matrix_sync(out, c, 16)  # BUG


@bug("uninitialised", 1, 32, numbers(16, 16), numbers(16, 16))
@weft.kernel
def element_that_was_never_set(x: Any, out: Any) -> None:
    c = wm.fragment(wm.accumulator, 16, 16, 16, weft.float32)
    for e in range(c.num_elements - 1):
        c[e] = 1.0
    wm.store_matrix_sync(out, c, 16)  # BUG


# --- dynamic shared memory of several types


@bug("missing-barrier", 1, 32, numbers(32), numbers(32), shared=256)
@weft.kernel
def parts_that_overlap(x: Any, out: Any) -> None:
    t, n = gpu.threadIdx.x, gpu.blockDim.x
    values = gpu.shared.array(0, weft.float32)
    counts = gpu.shared.array(0, weft.int64)
    values[t] = x[t]
    counts[(t + 8) % n] = t  # BUG
    gpu.syncthreads()
    out[t] = counts[t]


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug(name: str) -> None:
    check_bug(BUGS[name], __file__, None)


@pytest.mark.parametrize("name", [n for n in BUGS if BUGS[n].kind in NATIVE])
def test_planted_bug_in_compiled_code(name: str) -> None:
    check_bug_natively(BUGS[name], __file__)


def test_a_function_that_returns_on_some_ways_only() -> None:
    def sometimes(x: Any) -> Any:
        if x > 3:
            return 1.0

    def always(x: Any) -> Any:
        while True:
            x += 1
            if x > 5:
                return x

    def in_the_else(x: Any) -> Any:
        for i in range(5):
            if i > x:
                return i
        else:
            return 7

    @weft.kernel
    def wrong(out: Any) -> None:
        out[0] = sometimes(out[1])

    @weft.kernel
    def right(out: Any) -> None:
        out[0], out[1], out[2] = always(1), in_the_else(2), in_the_else(9)

    out = np.zeros(3)
    with pytest.raises(weft.errors.KernelError, match="some ways only"):
        wrong[1, 1](out)
    right[1, 1](out)
    np.testing.assert_array_equal(out, [6, 3, 7])


def handed_over(order: str) -> Any:
    """Return a kernel in which one block tells another one, by an atomic operation of an order."""

    @weft.kernel
    def told(x: Any, flag: Any, out: Any) -> None:
        if gpu.blockIdx.x == 0:
            x[0] = 7
            gpu.atomic.exch(flag, 0, 1, "device", order)
        elif gpu.atomic.add(flag, 0, 0, order="acquire") == 1:
            out[0] = x[0]

    return told


def test_the_order_of_an_atomic_operation_counts() -> None:
    for order, kinds in (("release", []), ("seq_cst", []), ("relaxed", ["race"])):
        x, flag, out = (np.zeros(1, np.int64) for _ in range(3))
        report = weft.sanitize(handed_over(order), 2, 1)(x, flag, out)
        assert [f.kind for f in report.findings] == kinds, str(report)
        assert out[0] == 7
        handed_over(order)[2, 1](x, flag, out)
        assert flag[0] == 1
    for order, words in (("weak", "order"), ("", "order")):
        with pytest.raises(weft.errors.KernelError, match=words):
            handed_over(order)[1, 1](x, flag, out)


def test_the_scope_of_an_atomic_operation_counts() -> None:
    @weft.kernel
    def blocks(x: Any) -> None:
        gpu.atomic.add(x, 0, 1, "block")

    @weft.kernel
    def mixed(x: Any) -> None:
        gpu.atomic.add(x, 0, 1, "system")
        gpu.atomic.add(x, gpu.blockIdx.x + 1, 1, scope="block")

    x = np.zeros(4, np.int64)
    assert [f.kind for f in weft.sanitize(blocks, 2, 32)(x).findings] == ["race"]
    assert not weft.sanitize(blocks, 1, 32)(x).findings
    assert not weft.sanitize(mixed, 3, 32)(x).findings
    assert x[0] == 64 + 32 + 96
    np.testing.assert_array_equal(x[1:], 32)
