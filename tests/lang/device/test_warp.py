"""What the threads of a warp and of a block find out together."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu

LANES = np.arange(32)


@weft.kernel
def exchange(x: Any, out: Any, d: Any) -> None:
    t = gpu.threadIdx.x
    v = x[t]
    out[0, t] = gpu.shfl_sync(gpu.ALL, v, 5)
    out[1, t] = gpu.shfl_up_sync(gpu.ALL, v, 3)
    out[2, t] = gpu.shfl_down_sync(gpu.ALL, v, 3)
    out[3, t] = gpu.shfl_xor_sync(gpu.ALL, v, 6)
    out[4, t] = gpu.shfl_sync(gpu.ALL, v, d, 8)
    out[5, t] = gpu.shfl_up_sync(gpu.ALL, v, d, 8)
    out[6, t] = gpu.shfl_down_sync(gpu.ALL, v, d, 8)
    out[7, t] = gpu.shfl_xor_sync(gpu.ALL, v, d, 8)
    out[8, t] = gpu.shfl_sync(gpu.ALL, v, t + 1)


def _expected(x: Any, kind: str, d: Any, width: int) -> Any:
    first, own = LANES - LANES % width, LANES % width
    if kind == "idx":
        return x[first + d % width]
    if kind == "xor":
        other = LANES ^ d
        return x[np.where(other < first + width, other, LANES)]
    place = own - d if kind == "up" else own + d
    return x[np.where((place >= 0) & (place < width), first + place, LANES)]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.float64])
@pytest.mark.parametrize("d", [0, 1, 3, 7])
def test_shuffles(dtype: Any, d: int) -> None:
    """All ways to pick a thread, with distances known before and not."""
    x = np.random.default_rng(d).integers(0, 200, 32).astype(dtype)
    out = np.zeros((9, 32), dtype)
    exchange[1, 32](x, out, d)
    cases = [("idx", 5, 32), ("up", 3, 32), ("down", 3, 32), ("xor", 6, 32), ("idx", d, 8),
             ("up", d, 8), ("down", d, 8), ("xor", d, 8), ("idx", LANES + 1, 32)]  # fmt: skip
    for row, (kind, distance, width) in zip(out, cases, strict=True):
        np.testing.assert_array_equal(row, _expected(x, kind, distance, width), f"{kind} {width}")


@weft.kernel
def votes(x: Any, flags: Any, words: Any) -> None:
    t = gpu.threadIdx.x
    v = x[t]
    flags[0, t] = gpu.any_sync(gpu.ALL, v > 3)
    flags[1, t] = gpu.all_sync(gpu.ALL, v > 3)
    flags[2, t] = gpu.eq_sync(gpu.ALL, v > 3)
    words[0, t] = gpu.ballot_sync(gpu.ALL, v > 3)
    words[1, t] = gpu.match_any_sync(gpu.ALL, v)
    mask, same = gpu.match_all_sync(gpu.ALL, v)
    words[2, t] = mask
    flags[3, t] = same
    if v > 3:
        words[3, t] = gpu.activemask()
    words[4, t] = gpu.lanemask_lt()


@pytest.mark.parametrize("values", [np.arange(32), np.zeros(32), np.full(32, 9), LANES % 5])
def test_votes(values: Any) -> None:
    """Any, all, equal, ballots and matches, per warp."""
    x = np.concatenate([values, values[::-1] * 2]).astype(np.int32)
    flags = np.zeros((4, 64), np.uint8)
    words = np.zeros((5, 64), np.uint32)
    votes[1, 64](x, flags, words)
    for warp in range(2):
        at = slice(32 * warp, 32 * warp + 32)
        v = x[at]
        holds = v > 3
        bits = int(sum(1 << k for k in LANES if holds[k]))
        assert (flags[0, at] == holds.any()).all()
        assert (flags[1, at] == holds.all()).all()
        assert (flags[2, at] == (holds.all() or not holds.any())).all()
        assert (words[0, at] == bits).all()
        for lane in LANES:
            assert words[1, at][lane] == sum(1 << k for k in LANES if v[k] == v[lane])
        same = len(set(v.tolist())) == 1
        assert (words[2, at] == (0xFFFFFFFF if same else 0)).all()
        assert (flags[3, at] == same).all()
        np.testing.assert_array_equal(words[3, at], np.where(holds, bits, 0))
        np.testing.assert_array_equal(words[4, at], (1 << LANES) - 1)


@weft.kernel
def warp_sums(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    v = x[i]
    offset = 16
    while offset > 0:
        v += gpu.shfl_down_sync(gpu.ALL, v, offset)
        offset //= 2
    if gpu.laneid == 0:
        gpu.atomic.add(out, gpu.blockIdx.x, v)


def test_warp_reduction() -> None:
    """The sum of a block by shuffles."""
    x = np.random.default_rng(0).random((3, 128))
    out = np.zeros(3)
    warp_sums[3, 128](x.reshape(-1), out)
    np.testing.assert_allclose(out, x.sum(1))


@weft.kernel
def neighbours(x: Any, out: Any) -> None:
    shared = gpu.shared.array(64, weft.float64)
    t = gpu.threadIdx.x
    shared[t] = x[t]
    gpu.syncwarp()
    out[t] = shared[t ^ 1]
    gpu.threadfence()
    gpu.threadfence_block()


@weft.kernel
def ordered(x: Any) -> None:
    gpu.atomic_thread_fence()
    gpu.atomic_thread_fence("release", scope="warp")
    x[0] = 1.0


@weft.kernel
def wrongly_ordered(x: Any) -> None:
    gpu.atomic_thread_fence("relaxed")
    gpu.atomic.add(x, 0, 1.0, "grid")


def test_fences_have_an_order_and_a_scope() -> None:
    x = np.zeros(1)
    ordered[1, 1](x)
    assert x[0] == 1.0
    with pytest.raises(weft.errors.KernelError) as caught:
        wrongly_ordered[1, 1](x)
    assert "one of acquire, release, acq_rel, seq_cst" in str(caught.value)
    assert "one of thread, warp, block, device, system" in str(caught.value)


def test_warp_synchronous_code() -> None:
    """The threads of a warp see what they wrote after syncwarp."""
    x = np.random.default_rng(0).random(64)
    out = np.zeros(64)
    neighbours[1, 64](x, out)
    np.testing.assert_array_equal(out, x[np.arange(64) ^ 1])


@weft.kernel
def counting(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    if i >= x.size:
        return
    n = gpu.syncthreads_count(x[i] > 0)
    every = gpu.syncthreads_and(x[i] > 0)
    some = gpu.syncthreads_or(x[i] > 0)
    out[i] = n * 4 + every * 2 + some


@pytest.mark.parametrize("n", [64, 50])
@pytest.mark.parametrize("least", [-1, 0, 2])
def test_barriers_that_count(n: int, least: int) -> None:
    """How many threads of a block a predicate holds for; threads that left do not count."""
    x = np.random.default_rng(n).integers(least, 3, n)
    out = np.zeros(n, np.int64)
    counting[weft.cdiv(n, 32), 32](x, out)
    for first in range(0, n, 32):
        holds = x[first:first + 32] > 0
        wanted = holds.sum() * 4 + holds.all() * 2 + holds.any()
        assert (out[first:first + 32] == wanted).all()


@weft.kernel
def bits(x: Any, y: Any, out: Any, floats: Any) -> None:
    i = gpu.grid(1)
    out[0, i] = gpu.popc(x[i])
    out[1, i] = gpu.clz(x[i])
    out[2, i] = gpu.ffs(x[i])
    out[3, i] = gpu.brev(x[i])
    out[4, i] = gpu.brev(y[i])
    out[5, i] = gpu.clz(y[i])
    floats[0, i] = gpu.fma(0.1, float(y[i]), 0.3)
    floats[1, i] = gpu.rsqrt(float(y[i]) + 1)
    floats[2, i] = gpu.selp(x[i] > 7, 1, 2.5)


def test_bits() -> None:
    """Counts of bits, reversal, and small arithmetic."""
    x = np.array([0, 1, 2, 3, 8, 0x80000000, 0xFFFFFFFF, 12345], np.uint32)
    y = x.astype(np.int64) << 3
    out, floats = np.zeros((6, 8), np.int64), np.zeros((3, 8))
    bits[1, 8](x, y, out, floats)
    for k, v in enumerate(x.tolist()):
        text, wide = f"{v:032b}", f"{v << 3:064b}"
        assert out[0, k] == text.count("1")
        assert out[1, k] == (32 if not v else text.index("1"))
        assert out[2, k] == (0 if not v else text[::-1].index("1") + 1)
        assert out[3, k] == int(text[::-1], 2)
        assert out[4, k] == np.int64(np.uint64(int(wide[::-1], 2)).astype(np.int64))
        assert out[5, k] == (64 if not v else wide.index("1"))
    np.testing.assert_allclose(floats[0], 0.1 * y + 0.3)
    np.testing.assert_allclose(floats[1], 1 / np.sqrt(y + 1))
    np.testing.assert_array_equal(floats[2], np.where(x > 7, 1, 2.5))
