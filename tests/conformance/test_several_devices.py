"""Random programs whose values are on several devices, beside NumPy."""

import math
import random

import numpy as np
import pytest

import far_devices
import weft
from weft.driver import counters

PLACES = ("cpu", "far", "late", "late:1")
SHAPES = {(6,): (2, 3), (2, 3): (6,)}


@pytest.fixture(autouse=True)
def _devices():
    far_devices.register()


def drawn(pick, length, places=PLACES):
    """Return a program as steps: ``(kind, operands)``, of which each defines a value.

    Values are integers, as exact in whatever order they are added up.
    """
    steps = [("input", pick.choice(places)) for _ in range(pick.randint(1, 4))]
    for _ in range(length):
        kind = pick.choice(("to", "to", "add", "mul", "sum", "reshape", "number", "where"))
        operands = [pick.randrange(len(steps)) for _ in range(2)]
        steps.append((kind, operands, pick.choice(places)))
    return steps


def run(steps, inputs):
    """Return the value of each step by Weft and by NumPy."""
    ours, plain, given = [], [], iter(inputs)
    for kind, *rest in steps:
        if kind == "input":
            array = next(given)
            ours.append(weft.tensor(array, device=rest[0]))
            plain.append(array)
            continue
        (i, k), place = rest
        a, x = ours[i], plain[i]
        b, y = ours[k].to(a.device), plain[k]
        if y.shape != x.shape:
            b, y = b.reshape(*x.shape), y.reshape(x.shape)
        made = {
            "to": lambda a=a, x=x, place=place: (a.to(place), x),
            "add": lambda a=a, b=b, x=x, y=y: (a + b, x + y),
            "mul": lambda a=a, b=b, x=x, y=y: (a * b % 1009, x * y % 1009),
            "sum": lambda a=a, b=b, x=x, y=y: (a - b.sum() % 97, x - y.sum() % 97),
            "reshape": lambda a=a, x=x: (a.reshape(*SHAPES[x.shape]), x.reshape(SHAPES[x.shape])),
            "number": lambda a=a, x=x: (a * 3 + weft.tensor(2), x * 3 + 2),
            "where": lambda a=a, b=b, x=x, y=y: (weft.where(a > b, a, b), np.maximum(x, y)),
        }[kind]()
        ours.append(made[0])
        plain.append(made[1])
    return ours, plain


def inputs_of(steps, rng):
    return [rng.integers(-9, 9, (6,)) for s in steps if s[0] == "input"]


@pytest.mark.parametrize("number", range(12))
def test_drawn_programs(number, rng, seed):
    check(number, rng, seed, PLACES)


@pytest.mark.requires("cpu/c")
@pytest.mark.parametrize("number", range(4))
def test_drawn_programs_with_kernels_in_c(number, rng, seed):
    check(number, rng, seed, ("cpu", "cpu/c", "late:1"))


def check(number, rng, seed, places):
    pick = random.Random(f"{seed} {number}")
    steps = drawn(pick, pick.choice((4, 8, 16)), places)
    ours, plain = run(steps, inputs_of(steps, rng))
    results = sorted(pick.sample(range(len(ours)), min(len(ours), pick.randint(1, 4))))
    weft.realize(*(ours[i] for i in results))
    for i in (*results, *range(len(ours))):
        np.testing.assert_array_equal(ours[i].numpy(), plain[i], err_msg=f"{i} of {steps}")


