"""Every type of kernel at its limits: empty and prime sizes, odd views, NaN and infinities.

Views are made in NumPy and shared, so that strides, overlaps and misalignment reach the kernels.
"""

import numpy as np
import pytest

import weft
from weft.nn import functional

RNG = np.random.default_rng()
EDGE = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 1e9, -1e9, 1.0], np.float32)


def normal(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def reversed_rows(a):
    return np.ascontiguousarray(a[::-1])[::-1]


def every_second(a):
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


def turned(a):
    return np.ascontiguousarray(a.T).T


def misaligned(a):
    raw = np.zeros(a.nbytes + 1, np.uint8)
    out = raw[1:].view(a.dtype).reshape(a.shape)
    out[...] = a
    return out


def overlapping(a):
    flat = np.resize(a.ravel(), a.shape[0] + a.shape[1])
    return np.lib.stride_tricks.as_strided(flat, a.shape, (a.itemsize, a.itemsize))


VIEWS = {f.__name__: f for f in (reversed_rows, every_second, turned, misaligned, overlapping)}


def softmax64(x):
    x = x.astype(np.float64)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm64(x):
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


# name: (Weft, the same in float64 from one matrix)
TYPES = {
    "chain": (lambda x: ((x * 2 + 1).relu() * -0.5).exp() + x,
              lambda x: np.exp(np.maximum(x * 2 + 1, 0) * -0.5) + x),
    "softmax": (lambda x: x.softmax(-1), softmax64),
    "log_softmax": (lambda x: x.log_softmax(-1), lambda x: np.log(softmax64(x))),
    "layer_norm": (lambda x: x.layer_norm((x.shape[-1],)), norm64),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "columns": (lambda x: x.sum(0), lambda x: x.sum(0)),
    "var": (lambda x: x.var(-1, correction=0), lambda x: x.var(-1)),
    "matmul": (lambda x: x @ x.transpose(0, 1), lambda x: x @ x.T),
    "products": (lambda x: x.transpose(0, 1) @ x, lambda x: x.T @ x),
    "matvec": (lambda x: x @ x[0], lambda x: x @ x[0]),
    "cumsum": (lambda x: x.cumsum(-1), lambda x: x.cumsum(-1)),
    "down": (lambda x: x.cumsum(0), lambda x: x.cumsum(0)),
    "sort": (lambda x: x.sort(-1)[0], lambda x: np.sort(x, -1)),
    "transpose": (lambda x: x.transpose(0, 1).contiguous(), lambda x: x.T),
    "gather": (lambda x: x[weft.tensor([0, -1, 0])], lambda x: x[[0, -1, 0]]),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, x, x),
                  lambda x: softmax64(x @ x.T / np.sqrt(x.shape[-1])) @ x),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", TYPES)
def test_views_of_prime_sizes(name, view):
    run, reference = TYPES[name]
    for rows, columns in ((37, 53), (5, 131), (67, 3)):
        x = VIEWS[view](normal(rows, columns))
        found = run(weft.from_numpy(x))
        np.testing.assert_allclose(found.numpy(), reference(x.astype(np.float64)), 2e-4, 2e-4)


@pytest.mark.parametrize("name", TYPES)
def test_sizes_of_one(name):
    run, reference = TYPES[name]
    for rows, columns in ((1, 1), (1, 17), (17, 1)):
        x = normal(rows, columns)
        found = run(weft.from_numpy(x))
        np.testing.assert_allclose(found.numpy(), reference(x.astype(np.float64)), 2e-4, 2e-4)


@pytest.mark.parametrize("name", [n for n in TYPES if n not in ("matvec", "gather")])
def test_sizes_of_zero(name):
    run = TYPES[name][0]
    for rows, columns in ((0, 5), (5, 0), (0, 0)):
        found = run(weft.zeros(rows, columns)).numpy()
        if name in ("matmul", "products") and found.size:
            assert not found.any()


