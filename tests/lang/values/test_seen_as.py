"""Arrays whose bits are read as numbers of another type: ``array.view(dtype)``."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda
from weft.errors import KernelError, LaunchError

pytestmark = pytest.mark.usefixtures("compiled")


@weft.kernel
def bits(a, out, moved, kinds):
    i = gpu.grid(1)
    shared = gpu.shared.array(8, weft.float32)
    local = gpu.local.array((2, 2), weft.uint32)
    shared[i] = a[i, 1]
    gpu.syncthreads()
    seen = shared.view(weft.uint32)
    local[1, 1] = seen[(i + 1) % 8] >> 23
    row = a.view(np.int32)[i]
    out[i] = row[0] + local.view(weft.int32)[1][1]
    target = moved.view(dtype=np.uint32).T
    target[1, i] = seen[i] ^ np.uint32(0x80000000)
    moved.view(np.uint32)[i, :1] = row[2:].view(np.uint32)
    kinds[i] = seen.dtype == weft.uint32 and seen.view(weft.float32)[i] == a[i, 1]


def test_bits_of_arguments_shared_and_local_arrays() -> None:
    """Reads, writes, rows, slices and turned arrays; back again it is what it was."""
    a = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    a[2] = np.nan, -0.0, np.inf
    high = np.roll(a[:, 1], -1).view(np.uint32) >> 23
    for run in (bits[1, 8], weft.sanitize(bits, 1, 8)):
        out, kinds = np.zeros(8, np.int64), np.zeros(8, bool)
        moved = np.zeros((8, 2), np.float32)
        run(a, out, moved, kinds)
        np.testing.assert_array_equal(out, a.view(np.int32)[:, 0].astype(np.int64) + high)
        np.testing.assert_array_equal(moved.view(np.uint32)[:, 1], (-a[:, 1]).view(np.uint32))
        np.testing.assert_array_equal(moved.view(np.uint32)[:, 0], a[:, 2].view(np.uint32))
        assert kinds.all()


@pytest.mark.parametrize(("wide", "other"), [
    (np.float64, np.int64), (np.float16, np.uint16), (np.int8, np.uint8), (np.uint64, np.float64),
])
def test_types(wide: type, other: type) -> None:
    """Each pair of types of one width, and a name that holds one of two arrays."""

    @cuda.jit
    def seen(a, b, out):
        i = cuda.grid(1)
        if i < out.size:
            x = a.view(other)
            if i % 2:
                x = b.view(other)
            out[i] = x[i]

    a = np.arange(5, dtype=wide)
    b = (np.arange(5) * 3 + 1).astype(wide)
    out = np.zeros(5, other)
    seen[1, 8](a, b, out)
    expected = np.where(np.arange(5) % 2, b.view(other), a.view(other))
    np.testing.assert_array_equal(out, expected)


@weft.kernel
def packed(raw, out, back, half):
    i = gpu.grid(1)
    shared = gpu.shared.array((8, 4), weft.uint8)
    for k in range(4):
        shared[i, k] = raw[12 * i + k]
    gpu.syncthreads()
    record = raw[12 * i : 12 * i + 12]
    ints = record.view(weft.int32)
    out[i] = ints[0] + len(ints) + record[4:].view(weft.float64)[0] + shared[i].view(np.uint32)[0]
    words = back.view(weft.uint32)
    words[i] = ints[2] ^ ints[1]
    words.view(weft.uint16)[2 * i] += 1
    half.view(np.float64)[i, 0] = 1.5 * i
    half.view(np.float64).view(np.int64)[i, 1] -= 1


def test_several_elements_seen_as_one() -> None:
    """Records of bytes and halves of numbers, read and written; rows and slices of them."""
    rng = np.random.default_rng(1)
    raw = np.zeros(96, np.uint8)
    record = raw.view([("a", "i4"), ("b", "f8")])
    record["a"], record["b"] = rng.integers(-(2**31), 2**31, 8), rng.normal(size=8)
    for run in (packed[1, 8], weft.sanitize(packed, 1, 8)):
        out, back, half = np.zeros(8), np.zeros(32, np.uint8), np.zeros((8, 4), np.float32)
        report = run(raw, out, back, half)
        assert report is None or not report.findings
        a = record["a"].astype(np.int64)
        np.testing.assert_array_equal(out, a + 3 + record["b"] + (a & 0xFFFFFFFF))
        words = raw.view(np.uint32).reshape(8, 3)
        expected = words[:, 2] ^ words[:, 1]
        low = (expected + 1) & 0xFFFF
        np.testing.assert_array_equal(back.view(np.uint32), expected & ~np.uint32(0xFFFF) | low)
        np.testing.assert_array_equal(half.view(np.float64)[:, 0], 1.5 * np.arange(8))
        assert (half.view(np.int64)[:, 1] == -1).all()


def test_elements_that_are_not_filled() -> None:
    """A length that is no multiple stops the kernel; columns do not lie side by side."""

    @weft.kernel
    def odd(x, out):
        out[0] = x.view(weft.int32)[0]

    with pytest.raises(LaunchError, match="not filled"):
        odd[1, 1](np.zeros(7, np.uint8), np.zeros(1))
    with pytest.raises(KernelError, match="that do not lie side by side as int32"):
        odd[1, 1](np.zeros(16, np.uint8)[::2], np.zeros(1))


@pytest.mark.grid
@pytest.mark.parametrize(("line", "message"), [
    ("x.T.view(weft.float32)", "float64 elements that do not lie side by side as float32"),
    ("x.view(bool)", "a view of float64 elements as bool"),
    ("x.view()", "view takes one dtype"),
    ("gpu.atomic.add(x.view(weft.float32).view(weft.uint8), (0, 0), 1.5, 2)", "gpu.atomic.add"),
    ("gpu.local.array(4, weft.int8).view(weft.int32)[0] + gpu.atomic.add("
     "gpu.shared.array(4, weft.int8).view(weft.int32), 0, 1)", "that are several of int8"),
])
def test_what_cannot_be_seen(line: str, message: str) -> None:
    """The message says what is wrong."""
    space: dict[str, Any] = {"weft": weft, "gpu": gpu}
    exec(f"@weft.kernel\ndef wrong(x):\n    {line}\n", space)
    with pytest.raises(KernelError, match=message):
        space["wrong"][1, 1](np.zeros((2, 3)))


@weft.kernel
def parts(words, reals, out, back):
    i = gpu.grid(1)
    shared = gpu.shared.array((8, 2), weft.float64)
    local = gpu.local.array(2, weft.uint64)
    raw = words.view(weft.uint8)
    rows = shared.view(weft.uint16)[i]
    for k in range(8):
        rows[k] = raw[4 * i + k % 4] * 256 + k
    gpu.syncthreads()
    local[0] = 0
    local[1] = 7
    halves = local.view(weft.int32)
    halves[0] = -1
    halves[3] = 5
    low = local[1:].view(weft.uint8)
    low[1] = 3
    pair = reals[i].view(np.float32)[2:].view(np.int16)
    out[i, 0] = local[0]
    out[i, 1] = local[1]
    out[i, 2] = pair[1] + pair.size
    out[i, 3] = pair.view(np.float64)[0] == reals[i, 1]
    back.view(weft.int8)[8 * i + (i + 3) % 8] = -i
    out[i, 4] = shared.view(weft.int64)[(i + 1) % 8, 1]


def test_narrower_elements() -> None:
    """Bytes of words, halves of floats, of arguments and of a thread; rows, slices, and back."""
    rng = np.random.default_rng(3)
    words = rng.integers(-(1 << 31), 1 << 31, 8, dtype=np.int32)
    reals = rng.normal(size=(8, 2))
    for run in (parts[1, 8], weft.interpret(parts, 1, 8), weft.sanitize(parts, 1, 8)):
        out, back = np.zeros((8, 5), np.int64), np.full(8, 1 << 40, np.int64)
        report = run(words, reals, out, back)
        assert report is None or not report.findings
        pairs = reals.view(np.float32)[:, 2:].copy().view(np.int16)
        raw = words.view(np.uint8).reshape(8, 4).astype(np.uint16)
        rows = (np.tile(raw, 2) * 256 + np.arange(8, dtype=np.uint16)).astype(np.uint16)
        wanted = np.full(8, 1 << 40, np.int64)
        for i in range(8):
            wanted.view(np.int8)[8 * i + (i + 3) % 8] = -i
        np.testing.assert_array_equal(out[:, 0], 0xFFFFFFFF)
        np.testing.assert_array_equal(out[:, 1], (5 << 32) + (3 << 8) + 7)
        np.testing.assert_array_equal(out[:, 2], pairs[:, 1].astype(np.int64) + 4)
        assert (out[:, 3] == 1).all()
        np.testing.assert_array_equal(back, wanted)
        np.testing.assert_array_equal(out[:, 4], np.roll(rows.view(np.int64)[:, 1], -1))


@weft.kernel
def neighbours(words, out):
    i = gpu.grid(1)
    shared = gpu.shared.array(8, weft.float32)
    bytes_ = shared.view(weft.uint8)
    bytes_[i % 32] = i % 32
    words.view(weft.int8)[i] = -i
    gpu.syncthreads()
    out[i] = bytes_[31 - i % 32]


def test_threads_write_parts_of_one_element() -> None:
    """No byte is lost to a thread that writes the one beside it."""
    for run in (neighbours[7, 32], weft.interpret(neighbours, 7, 32),
                weft.sanitize(neighbours, 7, 32)):
        words, out = np.zeros(28, np.uint64), np.zeros(224, np.int64)
        report = run(words, out)
        assert report is None or not report.findings
        np.testing.assert_array_equal(words.view(np.int8), -np.arange(224).astype(np.int8))
        np.testing.assert_array_equal(out, np.tile(np.arange(32)[::-1], 7))


KINDS = ["add", "sub", "min", "max", "and_", "or_", "xor", "exch", "inc", "dec"]


@pytest.mark.grid
@pytest.mark.parametrize(("stored", "seen"), [
    (np.float32, np.int32), (np.int64, np.float64), (np.uint32, np.uint8), (np.float64, np.int16),
    (np.int16, np.uint16)])
def test_atomics_on_views(stored: type, seen: type) -> None:
    """Each kind, where threads meet: as on an array of that type."""
    kinds = [k for k in KINDS if seen is not np.float64 or k in ("add", "sub", "min", "max")]
    lines = "".join(f"    gpu.atomic.{k}(x.view(seen), {n}, seen(i % 5 + 1))\n"
                    f"    gpu.atomic.{k}(part.view(seen), {n}, seen(i % 5 + 1))\n"
                    for n, k in enumerate(kinds) if k != "exch")
    space: dict[str, Any] = {"weft": weft, "gpu": gpu, "seen": seen, "stored": stored}
    exec("@weft.kernel\ndef many(x, plain, out):\n    i = gpu.grid(1)\n"
         f"    part = gpu.shared.array({8 * len(kinds)}, stored)\n"
         f"    if i < {8 * len(kinds)}:\n        part[i] = 0\n    gpu.syncthreads()\n" + lines
         + "    gpu.syncthreads()\n"
         "    if i < out.size:\n        out[i] = part.view(seen)[i]\n"
         "    gpu.atomic.cas(x.view(seen), x.view(seen).size - 1, seen(0), seen(i + 1))\n"
         + "".join(f"    gpu.atomic.{k}(plain, {n}, seen(i % 5 + 1))\n"
                   for n, k in enumerate(kinds) if k != "exch"), space)
    many = space["many"]
    size = 8 * len(kinds)
    for run in (many[1, 96], weft.interpret(many, 1, 96), weft.sanitize(many, 1, 96)):
        x = np.zeros(size, stored)
        plain, out = np.zeros(len(kinds), seen), np.zeros(len(kinds), seen)
        report = run(x, plain, out)
        assert report is None or not report.findings
        same = [n for n, k in enumerate(kinds) if k not in ("inc", "dec", "exch")]
        np.testing.assert_array_equal(x.view(seen)[same], plain[same])
        np.testing.assert_array_equal(out[same], plain[same])
        assert 1 <= x.view(seen)[-1] <= 96


def test_sizes_of_elements():
    @weft.kernel
    def sizes(x, out):
        wide = x.view(np.int32)
        out[0], out[1], out[2] = x.itemsize, wide.itemsize, wide.T.itemsize

    out = np.zeros(3, np.int64)
    sizes[1, 1](np.zeros(8, np.int8), out)
    assert out.tolist() == [1, 4, 4]
