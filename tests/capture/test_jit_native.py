"""Captured functions called natively: what fits goes past Python, what does not never does."""

import contextlib
import copy
import gc
import os
import resource
import signal
import sys
import threading
import time

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.capture.jit import Jitted
from weft.errors import BoundsError, HandleError

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture
def misses(monkeypatch):
    """Note each call that comes to Python."""
    found = []
    python = Jitted._miss

    def miss(self, args, kwargs):
        found.append(args)
        return python(self, args, kwargs)

    monkeypatch.setattr(Jitted, "_miss", miss)
    return found


def warm(function, *args, **kwargs):
    """Call a function until it has its dispatch, and return the last result."""
    for _ in range(3):
        result = function(*args, **kwargs)
    return result


def ones(*shape, dtype=None):
    return weft.ones(*shape, dtype=dtype).realize()


def test_calls_go_past_python(misses, rng):
    x, y = (weft.tensor(rng.standard_normal(8, dtype=np.float32)) for _ in range(2))
    add = weft.jit(lambda a, b: a + b)
    warm(add, x, y)
    misses.clear()
    for _ in range(10):
        out = add(x, y)
        assert type(out) is weft.Tensor
        np.testing.assert_array_equal(out.numpy(), x.numpy() + y.numpy())
    assert not misses
    assert add.captures == 1
    assert isinstance(add, Jitted)
    assert type(add).__name__ == "Jitted"
    assert add.__wrapped__(x, y).shape == (8,)


def test_every_part_of_a_signature_counts(misses):
    double = weft.jit(lambda x: x * 2)
    warm(double, ones(4, 3))
    others = [
        ones(3, 4), ones(12), ones(4, 3, 1), ones(4, 4), ones(0, 3), ones(4, 3, dtype=weft.float64),
        ones(4, 3, dtype=weft.int32), weft.ones(4, 3), ones(4, 6)[:, ::2], ones(3, 4).T,
        ones(4, 3).requires_grad_(), nn.Parameter(ones(4, 3)), ones(5, 3)[1:],
    ]  # fmt: skip
    for other in others:
        misses.clear()
        out = double(other)
        assert len(misses) == 1, other
        assert out.shape == other.shape
        assert out.dtype is other.dtype
        assert (out.detach().numpy() == 2).all()
    misses.clear()
    assert (double(ones(4, 3)).numpy() == 2).all()
    assert not misses
    with pytest.raises(TypeError):
        double()
    with pytest.raises(TypeError):
        double(ones(4, 3), ones(4, 3))


def test_several_signatures_are_at_hand(misses):
    total = weft.jit(lambda x, n: x.sum() * n, static="n")
    numbers = (1, 2, 3, 5, 7, 11, 13)
    for n in numbers:
        warm(total, ones(3), n)
    misses.clear()
    for n in numbers * 2:
        assert total(ones(3), n).item() == 3 * n
    assert not misses
    for n in range(20, 50):  # more than are kept
        assert warm(total, ones(3), n).item() == 3 * n
    for n in range(20, 50):
        assert total(ones(3), n).item() == 3 * n


def test_static_values(misses):
    scale = weft.jit(lambda x, factor, *, shift=0.0, name="": x * factor + shift,
                     static=("factor", "shift"))
    x = ones(3)
    for factor, shift in ((2, 0.0), (2.0, 0.5), (True, -0.0), (3, 1.5), (1000003, 1e30)):
        for _ in range(4):
            out = scale(x, factor, shift=shift, name="n")
            np.testing.assert_array_equal(out.numpy(), np.float32(factor + np.float32(shift)))
    misses.clear()
    assert scale(x, int("1000003"), shift=float("1e30"), name="n").shape == (3,)  # other objects
    assert (scale(x, 3, name="n", shift=1.5).numpy() == 4.5).all()  # in another order
    assert len(misses) == 1
    misses.clear()
    assert (scale(x, 2, shift=0.0, name="m").numpy() == 2).all()
    assert (scale(x, 2).numpy() == 2).all()
    assert (scale(x, 4, shift=0.0, name="n").numpy() == 4).all()
    assert len(misses) == 3
    sign = weft.jit(lambda x, zero: x * zero)
    assert not np.signbit(warm(sign, x, 0.0).numpy()).any()
    assert np.signbit(warm(sign, x, -0.0).numpy()).all()
    assert not np.signbit(sign(x, 0.0).numpy()).any()
    kind = weft.jit(lambda x, one: x + (1 if one is True else 2))
    assert (warm(kind, x, 1).numpy() == 3).all()
    assert (warm(kind, x, True).numpy() == 2).all()
    assert (kind(x, 1).numpy() == 3).all()


