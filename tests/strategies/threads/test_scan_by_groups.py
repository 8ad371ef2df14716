"""Scans for devices of threads: results of nests and launches, and what they cost."""

import numpy as np
import pytest

from graphs import leaf
from launch_costs import A100, flat, launch_costs
from launch_runs import launched
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import infer
from weft.ir.interpret.interpret import run
from weft.ir.op import Op
from weft.kernelize.build import kernelize
from weft.strategies.threads.choose import choose_for_threads
from weft.target import native_operations

GROUPS = A100.replace(group_items=64, cores=2, shared_bytes=6 << 10, l1_bytes=16 << 10)
THREADS = GROUPS.replace(l1_bytes=1 << 20)  # which keeps the lines of all threads
NARROW = GROUPS.replace(operations=native_operations((dt.float32,)))
TARGETS = {"groups": GROUPS, "threads": THREADS, "narrow": NARROW}
KINDS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
         "logsumexp": np.logaddexp}
SHAPES = [((1,), 0), ((2,), 0), ((33,), 0), ((255,), 0), ((256,), 0), ((257,), 0), ((2503,), 0),
          ((3, 40), 1), ((2, 3, 1500), 2), ((40, 3), 0), ((2, 900, 3), 1), ((1200, 1), 0),
          ((0, 70), 1), ((3, 0), 1)]  # fmt: skip


def computed(node, target, *arrays):
    """Return what nest and launches leave, and the kernel: results of both are the same bits."""
    (step,) = kernelize([node], target)
    made = choose_for_threads(step.kernel, target, target.cores)
    assert "not " not in dict(made.meta.hints)["why"], made.meta.hints
    held = [np.ascontiguousarray(a).reshape(-1) for a in arrays]
    out = np.zeros(int(np.prod(node.shape)), node.dtype.numpy)
    nest, launches = [*held, out.copy()], [*held, out.copy()]
    with np.errstate(all="ignore"):
        run(made, nest)
        launched(flat(made, target), launches, None, 3, target)
    return nest[-1].reshape(node.shape), launches[-1].reshape(node.shape), made


def in_order(kind, a, axis, reverse=False):
    """Return the scan of an array, one element after another, in the widest type of its kind."""
    wide = a.astype(np.float64) if a.dtype.kind == "f" else a
    if reverse:
        wide = np.flip(wide, axis)
    with np.errstate(all="ignore"):
        found = KINDS[kind].accumulate(wide, axis, dtype=wide.dtype)
    return np.flip(found, axis) if reverse else found


def recurrence(a, b):
    """Return ``h = a * h + b`` along the last axis, whose first factor is no part of it."""
    out, h = np.empty(b.shape), np.zeros(b.shape[:-1])
    with np.errstate(all="ignore"):
        for k in range(b.shape[-1]):
            h = out[..., k] = b[..., k] + (a[..., k] * h if k else 0)
    return out


def near_one(rng, shape):
    return (1 + rng.standard_normal(shape) / 50).astype(np.float32)


def assert_close(found, wanted, kind, narrow=False):
    """Compare with results in float64; products of float32 without that round at each step."""
    tolerance = {"sum": 2.4e-7, "prod": 2e-5 if narrow else 2.4e-7, "logsumexp": 4e-6}.get(kind, 0)
    for one in found:
        np.testing.assert_allclose(one, wanted, rtol=tolerance, atol=tolerance and 1e-6)


@pytest.mark.grid
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds(rng, kind, target):
    for shape, axis in SHAPES:
        for reverse in (False, True):
            x = near_one(rng, shape) if kind == "prod" else rng.standard_normal(shape).astype("f4")
            node = infer.scan(leaf(*shape), kind, axis, reverse)
            *found, _ = computed(node, TARGETS[target], x)
            assert_close(found, in_order(kind, x, axis, reverse), kind, target == "narrow")


