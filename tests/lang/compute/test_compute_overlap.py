"""Arguments that share memory: the result is that of the Python, whatever overlaps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import ndrange

Make = Callable[[Any], tuple[Any, ...]]


@weft.compute
def shifted(a: Any, b: Any) -> None:
    for i in range(1, a.shape[0]):
        b[i] = a[i - 1] * 2 + b[i]


@weft.compute
def product(a: Any, b: Any, out: Any) -> None:
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            out[i, j] = s


@weft.compute
def scaled(a: Any, out: Any) -> None:
    for i, j in ndrange(*a.shape):
        out[i, j] = a[i, j] * 3


ONE: dict[str, Make] = {
    "same": lambda m: (m[:40], m[:40]),
    "behind": lambda m: (m[:40], m[1:41]),
    "before": lambda m: (m[1:41], m[:40]),
    "backwards": lambda m: (m[:40], m[39::-1]),
    "every second": lambda m: (m[::2], m[1::2]),
    "apart": lambda m: (m[:40], m[40:]),
    "touching by one": lambda m: (m[:40], m[39:79]),
    "empty inside": lambda m: (m[10:10], m[:40]),
}
TWO: dict[str, Make] = {
    "out is a": lambda m: (m[:9, :9], m[9:18, :9], m[:9, :9]),
    "out is b": lambda m: (m[:9, :9], m[9:18, :9], m[9:18, :9]),
    "b is a turned": lambda m: (m[:9, :9], m[:9, :9].T, m[9:18, 9:18]),
    "out is a turned": lambda m: (m[:9, :9], m[9:18, :9], m[:9, :9].T),
    "interleaved": lambda m: (m[::2, :10], m[:10, 1::2], m[1::2, 1::2]),
    "one below": lambda m: (m[:9, :9], m[:9, 9:18], m[1:10, :9]),
}


@pytest.mark.parametrize("name", ONE)
def test_vectors(name: str) -> None:
    """Each way for two vectors to overlap."""
    ours, expected = np.arange(80.0), np.arange(80.0)
    shifted(*ONE[name](ours))
    shifted.__weft_function__(*ONE[name](expected))
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_matrices(name: str, dtype: Any) -> None:
    """Each way for three matrices to overlap."""
    start = np.random.default_rng(0).integers(-3, 4, (20, 20)).astype(dtype)
    ours, expected = start.copy(), start.copy()
    with np.errstate(all="ignore"):
        product.__weft_function__(*TWO[name](expected))
    product(*TWO[name](ours))
    if dtype is np.float32:
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
    else:
        np.testing.assert_array_equal(ours, expected)


def test_same_array_stays_fast() -> None:
    """What reads and writes the same element of one array is as parallel as with two."""
    a = np.ones((40, 50))
    report = scaled.explain(a, a)
    assert not report.broken
    assert "vector" in report.loops[1].kinds
    scaled(a, a)
    assert (a == 3).all()


def test_views() -> None:
    """Strided arrays: turned, backwards, every second one, broadcast."""
    m = np.random.default_rng(0).standard_normal((20, 24))
    for view in (m.T, m[::-1], m[:, ::-2], m[3:9, 5:], m[::3].T, np.broadcast_to(m[0], (5, 24)),
                 np.broadcast_to(m[:, :1], (20, 7)), m[5:6], m[:, 3:4], m[4:4]):
        out = np.zeros(view.shape)
        scaled(view, out)
        np.testing.assert_array_equal(out, view * 3)
    for made in (np.zeros((24, 20)).T, np.zeros((40, 48))[::2, ::2], np.zeros((20, 24))[::-1]):
        scaled(m, made)
        np.testing.assert_array_equal(made, m * 3)
    assert "vector" in scaled.explain(m[:, 2:20], np.zeros((20, 18))).loops[1].kinds


def test_of_two_types() -> None:
    """Arrays of different types that share memory are an error if they are not the same bytes."""
    a = np.zeros(40)
    with pytest.raises(weft.errors.LaunchError, match="share memory and have different types"):
        shifted(a[:20], a.view(np.int64)[:20])
    shifted(a[:20], a.view(np.int64)[20:])


def test_complex_numbers() -> None:
    """An array of complex numbers that is both argument and result."""

    @weft.compute
    def squared(a: Any, out: Any) -> None:
        for i in ndrange(a.size):
            out[i] = a[i] * a[i]

    a = np.array([1 + 2j, 3 - 1j, 0.5j])
    out = np.zeros(3, complex)
    squared(a, out)
    np.testing.assert_allclose(out, a * a)
    squared(a, a)
    np.testing.assert_allclose(a, out)


@pytest.mark.usefixtures("compiled")
def test_tensors() -> None:
    """Weft's tensors, also as results, and twice the same one."""

    @weft.compute
    def plus(a: Any, b: Any, out: Any) -> None:
        for i in ndrange(a.size):
            out[i] = a[i] + b[i]

    a, b, out = weft.arange(5).float(), weft.ones(5), weft.zeros(5)
    plus(a, b, out)
    assert out.tolist() == [1, 2, 3, 4, 5]
    assert a.tolist() == [0, 1, 2, 3, 4]
    alias = out
    plus(out, out, out)
    assert alias.tolist() == [2, 4, 6, 8, 10]
    whole = weft.zeros(10)
    plus(b, b, whole[5:])
    assert whole.tolist() == [0] * 5 + [2] * 5
    array = np.zeros(5, np.float32)
    plus(a, b, array)
    assert array.tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(weft.GradientError):
        plus(b, b, weft.ones(5, requires_grad=True))


