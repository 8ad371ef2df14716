"""Captured steps that write new values over old ones: nobody may see it but in memory."""

import _thread
import contextlib
import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import torture
import weft
from weft import nn, optim
from weft.capture import captured_graph
from weft.nn import functional

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(autouse=True)
def replace_all(monkeypatch):
    """Write over small arrays too."""
    monkeypatch.setattr(captured_graph, "LEAST_REPLACED", 0)


@pytest.fixture
def made(rng):
    """Return parameters, an optimiser, a captured step, and its input."""
    w = nn.Parameter(weft.tensor(rng.standard_normal((33, 17), dtype=np.float32)))
    b = nn.Parameter(weft.zeros(17))
    optimizer = optim.AdamW([w, b], lr=1e-2)
    x = weft.tensor(rng.standard_normal((9, 33), dtype=np.float32))

    def step(x):
        optimizer.zero_grad()
        loss = functional.relu(x @ w + b).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return w, b, optimizer, step, x


def address(tensor):
    tensor.realize()
    return tensor._buffer.address


@contextlib.contextmanager
def another_thread(start):
    """Have another thread beside this one, which may read a tensor at any moment."""
    began, may_end = threading.Event(), threading.Event()

    def wait():
        began.set()
        may_end.wait()

    start(wait)
    try:
        assert began.wait(60)
        yield
    finally:
        may_end.set()


def places_stay(made):
    w, b, optimizer, step, x = made
    call = weft.jit(step)
    call(x)
    tensors = [w, b, *(s for p in (w, b) for n, s in optimizer.state[p].items() if n != "step")]
    places = [address(t) for t in tensors]
    for _ in range(3):
        call(x)
    assert [address(t) for t in tensors] == places


def test_parameters_and_state_stay_where_they_are(made):
    places_stay(made)


@pytest.mark.parametrize("start", [
    lambda f: threading.Thread(target=f).start(),
    lambda f: _thread.start_new_thread(f, ()),
], ids=["threading", "_thread"])  # fmt: skip
def test_they_stay_beside_another_thread(made, start):
    """It may read them at any moment; nobody copies them for a thread that does not."""
    with another_thread(start):
        places_stay(made)


@pytest.fixture
def busy():
    """A state of equal elements that a thread goes on to write over; the step, and its pause."""
    state = weft.zeros(1 << 19).realize()
    step = weft.jit(lambda: state.add_(1))
    step()
    stop, errors = threading.Event(), []

    def run():
        try:
            while not stop.is_set():
                step()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield state, step
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    assert not errors


def looks(state):
    """Return ways to look at a state of equal elements: each returns its least and greatest."""
    view = state.view(2, -1)
    more = weft.jit(lambda: weft.stack([state.amin(), state.amax()]))

    @weft.compute
    def ends(x, out):
        low = high = x[0]
        for i in range(x.shape[0]):
            low = min(low, x[i])
            high = max(high, x[i])
        out[0] = low
        out[1] = high

    def by_loops():
        out = np.zeros(2, np.float32)
        ends(state, out)
        return out

    def at_once():
        now = state * 1
        return weft.stack([now.min(), now.max()]).tolist()

    def held():
        array = state.numpy()
        return array[0], array[-1], array.min(), array.max()

    def lazy():
        later = state + 0
        state.numpy()
        return later.min().item(), later.max().item()

    return [held, lazy, more, by_loops,
            lambda: view[0].numpy()[[0, -1]],
            lambda: state.clone().numpy()[[0, -1]],
            at_once]


@pytest.mark.parametrize("number", range(7))
def test_who_looks_from_another_thread_sees_whole_values(busy, number):
    state, _ = busy
    look, last = looks(state)[number], 0
    for _ in range(40):
        found = np.array(look())
        assert found.min() == found.max() >= last, found
        last = found.max()