@pytest.mark.parametrize("target", TARGETS)
def test_recurrences(rng, target):
    for shape in ((1,), (70,), (257,), (2, 900)):
        a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(2))
        a[..., 0] = np.inf  # which is no part of it
        node = infer.recurrence(leaf(*shape), leaf(*shape), len(shape) - 1)
        *found, _ = computed(node, TARGETS[target], a, b)
        for one in found:
            np.testing.assert_allclose(one, recurrence(a.astype(float), b), rtol=1e-5, atol=2e-6)


@pytest.mark.grid
@pytest.mark.parametrize("target", ["groups", "threads"])
@pytest.mark.parametrize("dtype", [dt.int8, dt.int32, dt.int64, dt.uint8, dt.float16, dt.float64],
                         ids=lambda d: d.text)
def test_types(rng, dtype, target):
    for shape, axis in (((333,), 0), ((3, 150), 1), ((200, 2), 0)):
        for kind in ("sum", "prod", "max"):
            x = rng.integers(1, 3, shape).astype(dtype.numpy)
            if dtype.is_float:
                x = (1 + (x - 1.5) / 64).astype(dtype.numpy)
            node = infer.scan(leaf(*shape, dtype=dtype), kind, axis, False)
            first, second, _ = computed(node, TARGETS[target], x)
            tolerance = {"f16": 2e-3, "f64": 1e-13}.get(dtype.text, 0)
            for one in (first, second):
                np.testing.assert_allclose(one, in_order(kind, x, axis).astype(one.dtype),
                                           rtol=tolerance)


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e200, -1e200, 1e-200, 5e-324, 1e-308, 1e300]


@pytest.mark.grid
@pytest.mark.parametrize("target", ["groups", "threads"])
@pytest.mark.parametrize("seed", range(6))
def test_products_leave_their_range_where_the_loop_does(seed, target):
    """Overflow and underflow stay, a zero stays a zero, whatever the factors behind it are."""
    rng = np.random.default_rng(seed)
    x = 1 + rng.standard_normal(1300) / 200
    for at in rng.integers(0, x.size, 1 + 2 * seed):
        x[at:at + int(rng.choice([1, 1, 3, 20, 200]))] = rng.choice(SPECIAL)
    *found, _ = computed(infer.scan(leaf(1300, dtype=dt.float64), "prod", 0, False),
                         TARGETS[target], x)  # fmt: skip
    wanted = in_order("prod", x, 0)
    for one in found:
        np.testing.assert_allclose(one, wanted, rtol=1e-12)
        known = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(one[known]), np.signbit(wanted[known]))


@pytest.mark.grid
@pytest.mark.parametrize("target", ["groups", "threads"])
@pytest.mark.parametrize("seed", range(4))
def test_recurrences_leave_their_range_where_the_loop_does(seed, target):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, 1300), rng.standard_normal(1300)
    for at in rng.integers(0, a.size, 1 + seed):
        array = a if rng.random() < 0.7 else b
        array[at:at + int(rng.choice([1, 3, 20, 200]))] = rng.choice(
            [0.0, np.inf, np.nan, 1e200, -1e200, 10.0, 1e-200, 2.0])
    one = leaf(1300, dtype=dt.float64)
    *found, _ = computed(infer.recurrence(one, leaf(1300, dtype=dt.float64), 0), TARGETS[target],
                         a, b)  # fmt: skip
    for made in found:
        np.testing.assert_allclose(made, recurrence(a, b), rtol=1e-9, atol=1e-9)


@pytest.mark.grid
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-42])
def test_special_values_of_sums_and_extremes(rng, value, target):
    for kind in ("sum", "max", "min", "logsumexp"):
        x = rng.standard_normal(1100).astype(np.float32)
        x[[7, 500, 1099]] = value
        with np.errstate(all="ignore"):
            wanted = in_order(kind, x, 0)
            if kind == "logsumexp":
                wanted = np.where(np.isnan(x).cumsum() > 0, np.nan, wanted)
            wanted = wanted.astype(np.float32)
        *found, _ = computed(infer.scan(leaf(1100), kind, 0, False), TARGETS[target], x)
        for one in found:
            np.testing.assert_allclose(one, wanted, rtol=4e-6, atol=2e-6)


