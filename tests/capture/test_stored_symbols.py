"""Functions that keep sizes and numbers: one run a capture, and plain numbers ever after."""

import collections
import functools
import json
import pickle
import random
import types

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("compiled")

W = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
SIZES = (3, 5, 7, 2, 1, 9, 5, 40)
NAMES = collections.namedtuple("NAMES", "first second")
kept_globally = None


class Slotted:
    __slots__ = ("value",)


class State:
    """Objects of a user, of all kinds that numbers are put in."""

    def __init__(self):
        self.runs = 0
        self.pos = 0
        self.items = []
        self.table = {"a": 0}
        self.slotted = Slotted()
        self.queue = collections.deque(maxlen=3)
        self.set = set()
        self.texts = []
        self.nested = types.SimpleNamespace(inner=[{}])

    def plain(self):
        """Return what is kept, as JSON would have it."""
        return json.dumps([self.pos, self.items, list(self.table.items()), list(self.queue),
                           getattr(self.slotted, "value", None), sorted(self.set), self.texts,
                           self.nested.inner], default=_fail)  # fmt: skip


def _fail(value):
    raise AssertionError(f"{type(value)} is kept: {value!r}")


def store_globally(state, n):
    global kept_globally
    kept_globally = n


SINKS = {
    "nothing": lambda s, n: None,
    "attribute": lambda s, n: setattr(s, "pos", n),
    "counter": lambda s, n: setattr(s, "pos", s.pos + n),
    "list": lambda s, n: s.items.append(n),
    "computed": lambda s, n: s.items.append(n * 2 + 1),
    "tuple": lambda s, n: s.items.append((n, (n + 1, "text"))),
    "named": lambda s, n: s.items.append(NAMES(n, [n])),
    "value": lambda s, n: s.table.update(a=n),
    "key": lambda s, n: s.table.update({n: 1}),
    "default": lambda s, n: s.table.setdefault("b", []).append(n),
    "slot": lambda s, n: setattr(s.slotted, "value", n),
    "queue": lambda s, n: s.queue.append(n),
    "set": lambda s, n: s.set.add(n),
    "text": lambda s, n: s.texts.append(f"{n} {n!r} {n!s}"),
    "percent": lambda s, n: s.texts.append("%d" % n),  # noqa: UP031
    "nested": lambda s, n: s.nested.inner[0].update(b=[n]),
    "json": lambda s, n: s.texts.append(json.dumps({"n": int(n)})),
    "pickle": lambda s, n: s.texts.append(len(pickle.dumps(n))),
    "range": lambda s, n: s.items.extend(range(int(n))),
    "numpy": lambda s, n: s.items.append(np.arange(50.0)[int(n)].item()),
    "part": lambda s, n: s.items.append(list(range(50))[: int(n)]),
    "closure": lambda s, n: s.items.append((lambda: n)()),
    "partial": lambda s, n: s.items.append(functools.partial(max, n)(0)),
    "global": store_globally,
}
STEPS = {
    "double": lambda s, x, n, t: x * 2,
    "scale": lambda s, x, n, t: x * t,
    "mean": lambda s, x, n, t: x - x.sum(0) / n,
    "rows": lambda s, x, n, t: (x @ weft.tensor(W)).softmax(-1),
    "choice": lambda s, x, n, t: x + 1 if n > 4 else x - 1,
    "equal": lambda s, x, n, t: x + 1 if n == 7 else x - t,
    "cat": lambda s, x, n, t: weft.cat([x, x * t])[n:],
    "positions": lambda s, x, n, t: x + weft.arange(n).reshape(n, 1),
    "loop": lambda s, x, n, t: sum([x * i for i in range(n)], x),
    "warm": lambda s, x, n, t: x * 3 if t > 0.5 else x,
    "pos": lambda s, x, n, t: x + s.pos,
}


def drawn(seed):
    pick = random.Random(seed)
    steps = [pick.choice([*STEPS.values()]) for _ in range(pick.randint(1, 3))]
    sinks = [(pick.choice([*SINKS.values()]), pick.choice("nt")) for _ in range(pick.randint(1, 2))]

    def make(state):
        def program(x, t):
            state.runs += 1
            n = x.shape[0]
            for step in steps:
                x = step(state, x, n, t)
            for sink, what in sinks:
                sink(state, n if what == "n" else t)
            return x

        return program

    return make


