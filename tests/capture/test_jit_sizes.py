"""Calls with new sizes that go past Python: right at any size, counted, and left to own plans."""

import gc
import time

import numpy as np
import pytest

import weft
from weft import background, nn
from weft.capture import usage
from weft.capture.jit import Jitted
from weft.config import config
from weft.driver.context import host_context
from weft.errors import AllocationError, VariableError
from weft.nn import functional as F
from weft.runtimes.native.calls import dispatch_sizes
from weft.runtimes.native.calls.tally import Tally

pytestmark = pytest.mark.usefixtures("compiled")

SIZES = (7, 2, 33, 64, 65, 5, 200, 12)
W = weft.tensor(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32))


@pytest.fixture
def misses(monkeypatch):
    """Note each call that comes to Python; sizes get plans of their own by their number alone."""
    if config().check or host_context().native.pool.checks:
        pytest.skip("calls whose memory or results are checked are made in Python")
    found = []
    python = Jitted._miss

    def miss(self, args, kwargs):
        found.append(args)
        return python(self, args, kwargs)

    monkeypatch.setattr(Jitted, "_miss", miss)
    monkeypatch.setattr(usage, "LONG", 1e9)
    return found


def rows(*shape):
    return np.random.default_rng([*shape]).standard_normal(shape).astype(np.float32)


def tensors(n):
    return [weft.tensor(rows(n, 8)).realize()]


def opened(function, make=tensors):
    """Return a captured function that was called with some sizes, so that it serves all."""
    jitted = weft.jit(function)
    for n in (4, 6, 9, 11):
        jitted(*make(n))
    assert jitted.captures == 2, jitted.explain_captures()
    return jitted


def wait_for(jitted, signature):
    """Wait for a plan that is made in the background."""
    background.drain()
    until = time.perf_counter() + 120
    while signature not in jitted.explain_captures() and time.perf_counter() < until:
        time.sleep(0.01)
    assert signature in jitted.explain_captures()


def flat(result):
    if isinstance(result, dict):
        result = tuple(result.values())
    return result if isinstance(result, tuple | list) else (result,)


def agrees(jitted, function, values, make=tensors):
    for n in values:
        given = make(n)
        for a, b in zip(flat(jitted(*given)), flat(function(*given)), strict=True):
            if isinstance(b, weft.Tensor):
                assert a.shape == b.shape
                assert all(type(size) is int for size in a.shape)
                np.testing.assert_allclose(a.numpy(), b.numpy(), 2e-5, 2e-5, err_msg=str(n))
            else:
                assert (type(a), a) == (type(b), b)


