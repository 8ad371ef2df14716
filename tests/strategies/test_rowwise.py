"""Row-wise nests whose rows are scattered in memory, or shorter than a vector."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_replays, assert_same, loop, memory, n, v
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import Axis, Kernel, Load, Reduce, Store
from weft.strategies import choose
from weft.target import Target

WIDE = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, l1_bytes=32 << 10,
              l2_bytes=1 << 20, l3_bytes=32 << 20, cores=2)


def check(kernel, exact=True):
    made = choose(kernel, WIDE, 2)
    assert_same(kernel, made, exact=exact)
    assert_replays(kernel, made)
    return made


def channel_sums(batch, channels, *size):
    """s[c] = sum over n, y, x of a[n, c, y, x]; t[c] = q[c] * s[c]."""
    axes = tuple(Axis(v(f"k{i}"), n(e)) for i, e in enumerate((batch, *size)))
    x, q = memory("x", batch, channels, *size), memory("q", channels)
    s, t = memory("s", channels), memory("t", channels)
    at = (axes[0].var, v("c"), *(a.var for a in axes[1:]))
    reduce = Reduce(axes, (nests.total("s0", value=nests.f("a")),), (Load(nests.f("a"), x, at),))
    nest = loop("c", channels, Load(nests.f("b"), q, (v("c"),)), reduce,
                Store(s, (v("c"),), nests.f("s0")),
                Store(t, (v("c"),), nests.f("s0") * nests.f("b")))
    return Kernel("channels", (x, q, s, t), (nest,))


@pytest.mark.parametrize(("size", "axis"), [((64,), "k1"), ((8, 8), "k1_k2"), ((4, 4), "k1_k2"),
                                            ((3, 5), "k0_k1_k2"), ((2, 100), "k2")])  # fmt: skip
def test_statistics_of_channels_run_along_memory(size, axis):
    """Values of a row count once, elements of the reduction as often as there are."""
    made = check(channel_sums(6, 32, *size), exact=False)
    assert f"{axis} reduced in" in dict(made.meta.hints)["why"]


def test_sums_of_exponentials_take_one_vector_at_a_time():
    """They wait for the next row, which is asked for vector by vector."""
    made = check(nests.softmax(3, 1000), exact=False)
    assert "q.i reduced in 16 lanes" in dict(made.meta.hints)["why"]


@pytest.mark.parametrize("size", [(4, 4), (8, 8), (3, 28)])
def test_short_rows_of_a_pool_are_joined(size):
    height, width = size
    x, y = memory("x", 6, 2 * height, 2 * width), memory("y", 6, height, width)
    at = (v("c"), v("i") * 2 + v("p"), v("j") * 2 + v("q"))
    reduce = Reduce((Axis(v("p"), n(2)), Axis(v("q"), n(2))),
                    (nests.biggest("m", nests.f("a")),), (Load(nests.f("a"), x, at),))
    nest = loop("c", 6, loop("i", height, loop("j", width, reduce, Store(
        y, (v("c"), v("i"), v("j")), nests.f("m")))))
    made = check(Kernel("pool", (x, y), (nest,)))
    assert ("i_j in vectors of" in dict(made.meta.hints)["why"]) == (width < 16)


@pytest.mark.parametrize(("rows", "columns"), [(64, 21), (65, 5), (23, 40), (3, 7), (16, 4000)])
def test_logarithms_of_short_rows_are_taken_together(rows, columns):
    data = np.random.default_rng(5).standard_normal((rows, columns), dtype=np.float32) * 3
    data[0, 0] = np.inf
    data[1 % rows] = -np.inf
    x, wide = weft.from_numpy(data), data.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1, keepdims=True))
        want = wide - wide.max(1, keepdims=True) - total
        whole = np.where(np.isfinite(want[:, -1]), (total + wide.max(1, keepdims=True))[:, 0],
                         wide.max(1))
    np.testing.assert_allclose(x.log_softmax(-1).numpy(), want, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(x.logsumexp(-1).numpy(), whole, rtol=2e-6)


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(5, 3, 4), (7, 87, 4), (3, 20, 8), (6, 11, 5), (2, 13, 15),
                                   (4, 700, 4), (3, 40_000, 7), (2, 0, 4), (5, 67, 3), (3, 64, 3),
                                   (2, 5003, 3), (9, 33, 3), (3, 0, 3)])  # fmt: skip
def test_a_few_columns_that_lie_apart(shape):
    """Sums, extremes and places over the middle axis where the last one is short."""
    data = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    if shape[1] > 1:
        data[0, 1, 2] = np.nan
    x = weft.from_numpy(data)
    wide = data.astype(np.float64)
    size = np.abs(wide).sum(1)
    assert (np.nan_to_num(np.abs(x.sum(1).numpy() - wide.sum(1))) <= 2e-7 * np.nan_to_num(
        size, nan=np.inf)).all()
    np.testing.assert_array_equal(np.isnan(x.sum(1).numpy()), np.isnan(wide.sum(1)))
    np.testing.assert_array_equal((x > 2).any(1).numpy(), (data > 2).any(1))
    if shape[1]:
        np.testing.assert_array_equal(x.amax(1).numpy(), data.max(1))
        np.testing.assert_array_equal(x.argmin(1).numpy(), data.argmin(1))
        whole = np.nan_to_num(data * 9).astype(np.int8)
        np.testing.assert_array_equal(weft.from_numpy(whole).amin(1).numpy(), whole.min(1))


@pytest.mark.parametrize(("batch", "points", "columns", "wanted"), [
    (6, 40, 3, "16 points of 3 columns"), (4, 37, 2, "16 points of 2 columns"),
    (4, 20, 3, ""), (5, 19, 70, "70 columns in registers"), (1, 9, 448, "448 columns in registers"),
    (2, 300, 65, "65 columns in registers"), (2, 9, 449, "columns in the first cache")])
def test_columns_in_registers(batch, points, columns, wanted):
    x, y = memory("x", batch, points, columns), memory("y", batch, columns)
    reduce = Reduce((Axis(v("k"), n(points)),), (nests.total("s", value=nests.f("a")),),
                    (Load(nests.f("a"), x, (v("i"), v("k"), v("j"))),))
    nest = loop("i", batch, loop("j", columns, reduce, Store(y, (v("i"), v("j")), nests.f("s"))))
    made = check(Kernel("sums", (x, y), (nest,)), exact=False)
    assert wanted in dict(made.meta.hints)["why"]


def test_what_all_columns_share_does_not_turn_a_sum_of_columns():
    """Three vectors along the reduced axis beside two matrices across it were read along it."""
    rows, columns = 300, 70
    left, right = memory("left", rows, columns), memory("right", rows, columns)
    shared = [memory(f"p{i}", rows) for i in range(3)]
    y, k, c = memory("y", columns), v("k"), v("c")
    loads = [Load(nests.f(f"a{i}"), p, (k,)) for i, p in enumerate(shared)]
    value = nests.f("l") * ex.mad(nests.f("r") - nests.f("a0"), nests.f("a1"), nests.f("a2"))
    reduce = Reduce((Axis(k, n(rows)),), (nests.total("s", value=value),),
                    (Load(nests.f("l"), left, (k, c)), Load(nests.f("r"), right, (k, c)), *loads))
    nest = loop("c", columns, reduce, Store(y, (c,), nests.f("s")))
    made = check(Kernel("sums", (left, right, *shared, y), (nest,)), exact=False)
    assert "k reduced in" not in dict(made.meta.hints)["why"]


@pytest.mark.parametrize("n", [1024, 2048, 3001, 4096, 9000])
def test_sums_of_rows_are_chains_of_few_roundings(n):
    """Chains of 64 roundings a lane made 1.5e-7 of the typical sum where 1.1e-7 are to be had."""
    x = np.random.default_rng(n).standard_normal((1000, n), dtype=np.float32)
    error = weft.from_numpy(x).sum(-1).numpy() - x.astype(np.float64).sum(-1)
    assert np.sqrt(np.mean(error**2) / n) < 1.2e-7


def column_softmax(rows, columns):
    """y[k, c] = exp(x[k, c]) / sum over k of exp(x[k, c])"""
    x, y = memory("x", rows, columns), memory("y", rows, columns)
    k, q, c = v("k"), v("q"), v("c")
    total = Reduce((Axis(k, n(rows)),), (nests.total("s", value=ex.unary(Op.EXP, nests.f("a"))),),
                   (Load(nests.f("a"), x, (k, c)),))
    scale = loop("q", rows, Load(nests.f("b"), x, (q, c)),
                 Store(y, (q, c), ex.unary(Op.EXP, nests.f("b")) / nests.f("s")))
    return Kernel("columns", (x, y), (loop("c", columns, total, scale),))


@pytest.mark.parametrize(("columns", "shared"), [(100, False), (112, True), (600, True)])
def test_threads_do_not_share_lines_of_short_rows(columns, shared):
    """Columns of rows that are no whole lines are one thread's, if there are few of them."""
    made = check(column_softmax(300, columns), exact=False)
    assert ("shared out to 2 threads" in dict(made.meta.hints)["why"]) == shared


