"""Sorts that part the row by pivots: every kind of data, every type, long and short rows."""

import numpy as np
import pytest

import weft
from seeds import seeds
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret import evaluate
from weft.ir.op import Op
from weft.kernelize.sorting.sort_row import Row

pytestmark = pytest.mark.skipif(
    not cpu.host_target().supports(Op.COMPRESS, dt.float32),
    reason="the processor packs no lanes")  # fmt: skip

SORTED = weft.jit(lambda x: x.sort()[0])
FALLING = weft.jit(lambda x: x.sort(descending=True)[0])
KINDS = ("float32", "float64", "int32", "uint32", "int64", "uint64")


def any_bits(rng, n, kind):
    """Numbers of every magnitude; for floats infinities and subnormals as well, no NaN."""
    size = np.dtype(kind).itemsize
    x = rng.integers(0, 256, n * size, np.uint8).view(kind)
    return np.where(np.isnan(x), x.dtype.type(0.5), x) if x.dtype.kind == "f" else x


def few(rng, n, kind):
    return rng.integers(0, 5, n).astype(kind)


def powers(rng, n, kind):
    """Each value is far from the next, so that means say little."""
    top = 60 if np.dtype(kind).itemsize == 8 else 30
    return np.left_shift(np.int64(1), rng.integers(0, top, n)).astype(kind)