FUNCTIONS = {
    "elementwise": lambda x: (x * 2).tanh() + 1,
    "softmax of products": lambda x: (x @ W).softmax(-1),
    "columns": lambda x: (x.sum(0), x.mean(0), x.sum()),
    "results of other shapes": lambda x: {
        "square": x @ x.T, "flat": x.reshape(-1) * 2, "cut": x[1:] + 1,
        "half": x.reshape(-1, 2, 4).sum(1), "twice": weft.cat([x, x + 1])},
    "sizes as results": lambda x: (x + 1, x.shape[0], x.shape[0] * 3 - 1, x.numel() // 2),
    "positions": lambda x: x + weft.arange(x.shape[0]).reshape(-1, 1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None],
                                                          is_causal=True),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_of_new_sizes_go_past_python(name, misses):
    function = FUNCTIONS[name]
    jitted = opened(function)
    for n in (*SIZES, 3):  # so that there is a layout of the arena for each power of two
        jitted(*tensors(n))
    misses.clear()
    agrees(jitted, function, [n + 1 for n in SIZES if n != 64])
    assert not misses
    agrees(jitted, function, (0, 1, 4, 1, 0, 4))
    assert misses


def test_arrays_of_others(misses):
    def function(x, y):
        return x @ W + y.sum() + x.shape[0]

    def arrays(n):
        return [rows(n, 8), rows(n + 1)]

    jitted = opened(function, arrays)
    misses.clear()
    for n in SIZES:
        wanted = rows(n, 8) @ W.numpy() + rows(n + 1).sum() + n
        np.testing.assert_allclose(jitted(*arrays(n)).numpy(), wanted, 1e-4, 1e-4)
    assert not misses
    jitted(rows(16, 8)[::2], rows(9))  # not in one piece
    jitted(rows(8, 8).astype(np.float64), rows(9))
    assert len(misses) == 2


@pytest.mark.requires("torch")
def test_tensors_of_pytorch(misses):
    import torch

    def make(n):
        return [torch.from_numpy(rows(n, 3, 8)), torch.from_numpy(rows(3, n))]

    def function(x, y):
        return x.sum(2) + y.T

    jitted = opened(function, make)
    misses.clear()
    for n in SIZES:
        wanted = rows(n, 3, 8).sum(2) + rows(3, n).T
        np.testing.assert_allclose(jitted(*make(n)).numpy(), wanted, 1e-4, 1e-4)
    assert not misses
    a, b = make(12)
    with pytest.raises(weft.errors.WeftError):
        jitted(a, b[:, :5])


def test_axes_that_have_to_agree(misses):
    def product(a, b):
        return a @ b

    def make(n):
        return [weft.tensor(rows(n, n)).realize(), weft.tensor(rows(n, 4)).realize()]

    jitted = opened(product, make)
    agrees(jitted, product, SIZES, make)
    misses.clear()
    agrees(jitted, product, SIZES, make)
    assert not misses
    a, b = weft.tensor(rows(5, 9)), weft.tensor(rows(9, 4))
    np.testing.assert_allclose(jitted(a, b).numpy(), product(a, b).numpy(), 1e-5, 1e-5)
    with pytest.raises(weft.errors.WeftError):
        jitted(a, weft.tensor(rows(8, 4)))
    assert len(misses) == 2


def test_other_types_and_ranks_go_to_python(misses):
    jitted = opened(lambda x: x * 2)
    others = [weft.ones(7), weft.ones(7, 8, 1), weft.ones(7, 9),
              weft.ones(7, 8, dtype=weft.float64),
              weft.ones(8, 7).realize().T, weft.ones(7, 8).requires_grad_()]  # fmt: skip
    for other in others:
        misses.clear()
        out = jitted(other)
        assert len(misses) == 1
        assert out.shape == other.shape
        assert (out.detach().numpy() == 2).all()


@pytest.mark.slow
def test_random_numbers_states_and_gradients(misses):
    weft.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    total = weft.zeros(3)

    @weft.jit
    def step(x):
        net.zero_grad()
        out = net(x)
        out.square().mean().backward()
        total.add_(out.detach().sum(0))
        return out, [p.grad for p in net.parameters()]

    for n in (4, 6, 9, 11):
        step(*tensors(n))
    misses.clear()
    net.eval()
    for n in (12, 13, 15):
        step(*tensors(n))
    misses.clear()
    wanted = total.numpy().copy()
    for n in (13, 14, 10, 9):
        out, grads = step(*tensors(n))
        grads = [g.numpy() for g in grads]
        wanted = wanted + out.numpy().sum(0)
        net.zero_grad()
        net(*tensors(n)).square().mean().backward()
        for g, p in zip(grads, net.parameters(), strict=True):
            np.testing.assert_allclose(g, p.grad.numpy(), 1e-4, 1e-5)
    np.testing.assert_allclose(total.numpy(), wanted, 1e-4, 1e-5)
    net.train()
    first, second = (step(*tensors(12))[0].numpy() for _ in range(2))
    assert (first != second).any()


def test_declared_axes(misses):
    n = weft.Variable("n", 1, 64)

    @weft.jit(dynamic={"x": {0: n}, "y": {1: n}})
    def function(x, *, y):
        return x @ y, y * 2

    def call(n):
        a, b = rows(n, 8), rows(8, n)
        found = function(weft.tensor(a).realize(), y=weft.tensor(b).realize())
        np.testing.assert_allclose(found[0].numpy(), a @ b, 1e-5, 1e-5)
        assert found[1].shape == (8, n)

    for size in (4, 5, 6, 1, 2, 64, 33, 7):  # once for each power of two
        call(size)
    misses.clear()
    for size in (1, 2, 64, 33, 7):
        call(size)
    assert not misses
    with pytest.raises(VariableError):
        call(65)
    assert function.captures == 1


def test_sizes_called_often_go_to_plans_of_their_own(misses):
    def function(x):
        return (x * 2).softmax(-1)

    jitted = opened(function)
    misses.clear()
    agrees(jitted, function, [7] * (usage.OFTEN - 1))
    assert not misses
    agrees(jitted, function, [7])
    assert len(misses) == 1  # Python begins a plan for 7
    wait_for(jitted, "float32[7, 8]")
    agrees(jitted, function, [7] * 4)
    misses.clear()
    agrees(jitted, function, [7, 12, 7, 13])
    assert not misses


def test_sizes_that_are_captured_keep_their_plans(misses):
    jitted = weft.jit(lambda x: x * 2)
    for n in (4, 6, 9, 11, 4, 4):  # 4 is captured with its size
        jitted(*tensors(n))
    chain, context = [], jitted._dispatch
    while context is not None:
        chain.append(context.is_last)
        context = context.next
    assert chain == [False, True]


def test_many_plans_of_their_own_leave_those_for_all_sizes(misses, monkeypatch):
    monkeypatch.setattr(usage, "OFTEN", 3)
    jitted = weft.jit(lambda x: x * 2 + 1)
    for n in (4, 6, 9):
        jitted(*tensors(n))
    for n in range(20, 45):
        for _ in range(5):
            jitted(*tensors(n))
        background.drain()
    misses.clear()
    agrees(jitted, lambda x: x * 2 + 1, range(50, 80))
    assert not misses


def test_memory_that_is_not_there(misses, monkeypatch):
    jitted = weft.jit(lambda x: x[:, None] + weft.ones(1, 1000))
    for n in (4, 6, 9, 70):
        jitted(weft.tensor(rows(n)))
    x = weft.tensor(rows(77)).realize()
    pool = host_context().native.pool
    gc.collect()  # what others left would be found once memory runs out
    pool.flush()
    misses.clear()
    with monkeypatch.context() as patch:
        patch.setattr(pool, "limit", pool.bytes_reserved)
        with pytest.raises(AllocationError):
            jitted(x)
    assert not misses
    assert jitted(x).shape == (77, 1000)


def test_tally_displaces_what_is_rare_and_keeps_what_was_decided():
    tally = Tally(5, 1e9)
    for n in range(2, 40):
        tally.serve([n])
    for n in range(40, 5000):
        tally.note([n, 3], 2, 0.0)
    served = [n for n in range(2, 40) if tally._words[tally._find([n]) + 1] ==
              dispatch_sizes.SERVED]  # fmt: skip
    assert len(served) > 30
    assert not tally.is_counted([5000, 3])
    tally.ask([5000, 3])
    assert tally.is_counted([5000, 3])


def test_results_with_a_history_at_any_size():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    jitted = weft.jit(lambda x: net(x))
    declared = weft.jit(lambda x: net(x), dynamic={0: {0: weft.Variable("n", 2, 64)}})
    for n in (4, 6, 9, 4, 6, 6, 33, 9, 5, 33, 4):
        (x,) = tensors(n)
        wanted = net(x)
        wanted.square().sum().backward()
        gradients = [p.grad.numpy() for p in net.parameters()]
        for function in (jitted, declared):
            net.zero_grad()
            found = function(x)
            np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), 1e-5, 1e-5)
            found.square().sum().backward()
            for p, g in zip(net.parameters(), gradients, strict=True):
                np.testing.assert_allclose(p.grad.numpy(), g, 1e-4, 1e-4)
        net.zero_grad()
    assert jitted.captures == 2
    assert declared.captures == 1
    with pytest.raises(VariableError):
        declared(*tensors(65))