def calls(seed):
    pick = random.Random(seed + 7)
    for n in SIZES:
        t = pick.choice([0.25, 0.5, 0.75, pick.random(), pick.randint(1, 4)])
        yield weft.tensor(np.random.default_rng(n).standard_normal((n, 8), np.float32)), t


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.grid) for s in range(60)])
def test_drawn_programs_keep_plain_numbers(seed):
    make, state, twin = drawn(seed), State(), State()
    function = weft.jit(make(state))
    for x, t in calls(seed):
        twin.pos = state.pos
        try:
            wanted = make(twin)(x, t)
        except (IndexError, TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                function(x, t)
            continue
        before = state.runs, function.captures
        found = function(x, t)
        state.plain()
        assert type(kept_globally) in (int, float, type(None))
        if state.runs > before[0]:  # a replay may have another `pos` than the capture
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-5, 1e-5)
        assert state.runs - before[0] == function.captures - before[1]


@pytest.mark.grid
@pytest.mark.parametrize("name", SINKS)
def test_whatever_keeps_a_size_or_a_number_keeps_a_plain_one(name):
    for which in (0, 1):
        state, eager = State(), State()

        @weft.jit
        def function(x, t, state=state, which=which):
            state.runs += 1
            SINKS[name](state, (x.shape[0], t)[which])
            return x * t

        for n, t in ((3, 0.5), (5, 0.25), (5, 0.75)):
            x = weft.ones(n, 8)
            if name in ("numpy", "part", "range", "percent", "json"):
                t = int(t * 4)
            np.testing.assert_array_equal(function(x, t).numpy(), np.full((n, 8), t, np.float32))
            SINKS[name](eager, (n, t)[which])
            state.plain()
        assert state.runs == function.captures, function.explain_captures()


def test_what_is_computed_and_kept_makes_the_size_a_constant():
    class Cache:
        pos = 0

    cache = Cache()

    @weft.jit
    def advance(x):
        cache.pos += x.shape[0]
        return x * cache.pos

    total = 0
    for n in (3, 5, 7, 9):
        total += n
        assert advance(weft.ones(n)).numpy()[0] == total
        assert type(cache.pos) is int
        assert cache.pos == total
    assert advance.captures == 4
    assert "keeps what it computes" in advance.explain_captures()


def test_a_number_that_is_kept_as_it_is_stays_open():
    group = {}

    @weft.jit
    def step(x, rate):
        group["rate"] = rate
        return x * rate

    for i in range(8):
        assert step(weft.ones(4), i / 8).numpy()[0] == i / 8
    assert step.captures == 2
    assert json.dumps(group) == '{"rate": 0.125}'


def test_results_that_hold_a_number_are_of_their_call():
    @weft.jit
    def step(x, rate):
        return x * rate, types.SimpleNamespace(rate=rate, rows=x.shape[0])

    for i in range(4):
        found, about = step(weft.ones(4 + i), i / 8)
        assert found.numpy()[0] == about.rate == i / 8
        assert about.rows == 4 + i


def test_tensors_that_are_kept_have_numbers_for_sizes():
    kept = []

    @weft.jit
    def step(x):
        kept.append(weft.arange(x.shape[0]))
        return x + kept[-1]

    for n in (3, 5, 7):
        np.testing.assert_array_equal(step(weft.ones(n)).numpy(), np.arange(n) + 1)
    for value in kept:
        assert type(value.shape[0]) is int
        np.testing.assert_array_equal(value.numpy(), np.arange(value.shape[0]))


def test_a_function_that_fails_leaves_plain_numbers():
    kept = []

    @weft.jit
    def step(x, t):
        kept.append((x.shape[0], t))
        if x.shape[0] == 6:
            raise KeyError(t)
        return x * t

    for n in (3, 5, 7):
        step(weft.ones(n), n / 8)
    with pytest.raises(KeyError) as error:
        step(weft.ones(6), 0.3)
    assert json.dumps([kept, error.value.args[0]])