def pipe(rng, n, kind):
    """Rising and falling halves, which mislead pivots taken at even steps."""
    half = np.arange(n // 2)
    return np.concatenate([half, half[::-1], np.full(n - 2 * (n // 2), n)]).astype(kind)


def teeth(rng, n, kind):
    """Large values just where a sample looks."""
    x = np.arange(n) % 1000
    x[:: max((n - 16) // 8, 1)] = 10**6
    return x.astype(kind)


def outliers(rng, n, kind):
    x = np.zeros(n, kind)
    x[rng.integers(0, n, 3)] = [1, 100, 50]
    return x


def ends(rng, n, kind):
    """The least and the largest element where no whole vector is."""
    x = np.full(n, 5, kind)
    x[-2:] = rng.permutation([1, 9]).astype(kind)
    return x


DATA = {
    "any": any_bits, "few": few, "powers": powers, "pipe": pipe, "teeth": teeth,
    "outliers": outliers, "ends": ends,
    "two": lambda rng, n, kind: rng.integers(0, 2, n).astype(kind),
    "equal": lambda rng, n, kind: np.full(n, 7, kind),
    "rising": lambda rng, n, kind: np.sort(any_bits(rng, n, kind)),
    "falling": lambda rng, n, kind: np.sort(any_bits(rng, n, kind))[::-1].copy(),
    "largest": lambda rng, n, kind: np.where(
        rng.random(n) < 0.5, np.inf if kind[0] == "f" else np.iinfo(kind).max, 1).astype(kind),
}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [257, 4099, 33013])
def test_every_kind_of_data_is_sorted(n, kind):
    for seed, (name, make) in enumerate(DATA.items()):
        x = make(np.random.default_rng((seed, n)), n, kind)
        assert np.array_equal(SORTED(weft.tensor(x)).numpy(), np.sort(x)), (name, seed)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["float32", "int64", "float64"])
@pytest.mark.parametrize("n", [300, 40_001])
def test_the_order_can_fall(n, kind):
    for seed, (name, make) in enumerate(DATA.items()):
        x = make(np.random.default_rng((seed, n)), n, kind)
        assert np.array_equal(FALLING(weft.tensor(x)).numpy(), np.sort(x)[::-1]), (name, seed)


@pytest.mark.grid
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [256, 391, 5000, 32_768, 70_001])
def test_zeros_and_nans_keep_their_bits_and_their_order(n, seed):
    rng = np.random.default_rng((seed, n))
    x = rng.standard_normal(n).astype(np.float32).round(1)
    x[rng.integers(0, n, n // 8)] = -0.0
    payloads = rng.integers(1, 1 << 22, n, np.uint32)
    nans = (0x7F800000 | payloads | (rng.integers(0, 2, n, np.uint32) << 31)).astype(np.uint32)
    x = np.where(rng.random(n) < 0.1 * seed, nans.view(np.float32), x)
    x[rng.integers(0, n, 3)] = np.inf
    # NumPy's stable sort takes zeros as equal and NaNs as equal and last, as ours.
    expected = x[np.argsort(x, kind="stable")]
    found = SORTED(weft.tensor(x)).numpy()
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.requires("torch")
@pytest.mark.grid
@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("n", [259, 5000, 40_001])
@pytest.mark.parametrize("seed", range(3))
def test_falling_rows_keep_zeros_and_nans_in_order(seed, n, kind):
    import torch

    rng = np.random.default_rng((seed, n))
    x = rng.standard_normal(n).astype(kind).round(1)
    x[rng.integers(0, n, 9)] = -0.0
    x[rng.integers(0, n, seed * n // 9)] = np.nan
    x[rng.integers(0, n, seed)] = -np.nan
    order = torch.sort(torch.from_numpy(x), descending=True, stable=True).indices.numpy()
    bits = np.dtype(f"u{x.itemsize}")
    assert np.array_equal(FALLING(weft.tensor(x)).numpy().view(bits), x[order].view(bits))


@pytest.mark.parametrize("odd", [-0.0, np.nan])
@pytest.mark.parametrize("n", [300, 33_001])
def test_one_odd_element_anywhere_is_seen(n, odd):
    rng = np.random.default_rng(n)
    for place in (0, n - 1, n - n % 16, *rng.integers(0, n, 5)):
        x = rng.integers(-3, 3, n).astype(np.float32)
        x[place] = odd
        expected = x[np.argsort(x, kind="stable")]
        found = SORTED(weft.tensor(x)).numpy()
        assert np.array_equal(found.view(np.uint32), expected.view(np.uint32)), place


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["float32", "float64", "int32"])
@pytest.mark.parametrize("n", [256, 257, 1031, 5000, 33_001])
@pytest.mark.parametrize("seed", seeds(2))
def test_rows_in_order_but_for_one_element(n, kind, seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.integers(0, n, (4, n)), axis=1).astype(kind)
    for row, at in zip(x[1:], (0, rng.integers(1, n - 1), n - 1), strict=True):
        row[at] = rng.integers(0, n)
    if np.dtype(kind).kind == "f":
        x[0, -2:] = np.nan
        x[2, rng.integers(0, n)] = np.nan
    for rows in (x, x[:1], x[1:2], x[2:3], x[3:]):
        assert SORTED(weft.tensor(rows)).numpy().tobytes() == np.sort(rows).tobytes()


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "uint64"])
@pytest.mark.parametrize("n", [257, 1031, 33_001])
@pytest.mark.parametrize("seed", seeds(2))
def test_rows_that_fall_but_for_one_element(n, kind, seed):
    rng = np.random.default_rng(seed)
    x = -np.sort(-rng.integers(0, n, (4, n)), axis=1).astype(kind)
    for row, at in zip(x[1:], (0, rng.integers(1, n - 1), n - 1), strict=True):
        row[at] = rng.integers(0, n)
    if np.dtype(kind).kind == "f":
        x[0, -9:] = rng.choice(np.array([0, -0.0], kind), 9)
        x[2, rng.integers(0, n)] = np.nan
    for rows in (x, x[:1], x[1:2], x[2:3], x[3:]):
        wanted = np.sort(rows, kind="stable")
        assert SORTED(weft.tensor(rows)).numpy().tobytes() == wanted.tobytes()
        fallen = FALLING(weft.tensor(rows)).numpy()
        assert np.array_equal(fallen, wanted[:, ::-1], equal_nan=np.dtype(kind).kind == "f")


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("seed", seeds(2))
def test_parts_of_one_value_with_others_where_no_sample_looks(kind, seed):
    rng = np.random.default_rng(seed)
    for n in rng.integers(800, 9000, 6):
        x = np.repeat(np.array([4, 9, 2], kind), n)[rng.permutation(3 * n)]
        x[rng.integers(0, len(x), 2)] = rng.integers(0, 12, 2)
        assert np.array_equal(SORTED(weft.tensor(x)).numpy(), np.sort(x))


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(3, 700), (2, 2, 40_000), (5, 33_000), (1, 1000), (9, 300),
                                   (9, 2100)])
@pytest.mark.parametrize("kind", ["float32", "int32"])
def test_rows_are_sorted_each(shape, kind):
    x = any_bits(np.random.default_rng(shape), int(np.prod(shape)), kind).reshape(shape)
    assert np.array_equal(SORTED(weft.tensor(x)).numpy(), np.sort(x))
    wide = weft.tensor(x)
    views = weft.jit(lambda t: (t[..., ::-1] + 1).sort()[0])(wide).numpy()
    assert np.array_equal(views, np.sort(x[..., ::-1] + x.dtype.type(1)))


@pytest.mark.parametrize("length", [129, 2**31 - 1, 2**31, 2**32, 2**32 + 129, 2**40])
def test_all_lanes_count_in_parts_of_any_length(length):
    row, size = Row.__new__(Row), ex.var("size", dt.int64)
    row.lanes = 8
    assert np.asarray(evaluate(row._lanes_of(size), {size: length})).tolist() == [True] * 8


def test_runs_are_bit_equal():
    x = any_bits(np.random.default_rng(5), 100_000, "float32")
    first = SORTED(weft.tensor(x)).numpy()
    assert all(np.array_equal(first, SORTED(weft.tensor(x)).numpy()) for _ in range(5))