@pytest.mark.parametrize("number", range(4))
def test_drawn_programs_as_captured_functions(number, rng, seed):
    pick = random.Random(f"captured {seed} {number}")
    steps = drawn(pick, 8)
    count = sum(s[0] == "input" for s in steps)

    @weft.jit
    def program(*tensors):
        ours = list(tensors)
        for kind, (i, k), place in steps[count:]:
            a = ours[i]
            b = ours[k].to(a.device).reshape(*a.shape)
            ours.append({
                "to": lambda a=a, place=place: a.to(place), "add": lambda a=a, b=b: a + b,
                "mul": lambda a=a, b=b: a * b % 1009, "sum": lambda a=a, b=b: a - b.sum() % 97,
                "reshape": lambda a=a: a.reshape(*SHAPES[tuple(a.shape)]),
                "number": lambda a=a: a * 3 + weft.tensor(2),
                "where": lambda a=a, b=b: weft.where(a > b, a, b),
            }[kind]())  # fmt: skip
        return ours[count:]

    for _ in range(3):
        inputs = inputs_of(steps, rng)
        found = program(*(weft.tensor(x, device=s[1])
                          for x, s in zip(inputs, steps, strict=False)))  # fmt: skip
        _, plain = run(steps, inputs)
        for i, (got, want) in enumerate(zip(found, plain[count:], strict=True)):
            np.testing.assert_array_equal(got.numpy(), want, err_msg=f"{i} of {steps}")


@pytest.mark.parametrize("places", [("late:1", "far"), ("late", "late:1"), ("far", "late")])
def test_a_copy_that_is_two_results(places):
    """The second result is a copy of the first, which another queue may not have written yet."""
    first, second = places

    @weft.jit
    def program(x):
        moved = (x * 3 + 2).to(second)
        return moved, moved.reshape(2, 3)

    for k in range(3):
        x = np.arange(6) + k
        one, two = program(weft.tensor(x, device=first))
        np.testing.assert_array_equal(two.numpy(), (x * 3 + 2).reshape(2, 3))
        np.testing.assert_array_equal(one.numpy(), x * 3 + 2)


def test_a_program_of_one_copy():
    x = weft.arange(5, device="late")
    assert x.to("late:1").to("far").to("cpu").tolist() == [0, 1, 2, 3, 4]


def test_a_value_that_is_copied_and_read_where_it_is():
    a = weft.tensor([1.0, 2, 3, 4], device="late") * 1
    b = weft.tensor([1.0, 2, 3, 4], device="late:1")
    assert ((a.to("late:1") * b).to("cpu") + a.to("cpu")).tolist() == [2, 6, 12, 20]
    c = (a.to("late:1") * b).to("late")
    assert ((c + 1).to("late:1") + a.to("late:1") + b).tolist() == [4, 9, 16, 25]


def test_equal_programs_on_two_devices_share_no_state():
    @weft.jit
    def step(x, y):
        return (x * 2 + y).exp().sum(), x + y

    for place in ("late", "late:1", "late", "far", "late:1"):
        x = np.random.default_rng(1).random((3, 4)).astype(np.float32)
        total, both = step(weft.tensor(x, device=place), weft.tensor(x, device=place))
        assert total.device == both.device == place
        np.testing.assert_allclose(total.item(), np.exp(3 * x).sum(), rtol=1e-5)
        np.testing.assert_array_equal(both.numpy(), x + x)


@pytest.mark.parametrize("how", ["expand", "product", "windows", "computed"])
def test_views_are_not_handed_over_as_they_look(how, rng):
    """A later stage repeats elements itself: a product would take memory for each of its terms."""
    n = 24
    a, b = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    there = weft.tensor(b)  # which is copied in the graph that reads it
    x = weft.tensor(a, device="interpreter")
    x = x * 2 if how == "computed" else (x * 2).realize()
    with counters.record() as recording:
        if how in ("product", "computed"):
            found, expected = x @ there.to("interpreter"), (2 * a) @ b
        elif how == "expand":
            found = x.reshape(n, 1, n).expand(n, n, n) + there.to("interpreter")
            found, expected = found.sum(0), (2 * a[:, None] + b).sum(0)
        else:
            found = x.unfold(1, 5, 1).sum(2) + there.to("interpreter")[:, 4:]
            expected = sum(2 * a[:, k : k + n - 4] for k in range(5)) + b[:, 4:]
        np.testing.assert_array_equal(found.numpy(), expected)
    for built in recording.built:
        for memory in built.nest.params:
            assert math.prod(int(s.attr) for s in memory.shape) <= n * n, built.nest.name
