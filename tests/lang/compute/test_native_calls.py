"""Calls of functions of loops in native code do what the Python way does, or leave it to that."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import build
from weft.errors import BoundsError, DTypeError, KernelError, LaunchError, ShapeError
from weft.lang.compute.function import ComputeFunction
from weft.runtimes.native.calls.callables import address_in

pytestmark = pytest.mark.usefixtures("compiled")


@weft.compute
def saxpy(a, x, y):
    for i in range(x.shape[0]):
        y[i] += a * x[i]


@weft.compute
def rows(x, y):
    for i, j in weft.ndrange(x.shape[0], x.shape[1]):
        y[j, i] = x[i, j] * 2


@weft.compute
def shifted(x, y, n):
    for i in range(y.shape[0]):
        y[i] = x[i + n]


def settled(function: Any, *args: Any) -> int:
    """Call until calls like this one are native; return how many native forms there are."""
    for _ in range(3):
        function(*args)
    return len(function._launches)


def fresh(function: Any) -> Any:
    return weft.compute(function.__weft_function__)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 16, 101])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64, np.uint8])
def test_values(n: int, dtype: Any) -> None:
    function = fresh(saxpy)
    rng = np.random.default_rng(n)
    a = 3 if np.dtype(dtype).kind in "iu" else 1.5
    settled(function, a, np.ones(n, dtype), np.zeros(n, dtype))
    for _ in range(3):
        x, y = (rng.integers(0, 9, n).astype(dtype) for _ in range(2))
        expected = (y + dtype(a) * x).astype(dtype)
        function(a, x, y)
        np.testing.assert_array_equal(y, expected)
    assert len(function._launches) == 1


def test_another_shape_is_another_form() -> None:
    function = fresh(rows)
    for k, shape in enumerate([(3, 5), (5, 3), (1, 7), (4, 4)]):
        x, y = np.random.default_rng(0).random(shape), np.zeros(shape[::-1])
        assert settled(function, x, y) == k + 1
        np.testing.assert_array_equal(y, 2 * x.T)
    x, y = np.ones((3, 5)), np.zeros((5, 3))  # the first again, behind three others
    function(x, y)
    np.testing.assert_array_equal(y, 2 * x.T)
    assert len(function._launches) == 4


def test_more_shapes_than_are_compiled_for() -> None:
    function = fresh(saxpy)
    for n in [*range(1, 90), 3, 50]:
        x, y = np.arange(n) * 1.0, np.zeros(n)
        settled(function, 2.0, x, y)
        np.testing.assert_array_equal(y, 6 * x)


def test_strides() -> None:
    function = fresh(saxpy)
    x = np.arange(40.0)
    for source in (x[::2][:10], x[::3][:10], x[10:20][::-1], x[:10], x.reshape(10, 4)[:, 1]):
        y = np.zeros((10, 2))[:, 1]
        settled(function, 1.0, source, y)
        np.testing.assert_array_equal(y, 3 * source)
    assert len(function._launches) == 5
    everything = np.zeros(20)
    function(1.0, x[:10], everything[::2])  # steps as before, but an address that is another
    np.testing.assert_array_equal(everything[::2], x[:10])
    assert not everything[1::2].any()


def test_arrays_that_overlap_go_the_other_way() -> None:
    function = fresh(saxpy)
    settled(function, 1.0, np.zeros(16), np.zeros(16))
    z = np.arange(32.0)
    expected = z.copy()
    for i in range(16):
        expected[8 + i] += expected[i]
    function(1.0, z[:16], z[8:24])
    np.testing.assert_array_equal(z, expected)
    z = np.arange(32.0)
    function(1.0, z[:16], z[16:])  # side by side
    np.testing.assert_array_equal(z[16:], np.arange(16.0) + np.arange(16.0, 32.0))
    same = np.ones(16)
    function(1.0, same, same)
    np.testing.assert_array_equal(same, [2] * 16)


@pytest.mark.parametrize("kind", [int, np.int32, np.int64])
def test_signs_of_numbers(kind: Any) -> None:
    function = fresh(shifted)
    x, y = np.arange(10.0), np.zeros(4)
    settled(function, x, y, kind(3))
    np.testing.assert_array_equal(y, x[3:7])
    function(x, y, kind(0))
    np.testing.assert_array_equal(y, x[:4])
    for bad in (-1, 7, 1 << 30):
        with pytest.raises(BoundsError):
            function(x, y, kind(bad))
    with pytest.raises(BoundsError):
        function(x, y, 1 << 62)
    function(x, y, kind(6))
    np.testing.assert_array_equal(y, x[6:])


def test_other_types_are_other_calls() -> None:
    function = fresh(saxpy)
    x, y = np.ones(4), np.zeros(4)
    settled(function, 2.0, x, y)
    function(2, x, y)
    function(np.float32(2), x, y)
    function(True, x, y)
    np.testing.assert_array_equal(y, [11] * 4)
    z = np.zeros(4, np.float32)
    function(2.0, x.astype(np.float32), z)
    np.testing.assert_array_equal(z, [2] * 4)
    swapped = np.zeros(4, ">f8")
    with pytest.raises(LaunchError, match="byte order"):
        function(2.0, x, swapped)
    odd = np.zeros(33, np.uint8)[1:].view(np.float64)
    with pytest.raises(LaunchError, match="misaligned"):
        function(2.0, x, odd)
    fixed = np.zeros(4)
    fixed.flags.writeable = False
    with pytest.raises(weft.WeftError, match="read-only"):
        function(2.0, x, fixed)


def test_tensors() -> None:
    function = fresh(saxpy)
    x, y = weft.ones(5).double(), weft.zeros(5).double()
    assert settled(function, 2.0, x, y) == 1
    kept = y + 0  # reads the value that is there now
    function(2.0, x, y)
    np.testing.assert_array_equal(kept.numpy(), [6] * 5)
    np.testing.assert_array_equal(y.numpy(), [8] * 5)
    function(1.0, y, y)
    np.testing.assert_array_equal(y.numpy(), [16] * 5)


def test_devices_and_fuse() -> None:
    function = fresh(saxpy)
    x, y = np.ones(4), np.zeros(4)
    settled(function, 1.0, x, y)
    assert address_in(function, ComputeFunction)
    before = weft.get_default_device()
    weft.set_default_device("interpreter")
    try:
        assert not address_in(function, ComputeFunction)
        function(1.0, x, y)
    finally:
        weft.set_default_device(before)
    settled(function, 1.0, x, y)
    assert address_in(function, ComputeFunction)
    np.testing.assert_array_equal(y, [7] * 4)


def test_default_values() -> None:
    @weft.compute
    def scaled(x, y, a=3.0):
        for i in range(x.shape[0]):
            y[i] = a * x[i]

    x, y = np.ones(4), np.zeros(4)
    for _ in range(3):
        scaled(x, y)
        np.testing.assert_array_equal(y, [3] * 4)
        scaled(x, y, 2.0)
        np.testing.assert_array_equal(y, [2] * 4)
        scaled(x, y, a=1.0)
        np.testing.assert_array_equal(y, [1] * 4)


class TestBuilt:
    @staticmethod
    def function() -> Any:
        with build.function("scale") as f:
            n = f.size("n")
            a = f.array("a", weft.float32, (n,))
            out = f.array("out", weft.float32, (n,), writable=True)
            s = f.scalar("s", weft.float32)
            with f.parallel(n) as (i,):
                out[i] = a[i] * s
        return f.program

    @staticmethod
    def kernel() -> Any:
        with build.kernel("scale") as f:
            n = f.size("n")
            a = f.array("a", weft.float32, (n,))
            out = f.array("out", weft.float32, (n,), writable=True)
            s = f.scalar("s", weft.float32)
            i = f.grid()
            with f.if_(i < n):
                out[i] = a[i] * s
        return f.program[2, 8]

    @pytest.mark.parametrize("make", ["function", "kernel"])
    def test_values_and_refusals(self, make: str) -> None:
        scale = getattr(self, make)()
        for n in (0, 1, 9, 16, 9):
            x = np.arange(n, dtype=np.float32)
            for s in (2.0, 2.5, -1.0):
                out = np.zeros(n, np.float32)
                scale(x, out, s)
                np.testing.assert_array_equal(out, x * np.float32(s))
        assert len(getattr(scale, "_contexts", None) or scale._launches) == 4
        x, out = np.ones(9, np.float32), np.zeros(9, np.float32)
        with pytest.raises(ShapeError):
            scale(x, out[:8], 1.0)
        with pytest.raises(DTypeError):
            scale(x, np.zeros(9), 1.0)
        with pytest.raises(LaunchError):
            scale(x, out)
        out.flags.writeable = False
        with pytest.raises(LaunchError, match="read-only"):
            scale(x, out, 1.0)

    def test_what_is_written_must_not_overlap(self) -> None:
        scale = self.function()
        x = np.ones(16, np.float32)
        for _ in range(3):
            scale(x[:8], x[8:], 3.0)
        np.testing.assert_array_equal(x[8:], [3] * 8)
        with pytest.raises(LaunchError, match="same memory"):
            scale(x[:8], x[4:12], 1.0)
        with pytest.raises(LaunchError, match="same memory"):
            scale(x, x, 1.0)

    def test_failures(self) -> None:
        with build.function("fill") as f:
            a = f.array("a", weft.int64, 1, writable=True)
            n = f.scalar("n", weft.int64)
            with f.loop(n) as i:
                a[i] = i
        fill, a = f.program, np.zeros(4, np.int64)
        for _ in range(3):
            fill(a, 4)
        with pytest.raises(BoundsError, match="index 4"):
            fill(a, 5)
        np.testing.assert_array_equal(a, range(4))

    def test_captured(self) -> None:
        launch = self.kernel()

        @weft.jit
        def f(x):
            out = weft.zeros(16)
            launch(x, out, 3.0)
            return out

        for k in range(3):
            np.testing.assert_array_equal(f(weft.full((16,), float(k))).numpy(), [3 * k] * 16)


@weft.compute
def grown(x: Any, by: Any = 2.5, times: Any = 3, how: Any = None, sign: weft.int8 = -1) -> None:
    for i in weft.ndrange(x.size):
        x[i] += by * times * sign
        if how is not None:
            x[i] += 100


def test_defaults_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that are always the same, however others are given."""
    x = np.zeros(5)
    total = 0.0
    for _ in range(9):
        grown(x)
        grown(x, 1.0)
        grown(x, 1.0, 2)
        grown(x, sign=1)
        grown(x, 1.0, times=-7)
        grown(x, 1.0, 2, "sum")
        total += -7.5 - 3 - 2 + 7.5 + 7 - 2 + 100
        np.testing.assert_array_equal(x, total)
    monkeypatch.setattr(ComputeFunction, "_called", None)
    grown(x)
    grown(x, 1.0)
    grown(x, 1.0, 2)
    np.testing.assert_array_equal(x, total - 12.5)
    grown(x, sign=1)
    grown(x, 1.0, times=-7)
    np.testing.assert_array_equal(x, total - 12.5 + 14.5)


