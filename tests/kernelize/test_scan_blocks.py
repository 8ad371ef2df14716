"""Scans of few long rows, cut into blocks, and rows that are lanes: against loops in order."""

import numpy as np
import pytest
from test_fuse import execute

import weft
from graphs import leaf
from weft.ir import infer
from weft.ir.stmt import PARALLEL, UNROLLED, VECTOR, For
from weft.ir.traverse import walk
from weft.kernelize.scans.scan import LONG_LOGARITHM
from weft.kernelize.scans.scan_blocks import LARGEST, UNIT, _cut
from weft.strategies import choose
from weft.strategies.first_tier import choose_first_tier
from weft.target import Target

WIDE = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, l1_bytes=32 << 10,
              l2_bytes=1 << 20, l3_bytes=32 << 20, cores=2)
SHAPES = [(127,), (150,), (3, 1009), (2000, 5), (8191,), (33_000,), (270_001,), (3, 9001),
          (33, 300), (17, 131), (2, 7, 50)]
KINDS = ["sum", "prod", "max", "min", "logsumexp"]


def near_one(rng, shape, dtype=np.float32):
    return (1 + rng.standard_normal(shape) / 200).astype(dtype)


def in_order(kind, a):
    """Return the scan of the last axis, one element after another, in float64."""
    a = a.astype(np.float64) if a.dtype.kind == "f" else a.astype(np.int64)
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum,
             "logsumexp": np.logaddexp}[kind]
    with np.errstate(all="ignore"):
        return ufunc.accumulate(a, -1)


def recurrence(a, b):
    out, h = np.empty(b.shape), np.zeros(b.shape[:-1])
    with np.errstate(all="ignore"):
        for k in range(b.shape[-1]):
            h = out[..., k] = b[..., k] + (a[..., k] * h if k else 0)
    return out


def scanned(kind, a, reverse=False):
    x = weft.tensor(a)
    return x._wrap(infer.scan(x._read(), kind, a.ndim - 1, reverse)).numpy()


@pytest.mark.grid
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_against_the_order_of_the_row(rng, kind, shape, reverse):
    a = near_one(rng, shape) if kind == "prod" else rng.standard_normal(shape).astype(np.float32)
    want = in_order(kind, a[..., ::-1])[..., ::-1] if reverse else in_order(kind, a)
    found = scanned(kind, a, reverse)
    tolerance = {"prod": 1.2e-7, "sum": 1.2e-7, "logsumexp": 6e-8}.get(kind, 0)
    near_zero = {"prod": 0, "logsumexp": 1e-12}.get(kind, 1e-6)
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=near_zero)


@pytest.mark.grid
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_recurrences_against_the_order_of_the_row(rng, shape, reverse):
    a = rng.uniform(-1, 1, shape).astype(np.float32)
    b = rng.standard_normal(shape).astype(np.float32)
    a[..., -1 if reverse else 0] = np.inf  # the first factor is not part of it
    turn = slice(None, None, -1 if reverse else 1)
    found = weft.tensor(a).linear_recurrence(weft.tensor(b), -1, reverse=reverse).numpy()
    want = recurrence(a[..., turn].astype(np.float64), b[..., turn].astype(np.float64))[..., turn]
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=2e-6)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("shape", [(8200,), (33_000,), (20, 77)])
@pytest.mark.parametrize("kind", ["sum", "prod", "max"])
def test_types(rng, kind, shape, dtype):
    if np.dtype(dtype).kind == "f":
        a = near_one(rng, shape, dtype)
        if kind == "sum":
            a -= 1
    else:
        a = rng.integers(0, 100, shape).astype(dtype)
    found = scanned(kind, a)
    with np.errstate(all="ignore"):
        want = in_order(kind, a).astype(found.dtype)
    tolerance = {np.float16: 2e-3, np.float64: 1e-12}.get(dtype, 0)
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


SPECIAL = {
    np.float32: [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30, 1e-42, 3e38, 1e-38],
    np.float64: [0.0, -0.0, np.inf, -np.inf, np.nan, 1e200, -1e200, 1e-200, 5e-324, 1e-308, 1e300],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(8))
def test_products_leave_their_range_where_the_loop_does(seed, dtype):
    """Overflow and underflow stay, a zero stays a zero, whatever the factors behind it are."""
    rng = np.random.default_rng(seed)
    a = near_one(rng, (9001,), dtype)
    for at in rng.integers(0, a.size, 1 + 2 * seed):
        length = int(rng.choice([1, 1, 3, 20, 400]))
        a[at:at + length] = rng.choice(SPECIAL[dtype])
    want = in_order("prod", a)
    with np.errstate(all="ignore"):
        want = want.astype(dtype)
    found = scanned("prod", a)
    np.testing.assert_allclose(found, want, rtol=3e-7 if dtype is np.float32 else 1e-12)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(want[known]))


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan, 1e30, 1e-30, -0.0])
@pytest.mark.parametrize("at", [0, 1, 255, 256, 4000, 8999])
def test_one_special_factor(at, value):
    a = np.full(9001, -1.0, np.float32)
    a[at:at + 20] = value
    with np.errstate(all="ignore"):
        want = in_order("prod", a).astype(np.float32)
    found = scanned("prod", a)
    np.testing.assert_array_equal(found, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(want[known]))


@pytest.mark.parametrize("seed", range(8))
def test_recurrences_leave_their_range_where_the_loop_does(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, 9001), rng.standard_normal(9001)
    for at in rng.integers(0, a.size, 1 + seed):
        length = int(rng.choice([1, 3, 20, 400]))
        array = a if rng.random() < 0.7 else b
        array[at:at + length] = rng.choice([0.0, np.inf, np.nan, 1e200, -1e200, 10.0, 1e-200, 2.0])
    found = weft.tensor(a).linear_recurrence(weft.tensor(b), 0).numpy()
    np.testing.assert_allclose(found, recurrence(a, b), rtol=1e-9, atol=1e-9)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["sum", "max", "min", "logsumexp"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-42])
