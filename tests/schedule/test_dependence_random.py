"""Proofs of independence against trying every pair of iterations."""

import itertools
import random

import pytest

from schedule_nests import loop, memory, n, v
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.stmt import Kernel, Load, Store
from weft.schedule.analysis.dependence import carried, independent
from weft.schedule.analysis.subscripts import Space


def subscript(r, loops, ndim):
    """Weights of the loops and a constant, for each dimension."""
    choices = [0, 0, 1, 1, 1, -1, 2, 3, 4, 5, 6, 7, 12]
    return [([r.choice(choices) for _ in loops], r.choice([0, 0, 0, 1, 2, 7])) for _ in range(ndim)]


def written(weights, loops):
    out = n(200)
    for w, name in zip(weights[0], loops, strict=True):
        out = out + v(name) * w
    return out + weights[1]


def places(access, point):
    return tuple(sum(w * x for w, x in zip(ws, point, strict=True)) + c for ws, c in access)


def nest(seed):
    """Return a kernel, its outermost loop, extents, and its accesses with whether they write."""
    r = random.Random(seed)
    loops = ["i", "j", "k"][: r.randint(2, 3)]
    extents = [r.randint(1, 5) for _ in loops]
    ndim = r.randint(1, 3)
    store = subscript(r, loops, ndim)
    load = store if r.random() < 0.4 else subscript(r, loops, ndim)
    a = memory("a", *[400] * ndim)
    x = v("x", dt.float32)
    body = (Load(x, a, tuple(written(w, loops) for w in load)),
            Store(a, tuple(written(w, loops) for w in store), x + ex.const(1.0, dt.float32)))
    for name, extent in reversed(list(zip(loops, extents, strict=True))):
        body = (loop(name, extent, *body),)
    return Kernel("nest", (a,), body), loops, extents, ((load, False), (store, True))


def depends(accesses, extents, differs):
    """Whether two iterations that differ touch one element, one of them writing."""
    points = list(itertools.product(*map(range, extents)))
    for p, q in itertools.product(points, points):
        if not differs(p, q):
            continue
        for (one, writes), (other, also) in itertools.product(accesses, accesses):
            if (writes or also) and places(one, p) == places(other, q):
                return True
    return False


@pytest.mark.parametrize("block", range(4))
def test_what_is_said_to_be_independent_is(block):
    proved = 0
    for seed in range(block * 60, block * 60 + 60):
        kernel, _, extents, accesses = nest(seed)
        body, space, outer = kernel.body, Space(kernel), 0
        while body and hasattr(body[0], "var") and hasattr(body[0], "extent"):
            level = body[0]
            # The loops around it are at the same place in both iterations.
            same = outer
            really = depends(accesses, extents, lambda p, q, k=same: p[:k] == q[:k]
                             and p[k] != q[k])  # fmt: skip
            if carried(space, level.var, level.body) is None:
                proved += 1
                assert not really, kernel
            body, outer = level.body, outer + 1
        if independent(space, [v(name) for name in "ijk"[:outer]], body):
            assert not depends(accesses, extents, lambda p, q: p != q), kernel
    assert proved


@pytest.mark.parametrize(
    ("extents", "store", "free"),
    [((3, 60), [([1, 3], 0), ([0, 1], 0)], True),  # j first, then i
     ((3, 60), [([1, 3], 0)], True),
     ((4, 60), [([1, 3], 0)], False),
     ((300, 9), [([3, 1000], 0)], True),
     ((30, 20, 20), [([1, 1, 0], 0), ([0, 1, 1], 0), ([0, 0, 1], 0)], True),
     ((30, 20, 20), [([1, 1, 0], 0), ([0, 1, 1], 0)], False),
     ((2, 3), [([6, 4], 0)], True),  # together
     ((3, 4), [([6, 4], 0)], False),
     ((5, 5), [([1, 1], 0), ([1, -1], 0)], True)],
)  # fmt: skip
def test_loops_inside_settle_loops_outside(extents, store, free):
    names = "ijk"[: len(extents)]
    a = memory("a", *[5000] * len(store))
    body = (Store(a, tuple(written(w, names) for w in store), ex.const(1.0, dt.float32)),)
    for name, extent in reversed(list(zip(names, extents, strict=True))):
        body = (loop(name, extent, *body),)
    kernel = Kernel("nest", (a,), body)
    assert (carried(Space(kernel), v("i"), kernel.body[0].body) is None) is free


def test_a_size_that_is_not_known_stays_a_size():
    a = memory("a", 5000)
    body = (Store(a, (v("i") * v("w") + v("j"),), ex.const(1.0, dt.float32)),)
    kernel = Kernel("nest", (a,), (loop("i", 3, loop("j", 4, *body)),))
    assert carried(Space(kernel), v("i"), kernel.body[0].body) is not None


@pytest.mark.parametrize(("divisor", "free"), [(7, True), ("w", True), ("j", False)])
def test_quotients_and_remainders_tell_apart_by_one_divisor(divisor, free):
    by = n(divisor) if isinstance(divisor, int) else v(divisor) + 1
    a = memory("a", 500, 500)
    body = (Store(a, (v("i") // by, v("i") % by), ex.const(1.0, dt.float32)),)
    kernel = Kernel("nest", (a,), (loop("i", 300, loop("j", 4, *body)),))
    assert (carried(Space(kernel), v("i"), kernel.body[0].body) is None) is free
