"""Launches of kernels on tensors inside of `weft.jit`."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import gpu
from weft.driver import counters
from weft.errors import BoundsError, CaptureError, GradientError, LaunchError
from weft.graph import launches
from weft.schedule.launch_fusion import fused_kernel as join
from weft.schedule.launch_fusion import pages

pytestmark = pytest.mark.usefixtures("compiled")


@weft.kernel
def scale(a, x, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] = weft.float32(a) * x[i]


@weft.kernel
def add(x, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] += x[i]


@weft.kernel
def neighbour(x, y):
    i = gpu.grid(1)
    if i < y.size - 1:
        y[i] = x[i + 1]


@weft.kernel
def gather(x, index, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] = x[index[i]]


@weft.kernel
def transpose(x, y):
    i, j = gpu.grid(2)
    if i < y.shape[0] and j < y.shape[1]:
        y[i, j] = x[j, i]


def numbers(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def why(function, *args):
    """Return what is said of the launches of a captured function's plan."""
    with counters.record() as recording:
        function(*args).numpy()
    return [line for plan in recording.plans for step in plan.steps or () for line in step.why]


@pytest.mark.parametrize("n", [1, 7, 300])
def test_values(n):
    @weft.jit
    def f(x, y):
        t = weft.zeros(x.shape)
        scale[2, 256](2.0, x + 1, t)
        add[2, 256](t, y)
        return t * 3

    x, y = numbers(n), numbers(n, 1)
    given, changed = weft.tensor(x), weft.tensor(y)
    for _ in range(4):
        found = f(given, changed)
        y = y + np.float32(2) * (x + np.float32(1))
        np.testing.assert_array_equal(found.numpy(), np.float32(2) * (x + 1) * np.float32(3))
        np.testing.assert_array_equal(changed.numpy(), y)
    np.testing.assert_array_equal(given.numpy(), x)
    assert f.captures == 1


def test_elements_that_no_thread_writes_stay():
    @weft.jit
    def f(x, y):
        neighbour[1, 256](x, y)
        return y + 0

    x, y = numbers(100), numbers(100, 1)
    given = weft.tensor(y)
    np.testing.assert_array_equal(f(weft.tensor(x), given).numpy(), [*x[1:], y[-1]])
    np.testing.assert_array_equal(given.numpy(), [*x[1:], y[-1]])


@weft.kernel
def mixed(x, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] = y[i] + x[i] + y[(i + 1) % y.size] * weft.float32(0)


@weft.kernel
def twice(x, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] += x[i]
        y[i] *= weft.float32(2)


@weft.kernel
def some(x, y):
    i = gpu.grid(1)
    if i < y.size and x[i] > 0:
        y[i] += x[i]


@weft.kernel
def counted(x, y):
    i = gpu.grid(1)
    if i < y.size:
        for _ in range(3):
            y[i] += x[i]


@pytest.mark.parametrize(("kernel", "nests", "expected"), [
    (add, 1, lambda x, y: y + x),
    (twice, 2, lambda x, y: (y + x) * np.float32(2)),
    (some, 2, lambda x, y: np.where(x > 0, y + x, y)),
    (counted, 2, lambda x, y: y + x + x + x),
    (mixed, 2, None),  # a race, whose result nobody knows
], ids=["add", "twice", "some", "counted", "mixed"])  # fmt: skip
def test_old_values(kernel, nests, expected):
    """Where a thread reads only what it then sets, nothing is copied; elsewhere it is."""

    @weft.jit
    def f(x, y):
        kernel[1, 128](x, y)

    x, y = numbers(100), numbers(100, 1)
    given = weft.tensor(y)
    (given + 1).realize()  # and with it what earlier tests left to the next realize
    with counters.record() as recording:
        f(weft.tensor(x), given)
    if expected is not None:
        np.testing.assert_array_equal(given.numpy(), expected(x, y))
    steps = [s for plan in recording.plans for s in plan.steps or ()]
    assert [len(s.kernel.body) for s in steps] == [nests]


