"""Launches in native code: what they take, and what goes the Python way."""

import copy as copying
import gc
import pickle
import sys
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft
from weft import config, gpu
from weft.errors import BoundsError, DTypeError, GradientError, LaunchError
from weft.lang.launch.launch import Configured

pytestmark = pytest.mark.usefixtures("compiled")


@weft.kernel
def saxpy(a: Any, x: Any, y: Any) -> None:
    i = gpu.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@weft.kernel
def copy(x: Any, y: Any) -> None:
    for i in range(gpu.grid(1), x.shape[0], gpu.gridsize(1)):
        y[i] = x[i]


def warm(launch: Any, *args: Any) -> None:
    """Launch often enough for native code."""
    for _ in range(3):
        launch(*args)


def test_second_launches_run_no_python(misses: list[Any]) -> None:
    """Other arrays, sizes and numbers of the same types, too."""
    launch = saxpy[4, 16]
    warm(launch, 2.0, np.ones(50, np.float32), np.zeros(50, np.float32))
    misses.clear()
    for n in (0, 1, 13, 64):
        x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
        expected = np.float32(-1.5) * x + y
        launch(-1.5, x, y)
        saxpy[4, 16](0.0, x, y)
        np.testing.assert_array_equal(y, expected)
    assert misses == []


X, Y = np.arange(12, dtype=np.float32), np.ones(12, np.float32)
WIDE = np.ones((12, 3), np.float32)
FROZEN = np.arange(12, dtype=np.float32)
FROZEN.flags.writeable = False


@pytest.mark.parametrize("args", [
    (2, X, Y), (True, X, Y), (np.float32(2), X, Y), (np.float64(2), X, Y), (np.int8(-2), X, Y),
    (np.uint16(2), X, Y), (2.0, X.astype(np.float64), Y), (2.0, X, Y.astype(np.float64)),
    (2.0, X.astype(np.int32), Y), (2.0, X[::-1], Y), (2.0, X, WIDE[:, 1]), (2.0, FROZEN, Y),
    (2.0, X[3:9], Y[:6]), (1 << 40, X, Y), (2.0, X, memoryview(np.ones(12, np.float32))),
], ids=range(15))  # fmt: skip
def test_any_change_of_an_argument(args: Any) -> None:
    """What one launch is made for never sees arguments of another type or layout."""
    launch = saxpy[1, 12]
    warm(launch, 2.0, X.copy(), Y.copy())
    for _ in range(4):
        a, x, y = args
        target = np.asarray(y)
        before = target.copy()
        n = len(x)
        expected = np.asarray(a * np.asarray(x)[:n] + before[:n]).astype(before.dtype)
        launch(a, x, y)
        np.testing.assert_allclose(target[:n], expected, rtol=1e-6)
        np.testing.assert_array_equal(target[n:], before[n:])
        target[...] = before


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16",
                                   "uint32", "uint64", "float16", "float32", "float64"])
def test_scalars_of_numpy(dtype: str, misses: list[Any]) -> None:
    """Numbers of every type at the ends of their range, read natively."""

    @weft.kernel
    def put(v: Any, out: Any) -> None:
        out[0] = v

    kind = np.dtype(dtype)
    values = [0, 1] if kind.kind == "b" else (
        [np.iinfo(kind).min, np.iinfo(kind).max, 5] if kind.kind in "iu" else
        [-0.0, 1.5, np.inf, np.nan, np.finfo(kind).tiny])
    out = np.zeros(1, kind)
    launch = put[1, 1]
    warm(launch, kind.type(1), out)
    misses.clear()
    for value in values:
        launch(kind.type(value), out)
        assert out.tobytes() == np.array([value], kind).tobytes()
    assert misses == []


def test_integers_out_of_range_are_no_native_arguments() -> None:
    """Python's ints of more bits."""

    @weft.kernel
    def put(v: Any, out: Any) -> None:
        out[0] = v

    out = np.zeros(1, np.uint64)
    launch = put[1, 1]
    for value in (5, 6, 7, (1 << 64) - 1, (1 << 63), (1 << 64) - 2, 9, 0):
        launch(value, out)
        assert int(out[0]) == value
    with pytest.raises(LaunchError, match="64 bits"):
        launch(1 << 64, out)
    with pytest.raises(LaunchError):
        launch(-1 << 70, out)


