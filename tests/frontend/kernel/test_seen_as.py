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


@pytest.mark.parametrize(("line", "message"), [
    ("x.view(weft.float32)", "a view of float64 elements as float32"),
    ("x.view(bool)", "a view of float64 elements as bool"),
    ("x.view()", "view takes one dtype"),
    ("gpu.atomic.add(x.view(weft.int64), 0, 1)", "a view of float64 elements as int64 here"),
])
def test_what_cannot_be_seen(line: str, message: str) -> None:
    """The message says what is wrong."""
    space: dict[str, Any] = {"weft": weft, "gpu": gpu}
    exec(f"@weft.kernel\ndef wrong(x):\n    {line}\n", space)
    with pytest.raises(KernelError, match=message):
        space["wrong"][1, 1](np.zeros(2))


def test_sizes_of_elements():
    @weft.kernel
    def sizes(x, out):
        wide = x.view(np.int32)
        out[0], out[1], out[2] = x.itemsize, wide.itemsize, wide.T.itemsize

    out = np.zeros(3, np.int64)
    sizes[1, 1](np.zeros(8, np.int8), out)
    assert out.tolist() == [1, 4, 4]