@weft.compute
def scaled(a, x, y, k=3, *, shift=0.0):
    for i in range(x.shape[0]):
        y[i] += a * x[i] + k + shift


@pytest.mark.parametrize(
    ("call", "expected"),
    [(lambda f, x, y: f(2.0, x, y=y), 7.0), (lambda f, x, y: f(x=x, a=2.0, y=y), 7.0),
     (lambda f, x, y: f(2.0, y=y, x=x), 7.0), (lambda f, x, y: f(2.0, x, y, k=1), 5.0),
     (lambda f, x, y: f(shift=0.5, k=7, y=y, a=1.0, x=x), 9.5),
     (lambda f, x, y: f(y=y, shift=0.5, a=1.0, x=x), 5.5),
     (lambda f, x, y: f(2.0, x, **{"".join(["sh", "ift"]): 1.0}, y=y), 8.0)],
)  # fmt: skip
def test_arguments_by_name(call, expected, monkeypatch) -> None:
    function = fresh(scaled)
    for n in (5, 5, 5, 7, 7, 7):
        x, y = np.full(n, 2.0), np.zeros(n)
        call(function, x, y)
        np.testing.assert_array_equal(y, np.full(n, expected))
    assert len(function._launches) == 2
    monkeypatch.setattr(ComputeFunction, "_called", None)
    x, y = np.full(5, 2.0), np.zeros(5)
    if expected == 8.0:  # names that are made at run time are compared in Python
        with pytest.raises(TypeError):
            call(function, x, y)
    else:
        call(function, x, y)
        np.testing.assert_array_equal(y, np.full(5, expected))