class Pair(NamedTuple):
    """Two numbers."""

    a: float
    b: Any


def test_tuples(misses: list[Any]) -> None:
    """Tuples and named tuples, inside of each other, with arrays in them."""

    @weft.kernel
    def use(p: Any, q: Any, out: Any) -> None:
        out[0] = p.a * p.b[0] + q[0] + q[1][1]

    out = np.zeros(1)
    launch = use[1, 1]
    warm(launch, Pair(2.0, np.ones(3)), (1, (2, 3)), out)
    misses.clear()
    launch(Pair(3.0, np.full(3, 2.0)), (4, (5, 6)), out)
    assert out[0] == 16
    assert misses == []
    launch(Pair(3.0, np.full(3, 2, np.float32)), (4, (5, 6)), out)
    assert len(misses) == 1
    launch(Pair(3, np.full(3, 2.0)), (4, (5, 0.5)), out)
    assert out[0] == 10.5


def test_constants_are_compared() -> None:
    """None, text and flags are part of what a kernel is compiled for."""

    @weft.kernel
    def choose(kind: Any, out: Any) -> None:
        if kind is None:
            out[0] = 1
        elif kind == "two":
            out[0] = 2
        else:
            out[0] = 3

    out = np.zeros(1)
    launch = choose[1, 1]
    for _ in range(3):
        for kind, expected in ((None, 1), ("two", 2), ("three", 3), ("tw" + "o"[:1], 2)):
            launch(kind, out)
            assert out[0] == expected


def test_failures_are_told_with_their_line(misses: list[Any]) -> None:
    """Native launches raise what others raise."""

    @weft.kernel
    def beyond(x: Any, n: Any) -> None:
        x[n] = 1
        assert n < 3, "too far"

    x = np.zeros(5)
    launch = beyond[1, 1]
    warm(launch, x, 1)
    misses.clear()
    with pytest.raises(BoundsError, match="index 9") as caught:
        launch(x, 9)
    assert "x[n] = 1" in str(caught.value)
    with pytest.raises(LaunchError, match="too far"):
        launch(x, 4)
    launch(x, 2)
    assert x.tolist() == [0, 1, 1, 0, 1]
    assert misses == []


def test_wrong_calls_go_to_python() -> None:
    """Keywords, too few and too many arguments, what is no argument."""
    x, y = X.copy(), Y.copy()
    launch = saxpy[1, 12]
    warm(launch, 2.0, x, y)
    launch(2.0, x, y=y)
    launch(a=2.0, x=x, y=y)
    np.testing.assert_array_equal(y, 10 * X + 1)
    for wrong in ((), (2.0, x), (2.0, x, y, y), (2.0, x, object()), (2.0, {}, y), (2j, "x", y)):
        with pytest.raises((LaunchError, weft.errors.KernelError)):
            launch(*wrong)
    with pytest.raises(LaunchError):
        launch(2.0, x, z=y)
    with pytest.raises(LaunchError, match="misaligned"):
        launch(2.0, np.frombuffer(bytes(49), np.uint8)[1:].view(np.float32), y)


def test_configurations_are_kept_and_checked() -> None:
    """The same object for the same shape; shapes that cannot be are told each time."""
    assert saxpy[1, 12] is saxpy[1, 12]
    warm(saxpy[1, 12], 2.0, X.copy(), Y.copy())
    assert saxpy[1, 12] is saxpy[1, 12]
    assert saxpy[[1, 1], [12]].grid == (1, 1, 1)
    for wrong in ((0, 1), (1, 0), (1, 1025), (1, (1, 2, 3, 4)), 5, (1,), (1, 2, 3, 4, 5),
                  (1.5, 2), ((), 1), (1, 12, "stream"), (1, 12, 0, -1), ("a", "b")):  # fmt: skip
        for _ in range(2):
            with pytest.raises(LaunchError):
                saxpy[wrong]
    for n in range(1, 600):
        saxpy[n, 1]
    assert isinstance(saxpy[3, 4, None, 64], Configured)


@weft.func
def helper(v: Any) -> Any:
    return v + 1