def test_two_axes_and_views():
    @weft.jit
    def f(x):
        y = weft.zeros((5, 7))
        transpose[(1, 1), (8, 8)](x[1:], y)
        z = weft.zeros((7, 10))
        transpose[(1, 2), (8, 8)](y.T.contiguous().T, z[:, :5])
        return y, z

    x = numbers(8 * 5).reshape(8, 5)
    y, z = f(weft.tensor(x))
    np.testing.assert_array_equal(y.numpy(), x[1:].T)
    np.testing.assert_array_equal(z.numpy()[:, :5], x[1:])
    assert not z.numpy()[:, 5:].any()


def test_groups_numbers_and_one_tensor_twice():
    class Pair(NamedTuple):
        x: object
        y: object

    table = np.arange(4, dtype=np.float32)

    @weft.kernel
    def combine(pair, k, out):
        i = gpu.grid(1)
        if i < out.size:
            out[i] = pair.x[i] * pair.y[i] + table[i % 4] + k

    @weft.jit
    def f(x):
        out = weft.zeros(x.shape)
        combine[1, 64](Pair(x, x), 3, out)
        combine[1, 64](Pair(out, x), 1, out)
        return out

    x = numbers(50)
    tail = table[np.arange(50) % 4]
    once = (x * x + tail + 3).astype(np.float32)
    np.testing.assert_allclose(f(weft.tensor(x)).numpy(), once * x + tail + 1, rtol=1e-6)


def test_results_that_nobody_reads():
    @weft.kernel
    def both(x, y, z):
        i = gpu.grid(1)
        if i < x.size:
            y[i] = x[i] + x[i]
            z[i] = y[i] + x[i]

    @weft.jit
    def f(x):
        y, z = weft.zeros(x.shape), weft.zeros(x.shape)
        both[1, 64](x, y, z)
        return z

    np.testing.assert_array_equal(f(weft.ones(40)).numpy(), np.full(40, 3, np.float32))


def test_beside_operations():
    @weft.jit
    def f(x):
        for _ in range(3):
            y = weft.zeros(x.shape)
            scale[1, 128](0.5, x.exp(), y)
            x = y.sum() + y
            x = x / x.max()
        return x

    expected = x = numbers(100).astype(np.float64)
    for _ in range(3):
        half = np.exp(expected) * 0.5
        expected = half.sum() + half
        expected = expected / expected.max()
    np.testing.assert_allclose(f(weft.tensor(x.astype(np.float32))).numpy(), expected, rtol=1e-5)


