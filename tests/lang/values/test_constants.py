"""Arrays that a kernel knows from outside."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError

WEIGHTS = np.array([0.25, 0.5, 0.25])
TABLE = np.arange(12, dtype=np.int16).reshape(3, 4)[:, ::2]


@weft.kernel
def smooth(x: Any, out: Any) -> None:
    i = gpu.grid(1)
    weights = gpu.const.array_like(WEIGHTS)
    if 0 < i < x.size - 1:
        total = 0.0
        for k in range(3):
            total += weights[k] * x[i + k - 1]
        out[i] = total + TABLE[2, 1] + len(WEIGHTS)


def test_arrays_from_outside() -> None:
    """Their values are those of the first compilation, in any layout."""
    x = np.random.default_rng(0).random(50)
    out = np.zeros(50)
    smooth[2, 32](x, out)
    expected = np.convolve(x, WEIGHTS, "same") + 10 + 3
    np.testing.assert_allclose(out[1:-1], expected[1:-1])
    before = out.copy()
    WEIGHTS[:] = 7
    smooth[2, 32](x, out)
    np.testing.assert_array_equal(out, before)
    WEIGHTS[:] = 0.25, 0.5, 0.25
    report = weft.sanitize(smooth, 2, 32)(x, out)
    assert not report.findings


DIGITS = b"0123456789abcdef"
OFFSET = np.array(2.5)


@weft.kernel
def hexadecimal(x: Any, out: Any, sums: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        out[2 * i], out[2 * i + 1] = DIGITS[x[i] >> 4], DIGITS[x[i] & 15]
        word = b"\xffabc"
        total = len(word) + len(b"")
        for letter in word:
            total += letter
        sums[i] = total + word[i] + OFFSET[()]


def test_bytes_and_arrays_without_axes() -> None:
    """Bytes are numbers, as in Python, and one number may come as an array."""
    x = np.array([0, 255, 171], np.uint8)
    for run in (hexadecimal[1, 4], weft.sanitize(hexadecimal, 1, 4)):
        out, sums = np.zeros(6, np.uint8), np.zeros(3)
        run(x, out, sums)
        assert bytes(out) == b"00ffab"
        total = 4 + sum(b"\xffabc") + 2.5
        np.testing.assert_array_equal(sums, [total + b for b in b"\xffab"])


def test_constants_cannot_be_written() -> None:
    """An assignment to one is an error of the kernel."""

    @weft.kernel
    def bad(x: Any) -> None:
        WEIGHTS[0] = x[0]
        gpu.const.array_like(x)

    with pytest.raises(KernelError, match="is read-only") as error:
        bad[1, 1](np.zeros(1))
    assert len(error.value.problems) == 2
