"""Launches that run at the same time: the same bits as one after the other, in any order."""

import random
import re

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.driver import counters, kernels
from weft.driver.context import host_context
from weft.driver.plans import host_program, plan, plan_cache
from weft.driver.report import explain
from weft.ir.interpret.interpret_plan import run_plan
from weft.ir.plan.plan import Parallel, parse_plan, print_plan
from weft.ir.plan.plan_verify import verify_plan
from weft.kernelize.memory import concurrency
from weft.kernelize.memory.concurrency import Group

pytestmark = [pytest.mark.grid, pytest.mark.skipif(
    host_context().native.threads.threads < 2, reason="one thread has nothing to run beside it"
)]


@pytest.fixture
def eager(monkeypatch):
    """Have groups made wherever they can be, and threads woken for them."""
    costs = host_context().target.costs.replace(handover_ns=0, group_gain_ns=1)
    target = host_context().target.replace(costs=costs)
    monkeypatch.setattr(host_context(), "_target", target)
    monkeypatch.setattr(concurrency, "LEAST_SHARE", 10**9)
    monkeypatch.setattr(plan, "_WAKE_NANOSECONDS", 0)


def tensor(rng, *shape):
    return weft.from_numpy(rng.standard_normal(shape).astype(np.float32))


def towers(*xs):
    """Chains of small kernels that have nothing to do with each other, joined at the end."""
    outs = [((x @ x).softmax(-1).cumsum(0) @ x).relu() for x in xs]
    return (*outs, sum(out.sum() for out in outs))


def branches(x, a, b):
    q, k, v = x @ a, x @ a.T, x @ b
    scores = (q @ k.T).softmax(-1)
    return scores @ v, q.sum(0), k.max(1)[0]


def sorts(*xs):
    return tuple(x.sort()[0].cumsum(0) for x in xs)


def apart(works, *_):
    return [Group((i,)) for i in range(len(works))]


def groups_of(plan):
    return [s for s in plan.spec.host.steps if isinstance(s, Parallel)]


def computed(function, inputs):
    """Return the results of a plan that is made anew, and the plan."""
    with counters.record() as recording:
        found = [t.numpy() for t in weft.jit(lambda *xs: function(*xs))(*inputs)]
    return found, recording.plans[-1]


CASES = {
    "towers": (towers, [(61, 61), (60, 60), (59, 59), (53, 53)], 4),
    "two towers": (towers, [(50, 50), (51, 51)], 2),
    "branches": (branches, [(67, 48), (48, 48), (48, 49)], 3),
    "sorts": (sorts, [(1009,), (877,), (601,)], 3),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_serial_order(name, rng, monkeypatch):
    function, shapes, width = CASES[name]
    inputs = [tensor(rng, *shape) for shape in shapes]
    together, plan = computed(function, inputs)
    assert max(len(s.steps) for s in groups_of(plan)) >= width
    monkeypatch.setattr(host_program, "arrange", apart)
    serial, other = computed(function, inputs)
    assert not groups_of(other)
    for a, b in zip(together, serial, strict=True):
        assert a.tobytes() == b.tobytes()


def test_every_run_gives_the_same_bits(rng):
    call = weft.jit(towers)
    inputs = [tensor(rng, 53, 53) for _ in range(4)]
    first = [t.numpy().tobytes() for t in call(*inputs)]
    for _ in range(300):
        assert [t.numpy().tobytes() for t in call(*inputs)] == first


@pytest.mark.parametrize(("function", "shapes"), [
    (towers, [(9, 9), (7, 7), (8, 8)]),
    (branches, [(11, 6), (6, 6), (6, 7)]),
    (sorts, [(13,), (17,), (1,)]),
])  # fmt: skip
def test_any_order_of_a_group_gives_the_same_bits(function, shapes, rng, eager):
    """The interpreter runs the plan, groups shuffled; what ran natively agrees with it."""
    inputs = [tensor(rng, *shape) for shape in shapes]
    native, plan = computed(function, inputs)
    host = plan.spec.host
    assert groups_of(plan)
    nests = {kernels.key_of(step.kernel, host_context()): step.kernel for step in plan.steps}
    blocks = {t.numpy().nbytes: t.numpy().reshape(-1).view(np.uint8) for t in inputs}
    shuffle = random.Random(5)
    results = []
    for _ in range(4):
        made = run_plan(host, nests, [blocks[size].copy() for size in host.inputs],
                        order=lambda steps: shuffle.sample(steps, len(steps)))  # fmt: skip
        results.append([made[slot] for _, slot in plan.spec.outputs])
    assert len({b"".join(block.tobytes() for block in made) for made in results}) == 1
    for block, value in zip(results[0], native, strict=True):
        np.testing.assert_allclose(block.view(np.float32), value.ravel(), rtol=2e-5, atol=1e-5)


def test_groups_are_text_and_verified(rng, eager):
    _, plan = computed(branches, [tensor(rng, 11, 6), tensor(rng, 6, 6), tensor(rng, 6, 7)])
    text = print_plan(plan.spec.host)
    assert re.search(r"parallel saves \d+ \{\n    launch", text)
    assert parse_plan(text) == verify_plan(plan.spec.host)
    assert plan.spec.unpack(plan.spec.pack()) == plan.spec


def test_a_plan_from_disk_keeps_its_groups(rng, tmp_path, eager):
    inputs = [tensor(rng, 43, 41) for _ in range(3)]
    call = weft.jit(lambda *xs: tuple((x @ x.T).softmax(-1) for x in xs))
    first = [t.numpy().tobytes() for t in call(*inputs)]
    plan_cache.forget()
    counters.reset()
    again = weft.jit(lambda *xs: tuple((x @ x.T).softmax(-1) for x in xs))
    assert [t.numpy().tobytes() for t in again(*inputs)] == first
    assert counters.counters().get("plan disk hits") == 1
    (plan,) = [p for p in plan_cache._plans.values()]
    assert groups_of(plan)


def test_sizes_that_are_left_open(rng, eager):
    """The arena is laid out anew for larger values; what runs together stays apart in it."""
    n = weft.Variable("n", 1, 300)
    data = rng.standard_normal((300, 5)).astype(np.float32)
    with counters.record() as recording:
        call = weft.jit(lambda a, b: ((a * 2).cumsum(0).cumsum(1), (b + 1).cumsum(0).max(1)[0]),
                        dynamic={0: {0: n}, 1: {0: n}})  # fmt: skip
        call(weft.tensor(data), weft.tensor(data))
    assert any(map(groups_of, recording.plans))
    for size in (1, 7, 64, 300, 3):
        one, two = call(weft.tensor(data[:size]), weft.tensor(data[:size]))
        wanted = (data[:size].astype(np.float64) * 2).cumsum(0).cumsum(1)
        np.testing.assert_allclose(one.numpy(), wanted, rtol=1e-4, atol=1e-4)
        wanted = (data[:size].astype(np.float64) + 1).cumsum(0).max(1)
        np.testing.assert_allclose(two.numpy(), wanted, rtol=1e-4, atol=1e-4)


def train(steps, rng):
    weft.manual_seed(3)
    net = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                        nn.Linear(64, 5))  # fmt: skip
    optimizer = optim.AdamW(net.parameters(), lr=1e-2)
    x, y = tensor(rng, 32, 48), weft.from_numpy(rng.integers(0, 5, 32))

    @weft.jit
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x, y).item() for _ in range(steps)]
    return losses, [p.numpy().tobytes() for p in net.parameters()]