class TestJoined:
    def test_a_chain_is_one_kernel(self):
        @weft.jit
        def f(x):
            t, u, y = (weft.empty(x.shape) for _ in range(3))
            scale[2, 256](2.0, x, t)
            scale[2, 256](0.5, t, u)
            scale[2, 256](3.0, u, y)
            return y

        x = weft.tensor(numbers(300))
        assert why(f, x) == ["fused: scale, scale, scale"]
        np.testing.assert_array_equal(f(x).numpy(), x.numpy() * np.float32(3))

    def test_values_in_between_that_are_results(self):
        @weft.jit
        def f(x):
            t, y = weft.empty(x.shape), weft.empty(x.shape)
            scale[2, 256](2.0, x, t)
            scale[2, 256](0.5, t, y)
            return t, y

        x = numbers(300)
        with counters.record() as recording:
            t, y = f(weft.tensor(x))
        assert any("fused: scale, scale" in s.why for p in recording.plans for s in p.steps or ())
        np.testing.assert_array_equal(t.numpy(), x * np.float32(2))
        np.testing.assert_array_equal(y.numpy(), x)

    def test_in_place(self):
        @weft.jit
        def f(x, y):
            add[2, 256](x, y)
            add[2, 256](x, y)
            add[2, 256](y, y)
            return y + 0

        x, y = numbers(300), numbers(300, 1)
        given = weft.tensor(y)
        found = f(weft.tensor(x), given).numpy()
        np.testing.assert_array_equal(found, (y + x + x) + (y + x + x))
        np.testing.assert_array_equal(given.numpy(), found)

    def test_not_across_blocks(self):
        @weft.jit
        def f(x):
            t, y = weft.zeros(x.shape), weft.zeros(x.shape)
            scale[2, 256](2.0, x, t)
            neighbour[2, 256](t, y)
            return y

        x = numbers(300)
        lines = why(f, weft.tensor(x))
        assert len(lines) == 1
        assert lines[0].startswith("not fused: neighbour reads x[")
        assert "which another block writes" in lines[0]
        assert "test_captured_launches.py" in lines[0]
        np.testing.assert_array_equal(f(weft.tensor(x)).numpy(), [*(2 * x[1:]), 0])

    def test_not_where_something_stands_between(self):
        @weft.jit
        def f(x):
            t, y = weft.zeros(x.shape), weft.zeros(x.shape)
            scale[2, 256](2.0, x, t)
            add[2, 256](t.sum() * t, t)
            add[2, 256](t, y)
            return y

        x = np.arange(300, dtype=np.float32)
        t = 2 * x
        np.testing.assert_allclose(f(weft.tensor(x)).numpy(), t + t.sum() * t, rtol=1e-6)

    def test_not_where_the_value_in_between_is_wanted(self):
        @weft.jit
        def f(x):
            t = weft.zeros(x.shape)
            scale[2, 256](2.0, x, t)
            before = t + 0
            add[2, 256](x, t)
            return before, t

        x = numbers(300)
        before, t = f(weft.tensor(x))
        np.testing.assert_array_equal(before.numpy(), np.float32(2) * x)
        np.testing.assert_array_equal(t.numpy(), np.float32(2) * x + x)


class TestRefused:
    def test_arrays_that_the_capture_does_not_know(self):
        y = np.zeros(10, np.float32)

        @weft.jit
        def f(x):
            scale[1, 32](2.0, x, y)
            return x + 1

        with pytest.raises(CaptureError, match="an array that is no tensor"):
            f(weft.ones(10))

    def test_gradients(self):
        @weft.jit
        def f(x, y):
            scale[1, 32](2.0, x, y)
            return y

        with pytest.raises(GradientError, match="a kernel has no gradient"):
            f(weft.ones(10), weft.ones(10).requires_grad_())

        @weft.jit
        def g(x):
            y = weft.zeros(10)
            scale[1, 32](2.0, x, y)
            return (y * x).sum()

        x = weft.ones(10).requires_grad_()
        g(x).backward()
        np.testing.assert_array_equal(x.grad.numpy(), np.full(10, 2, np.float32))

    def test_several_views(self):
        @weft.jit
        def f(x):
            scale[1, 32](2.0, x[1:], x[:-1])
            return x + 0

        with pytest.raises(CaptureError, match="several views"):
            f(weft.ones(10))

    def test_wrong_arguments(self):
        @weft.jit
        def f(x):
            scale[1, 32](x, x)
            return x

        with pytest.raises(LaunchError, match="missing a required argument"):
            f(weft.ones(10))

    def test_failures_have_the_line_of_the_kernel(self):
        @weft.jit
        def f(x, index):
            y = weft.zeros(index.shape)
            gather[1, 32](x, index, y)
            return y

        x = weft.arange(10).float()
        np.testing.assert_array_equal(f(x, weft.tensor([3, 0, 9])).numpy(), [3, 0, 9])
        with pytest.raises(BoundsError, match="launch of gather: found index 10") as found:
            f(x, weft.tensor([3, 10, 9])).numpy()
        assert "y[i] = x[index[i]]" in str(found.value)

    @pytest.mark.parametrize("joined", [False, True])
    def test_assertions_tell_the_thread(self, joined):
        @weft.jit
        def f(x, limit):
            below[2, 4](x, limit)
            if not joined:
                x = x + 0  # a kernel in between
            below[2, 4](x, limit - 3)
            return x

        np.testing.assert_array_equal(f(weft.zeros(8), weft.tensor([11])).numpy(), [2] * 8)
        for _ in range(3):  # in Python, then natively
            with pytest.raises(LaunchError, match=r"found not #1 in thread \(2, 0, 0\) of block "
                               r"\(1, 0, 0\)\n.*assert i < limit\[0\]"):
                f(weft.zeros(8), weft.tensor([9])).numpy()


