"""Weights that stay packed between calls: the bits of the unpacked function, whatever happens."""

import gc
import threading
import weakref

import numpy as np
import pytest

import weft
from weft import gpu, nn, optim
from weft.capture import captured_graph as entry
from weft.capture import packed_weights
from weft.capture import packed_weights as kept_panels
from weft.errors import DTypeError
from weft.nn import functional

pytestmark = pytest.mark.usefixtures("compiled")
ROWS, DEPTH, COLUMNS = 61, 139, 257  # more than the first cache holds; rows for vectors; primes


@pytest.fixture
def weight(rng):
    return weft.tensor(rng.standard_normal((DEPTH, COLUMNS), dtype=np.float32))


@pytest.fixture
def x(rng):
    return weft.tensor(rng.standard_normal((ROWS, DEPTH), dtype=np.float32))


def both(function):
    """Return a function captured without and with panels that are kept."""
    return weft.jit(function, pack_weights=False), weft.jit(function, pack_weights=True)


def agree(plain, packed, *args, times=4):
    """Compare calls, the first of which run in Python and the last of which do not."""
    for _ in range(times):
        np.testing.assert_array_equal(packed(*args).numpy().view(np.uint8),
                                      plain(*args).numpy().view(np.uint8))


def fills(monkeypatch):
    """Return a list that grows by one with each copy into panels."""
    found = []
    fill = weft.driver.Compiled.fill
    monkeypatch.setattr(weft.driver.Compiled, "fill",
                        lambda *args: (found.append(1), fill(*args))[1])
    return found


def test_a_weight_is_copied_once(weight, x, monkeypatch):
    copies = fills(monkeypatch)
    plain, packed = both(lambda x: x @ weight)
    agree(plain, packed, x)
    assert len(copies) == 1
    assert DEPTH * COLUMNS * 4 <= packed.packed_bytes <= 2 * DEPTH * COLUMNS * 4
    assert plain.packed_bytes == 0
    want = x.numpy().astype(np.float64) @ weight.numpy().astype(np.float64)
    np.testing.assert_allclose(packed(x).numpy(), want, rtol=1e-4, atol=1e-4)


def test_calls_that_are_captured_again_run_natively(weight, x, monkeypatch):
    _, packed = both(lambda x: x @ weight)
    for _ in range(3):
        packed(x)

    def refuse(*args):
        raise AssertionError("a call that went through Python")

    monkeypatch.setattr(type(packed), "_miss", refuse)
    packed(x)
    weight[0] = 1.0
    with pytest.raises(AssertionError, match="through Python"):  # the guard, in native code
        packed(x)


@weft.kernel
def bump(w):
    i, j = gpu.grid(2)
    if i < w.shape[0] and j < w.shape[1]:
        w[i, j] += 0.5


@weft.compute
def halve(w):
    for i, j in weft.ndrange(w.shape[0], w.shape[1]):
        w[i, j] = w[i, j] * 0.5


def assign(w, rng):
    w[3] = float(rng.standard_normal())


def assign_view(w, rng):
    w[1:5, ::2][1] = float(rng.standard_normal())


def add_in_place(w, rng):
    w.add_(1.5)


def copy_from_host(w, rng):
    w.copy_(rng.standard_normal((DEPTH, COLUMNS), dtype=np.float32))


def assign_whole(w, rng):
    w[...] = rng.standard_normal((DEPTH, COLUMNS), dtype=np.float32)


def set_data(w, rng):
    w.data = weft.tensor(rng.standard_normal((DEPTH, COLUMNS), dtype=np.float32))


def write_captured(w, rng):
    def grow():
        w.mul_(1.25)

    step = weft.jit(grow)
    step()
    step()


def launch(w, rng):
    bump[(DEPTH, 9), (1, 16)](w)


def launch_twice(w, rng):
    launch(w, rng)
    launch(w, rng)


def compute(w, rng):
    halve(w)


def special(w, rng):
    w[int(rng.integers(DEPTH)), :4] = weft.tensor(
        np.array([np.inf, -np.inf, np.nan, -0.0], np.float32))


ROUTES = [assign, assign_view, add_in_place, copy_from_host, assign_whole, set_data, write_captured,
          launch, launch_twice, compute, special]


@pytest.mark.parametrize("change", ROUTES, ids=lambda f: f.__name__)
def test_what_changes_a_weight_changes_its_panels(change, weight, x, rng):
    plain, packed = both(lambda x: x @ weight)
    agree(plain, packed, x)
    for _ in range(3):
        before = packed(x).numpy().copy()
        change(weight, rng)
        agree(plain, packed, x)
        assert not np.array_equal(packed(x).numpy(), before)