def test_copies_and_pickles_are_the_kernel_itself() -> None:
    """By name, as functions; launches by their kernel, before and after they are native."""
    for _ in range(2):
        for thing in (saxpy, helper):
            assert copying.copy(thing) is copying.deepcopy(thing) is thing
            assert pickle.loads(pickle.dumps(thing)) is thing
        launch = saxpy[2, (4, 3)]
        assert pickle.loads(pickle.dumps(launch)).block == (4, 3, 1)
        assert copying.deepcopy(launch).grid == (2, 1, 1)
        warm(launch, 2.0, X.copy(), Y.copy())


def test_default_device_is_looked_at_again() -> None:
    """A kernel that ran natively runs on the interpreter when that is the default."""
    y = Y.copy()
    warm(saxpy[1, 12], 2.0, X, y)
    try:
        weft.set_default_device("interpreter")
        assert saxpy[1, 12].interpreted
        saxpy[1, 12](2.0, X, y)
    finally:
        weft.set_default_device(None)
    assert not saxpy[1, 12].interpreted
    np.testing.assert_array_equal(y, 8 * X + 1)


def test_settings_are_looked_at_again(misses: list[Any]) -> None:
    """Launches that ran natively go to Python once more when settings change."""
    given = pytest.MonkeyPatch()
    launch, y = saxpy[1, 12], Y.copy()
    warm(launch, 2.0, X, y)
    misses.clear()
    launch(2.0, X, y)
    assert misses == []
    given.setenv("WEFT_SANITIZE", "native")
    config.reset()
    try:
        launch(2.0, X, y)
        assert len(misses) == 1
    finally:
        given.undo()
        config.reset()
    for _ in range(4):
        launch(2.0, X, y)
    np.testing.assert_array_equal(y, 18 * X + 1)


def test_launches_from_many_threads() -> None:
    """Kernels run side by side, with the lock of Python held or not."""
    n, rounds = 20_000, 60
    results = [np.zeros(n, np.float32) for _ in range(4)]

    def work(y: Any) -> None:
        for _ in range(rounds):
            saxpy[weft.cdiv(n, 256), 256](1.0, np.ones(n, np.float32), y)
            saxpy[1, 12](1.0, X, y[:12])

    threads = [threading.Thread(target=work, args=(y,)) for y in results]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for y in results:
        np.testing.assert_array_equal(y[12:], np.full(n - 12, rounds, np.float32))


@pytest.mark.slow
def test_nothing_is_leaked() -> None:
    """Launches, and kernels that are gone, keep nothing alive."""
    x, y = np.ones(12, np.float32), np.zeros(12, np.float32)
    launch = saxpy[1, 12]
    warm(launch, 2.0, x, y)
    pair, number = (1.5, 2), 1 << 50
    before = [sys.getrefcount(o) for o in (x, y, launch, pair, number, None)]
    for _ in range(100):
        launch(2.0, x, y)
        with pytest.raises(LaunchError):
            launch(2.0, x)
    after = [sys.getrefcount(o) for o in (x, y, launch, pair, number)]
    assert after == before[:5]

    def make() -> Any:
        @weft.kernel
        def local(x: Any) -> None:
            x[0] = 1

        warm(local[1, 1], np.zeros(1))
        return weakref.ref(local)

    ref = make()
    gc.collect()
    assert ref() is None


def test_small_grids_give_the_same_as_large_ones() -> None:
    """On the calling thread, or on all."""
    for n in (1, 100, 5000, 300_000):
        x = np.random.default_rng(n).random(n)
        y = np.zeros(n)
        launch = copy[64, 64]
        for _ in range(3):
            y[:] = 0
            launch(x, y)
            np.testing.assert_array_equal(x, y)
        z = np.zeros(n, np.float32)
        for _ in range(3):
            saxpy[weft.cdiv(n, 128), 128](3.0, np.ones(n, np.float32), z)
        np.testing.assert_array_equal(z, np.full(n, 9, np.float32))