def test_names_of_other_arguments_are_no_match() -> None:
    function = fresh(scaled)
    x, y, z = np.full(5, 2.0), np.zeros(5), np.full(5, 1.0)
    for _ in range(4):
        function(1.0, x=x, y=y)
    y[:] = 0
    function(1.0, y=y, x=x)
    np.testing.assert_array_equal(y, np.full(5, 5.0))
    function(1.0, y=x, x=z)
    np.testing.assert_array_equal(x, np.full(5, 6.0))
    with pytest.raises(LaunchError, match="unexpected keyword argument 'z'"):
        function(1.0, x=x, y=y, z=y)
    with pytest.raises(LaunchError, match="multiple values for argument 'x'"):
        function(1.0, x, y, x=x)
    with pytest.raises(LaunchError, match="missing a required argument"):
        function(x=x, y=y)


def test_names_with_what_does_not_fit() -> None:
    function = fresh(scaled)
    x, y = np.full(5, 2.0), np.zeros(5)
    for _ in range(4):
        function(y=y, x=x, a=1.0)
    for values, seen in ((np.full(5, 2.0, np.float32), 5.0), (np.full(10, 2.0)[::2], 5.0),
                         (np.full(5, 2), 5.0)):  # fmt: skip
        y[:] = 0
        function(y=y, x=values, a=1.0)
        np.testing.assert_array_equal(y, np.full(5, seen))
    with pytest.raises(KernelError, match="unsupported operands"):
        function(y=y, x=np.ones((2, 2)), a=1.0)
    y[:] = 0
    function(y=y, x=y, a=1.0)  # one array twice
    np.testing.assert_array_equal(y, np.full(5, 3.0))