@pytest.mark.requires("torch")
def test_exported_memory_is_copied_at_each_call(weight, x, rng, monkeypatch):
    import torch

    plain, packed = both(lambda x: x @ weight)
    agree(plain, packed, x)
    foreign = torch.from_dlpack(weight)  # it may write from now on, and nobody counts that
    for factor in (3, 0.5, 2):
        foreign.mul_(factor)
        agree(plain, packed, x)
    copies = fills(monkeypatch)
    packed(x)
    packed(x)
    assert len(copies) == 2


def test_memory_of_others_is_not_kept(x, rng):
    array = rng.standard_normal((DEPTH, COLUMNS), dtype=np.float32)
    shared = weft.from_numpy(array)
    plain, packed = both(lambda x: x @ shared)
    agree(plain, packed, x)
    array[:] = 2.0
    agree(plain, packed, x)
    assert packed.packed_bytes == 0


def test_an_optimiser_outside(rng, x):
    w = nn.Parameter(weft.tensor(rng.standard_normal((DEPTH, COLUMNS), dtype=np.float32)))
    optimizer = optim.AdamW([w], lr=0.1)
    plain, packed = both(lambda x: x @ w)
    with weft.no_grad():
        agree(plain, packed, x)
    for _ in range(2):
        optimizer.zero_grad()
        (x @ w).pow(2).mean().backward()
        optimizer.step()
        with weft.no_grad():
            agree(plain, packed, x)


@pytest.mark.parametrize("least", [0, 1 << 40], ids=["in place", "anew"])
def test_a_captured_training_step(least, rng, x, monkeypatch):
    monkeypatch.setattr(entry, "LEAST_REPLACED", least)
    w = nn.Parameter(weft.tensor(rng.standard_normal((DEPTH, COLUMNS), dtype=np.float32)))
    optimizer = optim.AdamW([w], lr=0.1)

    @weft.jit(pack_weights=True)
    def step(x):
        optimizer.zero_grad()
        loss = (x @ w).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    plain, packed = both(lambda x: x @ w)
    for _ in range(5):
        step(x)
        with weft.no_grad():
            agree(plain, packed, x, times=2)
    assert step.packed_bytes == 0  # it changes the weight itself


def test_a_state_dict(rng, x):
    model = nn.Linear(DEPTH, COLUMNS)
    plain, packed = both(lambda x: functional.relu(model(x)))
    with weft.no_grad():
        agree(plain, packed, x)
        for seed in range(2):
            other = np.random.default_rng(seed)
            model.load_state_dict({n: weft.tensor(other.standard_normal(p.shape, dtype=np.float32))
                                   for n, p in model.state_dict().items()})
            agree(plain, packed, x)


def test_gradients_of_a_packed_function(weight, x):
    w = nn.Parameter(weight)
    plain, packed = both(lambda x: (x @ w).pow(2).mean())
    grads = []
    for f in (plain, packed):
        for _ in range(3):
            w.grad = None
            f(x).backward()
        grads.append(w.grad.numpy().copy())
    np.testing.assert_array_equal(*grads)


def test_functions_share_the_panels_of_a_weight(weight, x, monkeypatch):
    copies = fills(monkeypatch)
    first = weft.jit(lambda x: x @ weight, pack_weights=True)
    second = weft.jit(lambda x: x @ weight + 1.0, pack_weights=True)
    first(x)
    second(x)
    assert len(copies) == 1
    weight[2] = 9.0
    np.testing.assert_array_equal(second(x).numpy(), first(x).numpy() + np.float32(1))
    assert len(copies) == 2
    one, two = (f._entries for f in (first, second))
    kept = {id(k) for entries in (*one.values(), *two.values()) for e in entries for k in e.kept}
    assert len(kept) == 1


@pytest.mark.slow
def test_panels_go_with_the_last_function(weight, x):
    first = weft.jit(lambda x: x @ weight, pack_weights=True)
    second = weft.jit(lambda x: x @ weight * 2.0, pack_weights=True)
    first(x)
    second(x)
    (entry,) = next(iter(first._entries.values()))
    memory = weakref.ref(entry.kept[0].holder._buffer)
    known = len(kept_panels._known)
    del entry, first
    gc.collect()
    assert memory() is not None
    del second
    gc.collect()
    assert memory() is None
    assert len(kept_panels._known) == known - 1