def test_annotated_parameters() -> None:
    """Annotations are checked at each call, and numbers converted to them."""

    @weft.compute
    def fill(a: weft.float32[:, ::1], n: weft.int32, k: weft.constexpr, s: weft.float32) -> None:
        for i, j in ndrange(n, a.shape[1]):
            a[i, j] = k * s

    a = np.zeros((4, 3), np.float32)
    for n, k, s in ((2, 3, 0.5), (4, 3, 1.5), (4, 7, 1.5), (4, 7, 2), (3, 0.5, 2.5)):
        a[:] = 0
        fill(a, n, k, s)
        assert (a[:n] == k * s).all()
        assert not a[n:].any()
    for wrong in ((a.astype(float), 2, 3, 0.5), (a, 2.5, 3, 0.5), (a[:, :2], 1, 1, 1.0),
                  (a[0], 1, 1, 1.0), (a, 1 << 40, 1, 1.0)):
        with pytest.raises((weft.DTypeError, weft.ShapeError, weft.RangeError)):
            fill(*wrong)

    @weft.compute
    def half(x: weft.float64, out: weft.float64[2]) -> None:
        out[0] = x / 2

    out = np.zeros(2)
    for x in (3.0, 3, 4, 5.0):
        half(x, out)
        assert out[0] == x / 2
    with pytest.raises(weft.ShapeError):
        half(1.0, np.zeros(3))


def test_calls_again() -> None:
    """Calls that differ from an earlier one in memory only are checked like the first."""

    @weft.compute
    def plus(a: Any, out: Any, n: Any, f: Any) -> None:
        for i in range(n):
            out[i] = a[i] * f + out[i]

    memory = np.arange(60.0)
    expected = memory.copy()
    for low, to, n, f in ((0, 20, 20, 2.0), (0, 20, 19, 0.5), (0, 19, 20, 1.5), (1, 0, 20, 2.0),
                          (0, 0, 5, -1.0), (40, 3, 20, 3.0), (0, 20, -4, 3.0), (0, 20, 20, 2)):
        plus(memory[low:low + 20], memory[to:to + 20], n, f)
        plus.__weft_function__(expected[low:low + 20], expected[to:to + 20], n, f)
        np.testing.assert_array_equal(memory, expected)
    frozen = memory[20:40]
    frozen.flags.writeable = False
    with pytest.raises(weft.errors.KernelError, match="read-only"):
        plus(memory[:20], frozen, 20, 2.0)
    for _ in range(2):
        before = memory.copy()
        with pytest.raises(weft.BoundsError):
            plus(memory[:20], memory[20:40], 21, 1.0)
        np.testing.assert_array_equal(memory[20:40], before[:20] + before[20:40])
    odd = np.frombuffer(bytearray(201), np.uint8)[1:161].view(np.float64)
    with pytest.raises(weft.errors.LaunchError, match="misaligned"):
        plus(odd, memory[:20], 20, 2.0)
