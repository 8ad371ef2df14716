"""What a program does with Weft, as activities that threads repeat and forked children check."""

import os
import random
import signal
import sys
import threading
import time

import numpy as np

import weft
from weft import build, gpu
from weft.backends import registry
from weft.tuning.records import Trial, records

PATIENCE = 60  # seconds after which a child counts as hanging


@weft.kernel
def doubled(x, out):
    i = gpu.grid(1)
    if i < x.shape[0]:
        out[i] = x[i] * 2


@weft.jit
def replayed(x):
    return (x * 3 + 1).sum()


def captures(rng):
    """Capture a function that nobody has captured, with state and random numbers."""
    factor = rng.randrange(1, 1000)
    state = weft.zeros(50)

    @weft.jit
    def f(x):
        state.add_(x * factor)
        return (x + factor).sum() + 0 * weft.rand(3).sum()

    for n in range(1, 3):
        assert f(weft.ones(50)).item() == 50 * (1 + factor)
        assert state.tolist() == [n * factor] * 50


def compiles(rng):
    """Compile a graph of a new size."""
    n = rng.randrange(100, 100_000)
    assert (weft.arange(n) * 2 + 1).sum().item() == n * n


def replays(rng):
    """Call a function that was captured before."""
    n = rng.choice((10, 1 << 17))
    x = np.full(n, float(rng.randrange(5)), np.float32)
    assert replayed(weft.tensor(x)).item() == x.sum() * 3 + n
    assert replayed(x).item() == x.sum() * 3 + n


def realizes(rng):
    """Compute what was compiled before, and views of it."""
    x = weft.full((40, 30), float(rng.randrange(9))) * 2
    assert x[3].sum().item() == 60 * x[0, 0].item() / 2


def probes(rng):
    """Ask for devices anew."""
    registry.reset()
    assert registry.probe("cpu").reason == ""


def launches(rng):
    """Launch a kernel of one's own."""
    x = np.arange(rng.randrange(1, 300), dtype=np.float32)
    out = np.zeros_like(x)
    doubled[(len(x) + 31) // 32, 32](x, out)
    assert (out == 2 * x).all()


def tunes(rng):
    """Note and read trials, as searches do."""
    key = f"torture-{rng.randrange(1000)}"
    with records().turn():
        records().tried(key, Trial("digest", "short", {"a": 1}, "ok", 1.0))
    assert records().trials(key)


def learns(rng):
    """Compute gradients and use them."""
    w = weft.zeros(20, requires_grad=True)
    ((w - 1) ** 2).sum().backward()
    assert w.grad.tolist() == [-2] * 20


@weft.kernel
def waits(x, turns):
    i = gpu.grid(1)
    for _ in range(turns):
        x[i] = x[i] * 0.5 + 1


def launches_long(rng):
    """Launch a kernel that runs for milliseconds on all threads, on tensors and on arrays."""
    x, y = weft.ones(8192), np.ones(8192, np.float32)
    for array in (x, y):
        waits[64, 128](array, rng.randrange(50, 2000))
    assert x.tolist() == y.tolist()
    assert 1 < y[0] <= 2


@weft.compute
def swept(x, out):
    for i, j in weft.ndrange(x.shape[0], x.shape[1]):
        out[i, j] = x[i, j] + x[i, (j + 1) % x.shape[1]]


def sweeps(rng):
    """Call loops that the compiler maps on arrays of a new shape, or of an old one."""
    x = np.full((rng.randrange(1, 40), rng.choice((1, 4096))), 1.5, np.float32)
    out = np.zeros_like(x)
    for _ in range(3):
        swept(x, out)
    assert (out == 3).all()


def builds(rng):
    """Build a program and call it."""
    number = rng.randrange(9)
    with build.function("adds") as f:
        x = f.array("x", weft.float64, 1, writable=True)
        with f.parallel(x.shape[0]) as (i,):
            x[i] = x[i] + number
    x = np.zeros(rng.randrange(1, 5000))
    for _ in range(3):
        f.program(x)
    assert (x == 3 * number).all()


def replaces(rng):
    """Step over a state so large that its memory is written over."""
    state = weft.zeros(1 << 18)
    step = weft.jit(lambda by: state.add_(by))
    for _ in range(4):
        step(2.0)
    assert state[rng.randrange(1 << 18)].item() == 8


@weft.jit
def resized(x):
    return (x * 2).cumsum(0)[-1]


def resizes(rng):
    """Call a function with other sizes, which get plans of their own in the background."""
    n = rng.randrange(2, 40)
    for _ in range(rng.randrange(1, 60)):
        assert resized(weft.ones(n)).item() == 2 * n


def fuses(rng):
    """Fuse launches."""
    x, y = np.ones(rng.randrange(1, 300), np.float32), np.zeros(300, np.float32)
    with weft.fuse():
        doubled[10, 32](x, y)
        doubled[10, 32](y, y)
    assert (y[:len(x)] == 4).all()


def trains(rng):
    """Train a small network, captured and not."""
    net = weft.nn.Sequential(weft.nn.Linear(6, rng.randrange(2, 9)), weft.nn.Tanh())
    optimizer = weft.optim.SGD(net.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [call(weft.ones(5, 6)).item() for call in (step, *[weft.jit(step)] * 3)]
    assert losses == sorted(losses, reverse=True)


ACTIVITIES = (captures, compiles, replays, realizes, probes, launches, tunes, learns, launches_long,
              sweeps, builds, replaces, resizes, fuses, trains)  # fmt: skip


class Workers:
    """Threads that repeat activities until the end of a block; what one of them raises is raised.

    Parameters
    ----------
    activities : sequence of callable
        One thread each.
    seed : int
        Of what they choose.
    """

    def __init__(self, activities, seed):
        self._stop, self._errors = threading.Event(), []
        self._threads = [threading.Thread(target=self._repeat, args=(a, seed + i), daemon=True)
                         for i, a in enumerate(activities)]  # fmt: skip

    def _repeat(self, activity, seed):
        rng = random.Random(seed)
        try:
            while not self._stop.is_set():
                activity(rng)
        except BaseException as error:
            self._errors.append(error)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread hangs"
        if self._errors:
            raise self._errors[0]


def child_of(work):
    """Fork and run `work` in the child; return how it ended, "" if well."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE)
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGALRM:
        return "hangs"
    return "" if code == 0 else f"ended with {code}"


def forked(activities, rng, seconds, children):
    """Fork at random moments while threads work; return what went wrong in which child.

    Parameters
    ----------
    activities : sequence of callable
        What threads of the parent do meanwhile. The child does half of all that there is.
    seconds, children : float, int
        The end: whichever comes first.
    """
    wrong, end = [], time.monotonic() + seconds
    with Workers(activities, rng.randrange(1 << 30)):
        for number in range(children):
            if time.monotonic() > end:
                break
            time.sleep(rng.random() * 0.03)
            seed = rng.randrange(1 << 30)

            def work(seed=seed):
                inner = random.Random(seed)
                for activity in inner.sample(ACTIVITIES, len(ACTIVITIES) // 2):
                    activity(inner)

            said = child_of(work)
            if said:
                wrong.append((number, seed, said))
    return wrong