def test_a_training_step_is_the_same(rng, monkeypatch, eager):
    state = rng.bit_generator.state
    with counters.record() as recording:
        together = train(5, rng)
    assert any(groups_of(plan) for plan in recording.plans)
    rng.bit_generator.state = state
    monkeypatch.setattr(host_program, "arrange", apart)
    with counters.record() as recording:
        assert train(5, rng) == together
    assert not any(groups_of(plan) for plan in recording.plans)


def test_memory_grows_by_little(rng, monkeypatch):
    """Chains with large arrays in between: all first links at once would need all of them."""
    inputs = [tensor(rng, 20_000) for _ in range(32)]

    def chains(*xs):
        return tuple(x.cumsum(0).cumsum(0).cumsum(0).sum() for x in xs)

    together, plan = computed(chains, inputs)
    assert groups_of(plan)
    monkeypatch.setattr(host_program, "arrange", apart)
    serial, other = computed(chains, inputs)
    touched = sum(t.numpy().nbytes for t in inputs) + other.arena
    assert other.arena < plan.arena <= other.arena + max(touched // 32, 256 << 10)
    assert together == serial


def test_an_index_out_of_range_in_a_group(rng, eager):
    # Of whole numbers, whose sums are the same in any order: those of others cancel at times.
    tables = [weft.from_numpy(rng.integers(-99, 99, (9 + i, 33)).astype(np.float32))
              for i in range(3)]  # fmt: skip
    call = weft.jit(lambda i, *ts: tuple(t[i].cumsum(0) for t in ts))
    good = weft.from_numpy(np.array([1, 8, 3]))
    for _ in range(3):
        for table, out in zip(tables, call(good, *tables), strict=True):
            np.testing.assert_array_equal(out.numpy(), table.numpy()[[1, 8, 3]].cumsum(0))
        with pytest.raises(weft.BoundsError, match="index 11"):
            call(weft.from_numpy(np.array([1, 11, 3])), *tables)


def test_explain_tells_what_runs_together(rng):
    with counters.record() as recording:
        weft.jit(towers)(*(tensor(rng, 61, 61) for _ in range(4)))[0].numpy()
    names = {k.name for k in explain.explain(recording)}
    found = explain.overlaps(recording)
    assert found
    assert all(set(group.kernels) <= names and group.times > 0 for group in found)
    assert all(min(group.timing) > 0 for group in found)
