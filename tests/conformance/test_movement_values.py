"""Movement ops are exact index maps: alone, chained, and fused into other kernels."""

import itertools

import numpy as np
import pytest
from values import assert_same, random

import oracle
from graphs import el
from weft.ir import dtype as dt
from weft.ir import infer
from weft.ir.op import Op

TYPES = (dt.bool_, dt.uint8, dt.float8_e5m2, dt.float16, dt.bfloat16, dt.int32, dt.float32,
         dt.int64, dt.float64)  # fmt: skip


def check(device, *nodes):
    for got, want, node in zip(device.compute(*nodes), oracle.evaluate(nodes), nodes, strict=True):
        assert_same(got, np.asarray(want, order="C"), what=repr(node))


def held(*nodes):
    """Ask for arrays of their own: a reshape of a leaf would stay a leaf."""
    return [infer.contiguous(n) for n in nodes]


@pytest.mark.grid
@pytest.mark.parametrize("d", TYPES, ids=lambda d: d.name)
def test_permute_and_reshape(d, device, rng):
    x = device.leaf(random(d, (3, 5, 7, 2), rng), shift=1)
    nodes = [infer.permute(x, p) for p in itertools.permutations(range(4))]
    nodes += [infer.reshape(infer.permute(x, p), (15, 14)) for p in ((1, 0, 2, 3), (3, 2, 1, 0))]
    wide = device.leaf(random(d, (65, 127), rng))
    nodes += [infer.permute(wide, (1, 0)), infer.reshape(infer.permute(wide, (1, 0)), (65 * 127,))]
    check(device, *held(*nodes))


@pytest.mark.parametrize("d", TYPES, ids=lambda d: d.name)
def test_expand(d, device, rng):
    nodes = []
    for shape, to in (((1,), (17,)), ((), (3, 5)), ((3, 1), (3, 65)), ((1, 7), (13, 7)),
                      ((2, 1, 3), (2, 31, 3)), ((1, 1, 1), (0, 2, 3)), ((5, 1), (4, 5, 3))):
        nodes.append(infer.expand(device.leaf(random(d, shape, rng)), to))
    check(device, *held(*nodes))


@pytest.mark.grid
@pytest.mark.parametrize("d", TYPES, ids=lambda d: d.name)
def test_slices(d, device, rng):
    x = device.leaf(random(d, (13, 31), rng), shift=3)
    cases = [((0, 0), (13, 31), (1, 1)), ((12, 30), (13, 31), (-1, -1)),
             ((12, 1), (7, 15), (-2, 2)), ((3, 30), (1, 11), (5, -3)), ((5, 5), (0, 4), (1, 1)),
             ((2, 7), (11, 17), (1, 1)), ((0, 0), (5, 31), (3, 1)),
             ((1, 16), (12, 16), (1, -1))]  # fmt: skip
    nodes = [infer.slice_(x, *case) for case in cases]
    flat = device.leaf(random(d, (4099,), rng))
    nodes += [infer.slice_(flat, (4098,), (4099,), (-1,)), infer.slice_(flat, (1,), (4097,)),
              infer.slice_(flat, (4098,), (1367,), (-3,)), infer.slice_(flat, (0,), (1,), (7,))]
    check(device, *held(*nodes))


@pytest.mark.grid
@pytest.mark.parametrize("d", TYPES, ids=lambda d: d.name)
def test_pads(d, device, rng):
    x = device.leaf(random(d, (3, 7), rng))
    fills = {"b": (False, True), "u": (0, d.max), "i": (0, d.min, d.max)}.get(
        d.kind, (0.0, -0.0, float("inf"), float("nan"), 1.5))
    amounts = (((0, 0), (1, 0)), ((2, 3), (1, 9)), ((0, 64), (0, 1)), ((1, 1), (1, 1)))
    nodes = [infer.pad(x, before, after, v) for v in fills for before, after in amounts]
    nodes.append(infer.pad(infer.slice_(x, (0, 0), (0, 7)), (2, 1), (1, 0), fills[-1]))
    nodes.append(infer.pad(infer.pad(x, (1, 0), (0, 2), fills[0]), (0, 3), (1, 1), fills[-1]))
    check(device, *held(*nodes))


