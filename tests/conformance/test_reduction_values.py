"""Reductions, arg-reductions, scans and sorts: all axes, all types, empty, ties and NaN."""

import itertools
import math

import numpy as np
import pytest
from values import assert_same, calm, random

import oracle
from weft.ir import dtype as dt
from weft.ir import infer

NUMBERS = [d for d in dt.ALL if not d.is_bool]
SHAPES = ((3, 5, 7), (1, 17, 1), (2, 0, 3), (65, 33), (4099,), (13, 1000), (1000, 13), (1,), ())
ORDERED = [d for d in dt.ALL if not d.is_storage_only]


def subsets(n):
    return [s for k in range(1, n + 1) for s in itertools.combinations(range(n), k)]


def epsilon(d):
    """Return the relative error of one step of a sum in type d."""
    return 2.0 ** -(23 if d.bits <= 32 else 52)


def check_sum(got, x, kind, axes, d):
    """Check a float sum or product by the bound of its errors: n eps (|a| + |b| + ...)."""
    wide = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        want = np.sum(wide, axis=axes) if kind == "sum" else np.prod(wide, axis=axes)
        size = np.sum(abs(wide), axis=axes) if kind == "sum" else np.abs(want)
    n = math.prod(x.shape[a] for a in axes)
    least = 2.0 ** (2 - (1 << (d.exponent - 1)))
    bound = n * epsilon(d) * size + 2.0**-d.mantissa * abs(want) + least
    error = np.abs(got.astype(np.longdouble) - want)
    assert got.shape == want.shape
    assert (error <= bound).all(), (kind, d, x.shape, axes, float(np.max(error / bound)))


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize("d", NUMBERS, ids=lambda d: d.name)
def test_sums(kind, d, device, rng):
    cases = []
    for shape in SHAPES:
        x = calm(d, shape, rng)
        if d.is_float and kind == "prod":
            x = (1 + calm(d, shape, rng).astype(np.float64) / 2000).astype(d.numpy)
        leaf = device.leaf(x, shift=1)
        whole = len(shape) < 3 or shape[0] == 3
        chosen = subsets(len(shape)) if whole else [(1,), (0, 2), (0, 1, 2)]
        cases += [(x, axes, infer.reduce(leaf, kind, axes)) for axes in chosen]
    nodes = [node for *_, node in cases]
    for got, want, (x, axes, _) in zip(device.compute(*nodes), oracle.evaluate(nodes), cases,
                                       strict=True):  # fmt: skip
        if d.is_float:
            check_sum(got, x, kind, axes, d)
        else:
            assert_same(got, np.asarray(want), what=f"{kind} {x.shape} {axes}")


@pytest.mark.parametrize("d", [d for d in NUMBERS if d.is_float], ids=lambda d: d.name)
def test_sums_of_special_values(d, device):
    inf, nan = math.inf, math.nan
    rows = [[inf, 1, 2], [-inf, inf, 0], [nan, 1, 1], [-0.0, -0.0, -0.0], [1, -1, 0], [-inf, 1, 1]]
    with np.errstate(all="ignore"):
        x = np.array(rows).astype(d.numpy)
    nodes = [infer.reduce(device.leaf(x), kind, (1,)) for kind in ("sum", "prod")]
    for got, want in zip(device.compute(*nodes), oracle.evaluate(nodes), strict=True):
        got, want = got.astype(np.float64), want.astype(np.float64)
        np.testing.assert_array_equal(got, want)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("d", ORDERED, ids=lambda d: d.name)
def test_extremes(kind, d, device, rng):
    """Exact, NaN wins, and -0 is below +0."""
    nodes = []
    for shape in ((3, 5, 7), (1, 17, 1), (65, 33), (4099,), (13, 1000), (1,)):
        x = random(d, shape, rng)
        if d.is_float:  # rows with NaN and without
            keep = rng.random((*shape[:-1], 1)) < 0.7
            x = np.where(keep & np.isnan(x.astype(np.float64)), d.numpy.type(-1), x)
            x = np.where(rng.random(shape) < 0.5, x, d.numpy.type(-0.0)).astype(d.numpy)
        leaf = device.leaf(x)
        nodes += [infer.reduce(leaf, kind, axes) for axes in subsets(len(shape))]
    if d.is_float:
        zeros = np.array(list(itertools.product([0.0, -0.0], repeat=5)), np.float64).astype(d.numpy)
        nodes += [infer.reduce(device.leaf(zeros), kind, axes) for axes in ((0,), (1,))]
        nodes.append(infer.reduce(device.leaf(np.full((7, 33), -0.0, d.numpy)), kind, (1,)))
    for got, want, node in zip(device.compute(*nodes), oracle.evaluate(nodes), nodes, strict=True):
        assert_same(got, np.asarray(want), what=f"{kind} {d.name} {node.attr} {node.args}")