@pytest.mark.requires("torch")
def test_torch_tensors(misses: list[Any]) -> None:
    """Read and written natively, of any strides; not those that require a gradient."""
    import torch

    launch = saxpy[1, 12]
    x, y = torch.arange(12.0), torch.ones(12)
    for _ in range(4):
        launch(2.0, x, y)
    assert torch.equal(y, 8 * x + 1)
    misses.clear()
    launch(1.0, x, y)
    assert misses == []
    assert torch.equal(y, 9 * x + 1)
    wide = torch.ones(12, 5)
    for _ in range(4):
        launch(2.0, x.flip(0), wide[:, 2])
    assert torch.equal(wide[:, 2], 8 * x.flip(0) + 1)
    assert torch.equal(wide[:, 1], torch.ones(12))
    learned = torch.ones(12, requires_grad=True)
    for _ in range(2):
        with pytest.raises(Exception, match="gradient"):
            launch(2.0, x, learned)
    assert torch.equal(learned.detach(), torch.ones(12))
    launch(2.0, x.double(), y)
    launch(2.0, x.to(torch.int32), y)
    assert torch.equal(y, 13 * x + 1)
    half = torch.ones(12, dtype=torch.bfloat16)
    for _ in range(3):
        launch(2.0, x, half)
    assert half[2] == 13
    for _ in range(3):
        launch(1.0, torch.empty(0), y)
    y[:] = 1
    turned = torch.complex(torch.ones(24), torch.ones(24) * 2)[::2].conj().imag
    for _ in range(3):
        launch(1.0, torch.ones(48)[::4], y)
    for given in (turned, turned[:1]):
        with pytest.raises(LaunchError, match="signs"):
            launch(1.0, given, y)
    assert torch.equal(y, torch.full((12,), 4.0))


def test_weft_tensors(misses: list[Any]) -> None:
    """A kernel gives a tensor, and its views, another value; what was computed before stays."""
    launch = saxpy[1, 12]
    x = weft.arange(12, dtype=weft.float32)
    y = weft.ones(12)
    later, view = y + 1, y[3:6]
    shown = y.numpy()
    launch(2.0, x, y)
    np.testing.assert_array_equal(later.numpy(), np.full(12, 2, np.float32))
    np.testing.assert_array_equal(view.numpy(), [7, 9, 11])
    np.testing.assert_array_equal(shown, np.ones(12))
    np.testing.assert_array_equal(y.numpy(), 2 * X + 1)
    z = (weft.ones(12) * 3).realize()
    for _ in range(3):
        launch(1.0, x, z)
    misses.clear()
    version = z._version
    launch(1.0, x, z)
    assert misses == []
    assert z._version > version
    held = z.numpy()
    np.testing.assert_array_equal(held, 4 * X + 3)
    launch(1.0, x, z)  # an array shows its memory, so it is not written over
    np.testing.assert_array_equal(held, 4 * X + 3)
    lazy = z * 2
    launch(1.0, x, z)
    np.testing.assert_array_equal(lazy.numpy(), 2 * (5 * X + 3))
    np.testing.assert_array_equal(z.numpy(), 6 * X + 3)


def test_weft_tensors_that_are_special() -> None:
    """Views, memory of NumPy, the same tensor twice, gradients, captures, no axes, no elements."""
    launch = saxpy[1, 12]
    base = weft.zeros(4, 6)
    for _ in range(3):
        launch(1.0, weft.ones(6), base[2])
        launch(1.0, weft.ones(4), base.T[1])
    expected = np.zeros((4, 6))
    expected[2] += 3
    expected[:, 1] += 3
    np.testing.assert_array_equal(base.numpy(), expected)
    array = np.ones(12, np.float32)
    shared = weft.from_numpy(array)
    doubled = shared * 2
    for _ in range(3):
        launch(1.0, np.ones(12, np.float32), shared)
    np.testing.assert_array_equal(array, np.full(12, 4))
    np.testing.assert_array_equal(doubled.numpy(), np.full(12, 2))
    np.testing.assert_array_equal(shared.numpy(), array)
    same = weft.ones(12)
    for _ in range(3):
        launch(1.0, same, same)
    np.testing.assert_array_equal(same.numpy(), np.full(12, 8))
    learned = weft.ones(12, requires_grad=True)
    with pytest.raises(GradientError):
        launch(1.0, same, learned)
    with weft.no_grad():
        launch(1.0, same, learned)
    np.testing.assert_array_equal(learned.detach().numpy(), np.full(12, 9))
    (learned.sum() * 2).backward()
    np.testing.assert_array_equal(learned.grad.numpy(), np.full(12, 2))
    launch(1.0, learned, same)
    np.testing.assert_array_equal(same.numpy(), np.full(12, 17))
    launch(weft.tensor(0.5), same, same)
    launch(1.0, weft.ones(0), same)
    np.testing.assert_array_equal(same.numpy(), np.full(12, 25.5))

    @weft.jit
    def captured(t: Any) -> Any:
        launch(1.0, t, t)
        return t

    for _ in range(3):
        np.testing.assert_array_equal(captured(weft.ones(12)).numpy(), np.full(12, 2))
    frozen = weft.from_numpy(FROZEN)
    launch(1.0, same, frozen)  # a copy
    np.testing.assert_array_equal(FROZEN, X)