@pytest.mark.grid
@pytest.mark.parametrize("d", TYPES, ids=lambda d: d.name)
def test_windows(d, device, rng):
    x = device.leaf(random(d, (17, 13), rng))
    nodes = []
    for axis, size, step, dilation in ((0, 1, 1, 1), (0, 3, 1, 1), (1, 3, 2, 1), (1, 4, 3, 2),
                                       (0, 17, 1, 1), (0, 2, 5, 7), (1, 2, 1, 12)):
        seen = infer.window(x, axis, size, step, dilation)
        nodes.append(seen)
        nodes.append(infer.unwindow(seen, axis, step, dilation, x.shape[axis]))
        nodes.append(infer.unwindow(seen, axis, step, dilation, x.shape[axis] + 4))
    nodes.append(infer.window(infer.window(x, 0, 3, 2), 1, 5, 1, 2))
    check(device, *held(*nodes))


@pytest.mark.grid
@pytest.mark.parametrize("d", TYPES, ids=lambda d: d.name)
def test_strided_views(d, device, rng):
    flat = device.leaf(random(d, (500,), rng))
    cases = [((500,), 0, (1,)), ((7, 13), 5, (13, 1)), ((7, 13), 499, (-13, -1)),
             ((3, 3), 10, (1, 1)), ((2, 3, 5), 470, (-100, 7, -2)), ((4, 9), 3, (0, 2)),
             ((0, 5), 0, (1, 1)), ((), 77, ()), ((17,), 499, (-29,))]  # fmt: skip
    check(device, *held(*(infer.strided(flat, *case) for case in cases)))


def random_view(x, rng):
    """Return `x` after one random movement op."""
    kind = rng.integers(0, 7)
    shape, n = x.shape, x.ndim
    if kind == 0 and n:
        return infer.permute(x, tuple(int(a) for a in rng.permutation(n)))
    if kind == 1 and n and 0 not in shape:
        starts, sizes, steps = [], [], []
        for dim in shape:
            step = int(rng.choice([1, 1, 2, 3, -1, -2]))
            size = int(rng.integers(1, (dim - 1) // abs(step) + 2))
            room = dim - 1 - (size - 1) * abs(step)
            start = int(rng.integers(0, room + 1))
            starts.append(start if step > 0 else start + (size - 1) * -step)
            sizes.append(size)
            steps.append(step)
        return infer.slice_(x, starts, sizes, steps)
    if kind == 2 and n and np.prod(shape) < 4000:
        before, after = (tuple(int(v) for v in rng.integers(0, 4, n)) for _ in range(2))
        return infer.pad(x, before, after, 1)
    if kind == 3 and n and n < 5 and 0 not in shape and np.prod(shape) < 4000:
        axis = int(rng.integers(0, n))
        size = int(rng.integers(1, min(shape[axis], 4) + 1))
        dilation = int(rng.integers(1, 3)) if (size - 1) * 2 < shape[axis] else 1
        return infer.window(x, axis, size, int(rng.integers(1, 4)), dilation)
    if kind == 4 and n < 5:
        axis = int(rng.integers(0, n + 1))
        wide = infer.reshape(x, (*shape[:axis], 1, *shape[axis:]))
        times = int(rng.integers(1, 4))
        return infer.expand(wide, (*shape[:axis], times, *shape[axis:]))
    if kind == 5 and n > 1:
        axis = int(rng.integers(0, n - 1))
        return infer.reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2:]))
    if kind == 6 and n > 1 and 0 not in shape:
        axis = int(rng.integers(0, n - 1))
        step = int(rng.integers(1, 3))
        length = (shape[axis] - 1) * step + shape[-1] + int(rng.integers(0, 2))
        return infer.unwindow(x, axis, step, 1, length) if np.prod(shape) < 2000 else x
    return x


@pytest.mark.grid
@pytest.mark.parametrize("number", range(40))
def test_random_chains(number, device, rng):
    """Chains of movement ops alone, under arithmetic, and under a reduction."""
    d = TYPES[number % len(TYPES)]
    shape = tuple(int(v) for v in rng.choice([1, 2, 3, 5, 7, 13], rng.integers(1, 4)))
    x = device.leaf(random(d, shape, rng))
    view = x
    for _ in range(rng.integers(2, 8)):
        view = random_view(view, rng)
    nodes = held(view)
    if not d.is_bool:
        nodes.append(el(Op.SUB, view, view))
        nodes.append(el(Op.NEG if not d.is_storage_only else Op.ABS, view))
        if d.is_integer and view.ndim:
            nodes.append(infer.reduce(view, "sum", (view.ndim - 1,)))
            nodes.append(infer.reduce(view, "sum", range(view.ndim)))
    check(device, *nodes)
