"""Sorts against NumPy's stable one: sizes of every method, types, NaN, signed zeros, threads."""

import numpy as np
import pytest

import weft
from scalar_semantics import evaluate
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.kernelize.sorting.sort import sort_key

SIZES = [0, 1, 2, 5, 31, 33, 64, 127, 128, 129, 300, 1000, 9000, 70_001]
FEWER = [1, 33, 300, 9000]
DTYPES = [np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8,
          np.uint16, np.bool_]  # fmt: skip


def sample(rng, n, dtype):
    if dtype is np.bool_:
        return rng.integers(0, 2, n).astype(dtype)
    if np.dtype(dtype).kind != "f":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, n, dtype=dtype, endpoint=True)
    a = np.round(rng.standard_normal(n) * 50, 1).astype(dtype)
    for value in (np.nan, -0.0, 0.0, np.inf, -np.inf, np.copysign(np.nan, -1)):
        a[rng.random(n) < 0.1] = value
    return a


def order(a, descending):
    """Return the stable order with NaN as the largest value."""
    a = a.astype(np.uint8) if a.dtype == bool else a
    if not descending:
        return np.argsort(a, kind="stable")
    return len(a) - 1 - np.argsort(a[::-1], kind="stable")[::-1]


@pytest.mark.grid
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_against_numpy(dtype, descending):
    rng = np.random.default_rng(3)
    for n in SIZES if dtype is np.float32 else FEWER:
        a = sample(rng, n, dtype)
        want = order(a, descending)
        values, indices = weft.tensor(a).sort(0, descending)
        np.testing.assert_array_equal(indices.numpy(), want)
        assert values.numpy().tobytes() == a[want].tobytes()
        assert weft.tensor(a).sort(0, descending)[0].numpy().tobytes() == a[want].tobytes()
        np.testing.assert_array_equal(weft.tensor(a).argsort(0, descending).numpy(), want)


@pytest.mark.grid
@pytest.mark.parametrize(("shape", "axis"), [
    ((5, 40), 0), ((5, 40), 1), ((3, 300, 4), 1), ((4, 3, 700), 2), ((2, 70_000), 1),
    ((3, 0), 1), ((0, 3), 1)])  # fmt: skip
def test_axes(shape, axis):
    a = np.round(np.random.default_rng(4).standard_normal(shape), 1).astype(np.float32)
    values, indices = weft.tensor(a).sort(axis)
    want = np.argsort(a, axis, kind="stable")
    np.testing.assert_array_equal(indices.numpy(), want)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(a, want, axis))


@pytest.mark.parametrize("n", [100, 5000, 80_000])
def test_orders_that_are_regular(n):
    for a in (np.zeros(n), np.arange(n), np.arange(n)[::-1], np.arange(n) % 7):
        got = weft.tensor(a.astype(np.float32)).argsort(0).numpy()
        np.testing.assert_array_equal(got, np.argsort(a, kind="stable"))


def test_of_a_computed_value():
    a = np.random.default_rng(5).standard_normal(5000).astype(np.float32)
    np.testing.assert_array_equal((weft.tensor(a) * 2).sort(0)[0].numpy(), np.sort(a * 2))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [dt.float32, dt.float16, dt.bfloat16, dt.float8_e4m3fn,
                                   dt.float8_e5m2, dt.float64])  # fmt: skip
def test_keys_order_floats(dtype, descending):
    rising = [-400.0, -1.5, -0.0, 0.0, 1.5, 400.0]
    if dtype is not dt.float8_e4m3fn:
        rising = [float("-inf"), *rising, float("inf")]
    keys = [evaluate(sort_key(ex.const(float(v), dtype), descending), {}) for v in
            [*rising, float("nan")]]  # fmt: skip
    assert keys == sorted(keys, reverse=descending)
    assert len(set(keys)) == len(keys) - 1  # the zeros are equal


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int16, np.uint32,
                                   np.int64])  # fmt: skip
@pytest.mark.parametrize(("shape", "axis"), [
    ((8, 2), 1), ((19, 17), 1), ((33, 16), 1), ((9, 200), 1), ((16, 530), 1), ((50, 21), 0),
    ((3, 37, 11), 1), ((2, 5, 48), 2)])  # fmt: skip