def test_a_limit_of_bytes(weight, x, rng):
    other = weft.tensor(rng.standard_normal((DEPTH, COLUMNS), dtype=np.float32))
    size = DEPTH * COLUMNS * 4

    def function(x):
        return x @ weight + x @ other

    plain = weft.jit(function)
    held = []
    for limit in (0, size, 2 * size):
        packed = weft.jit(function, pack_weights=limit)
        agree(plain, packed, x)
        held.append(packed.packed_bytes)
    assert held[0] == 0 < held[1] < held[2]


def test_wrong_settings():
    for wrong in (-1, 0.5, "all"):
        with pytest.raises(DTypeError, match="pack_weights"):
            weft.jit(lambda x: x, pack_weights=wrong)


def test_slices_of_a_weight(weight, x):
    half = DEPTH // 2
    plain, packed = both(lambda x: x[:, :half] @ weight[-half:] + x[:, -half:] @ weight[:half])
    agree(plain, packed, x)
    assert packed.packed_bytes > 0
    weight[half + 8] = 3.0
    agree(plain, packed, x)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [weft.float32, weft.float64, weft.float16, weft.bfloat16])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(97, 131, 67), (1, 64, 96), (0, 3, 5), (64, 2111, 33)])
def test_types_and_shapes(dtype, turned, shape, rng):
    m, k, n = shape
    w = weft.tensor(rng.standard_normal((n, k) if turned else (k, n))).to(dtype)
    x = weft.tensor(rng.standard_normal((m, k))).to(dtype)
    plain, packed = both(lambda x: x @ (w.transpose(0, 1) if turned else w))
    agree(plain, packed, x, times=2)


def test_a_convolution(rng):
    w = weft.tensor(rng.standard_normal((67, 33, 3, 3), dtype=np.float32))
    x = weft.tensor(rng.standard_normal((2, 33, 9, 11), dtype=np.float32))
    plain, packed = both(lambda x: functional.conv2d(x, w, padding=1))
    agree(plain, packed, x)
    w[5] = 0.25
    agree(plain, packed, x)


def test_sizes_that_are_dynamic(weight, rng):
    n = weft.Variable("n", 1, 256)
    plain = weft.jit(lambda x: x @ weight, dynamic={0: {0: n}})
    packed = weft.jit(lambda x: x @ weight, dynamic={0: {0: n}}, pack_weights=True)
    for rows in (1, 97, 256, 97):
        x = weft.tensor(rng.standard_normal((rows, DEPTH), dtype=np.float32))
        agree(plain, packed, x, times=3)
        weight[rows % DEPTH] = rows


def test_memory_that_a_weight_had_before():
    """A call that looked up memory, and was overtaken by a write, leaves its panels to nobody."""
    w = weft.tensor(np.ones((DEPTH, COLUMNS), np.float32)).realize()
    before = w._buffer
    w.copy_(np.full((DEPTH, COLUMNS), 2, np.float32)).realize()
    assert w._buffer is not before
    filled = []

    class Plan:
        def fill(self, number, source, made):
            filled.append(source)

    kept = packed_weights.Kept(w, 64)
    for source in (before, w._buffer, w._buffer):
        kept.current(Plan(), 0, source)
    assert filled == [before, w._buffer]


def test_threads_that_call_while_a_weight_changes(rng):
    """Every result is that of one of the weights, whichever a call meets."""
    w = weft.tensor(np.full((DEPTH, COLUMNS), 1, np.float32))
    x = weft.tensor(np.ones((ROWS, DEPTH), np.float32))
    packed = weft.jit(lambda x: x @ w, pack_weights=True)
    packed(x)
    allowed = {float(DEPTH * v) for v in range(1, 42)}
    bad: list[object] = []
    stop = threading.Event()

    def read():
        while not stop.is_set():
            values = np.unique(packed(x).numpy())
            if len(values) != 1 or float(values[0]) not in allowed:
                bad.append(values)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    for v in range(2, 42):
        w.copy_(np.full((DEPTH, COLUMNS), v, np.float32))
        packed(x)
    stop.set()
    for thread in readers:
        thread.join()
    assert not bad
    assert packed(x).numpy()[0, 0] == DEPTH * 41


def test_another_process_finds_the_panels_on_disk(weight, x, monkeypatch):
    from weft.driver import counters, kernels
    from weft.driver.plans import plan_cache

    plain, packed = both(lambda x: x @ weight)
    agree(plain, packed, x, times=1)
    plan_cache.forget()
    kernels.forget()
    counters.reset()
    again = weft.jit(lambda x: x @ weight, pack_weights=True)
    agree(plain, again, x, times=2)
    assert counters.counters().get("kernels compiled", 0) == 0
    assert again.packed_bytes > 0