def test_containers(misses):
    @weft.jit
    def combine(batch, *, table):
        a, (b, c) = batch
        return {"sum": a + b, "rest": [c * 2, (table["x"], 3)], "none": None}

    a, b, c, x = (weft.full((2,), v).realize() for v in (1.0, 2.0, 3.0, 4.0))
    warm(combine, [a, (b, c)], table={"x": x})
    misses.clear()
    found = combine([a, (b, c)], table={"x": x})
    assert not misses
    assert list(found) == ["sum", "rest", "none"]
    assert found["sum"].tolist() == [3, 3]
    assert found["none"] is None
    assert type(found["rest"]) is list
    assert found["rest"][0].tolist() == [6, 6]
    assert found["rest"][1][0].tolist() == [4, 4]
    assert found["rest"][1][1] == 3
    for batch, table in (((a, (b, c)), {"x": x}), ([a, [b, c]], {"x": x})):
        misses.clear()
        assert combine(batch, table=table)["sum"].tolist() == [3, 3]
        assert len(misses) == 1
    order = weft.jit(lambda d: [v * 1 for v in d.values()])
    warm(order, {"p": a, "q": b})
    assert [v.tolist() for v in order({"q": b, "p": a})] == [[2, 2], [1, 1]]
    assert [v.tolist() for v in order({"p": a, "q": b})] == [[1, 1], [2, 2]]


