"""Linear inequalities over bounded integers against trying every point."""

import itertools
import random

from weft.schedule.analysis.affine import Constraint, Linear, Pair, solve


def every_point(boxes, rows):
    names = list(boxes)
    for point in itertools.product(*(range(a, b + 1) for a, b in boxes.values())):
        at = dict(zip(names, point, strict=True))
        if all(r.low <= sum(w * at[k] for k, w in r.terms.items()) <= r.high for r in rows):
            return at
    return None


def test_agrees_with_enumeration():
    for seed in range(300):
        boxes, rows = drawn(random.Random(seed))
        found = solve(boxes, rows)
        assert (found is None) == (every_point(boxes, rows) is None), seed
        if found is not None:  # any point of the box is a solution
            at = {k: v[0] for k, v in found.items()}
            assert all(r.low <= sum(w * at[k] for k, w in r.terms.items()) <= r.high
                       for r in rows), seed


def drawn(r):
    """Return boxes of up to four variables, and up to four inequalities."""
    boxes = {}
    for name in "abcd"[: r.randint(1, 4)]:
        low = r.randint(-4, 3)
        boxes[name] = low, low + r.randint(0, 6)
    rows = []
    for _ in range(r.randint(1, 4)):
        terms = {n: r.choice([-7, -3, -1, 1, 2, 4, 8]) for n in boxes if r.random() < 0.7}
        low = r.randint(-20, 20)
        rows.append(Constraint(terms, low, low + r.choice([0, 0, 1, 9])))
    return boxes, rows


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


def test_pairs_agree_with_enumeration():
    """Variables differ if, and only if, two iterations with equal subscripts say so."""
    for seed in range(150):
        r = random.Random(seed)
        boxes = {name: (0, r.randint(0, 3)) for name in "abc"[: r.randint(1, 3)]}
        shared = {name: name for name in boxes if name == "a" or r.random() < 0.7}
        forms = [Linear({n: w for n in boxes if (w := r.choice([0, 1, 1, 2, 4, -3]))},
                        r.randint(-2, 2)) for _ in range(2)]
        one, other = forms if r.random() < 0.5 else (forms[0], forms[0])
        facts = [[Constraint(forms[1].terms, low := r.randint(-3, 3), low + r.randint(0, 6))]
                 for _ in range(2)]
        pair = Pair(boxes, {n: boxes[n] for n in shared}, shared)
        pair.hold(*facts)
        pair.meet(one, other)
        found = [(x, y) for x in points(boxes, facts[0]) for y in points(boxes, facts[1])
                 if value(one, x) == value(other, y) and all(x[n] == y[n] for n in boxes
                                                             if n not in shared)]
        for name in shared:
            assert pair.differ(name) == any(x[name] != y[name] for x, y in found), (seed, name)
        pair.agree("a")
        for name in shared:
            assert pair.differ(name) == any(x[name] != y[name] for x, y in found
                                            if x["a"] == y["a"]), (seed, name)


def value(form, at):
    return form.constant + sum(w * at[k] for k, w in form.terms.items())


def points(boxes, rows):
    """Return the points of a box at which inequalities hold."""
    every = (dict(zip(boxes, p, strict=True))
             for p in itertools.product(*(range(a, b + 1) for a, b in boxes.values())))
    return [at for at in every
            if all(r.low <= value(Linear(r.terms, 0), at) <= r.high for r in rows)]