@pytest.mark.grid
@pytest.mark.parametrize("name", TYPES)
def test_results_are_the_same_each_time(name):
    run = weft.jit(TYPES[name][0])
    x = weft.from_numpy(normal(211, 307))
    first = run(x).numpy().tobytes()
    assert all(run(x).numpy().tobytes() == first for _ in range(5))


def edges(rows, columns):
    x = normal(rows, columns)
    where = RNG.random(x.shape) < 0.05 * RNG.integers(0, 2, (rows, 1))  # some rows stay finite
    x[where] = RNG.choice(EDGE, where.sum())
    return x


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_values_reach_the_result():
    """NaN and infinities come out where the formulas put them, and nowhere else."""
    for rows, columns in ((41, 67), (3, 1031)):
        x = edges(rows, columns)
        t = weft.from_numpy(x)
        np.testing.assert_array_equal(t.amax(-1).numpy(), x.max(-1))
        np.testing.assert_array_equal(t.amin(0).numpy(), x.min(0))
        np.testing.assert_array_equal(t.argmax(-1).numpy(), x.argmax(-1))
        np.testing.assert_array_equal(t.sort(-1)[0].numpy(), np.sort(x, -1))
        np.testing.assert_array_equal(t.cummax(-1)[0].numpy(), np.maximum.accumulate(x, -1))
        for name in ("softmax", "chain", "layer_norm", "cumsum", "matmul"):
            run, reference = TYPES[name]
            wanted = reference(x)  # in float32: what overflows there overflows here
            found = run(t).numpy()
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted), name)


def test_rows_of_minus_infinity():
    x = normal(6, 19)
    x[2] = -np.inf
    x[4, 1:] = -np.inf
    found = weft.from_numpy(x).softmax(-1).numpy()
    assert np.isnan(found[2]).all()
    np.testing.assert_array_equal(found[4], [1] + [0] * 18)
    assert np.isfinite(found[[0, 1, 3, 5]]).all()


def test_variance_of_values_far_from_zero():
    """Two passes: the mean is taken off before squaring."""
    for shift in (1e3, 1e5, 1e6):
        x = (RNG.standard_normal((7, 4099)) * 0.5 + shift).astype(np.float32)
        wanted = x.astype(np.float64).var(-1)
        np.testing.assert_allclose(weft.from_numpy(x).var(-1, correction=0).numpy(), wanted, 1e-2)
        found = weft.from_numpy(x).layer_norm((4099,)).numpy()
        np.testing.assert_allclose(found, norm64(x), 0, 3e-3 * shift / 1e3 + 1e-4)


def test_subnormals_are_not_flushed():
    x = np.full((3, 64), 1e-42, np.float32)
    t = weft.from_numpy(x)
    np.testing.assert_array_equal((t * 2).numpy(), x * 2)
    np.testing.assert_array_equal(t.sum(-1).numpy(), x.sum(-1))
    np.testing.assert_array_equal((t @ weft.eye(64)).numpy(), x)
    np.testing.assert_array_equal(t.cumsum(-1).numpy()[:, 1], x[:, 0] * 2)


@pytest.mark.slow
def test_more_than_two_billion_bytes():
    size = 2**31 + 11
    x = np.zeros(size, np.int8)
    x[[0, 2**31 - 1, 2**31 + 1, size - 1]] = 3, 5, 7, 9
    t = weft.from_numpy(x)
    assert t.sum(dtype=weft.int64).item() == 24
    assert t.argmax().item() == size - 1
    assert t[2**31 + 1].item() == 7
    assert t[weft.tensor([2**31 - 1, -1])].tolist() == [5, 9]
    assert (t[2**31 - 4 :] + 1).numpy().tolist() == (x[2**31 - 4 :] + 1).tolist()
    assert t[::-1][:3].numpy().tolist() == x[::-1][:3].tolist()
    doubled = (t * 2).numpy()
    assert doubled[[0, 2**31 - 1, 2**31 + 1, size - 1]].tolist() == [6, 10, 14, 18]
    assert int(doubled[: 2**31 - 1].max()) == 6