def test_sums_of_float32_lose_no_more_than_their_last_rounding(rng):
    x = rng.random(3000, np.float32)
    for target in (NARROW, NARROW.replace(l1_bytes=1 << 20)):
        *found, _ = computed(infer.scan(leaf(3000), "sum", 0, False), target, x)
        wanted = np.cumsum(x.astype(np.float64))
        for one in found:
            assert np.max(np.abs(one - wanted) / np.spacing(wanted.astype(np.float32))) <= 0.51


def test_elements_may_be_computed(rng):
    """What is scanned may be made of other arrays, and be read backwards or behind an edge."""
    x, y = (rng.standard_normal((3, 300)).astype(np.float32) for _ in range(2))
    product = infer.elementwise(Op.MUL, leaf(3, 300), leaf(3, 300))
    node = infer.scan(infer.pad(product, (0, 7), (0, 3), 2.0), "sum", 1, True)
    wanted = in_order("sum", np.pad(x * y, ((0, 0), (7, 3)), constant_values=2), 1, True)
    for target in (GROUPS, THREADS):
        *found, _ = computed(node, target, x, y)
        assert_close(found, wanted, "sum")


@pytest.mark.parametrize("kind", ["sum", "prod"])
def test_rows_of_symbolic_length(rng, kind):
    n = ex.Variable("n", 1, 2000)
    node = infer.scan(infer.contiguous(infer.slice_(leaf(3, 2000), (0, 0), (3, n))), kind, 1)
    (*_, step) = kernelize([node], GROUPS)
    made = choose_for_threads(step.kernel, GROUPS, GROUPS.cores)
    assert "groups" in dict(made.meta.hints)["why"]
    for size in (1, 64, 65, 960, 961, 2000):
        x = near_one(rng, (3, size))
        nest, launches = ([x.reshape(-1), np.zeros(x.size, np.float32)] for _ in range(2))
        run(made, nest, {"n": size})
        launched(flat(made, GROUPS), launches, {"n": size}, 3, GROUPS)
        found = [held[1].reshape(x.shape) for held in (nest, launches)]
        assert_close(found, in_order(kind, x, 1), kind)


def counts(kind, shape, target=A100, **named):
    (step,) = kernelize([infer.scan(leaf(*shape), kind, len(shape) - 1, False)], target)
    return launch_costs(choose_for_threads(step.kernel, target, target.cores), target, **named)


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_rows_are_read_and_written_once(kind):
    for shape in ((4096, 256), (4096, 1000), (512, 8192)):
        (cost,) = counts(kind, shape)
        assert cost.groups == shape[0]
        assert cost.read["in0"] == cost.written["out0"] == 4 * shape[0] * shape[1]
        assert cost.used >= 0.95
        assert all(t.coalescing == 1 for t in (*cost.loads.values(), *cost.stores.values()))
        assert cost.conflicts == 0


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_long_rows_are_read_twice_and_written_once(kind):
    for shape in ((1 << 20,), (3, 1 << 18)):
        first, between, last = counts(kind, shape, every=True)
        nbytes = 4 * int(np.prod(shape))
        assert first.groups == last.groups >= 108
        assert first.read["in0"] == last.read["in0"] == last.written["out0"] == nbytes
        assert sum(between.read.values()) + sum(between.written.values()) < nbytes // 100
        for cost in (first, last):
            assert cost.used >= 0.95
            assert cost.conflicts == 0


def test_columns_have_neighbouring_threads():
    (step,) = kernelize([infer.scan(leaf(1 << 14, 32), "sum", 0, False)], A100)
    first, _, last = launch_costs(choose_for_threads(step.kernel, A100, A100.cores))
    nbytes = 4 << 19
    assert first.read["in0"] == last.read["in0"] == last.written["out0"] == nbytes
    assert first.groups == last.groups == 32
    assert min(first.used, last.used) >= 0.95