def test_special_values_of_sums_and_extremes(rng, kind, value):
    a = rng.standard_normal(40_000).astype(np.float32)
    a[[7, 20_000, 39_999]] = value
    with np.errstate(all="ignore"):
        want = in_order(kind, a)
        if kind == "logsumexp":
            want = np.where(np.isnan(a).cumsum() > 0, np.nan, want)
        want = want.astype(np.float32)
    np.testing.assert_allclose(scanned(kind, a), want, rtol=4e-6, atol=2e-6)
    np.testing.assert_array_equal(scanned(kind, np.full(40_000, -np.inf, np.float32))[:1],
                                  in_order(kind, np.full(1, -np.inf)))


def test_running_extremes_and_their_places(rng):
    a = rng.integers(0, 1000, (2, 33_000)).astype(np.float32)
    for name, ufunc in (("cummax", np.maximum), ("cummin", np.minimum)):
        values, places = (t.numpy() for t in getattr(weft.tensor(a), name)(1))
        want = ufunc.accumulate(a, 1)
        np.testing.assert_array_equal(values, want)
        new = np.where(a == want, np.arange(a.shape[1]), 0)
        np.testing.assert_array_equal(places, np.maximum.accumulate(new, 1))


@pytest.mark.grid
@pytest.mark.requires("torch")
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "cummax"])
@pytest.mark.parametrize("shape", [(9001,), (3, 8200), (40, 90)])
def test_gradients(rng, name, shape):
    import torch

    a = near_one(rng, shape) if name == "cumprod" else rng.standard_normal(shape)
    a, g = a.astype(np.float32), rng.standard_normal(shape).astype(np.float32)
    ours, theirs = weft.tensor(a).requires_grad_(), torch.from_numpy(a).double().requires_grad_()
    y, z = getattr(ours, name)(-1), getattr(theirs, name)(-1)
    if name == "cummax":
        y, z = y[0], z[0]
    (found,) = weft.grad(y, [ours], weft.tensor(g))
    (want,) = torch.autograd.grad(z, [theirs], torch.from_numpy(g).double())
    scale = float(want.abs().max())
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("shape", [(9001,), (3, 8200)])
def test_gradient_of_a_recurrence(rng, shape):
    a, b, g = (rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(3))
    ours = [weft.tensor(x).requires_grad_() for x in (a, b)]
    found = weft.grad(ours[0].linear_recurrence(ours[1], -1), ours, weft.tensor(g))
    h = recurrence(a.astype(np.float64), b)
    following = np.concatenate([a[..., 1:], np.zeros_like(a[..., :1])], -1).astype(np.float64)
    # The gradient by b is the recurrence from the end whose factors are those that follow.
    turned = recurrence(following[..., ::-1], g[..., ::-1].astype(np.float64))[..., ::-1]
    before = np.concatenate([np.zeros_like(h[..., :1]), h[..., :-1]], -1)
    np.testing.assert_allclose(found[1].numpy(), turned, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0].numpy(), turned * before, rtol=1e-4, atol=1e-5)


@pytest.mark.grid
@pytest.mark.parametrize("kind", [*KINDS, "linear"])
def test_one_row_is_shared_out_and_in_lanes(kind):
    """A schedule for one thread or more runs the same loops, so the results are the same bits."""
    node = _node(kind, (40_000,))
    got, want, (step,) = execute([node], np.random.default_rng(0))
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4, atol=1e-4)
    one, two = (choose(step.kernel, WIDE, threads) for threads in (1, 2))
    assert one.meta.schedule == two.meta.schedule
    shared = [s for s in walk(two.body) if isinstance(s, For) and s.kind == PARALLEL]
    assert len(shared) == 2
    for loop in shared:
        assert any(VECTOR in (getattr(s, "kind", ""), *(a.kind for a in getattr(s, "axes", ())))
                   for s in walk(loop.body))
    assert choose_first_tier(step.kernel, WIDE, 2).meta.kind == "scan"


@pytest.mark.parametrize("steps", [2, 20, 100])
@pytest.mark.parametrize("kind", ["prod", "linear", "logsumexp"])
def test_rows_are_lanes(kind, steps):
    node = _node(kind, (64, steps))
    _, _, (step,) = execute([node], np.random.default_rng(0))
    made = choose(step.kernel, WIDE, 1)
    kinds = {s.kind for s in walk(made.body) if isinstance(s, For)}
    assert {VECTOR, UNROLLED} <= kinds, made.meta.schedule


def _node(kind, shape):
    if kind == "linear":
        return infer.recurrence(leaf(*shape), leaf(*shape), len(shape) - 1)
    return infer.scan(leaf(*shape), kind, len(shape) - 1)


def test_blocks_leave_little_over():
    for unit, lengths in ((UNIT, (8192, 10_007, 32_768, 131_071, 131_072, 1_000_003, 1 << 24)),
                          (1, (LONG_LOGARITHM, 131, 1000, 4095, 4096, 40_009))):
        for n in lengths:
            blocks, size = _cut(n, unit)
            assert size % unit == 0
            assert 0 < size <= LARGEST
            assert n % (blocks * size) <= max(n // 16, blocks * unit)


def test_same_bits_from_run_to_run(rng):
    for kind in KINDS:
        a = near_one(rng, (3, 40_000))
        first = scanned(kind, a).tobytes()
        assert all(scanned(kind, a).tobytes() == first for _ in range(5))