@weft.kernel
def below(x, limit):
    i = gpu.grid(1)
    assert i < limit[0], "not #1"
    x[i] += 1


@weft.kernel
def shout(x, n):
    i = gpu.grid(1)
    if i < n:
        print("at", i, x[i])


@weft.kernel
def count_off(n):
    print("of", n)


class TestEffects:
    """Launches that do more than write run in every replay, whoever reads their results."""

    def test_assertions_of_what_writes_nothing(self):
        @weft.kernel
        def look(x):
            i = gpu.grid(1)
            assert i >= x.size or x[i] > 0, "not positive"

        @weft.jit
        def f(x):
            look[1, 32](x)
            return x + 1

        for _ in range(3):
            np.testing.assert_array_equal(f(weft.ones(10)).numpy(), [2] * 10)
        with pytest.raises(LaunchError, match=r"not positive in thread \(7, 0, 0\)"):
            f(weft.tensor([1.0] * 7 + [0.0]))
        with pytest.raises(LaunchError, match="not positive"):
            f(weft.tensor([1.0] * 9 + [-1.0]))

    def test_assertions_of_what_nobody_reads(self):
        @weft.jit
        def f(x):
            y = x * 1
            below[1, 8](y, weft.tensor([8]) - (x[:1] > 4).long())
            return x + 1

        for _ in range(3):
            np.testing.assert_array_equal(f(weft.ones(8)).numpy(), [2] * 8)
        with pytest.raises(LaunchError, match=r"in thread \(7, 0, 0\)"):
            f(weft.full((8,), 5.0))

    def test_prints_in_their_order(self, capfd):
        @weft.jit
        def f(x):
            shout[1, 8](x, 2)
            y = x * 3
            shout[1, 8](y, 1)
            count_off[1, 1](7)
            return x.sum()

        for _ in range(4):
            assert f(weft.ones(8)).item() == 8
            assert capfd.readouterr().out == "at 0 1.0\nat 1 1.0\nat 0 3.0\nof 7\n"

    def test_a_function_without_results(self, capfd):
        @weft.jit
        def f(x):
            shout[1, 8](x, 1)

        for _ in range(4):
            assert f(weft.ones(8)) is None
        assert capfd.readouterr().out == "at 0 1.0\n" * 4


@weft.kernel
def added(a: Any, b: Any, c: Any) -> None:
    i = gpu.grid(1)
    if i < a.size:
        c[i] = a[i] + 2 * b[i]


@pytest.mark.parametrize("large", [True, False])
def test_large_results_are_written_one_after_the_other(large: bool, monkeypatch: Any) -> None:
    """By the rule of `weft.fuse`: from the third array on a barrier stands between."""
    made: list[Any] = []
    n = 640 if large else 600  # of other sizes, so that it is planned anew
    if large:
        monkeypatch.setattr(pages, "LARGE", 2048)
        monkeypatch.setattr(launches, "LARGE", 2048)

    def joined(group: Any, spare: Any) -> Any:
        made.append(group.barriers)
        return join.joined(group, spare)

    monkeypatch.setattr(launches, "joined", joined)

    @weft.jit
    def step(a: Any, b: Any) -> Any:
        c, d, e, f = (weft.zeros(n) for _ in range(4))
        added[5, 128](a, b, c)
        added[5, 128](c, b, d)
        added[5, 128](d, a, e)
        added[5, 128](e, c, f)
        return c, d, e, f

    a, b = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    found = step(weft.tensor(a), weft.tensor(b))
    c = a + 2 * b
    d = c + 2 * b
    e = d + 2 * a
    for got, wanted in zip(found, (c, d, e, e + 2 * c), strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted)
    assert len(made) == 3
    assert [bool(barriers) for barriers in made] == [False, large, large]