@pytest.mark.slow
@pytest.mark.requires("fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_find_whole_values(busy):
    state, step = busy

    def work():
        found = state.numpy()
        assert found.min() == found.max()
        step()
        assert state[0].item() == state[-1].item() == found[0] + 1

    assert [torture.child_of(work) for _ in range(30)] == [""] * 30


def test_values_are_those_of_the_function_itself(made, rng):
    w, b, optimizer, step, x = made
    start = [t.numpy().copy() for t in (w, b)]
    plain = [step(x).item() for _ in range(5)]
    wanted = [t.numpy().copy() for t in (w, b)]
    with weft.no_grad():
        w.copy_(weft.tensor(start[0]))
        b.copy_(weft.tensor(start[1]))
        for state in optimizer.state.values():
            for tensor in state.values():
                tensor.copy_(weft.zeros(*tensor.shape, dtype=tensor.dtype))
    w.grad = b.grad = None
    call = weft.jit(step)
    np.testing.assert_allclose([call(x).item() for _ in range(5)], plain, rtol=1e-5)
    for tensor, value in zip((w, b), wanted, strict=True):
        np.testing.assert_allclose(tensor.numpy(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hold", [
    lambda w: w.numpy(),
    lambda w: w.detach(),
    lambda w: w.detach().clone(),
    lambda w: w.detach() * 1.5,
    lambda w: w.detach()[3:5],
    lambda w: w.detach().reshape(17, 33).transpose(0, 1),
])  # fmt: skip
def test_who_holds_the_old_value_keeps_it(made, hold):
    """Arrays, copies and values that are not computed yet; views follow the tensor, as ever."""
    w, _, _, step, x = made
    call = weft.jit(step)
    call(x)
    held = hold(w)
    before = np.array(hold(weft.tensor(w.numpy().copy())))
    follows = isinstance(held, weft.Tensor) and held._base is not None
    call(x)
    after = np.array(hold(w))
    assert not np.array_equal(before, after)
    np.testing.assert_array_equal(np.array(held), after if follows else before)


def test_a_failing_step_changes_no_parameter(rng):
    table = nn.Parameter(weft.tensor(rng.standard_normal((7, 5), dtype=np.float32)))
    w = nn.Parameter(weft.tensor(rng.standard_normal((5, 5), dtype=np.float32)))
    optimizer = optim.AdamW([table, w], lr=1e-2)

    @weft.jit
    def step(ids):
        optimizer.zero_grad()
        loss = (table[ids] @ w).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    good = weft.tensor(np.array([1, 2, 3]))
    step(good)
    before = [t.numpy().copy() for t in (table, w)]
    with pytest.raises(weft.errors.BoundsError):
        step(weft.tensor(np.array([1, 7, 3])))
    for tensor, value in zip((table, w), before, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), value)
        assert tensor.grad is None  # as zero_grad() leaves it, never half of one
    step(good)
    assert all(np.isfinite(t.grad.numpy()).all() for t in (table, w))
    assert not np.array_equal(w.numpy(), before[1])


@pytest.mark.slow
def test_the_arrays_of_the_capture_are_not_kept(made):
    w, _, _, step, x = made
    with weft.no_grad():
        w.copy_(weft.from_numpy(np.ones((33, 17), np.float32)))  # whose memory is not replaced
    w.realize()
    first = weakref.ref(w._buffer)
    call = weft.jit(step)
    call(x)
    call(x)
    gc.collect()
    assert first() is None or first() is w._buffer


def test_memory_does_not_grow_with_the_steps(made):
    from weft.driver.context import host_context

    _, _, _, step, x = made
    call = weft.jit(step)
    call(x)
    pool = host_context().native.pool
    before = pool.bytes_in_use
    for _ in range(20):
        call(x)
    assert pool.bytes_in_use <= before


INTERRUPTED = """
import signal
import numpy as np
import weft
from weft import nn, optim

rng = np.random.default_rng(0)
params = [nn.Parameter(weft.tensor(rng.standard_normal((700, 700), dtype=np.float32) * 0.03))
          for _ in range(6)]
optimizer = optim.SGD(params, lr=1.0)
x = weft.tensor(rng.standard_normal((700, 700), dtype=np.float32))

@weft.jit
def step(x):
    optimizer.zero_grad()
    y = x
    for p in params:
        y = (y @ p).tanh()
    y.mean().backward()
    optimizer.step()

step(x)
signal.signal(signal.SIGALRM, signal.default_int_handler)
seen = 0
for _ in range(12):
    before = [p.numpy().copy() for p in params]
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.05 * rng.random())
        while True:
            before = [p.numpy().copy() for p in params]
            step(x)
    except KeyboardInterrupt:
        seen += 1
    changed = {not np.array_equal(p.numpy(), b) for p, b in zip(params, before)}
    assert len(changed) == 1, "some parameters were updated and some were not"
assert seen == 12
"""


@pytest.mark.slow
def test_an_interrupt_leaves_all_parameters_updated_or_none(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120,
        env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