@pytest.mark.parametrize(("l2_bytes", "shared"), [(1 << 20, False), (1 << 18, True)])
def test_threads_share_lines_that_leave_the_second_cache(l2_bytes, shared):
    """A line of a large result is gone when the other thread comes to it, and costs no more."""
    made = choose(column_softmax(300, 100), WIDE.replace(l2_bytes=l2_bytes), 2)
    assert ("shared out to 2 threads" in dict(made.meta.hints)["why"]) == shared


@pytest.mark.parametrize("shape", [(70_003, 37), (40_001, 16), (9_001, 129), (5_000, 448)])
def test_long_columns_that_threads_share_err_no_more_than_blocks(shape):
    """Sums of columns round as often at any number of threads: once in a block, and once for it."""
    data = np.random.default_rng(2).random(shape, dtype=np.float32)
    wide = data.astype(np.float64).sum(0)
    got = weft.from_numpy(data).sum(0)
    assert np.abs(got.numpy() / wide - 1).max() < 3.5e-7
    again = weft.from_numpy(data).sum(0)
    assert again.numpy().tobytes() == got.numpy().tobytes()
    np.testing.assert_array_equal(weft.from_numpy(data).amax(0).numpy(), data.max(0))


@pytest.mark.parametrize(("rows", "columns"), [(1, 6), (15, 3), (16, 1), (17, 8), (32, 13),
                                               (37, 16), (131, 33), (40, 48), (67, 5)])