def test_arrays(misses, rng):
    half = weft.jit(lambda x: x * 0.5)
    x = rng.standard_normal((6, 4), dtype=np.float32)
    np.testing.assert_array_equal(warm(half, x).numpy(), x / 2)
    misses.clear()
    x[...] = 3
    assert (half(x).numpy() == 1.5).all()
    y = rng.standard_normal((6, 4), dtype=np.float32)
    np.testing.assert_array_equal(half(y).numpy(), y / 2)
    assert not misses
    raw = np.zeros(6 * 4 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(6, 4)
    others = (y[::2], y.T, y.astype(np.float64), y.astype(">f4"), y[:, :3], y[::-1], raw,
              np.asfortranarray(y), y.reshape(4, 6), y.ravel(), y[0, 0])  # fmt: skip
    for other in others:
        misses.clear()
        np.testing.assert_array_equal(half(other).numpy(), (other * 0.5).astype(other.dtype))
        assert len(misses) == 1

    class Mine(np.ndarray):
        pass

    np.testing.assert_array_equal(half(y.view(Mine)).numpy(), y / 2)


def test_captured_tensors_are_read_anew(misses):
    w = weft.full((3,), 2.0).realize()
    times = weft.jit(lambda x: x * w)
    x = ones(3)
    warm(times, x)
    misses.clear()
    assert times(x).tolist() == [2, 2, 2]
    w[1] = 5.0  # lazy: not in memory until somebody looks
    assert times(x).tolist() == [2, 5, 2]
    assert len(misses) == 1
    assert times(x).tolist() == [2, 5, 2]
    assert len(misses) == 1
    w.copy_(weft.zeros(3))
    w.realize()
    assert times(x).tolist() == [0, 0, 0]
    assert len(misses) == 1


@pytest.mark.slow
def test_steps_with_state(misses):
    weft.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 2))
    twin = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 2))
    twin.load_state_dict(model.state_dict())

    def step_of(net):
        optimizer = optim.AdamW(net.parameters(), lr=0.1)

        def step(x, y):
            loss = ((net(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    x, y = weft.randn(8, 5).realize(), weft.randn(8, 2).realize()
    fast, slow = weft.jit(step_of(model)), step_of(twin)
    losses = []
    for run in (fast, slow):
        weft.manual_seed(3)
        losses.append([run(x, y).item() for _ in range(6)])
        if run is fast:
            count = len(misses)
            versions = [p._version for p in model.parameters()]
            losses[0] += [run(x, y).item() for _ in range(4)]
            assert len(misses) == count
            assert all(p._version > v for p, v in zip(model.parameters(), versions, strict=True))
        else:
            losses[1] += [run(x, y).item() for _ in range(4)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-4)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-2, atol=1e-3)
        assert p.requires_grad
        assert p.is_leaf
    model.eval()
    count = len(misses)
    fast(x, y)
    assert len(misses) == count + 1
    model.train()
    fast(x, y)
    assert len(misses) == count + 1
    next(iter(model.parameters())).requires_grad_(False)
    fast(x, y)
    assert len(misses) == count + 2


def test_arguments_that_are_written(misses):
    @weft.jit
    def bump(x, y):
        x += y
        return x * 2

    x, y = ones(3), ones(3)
    for i in range(6):
        assert bump(x, y).tolist() == [2 * (i + 2)] * 3
        assert x.tolist() == [i + 2] * 3
    misses.clear()
    version = x._version
    bump(x, y)
    assert not misses
    assert x._version == version + 1
    assert bump(y, y).tolist() == [4, 4, 4]  # one tensor twice is another function
    assert y.tolist() == [2, 2, 2]
    memory = np.ones(3, np.float32)
    shared = weft.from_numpy(memory)
    bump(shared, ones(3))
    assert memory.tolist() == [2, 2, 2]
    wide = weft.ones(2, 3).realize()
    bump(wide[0], ones(3))
    assert wide.tolist() == [[2, 2, 2], [1, 1, 1]]


def test_one_tensor_given_twice(misses):
    join = weft.jit(lambda a, b, c: a * 100 + b * 10 + c)

    @weft.jit
    def both(a, b):
        a += 1
        return a + b

    one, two, three = (weft.full((2,), v).realize() for v in (1.0, 2.0, 3.0))
    for args, value in (((one, one, two), 112), ((one, two, one), 121), ((two, two, two), 222),
                        ((one, two, three), 123)):  # fmt: skip
        assert warm(join, *args).tolist() == [value] * 2
        misses.clear()
        assert join(*args).tolist() == [value] * 2
        assert not misses
    assert join(three, three, one).tolist() == [331] * 2
    assert join(one, three, three).tolist() == [133] * 2
    warm(both, one, one)  # 1 to 4
    misses.clear()
    assert both(one, one).tolist() == [10, 10]
    assert not misses
    assert both(two, one).tolist() == [8, 8]
    assert both(two, two).tolist() == [8, 8]
    assert (one.tolist(), two.tolist()) == ([5, 5], [4, 4])


def test_modes_of_the_thread(misses):
    w = ones(3).requires_grad_()
    times = weft.jit(lambda x: x * w)
    x = ones(3)
    with weft.no_grad():
        assert not warm(times, x).requires_grad
        misses.clear()
        times(x)
        assert not misses
    out = warm(times, x)
    assert out.requires_grad
    out.sum().backward()
    assert w.grad.tolist() == [1, 1, 1]
    assert len(misses) == 3
    outer = weft.jit(lambda x: times(x) + 1)
    assert outer(x).tolist() == [2, 2, 2]
    seen = []

    def elsewhere():
        seen.append(times(x).requires_grad)

    with weft.no_grad():
        for _ in range(3):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
        assert not times(x).requires_grad
    assert seen == [True, True, True]


def test_failures_of_kernels(misses):
    table = weft.arange(5).realize()
    take = weft.jit(lambda i: table[i])
    good = weft.tensor([1, 4]).realize()
    bad = weft.tensor([1, 5]).realize()
    assert warm(take, good).tolist() == [1, 4]
    misses.clear()
    for _ in range(3):
        with pytest.raises(BoundsError, match="index 5"):
            take(bad)
    assert take(good).tolist() == [1, 4]
    assert not misses


def test_memory_that_was_given_back():
    x = ones(4)
    double = weft.jit(lambda x: x * 2)
    warm(double, x)
    x._buffer.release()
    with pytest.raises(HandleError):
        double(x)


def test_results_have_memory_of_their_own(misses):
    add = weft.jit(lambda x: (x + 1, x + 2))
    x = ones(100)
    kept = [add(x) for _ in range(50)]
    addresses = {t._buffer.address for pair in kept for t in pair}
    assert len(addresses) == 100
    assert all((a.numpy() == 2).all() and (b.numpy() == 3).all() for a, b in kept)
    del kept
    misses.clear()
    first, _ = add(x)
    assert not misses
    assert first._buffer.address in addresses
    assert first._buffer.pool is not None
    assert first._buffer.nbytes == 400
    assert first._buffer.version == 0


@pytest.mark.slow
def test_nothing_leaks(misses):
    x, y = ones(64), ones(64)
    w = ones(64)
    plain = weft.jit(lambda a, b: [a + b, {"k": (a * 2, None)}])

    @weft.jit
    def writing(a):
        w.copy_(w + a)
        return w * 2

    drawing = weft.jit(lambda a: a + weft.rand(64))
    for _ in range(100):
        plain(x, y), writing(x), drawing(x)
    calls = (lambda: plain(x, y), lambda: writing(x), lambda: drawing(x))
    objects = [x, y, w, x.shape, x.dtype, x._buffer, None, True, (), plain, plain._dispatch]
    misses.clear()
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    blocks, memory = sys.getallocatedblocks(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for call in calls:
        for _ in range(20_000):
            call()
    assert not misses
    gc.collect()
    after = [sys.getrefcount(o) for o in objects]
    change = [a - b for a, b in zip(after, before, strict=True)]
    assert max(map(abs, change)) < 200, change
    assert sys.getallocatedblocks() - blocks < 1000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 8 << 10


def test_threads(misses):
    w = ones(1000)
    work = weft.jit(lambda x: ((x * w).softmax(-1) * 3).sum(-1))  # with an arena
    large = weft.jit(lambda x: x + w.sum())
    inputs = [weft.full((64, 1000), float(i)).realize() for i in range(4)]
    expected = warm(work, inputs[0]).tolist()
    warm(large, inputs[0])
    failures = []

    def run(number):
        for _ in range(200):
            if abs(work(inputs[number]).numpy() - expected).max() > 1e-5:
                failures.append("work")
            if (large(inputs[number]).numpy() != number + 1000).any():
                failures.append("large")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 30
    while any(t.is_alive() for t in threads) and time.monotonic() < end:
        w.copy_(weft.ones(1000))  # its memory is replaced while others read it
        w.realize()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_interrupt_ends_a_call():
    x = weft.ones(400, 400).realize()

    def many(x):
        for _ in range(60):
            x = (x @ x) * (1 / 400)
        return x

    long = weft.jit(many)
    warm(long, x)
    rounds = []

    def endless():
        while len(rounds) < 10_000:
            long(x)
            rounds.append(None)

    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        endless()
    np.testing.assert_allclose(long(x).numpy(), 1, rtol=1e-4)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child(misses):
    x = ones(8)
    add = weft.jit(lambda x: x + 1)
    warm(add, x)
    child = os.fork()
    if child == 0:
        good = False
        try:
            good = add(x).tolist() == [2] * 8
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.slow
def test_copies():
    x = ones(3)
    add = weft.jit(lambda x: x + 1)
    warm(add, x)
    twin = copy.copy(add)
    assert copy.deepcopy(add._dispatch) is None
    del add
    gc.collect()
    assert warm(twin, x).tolist() == [2, 2, 2]
    assert warm(twin, ones(4)).tolist() == [2, 2, 2, 2]
    twin._dispatch = None
    assert twin(x).tolist() == [2, 2, 2]
    del twin._dispatch
    assert twin(x).tolist() == [2, 2, 2]


def test_an_interpreter_that_is_laid_out_otherwise(monkeypatch):
    from weft.driver.context import host_context
    from weft.runtimes.native.calls import dispatch

    def refuse(host):
        raise dispatch.NotSupported("another layout")

    monkeypatch.setattr(dispatch, "layout", refuse)
    monkeypatch.setattr(host_context().native, "_dispatchers", {})
    add = weft.jit(lambda x: x + 1)
    assert warm(add, ones(3)).tolist() == [2, 2, 2]
    assert type(add) is Jitted
    assert add(ones(4)).tolist() == [2, 2, 2, 2]


def test_members_are_found_where_they_are():
    from weft.runtimes.native.calls import dispatch

    class Two:
        __slots__ = ("a", "b")

    found = dispatch.slots_of(Two, ("a", "b"))
    assert len(set(found.values())) == 2
    with pytest.raises(AttributeError):
        dispatch.slots_of(Two, ("a", "c"))
    two = Two()
    two.a = two.b = object()
    with pytest.raises(dispatch.NotSupported):
        dispatch._find(two, id(two.a))


def test_dynamic_sizes(misses):
    n = weft.Variable("n", 1, 64)
    total = weft.jit(lambda x: (x * 2).softmax(0).sum() + x.sum(), dynamic={"x": {0: n}})
    for _ in range(3):
        for size in (3, 17, 64):
            assert total(ones(size)).item() == pytest.approx(size + 1, abs=1e-5)
    misses.clear()
    for size in (3, 17, 64):
        assert total(ones(size)).item() == pytest.approx(size + 1, abs=1e-5)
    assert not misses
    assert total(ones(5)).item() == pytest.approx(6, abs=1e-5)


def test_methods_and_many_arguments(misses):
    class Model:
        @weft.jit
        def run(self, *xs):
            total = xs[0]
            for x in xs[1:]:
                total = total + x
            return total

    model, other = Model(), Model()
    xs = [ones(2) for _ in range(300)]  # a frame that is not on the stack
    warm(model.run, *xs)
    misses.clear()
    assert model.run(*xs).tolist() == [300, 300]
    assert not misses
    assert other.run(*xs).tolist() == [300, 300]
    assert len(misses) == 1


def test_random_numbers_do_not_depend_on_memory():
    """A call that finds no free memory is made in Python, and must not have drawn before."""

    def stream(keep):
        drawing = weft.jit(lambda x: x + weft.rand(37))
        x = weft.zeros(37).realize()
        weft.manual_seed(3)
        kept, out = [], []
        for _ in range(12):
            result = drawing(x)
            out.append(result.tolist())
            if keep:
                kept.append(result)
        return out

    assert stream(True) == stream(False)


@pytest.mark.slow
def test_memory_met_in_a_cycle_that_is_freed():
    saved = []

    class Cycle:
        def __init__(self, tensor):
            self.tensor, self.me = tensor, self

        def __del__(self):
            saved.append(self.tensor)

    plus = weft.jit(lambda x: x + 1)
    for _ in range(4):
        Cycle(plus(weft.full((64,), 5.0)).realize())
    gc.collect()
    others = [plus(weft.full((64,), float(n))).realize() for n in range(20)]
    assert len(saved) == 4
    assert len(others) == 20
    for tensor in saved:  # never somebody else's values
        with contextlib.suppress(HandleError):
            assert tensor.tolist() == [6.0] * 64