def test_rows_in_lanes(shape, axis, dtype):
    """The network of the values alone gives the bits of the stable sort with places."""
    a = sample(np.random.default_rng(sum(shape)), int(np.prod(shape)), dtype).reshape(shape)
    x = weft.tensor(a)
    for descending in (False, True):
        places = x.argsort(axis, descending).numpy()
        wanted = np.take_along_axis(a, places, axis)
        assert x.sort(axis, descending)[0].numpy().tobytes() == wanted.tobytes()


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize(("shape", "axis", "k"), [
    ((3, 1000), 1, 5), ((300,), 0, 1), ((2, 3001), 1, 70), ((257, 9), 0, 3), ((2, 300, 3), 1, 1),
    ((7, 100), 1, 40), ((20, 64), 1, 2), ((4, 5), 1, 0), ((4, 5), 1, 5)])  # fmt: skip
def test_the_first_of_an_order(shape, axis, k, dtype):
    """Random data, one value only, a period that puts the first into few groups, sorted data."""
    rng = np.random.default_rng(sum(shape))
    period = np.arange(shape[axis]) % 64
    period = np.broadcast_to(np.expand_dims(period, [i for i in range(len(shape)) if i != axis]),
                             shape)  # fmt: skip
    drawn = sample(rng, int(np.prod(shape)), dtype).reshape(shape)
    for a in (drawn, np.ones(shape, dtype), period.astype(dtype), np.sort(drawn, axis)):
        x = weft.tensor(np.ascontiguousarray(a))
        for largest in (False, True):
            values, places = x.topk(k, axis, largest)
            want = np.take(x.argsort(axis, largest).numpy(), range(k), axis)
            np.testing.assert_array_equal(places.numpy(), want)
            kept = np.take_along_axis(a, want, axis)
            assert values.numpy().tobytes() == kept.tobytes()
            assert x.topk(k, axis, largest)[0].numpy().tobytes() == kept.tobytes()


def test_gradient_of_the_first():
    a = np.random.default_rng(6).standard_normal((3, 500)).astype(np.float32)
    x = weft.tensor(a).requires_grad_()
    (x.topk(3, 1)[0] * weft.tensor([1.0, 2.0, 3.0])).sum().backward()
    wanted = np.zeros_like(a)
    np.put_along_axis(wanted, np.argsort(-a, 1)[:, :3], np.array([[1.0, 2.0, 3.0]]), 1)
    np.testing.assert_array_equal(x.grad.numpy(), wanted)


@pytest.mark.grid
@pytest.mark.parametrize("n", [0, 1, 5, 64, 65, 1000, 70_001])
def test_true_first_and_distinct_values(n):
    rng = np.random.default_rng(n)
    mask = rng.random(n) < 0.3
    np.testing.assert_array_equal(weft.tensor(mask).nonzero().numpy()[:, 0], np.nonzero(mask)[0])
    for descending in (False, True):
        values, places = weft.tensor(mask).sort(0, descending)
        want = np.argsort(mask ^ descending, kind="stable")
        np.testing.assert_array_equal(places.numpy(), want)
        np.testing.assert_array_equal(values.numpy(), mask[want])
    a = rng.integers(-50, 50, n)
    np.testing.assert_array_equal(weft.tensor(a).unique().numpy(), np.unique(a))
    if n:
        distinct, counts = weft.tensor(a).unique(return_counts=True)
        np.testing.assert_array_equal(counts.numpy(), np.unique(a, return_counts=True)[1])
        assert distinct.shape == counts.shape
        both = weft.tensor(a.reshape(1, n)).unique(return_inverse=True, return_counts=True)
        want = np.unique(a.reshape(1, n), return_inverse=True, return_counts=True)
        for got, expected in zip(both, want, strict=True):
            np.testing.assert_array_equal(got.numpy(), expected.reshape(got.shape))
        assert both[1].shape == (1, n)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "float64"])