@pytest.mark.parametrize("kind", ["any", "all"])
def test_any_and_all(kind, device, rng):
    nodes = []
    for shape in SHAPES:
        for share in (0.0, 0.01, 0.99, 1.0):
            leaf = device.leaf(rng.random(shape) < share)
            nodes += [infer.reduce(leaf, kind, axes) for axes in subsets(len(shape))]
    for got, want in zip(device.compute(*nodes), oracle.evaluate(nodes), strict=True):
        assert_same(got, np.asarray(want))


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.parametrize("d", ORDERED, ids=lambda d: d.name)
def test_arg_reductions(kind, d, device, rng):
    """The first of ties; a NaN before all."""
    nodes = []
    for shape in ((3, 5, 7), (1, 17), (65, 33), (4099,), (1000, 13), (1,)):
        x = random(d, shape, rng)
        few = (rng.integers(0, 3, shape)).astype(d.numpy)  # many ties
        for array in (x, few):
            leaf = device.leaf(array)
            nodes += [infer.argreduce(leaf, kind, axis) for axis in range(len(shape))]
    if d.is_float:
        for row in ([1, math.nan, 2, math.nan], [-0.0, 0.0, 0.0, -0.0], [0.0, -0.0, 0.0, 0.0],
                    [-math.inf] * 4, [math.inf] * 4, [math.nan] * 4, [-math.inf, math.nan, 0, 0]):
            nodes.append(infer.argreduce(device.leaf(np.array(row).astype(d.numpy)), kind, 0))
    for got, want, node in zip(device.compute(*nodes), oracle.evaluate(nodes), nodes, strict=True):
        assert_same(got, np.asarray(want), what=f"{node!r} {d.name}")


@pytest.mark.grid
@pytest.mark.parametrize("kind", infer.SCAN_KINDS)
@pytest.mark.parametrize("d", [d for d in ORDERED if not d.is_bool], ids=lambda d: d.name)
def test_scans(kind, d, device, rng):
    cases = []
    for shape in ((3, 5, 7), (17,), (0,), (2, 0), (65, 33), (4099,), (1, 1)):
        x = calm(d, shape, rng)
        if kind in ("max", "min"):
            x = random(d, shape, rng)
        elif d.is_float and kind == "prod":
            x = (1 + x.astype(np.float64) / 2000).astype(d.numpy)
        cases += [(x, axis, infer.scan(device.leaf(x), kind, axis)) for axis in range(len(shape))]
    nodes = [node for *_, node in cases]
    for got, want, (x, axis, _) in zip(device.compute(*nodes), oracle.evaluate(nodes), cases,
                                       strict=True):  # fmt: skip
        if not d.is_float or kind in ("max", "min"):
            assert_same(got, want, x, what=f"cum{kind} {d.name} {x.shape} {axis}")
            continue
        f = np.cumsum if kind == "sum" else np.cumprod
        exact = f(x.astype(np.longdouble), axis)
        size = np.cumsum(abs(x.astype(np.longdouble)), axis) if kind == "sum" else abs(exact)
        steps = 2.0**-d.mantissa if d.bits < 32 else 0
        bound = (x.shape[axis] * epsilon(d) + steps) * size + 1e-30
        assert (abs(got.astype(np.longdouble) - exact) <= bound).all(), (kind, d, x.shape, axis)


@pytest.mark.grid
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("d", ORDERED, ids=lambda d: d.name)
def test_sorts(descending, d, device, rng):
    """Stable both ways; NaN counts as the largest."""
    nodes = []
    for shape in ((3, 5, 7), (1,), (0,), (2, 0), (0, 3), (65, 33), (4099,)):
        x = random(d, shape, rng)
        few = rng.integers(0, 5, shape).astype(d.numpy)
        for array in (x, few):
            leaf = device.leaf(array)
            for axis in range(len(shape)):
                nodes += infer.sort(leaf, axis, descending)
    for got, want, node in zip(device.compute(*nodes), oracle.evaluate(nodes), nodes, strict=True):
        assert_same(got, np.asarray(want), what=f"{node.args[0]!r} {node.attr}")
