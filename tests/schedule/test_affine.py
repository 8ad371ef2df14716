"""Linear inequalities over bounded integers against trying every point."""

import itertools
import random

import pytest

from weft.schedule.affine import Constraint, Linear, solve


def every_point(boxes, rows):
    names = list(boxes)
    for point in itertools.product(*(range(a, b + 1) for a, b in boxes.values())):
        at = dict(zip(names, point, strict=True))
        if all(r.low <= sum(w * at[k] for k, w in r.terms.items()) <= r.high for r in rows):
            return at
    return None


@pytest.mark.parametrize("seed", range(300))
def test_agrees_with_enumeration(seed):
    r = random.Random(seed)
    boxes = {}
    for name in "abcd"[: r.randint(1, 4)]:
        low = r.randint(-4, 3)
        boxes[name] = low, low + r.randint(0, 6)
    rows = []
    for _ in range(r.randint(1, 4)):
        terms = {n: r.choice([-7, -3, -1, 1, 2, 4, 8]) for n in boxes if r.random() < 0.7}
        low = r.randint(-20, 20)
        rows.append(Constraint(terms, low, low + r.choice([0, 0, 1, 9])))
    found = solve(boxes, rows)
    assert (found is None) == (every_point(boxes, rows) is None)
    if found is not None:  # any point of the box is a solution
        at = {k: v[0] for k, v in found.items()}
        assert all(r.low <= sum(w * at[k] for k, w in r.terms.items()) <= r.high for r in rows)


def test_mixed_radix_of_any_size():
    boxes = {"block": (-(1 << 30), 1 << 30), "thread": (-255, 255)}
    same = Constraint({"block": 256, "thread": 1}, 0, 0)
    assert solve({**boxes, "block": (1, 1 << 30)}, [same]) is None
    assert solve({**boxes, "thread": (1, 255)}, [same]) is None
    apart = Constraint({"block": 256, "thread": 1}, 1, 1)
    assert solve({**boxes, "block": (1, 1 << 30)}, [apart]) is not None


def test_common_divisor():
    boxes = {"a": (0, 1 << 40), "b": (0, 1 << 40)}
    assert solve(boxes, [Constraint({"a": 6, "b": -4}, 1, 1)]) is None
    assert solve(boxes, [Constraint({"a": 6, "b": -4}, 2, 2)]) is not None


def test_contradiction_without_variables():
    assert solve({}, [Constraint({}, 1, 1)]) is None
    assert solve({}, [Constraint({}, 0, 1)]) == {}
    assert solve({"a": (0, 9)}, [Constraint({"a": 1}, 5, 9), Constraint({"a": 1}, 0, 4)]) is None


def test_linear_forms():
    a, b = Linear({"i": 2, "j": 1}, 3), Linear({"i": 2}, 1)
    assert a.plus(b, -1) == Linear({"j": 1}, 2)
    assert a.times(0) == Linear({}, 0)
    assert a.interval({"i": (0, 4), "j": (-1, 1)}) == (2, 12)