def test_sizes_whose_calls_stay_in_python_get_plans_of_their_own(monkeypatch):
    monkeypatch.setattr(usage, "LONG", 1e9)
    layer = nn.Linear(8, 3)
    jitted = weft.jit(lambda x: layer(x))  # results have a history
    many = [tensors(n)[0] for n in (4, 6, 9)]
    for _ in range(usage.OFTEN + 2):
        for x in many:
            jitted(x)
    wait_for(jitted, "float32[6, 8]")
    wait_for(jitted, "float32[9, 8]")
    with weft.no_grad():
        wanted = [layer(x).numpy() for x in many]
    for x, y in zip(many, wanted, strict=True):
        np.testing.assert_allclose(jitted(x).detach().numpy(), y, 1e-5, 1e-5)


def test_modes_at_sizes_with_plans_of_their_own(monkeypatch):
    monkeypatch.setattr(usage, "OFTEN", 3)
    drop = nn.Dropout(0.5)
    jitted = weft.jit(lambda x: drop(x) * 1)
    drop.eval()
    for n in (4, 6, 6, 6, 6, 6, 6, 9):
        jitted(*tensors(n))
    background.drain()
    for mode in (True, False, True, False):
        drop.train(mode)
        for n in (6, 9, 4, 6, 6):
            (x,) = tensors(n)
            assert (jitted(x).numpy() == x.numpy()).all() != mode, (n, mode)


def test_only_large_sizes_let_other_threads_run():
    function = weft.jit(lambda x: x.exp() * 2, dynamic={0: {0: weft.Variable("n", 1, 1 << 20)}})
    for n in (3, 300, 1 << 20):
        np.testing.assert_allclose(function(weft.ones(n)).numpy(), np.full(n, 2 * np.e), 1e-6)
    ((_, (entry,)),) = function._entries.items()
    natives = {limits[0]: found[0].release_gil
               for limits, found in entry.compiled.plan._natives.items()}
    assert natives == {4: False, 512: False, 1 << 20: True}