def test_short_rows_are_reduced_side_by_side(rows, columns):
    x = np.random.default_rng(rows * columns).standard_normal((rows, columns), dtype=np.float32)
    x[rows // 2, columns // 2] = -np.inf
    t = weft.from_numpy(x)
    np.testing.assert_allclose(t.sum(1).numpy(), x.astype(np.float64).sum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(t.amax(1).numpy(), x.max(1))
    np.testing.assert_array_equal(t.amin(1).numpy(), x.min(1))
    np.testing.assert_array_equal((t > 0).any(1).numpy(), (x > 0).any(1))
    np.testing.assert_array_equal((t > 0).sum(1).numpy(), (x > 0).sum(1))
    v = np.linspace(-1, 1, columns, dtype=np.float32)
    finite = np.where(np.isfinite(x), x, 0).astype(np.float32)
    np.testing.assert_allclose((weft.from_numpy(finite) @ weft.from_numpy(v)).numpy(),
                               finite.astype(np.float64) @ v, rtol=1e-4, atol=1e-5)


def test_short_rows_of_special_values():
    """NaN stays in its row; the larger of -0 and 0 is 0; a sum of -0 is 0."""
    x = np.zeros((40, 6), np.float32)
    x[3, 2], x[7], x[9, 5], x[11] = np.nan, -0.0, -0.0, -np.inf
    t = weft.from_numpy(x)
    largest, total = t.amax(1).numpy(), t.sum(1).numpy()
    assert np.isnan(largest[3])
    assert np.isnan(total[3])
    assert np.isfinite(np.delete(largest, (3, 11))).all()
    assert np.signbit(largest[7])
    assert not np.signbit(largest[9])
    assert not np.signbit(total[7])
    assert largest[11] == total[11] == -np.inf


@pytest.mark.grid
@pytest.mark.parametrize(("rows", "columns", "dtype"), [
    (1, 5, np.float32), (63, 2, np.float32), (64, 8, np.float64), (257, 3, np.int32),
    (1000, 9, np.float32), (1001, 11, np.float64), (999, 12, np.float32), (130, 2, np.int32)])
def test_places_of_extremes_in_a_few_columns(rows, columns, dtype):
    """Of one matrix, and of each of several."""
    rng = np.random.default_rng(rows + columns)
    x = rng.integers(-40, 40, (rows, columns)).astype(dtype)  # many are equal: the first counts
    t = weft.from_numpy(x)
    np.testing.assert_array_equal(t.argmax(0).numpy(), x.argmax(0))
    np.testing.assert_array_equal(t.argmin(0).numpy(), x.argmin(0))
    three = np.stack([x, x[::-1], -x])
    np.testing.assert_array_equal(weft.from_numpy(three).argmax(1).numpy(), three.argmax(1))
    if dtype is not np.int32:
        x[rng.integers(rows), columns // 2] = np.nan
        x[rng.integers(rows), 0] = np.inf
        t = weft.from_numpy(x)
        np.testing.assert_array_equal(t.argmax(0).numpy(), x.argmax(0))
        np.testing.assert_array_equal(t.argmin(0).numpy(), x.argmin(0))


@pytest.mark.parametrize("shape", [(10, 8, 8, 5, 2, 0), (3, 8, 14, 5, 2, 0), (2, 15, 31, 5, 5, 2),
                                   (5, 7, 5, 3, 2, 1)])
def test_gradients_of_a_pool_with_fewer_windows_than_taps(shape):
    """All positions read the same few windows; they are lanes, by quotient and remainder."""
    count, height, width, kernel, stride, padding = shape
    rng = np.random.default_rng(7)
    x = rng.permutation(count * 3 * height * width).reshape(count, 3, height, width).astype("f4")
    t = weft.from_numpy(x)

    def pool(a):
        return a.max_pool2d(kernel, stride, padding)

    g = rng.standard_normal(pool(t).shape).astype("f4")
    got = weft.grad(lambda a: (pool(a) * weft.from_numpy(g)).sum())(t).numpy()
    want = np.zeros((count, 3, height + 2 * padding, width + 2 * padding))
    wide = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)),
                  constant_values=-np.inf)
    for n_, c, i, j in np.ndindex(g.shape):
        rows, columns = (slice(k * stride, k * stride + kernel) for k in (i, j))
        window = wide[n_, c, rows, columns]
        at = np.unravel_index(window.argmax(), window.shape)
        want[n_, c, i * stride + at[0], j * stride + at[1]] += g[n_, c, i, j]
    end = -padding or None
    np.testing.assert_allclose(got, want[:, :, padding:end, padding:end], rtol=1e-5, atol=1e-6)