def test_tensors_on_the_interpreter() -> None:
    """The interpreter writes to tensors as well."""
    x, y = weft.arange(12, dtype=weft.float32), weft.ones(12)
    weft.interpret(saxpy, 1, 12)(2.0, x, y)
    np.testing.assert_array_equal(y.numpy(), 2 * X + 1)
    assert not weft.sanitize(saxpy, 1, 12)(2.0, x, y).findings
    np.testing.assert_array_equal(y.numpy(), 4 * X + 1)


def test_streams_and_events() -> None:
    """Work of a stream is in order; what is no stream is refused."""
    stream, start, end = weft.stream(), weft.event(), weft.event()
    y = Y.copy()
    start.record(stream)
    for _ in range(3):
        saxpy[1, 12, stream](1.0, X, y)
        saxpy.launch(1.0, X, y, grid=1, block=12, stream=stream, shared=16)
    end.record(stream)
    end.synchronize()
    stream.synchronize()
    np.testing.assert_array_equal(y, 6 * X + 1)
    assert start.elapsed_time(end) >= 0
    assert stream.query()
    assert end.query()
    stream.wait(end)
    with stream.auto_synchronize() as found:
        assert found is stream
    with pytest.raises(LaunchError):
        weft.event().elapsed_time(end)
    with pytest.raises(LaunchError):
        weft.event(timing=False).elapsed_time(end)
    with pytest.raises(LaunchError):
        stream.wait(3)  # type: ignore[arg-type]
    with pytest.raises(LaunchError):
        start.record("stream")
    with pytest.raises(DTypeError):
        weft.float32["x"]


def test_launches_that_are_noted_do_not_run() -> None:
    """A block of `weft.fuse` sees launches that would be native, with tensors, too."""
    y, t = Y.copy(), weft.ones(12)
    warm(saxpy[1, 12], 1.0, X, y)
    warm(saxpy[1, 12], 1.0, X, t)
    with weft.fuse():
        saxpy[1, 12](1.0, X, y)
        saxpy[1, 12](1.0, y, t)
        saxpy[1, 12](1.0, X, y)
        np.testing.assert_array_equal(y, 3 * X + 1)
    np.testing.assert_array_equal(y, 5 * X + 1)
    np.testing.assert_array_equal(t.numpy(), 7 * X + 2)


def test_random_arguments_on_one_launch(rng: Any) -> None:
    """Arguments of all kinds, in any order, on one object: never code for other ones."""

    @weft.kernel
    def mix(a: Any, x: Any, p: Any, y: Any) -> None:
        i = gpu.grid(1)
        if i < y.size and i < x.size:
            y[i] = a * x[i] + p[0] + p[1]

    kinds = [np.float32, np.int32]

    def array(n: int, written: bool) -> Any:
        kind = rng.choice(kinds)
        step = int(rng.choice([1, 1, 2, -1, -3]))
        made = rng.integers(0, 9, (n * abs(step),)).astype(kind)[::step][:n]
        choice = rng.integers(0, 4)
        if choice == 0 and not written:
            made.flags.writeable = False
        if choice == 1:
            return weft.tensor(np.ascontiguousarray(made))
        if choice == 2:
            return memoryview(np.ascontiguousarray(made))
        return made

    launch = mix[3, 8]
    for _ in range(150):
        a = rng.choice([0, 1, 2, 3])
        a = [float(a), np.int16(a)][rng.integers(2)]
        p = [(1, 2), (np.float32(1), 2)][rng.integers(2)]
        x, y = array(int(rng.integers(0, 25)), False), array(int(rng.integers(1, 25)), True)
        given, before = np.array(x), np.array(y)
        n = min(len(given), len(before))
        expected = before.copy()
        expected[:n] = (float(a) * given[:n] + float(p[0]) + float(p[1])).astype(before.dtype)
        for _ in range(int(rng.integers(1, 4))):
            launch(a, x, p, y)
        np.testing.assert_array_equal(np.array(y), expected)
        np.testing.assert_array_equal(np.array(x), given)