def test_distinct_values_of_every_width(dtype):
    rng = np.random.default_rng(2)
    for count, most in ((7, 1), (300, 3), (300, 100)):
        a = rng.integers(0, most + 1, count).astype(dtype)
        values, inverse, counts = weft.from_numpy(a).unique(True, return_inverse=True)
        want = np.unique(a, return_counts=True)
        np.testing.assert_array_equal(values.numpy(), want[0])
        np.testing.assert_array_equal(counts.numpy(), want[1])
        np.testing.assert_array_equal(values.numpy()[inverse.numpy()], a)


def test_distinct_special_values():
    """Every NaN is a value of its own, as in PyTorch, and the zeros are one."""
    a = np.array([np.nan, 0.0, -np.inf, np.nan, -0.0, np.inf, 0.0], np.float32)
    values, counts = weft.from_numpy(a).unique(return_counts=True)
    np.testing.assert_array_equal(values.numpy(), [-np.inf, 0, np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(counts.numpy(), [1, 3, 1, 1, 1])
    x = weft.from_numpy(a).requires_grad_()
    assert not (x * 2).unique().requires_grad
    for found in weft.tensor(np.zeros((0, 2), np.int32)).unique(True, return_inverse=True):
        assert found.numel() == 0
    first = weft.from_numpy(a).unique()
    kept = first.numpy().copy()
    weft.from_numpy(a + 1).unique()  # which takes other memory
    np.testing.assert_array_equal(first.numpy(), kept)
    first.add_(1)
    np.testing.assert_array_equal(first.numpy(), kept + 1)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.float64])
@pytest.mark.parametrize("scale", [1, 1 << 30, 1 << 58])
def test_digits_that_are_all_alike(dtype, scale):
    """Pairs of digits in which no two keys differ are passed over."""
    rng = np.random.default_rng(8)
    for n in (900, 9000):
        a = rng.integers(0, 20, n).astype(dtype) * dtype(scale)
        for descending in (False, True):
            values, places = weft.tensor(a).sort(0, descending)
            want = order(a, descending)
            np.testing.assert_array_equal(places.numpy(), want)
            np.testing.assert_array_equal(values.numpy(), a[want])


@pytest.mark.grid
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f2", "i4", "u4", "i2", "u2", "i1", "u1"])
def test_places_of_short_rows_are_those_of_a_stable_sort(dtype, descending):
    rng = np.random.default_rng(5)
    for shape, axis in (((8, 361), -1), ((19, 3), 1), ((9, 1), 1), ((33, 17), 0), ((3, 40, 9), 1)):
        if dtype[0] == "f":
            values = np.array([0.0, -0.0, np.nan, 1, -1, np.inf, -np.inf, 0.5, 2**-20, 7], dtype)
        else:
            limits = np.iinfo(dtype)
            values = np.array([0, 1, 2, 5, limits.max, limits.max - 1, limits.min], dtype)
        x = rng.choice(values, shape)
        wide = x.astype(np.float64)
        if descending:  # NaN is the largest value
            wide = -np.where(np.isnan(wide), 3e38, np.clip(wide, -1e38, 1e38))
        wanted = np.argsort(wide, axis, kind="stable")
        order, places = weft.from_numpy(x).sort(axis, descending=descending)
        np.testing.assert_array_equal(places.numpy(), wanted)
        np.testing.assert_array_equal(
            weft.from_numpy(x).argsort(axis, descending=descending).numpy(), wanted)
        bits = f"u{x.itemsize}"
        np.testing.assert_array_equal(
            order.numpy().view(bits), np.take_along_axis(x, wanted, axis).view(bits))


def test_places_of_computed_rows():
    x = np.random.default_rng(6).standard_normal((21, 77), dtype=np.float32)
    order, places = (weft.from_numpy(x) * 2 + 1).abs().sort(-1)
    wanted = np.argsort(np.abs(x * 2 + 1), -1, kind="stable")
    np.testing.assert_array_equal(places.numpy(), wanted)
    np.testing.assert_allclose(order.numpy(), np.sort(np.abs(x * 2 + 1), -1), rtol=1e-6)
