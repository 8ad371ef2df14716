"""Products of float32 as products of their bfloat16 parts: exact where float32 is, and in range."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_costs import Cost, tiles_of
from schedule_nests import assert_same
from seeds import seeds
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret import interpret
from weft.ir.op import Op
from weft.ir.stmt import Alloc, For, If, Store
from weft.ir.traverse import walk
from weft.passes.packed_weights import take_packed_weights
from weft.schedule import Schedule
from weft.schedule.data.float32_parts import part
from weft.strategies import choose
from weft.strategies.gemm import split_float32

FEATURES = tuple(f"+{name}" for name in (
    "amx-bf16", "amx-int8", "amx-tile", "avx", "avx2", "avx512bf16", "avx512bw", "avx512dq",
    "avx512f", "avx512vl", "avx512vnni", "f16c", "fma", "sse2"))  # fmt: skip
TARGET = cpu.target_from("x86_64", "sapphirerapids", FEATURES,
                         {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20})
SMALL = TARGET.replace(l2_bytes=20 << 10)
ROUNDING = 2.0**-24
SEEDS = seeds(3)
native = pytest.mark.requires("tiles")


@pytest.fixture(autouse=True)
def _parts_of_small_products(monkeypatch):
    for name in ("_pays", "_is_faster"):
        monkeypatch.setattr(split_float32, name, lambda *_: True)


def takes_parts(kernel):
    return dict(kernel.meta.hints).get("form") == "split_float32"


def multiplied(a, b):
    return np.asarray(weft.jit(lambda x, y: x @ y)(weft.tensor(a), weft.tensor(b)))


def error(c, a, b):
    """Return the largest and the root-mean-square error, in roundings of the sum of magnitudes."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    size = np.abs(a) @ np.abs(b)
    off = np.abs(c - a @ b) / np.where(size == 0, 1, size) / ROUNDING
    return off.max(), np.sqrt((off**2).mean())


@pytest.mark.grid
@pytest.mark.parametrize("layout", ["ik,kj", "ik,jk", "ki,kj", "ki,jk"])
@pytest.mark.parametrize(("shape", "threads"), [((17, 18, 33), 1), ((5, 34, 20), 2)])
def test_the_schedule_gives_the_same_sums(layout, shape, threads):
    kernel = nests.matmul(*shape, *layout.split(","))
    made = choose(kernel, TARGET, threads)
    assert takes_parts(made)
    assert_same(kernel, made, exact=False)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_are_copied_once_for_all_blocks_of_columns(threads):
    kernel = nests.matmul(35, 100, 32)
    made = choose(kernel, SMALL, threads)
    assert Cost(made).read["a"] == 64 * 32 * threads  # two tiles of rows, of each thread
    assert_same(kernel, made, exact=False)


def test_columns_across_rows_of_memory_are_turned_before_their_parts_are_made():
    kernel = nests.matmul(40, 200, 96, "ik", "jk")
    made = choose(kernel, SMALL, 1)
    unrolled = [s for s in walk(made.body) if isinstance(s, For) and s.kind == "unrolled"]
    written = {s.memory.name for loop in unrolled for s in walk(loop.body) if isinstance(s, Store)}
    words = {s.memory.name for s in walk(made.body) if isinstance(s, Alloc)
             and s.memory.dtype is dt.uint32}
    assert len(words) >= 2
    assert not words & written  # parts take long: they are in the code once
    assert_same(kernel, made, exact=False)


@pytest.mark.parametrize("layout", ["ik,jk", "ki,jk"])
def test_turned_tiles_of_a_weight_are_not_kept_between_calls(layout):
    """They would be read from memory, twice: for their magnitudes, and for their parts."""
    made = choose(nests.matmul(512, 512, 512, *layout.split(",")), TARGET, 2)
    assert takes_parts(made)
    assert take_packed_weights(made, {"a", "b"}) == (made, ())


def test_targets_without_tiles_take_vectors():
    kernel = nests.matmul(64, 64, 64)
    for kinds in (["f32"], ["f32", "u32"]):
        absent = {(Op.MATRIX2.name, kind) for kind in kinds}
        target = TARGET.replace(operations=TARGET.operations - absent)
        assert not takes_parts(choose(kernel, target, 1))
    assert takes_parts(choose(kernel, TARGET, 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_three_parts_are_the_value(seed):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, 300, dtype=np.uint32)
    bits = bits & 0x80FFFFFF | (rng.integers(27, 253, 300) << 23).astype(np.uint32)
    x = ex.var("x", dt.float32)
    for value in bits.view(np.float32):
        parts = [interpret.evaluate(ex.cast(part(x, ex.index(p)), dt.float32), {x: value})
                 for p in range(3)]
        assert sum(map(float, parts)) == float(value)
        assert abs(parts[1]) <= abs(value) * 2.0**-8
        assert abs(parts[2]) <= abs(value) * 2.0**-16


def test_the_guard_is_one_condition_with_two_bodies():
    made = choose(nests.matmul(64, 64, 64), TARGET, 1)
    (fork,) = [s for s in walk(made.body) if isinstance(s, If) and s.orelse]
    assert fork.condition.op is Op.AND
    replayed = Schedule.replay(nests.matmul(64, 64, 64), made.meta.schedule).kernel
    assert replayed.meta.schedule == made.meta.schedule


def test_few_rows_columns_or_terms_take_vectors(monkeypatch):
    monkeypatch.undo()
    for shape in ((256, 257, 300), (197, 768, 768), (256, 256, 4096), (2000, 120, 900)):
        assert takes_parts(choose(nests.matmul(*shape), TARGET, 2))
    few = (64, 768, 768), (768, 64, 768), (768, 768, 200), (128, 128, 768)
    for shape in (*few, (260, 258, 257)):  # the last one fills tiles up too much
        assert not takes_parts(choose(nests.matmul(*shape), TARGET, 1))


@pytest.mark.parametrize("depth", [530, 544, 550])
def test_long_sums_are_taken_in_blocks(depth):
    """In each of them, the last one may be shorter, the parts of rows serve all columns."""
    kernel = nests.matmul(16, 16, depth)
    made = choose(kernel, SMALL, 1)
    assert takes_parts(made)
    assert max(Cost(made).private.values()) < 3 * 2 * 16 * depth
    assert_same(kernel, made, exact=False)


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_columns_are_asked_for_while_tiles_are_multiplied(threads):
    for layout in ("ik,kj", "ik,jk", "ki,kj", "ki,jk"):
        made = choose(nests.matmul(197, 768, 768, *layout.split(",")), TARGET, threads)
        assert Cost(made).prefetched.total(), layout


@pytest.mark.parametrize(("threads", "asks"), [(1, True), (2, False)])
def test_nothing_is_asked_for_behind_the_only_block_of_a_thread(threads, asks):
    made = choose(nests.matmul(300, 300, 512), TARGET, threads)
    assert bool(Cost(made).prefetched.total()) == asks


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("rows", [413, 728, 836, 1491, 2300])
def test_threads_share_groups_of_rows_evenly(rows, threads):
    """No thread takes a group more than the others need."""
    cost = Cost(choose(nests.matmul(rows, 230, 640), TARGET, threads))
    strips, groups = -(-rows // 32), max(cost.shares)
    turns, group = -(-groups // threads), -(-strips // groups)
    assert turns * group <= -(-strips // threads) + turns


def test_products_whose_parts_take_too_long_are_left_to_vectors(monkeypatch):
    """Each of two threads turns all columns; one turns them once for twice as many rows."""
    monkeypatch.undo()
    kernel = nests.matmul(413, 225, 662, "ki", "jk")
    assert takes_parts(choose(kernel, TARGET, 1))
    assert not takes_parts(choose(kernel, TARGET, 2))
    assert takes_parts(choose(nests.matmul(413, 225, 662), TARGET, 2))


def last_tiles(made, name, axis):
    """Return which tile each thread leaves in each result that it writes: where the tile begins."""
    for store in tiles_of(made, name, axis):
        shares = {}
        for share, begin, at in store:
            shares.setdefault(share, {})[at] = begin
        yield from shares.values()


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("shape", [(300, 300, 512), (250, 290, 300), (1300, 260, 700),
                                   (333, 270, 260), (901, 320, 2000), (260, 1111, 333)])
def test_threads_write_no_result_of_two_tiles(shape, threads):
    """One may be multiplied by parts and the other not: who came last would be seen."""
    made = choose(nests.matmul(*shape), TARGET, threads)
    for axis, size in enumerate(shape[:2]):
        found = {}
        for written in last_tiles(made, "c", axis):
            assert all(found.setdefault(x, at) == at for x, at in written.items())
        assert found.keys() == set(range(size))


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "masked"), [((33, 40, 20), 1), ((40, 33, 20), 0)])
def test_tiles_of_two_threads_are_masked(shape, masked):
    """Along the axis that they share no result is written twice."""
    kernel = nests.matmul(*shape)
    made = choose(kernel, TARGET, 2)
    for store in tiles_of(made, "c", masked):
        assert sorted(at for _, _, at in store) == list(range(shape[masked]))
    assert_same(kernel, made, exact=False)


def data(kind, rng, shape):
    x = rng.standard_normal(shape, dtype=np.float32)
    if kind == "cancelling":
        x[..., 1::2] = -x[..., :-1:2] * (1 + 1e-3 * x[..., 1::2]) if shape[-1] > 1 else 1
    elif kind == "scaled":
        x *= np.exp2(rng.integers(-40, 41, (shape[0], 1))).astype(np.float32)
    elif kind == "positive":
        x = np.abs(x)
    return x


SHAPES = [(64, 64, 64), (33, 70, 257), (200, 330, 1024), (7, 300, 96), (300, 9, 640),
          (97, 130, 4000), (40, 70, 600)]


@native
@pytest.mark.parametrize("kind", ["normal", "cancelling", "scaled", "positive"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_errors_are_at_most_those_of_float32(kind, shape, seed):
    rng = np.random.default_rng(seed)
    m, n, k = shape
    a = data(kind, rng, (m, k))
    b = data("positive" if kind == "positive" else "scaled" if kind == "scaled" else "normal",
             rng, (k, n))
    most, usual = error(multiplied(a, b), a, b)
    assert usual <= 1.1 * error(a @ b, a, b)[1] + 0.05
    assert most <= 1.5 * error(a @ b, a, b)[0] + 1


def added_one_by_one(a, b):
    """Return the product of matrices as one chain of multiply-adds of float32, term by term."""
    total = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        exact = np.outer(a[:, k].astype(np.float64), b[k].astype(np.float64))
        total = (total + exact).astype(np.float32)
    return total


@native
@pytest.mark.parametrize("few", [1, 2, 3, 4, 8, 16, 64, 257])
@pytest.mark.parametrize("power", [12, 30, None])
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_few_terms_that_outweigh_all_others(few, power, seed):
    """Only products of high parts are rounded beside large sums, as often as there are terms.

    They lie in one block of the sum: what joins the sums of blocks rounds once more, as elsewhere.
    """
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((100, 600), (600, 130)))
    others = np.ones(600, bool)
    others[rng.choice(257, few, replace=False)] = False
    a[:, others] *= 0 if power is None else np.float32(2.0**-power)
    wanted = error(added_one_by_one(a, b), a, b)[1]
    assert error(multiplied(a, b), a, b)[1] <= 1.05 * wanted + 0.02


@native
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_a_product_alone_is_within_two_roundings(seed):
    """Its largest part is added last, or each of the others would be rounded beside it."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((70, 96), (96, 90)))
    a *= np.arange(96) == rng.integers(96)
    assert error(multiplied(a, b), a, b)[0] <= 2


@native
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_integers_are_exact(seed):
    rng = np.random.default_rng(seed)
    m, n, k = rng.integers(5, 90, 3)
    a = rng.integers(-900, 901, (m, k)).astype(np.float32)
    b = rng.integers(-60, 61, (k, n)).astype(np.float32)
    assert np.array_equal(multiplied(a, b), a.astype(np.int64) @ b.astype(np.int64))


@native
@pytest.mark.parametrize("most", [1 << 23, 1 << 24])
def test_integers_close_to_the_last_exact_one(most):
    """The high part of 511 is 512: added first, it would be more than what is meant."""
    a, b = np.zeros((64, 128), np.float32), np.zeros((128, 64), np.float32)
    a[:, 0], b[0] = most - 1 - 511**2 - np.arange(64), 1
    a[:, 40] = b[40] = 511
    assert np.array_equal(multiplied(a, b), a.astype(np.float64) @ b.astype(np.float64))


@native
@pytest.mark.parametrize("seed", SEEDS[:2])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("power", [0, 60, -60])
def test_one_of_many_is_exact(seed, side, power):
    """A product with ones and zeros gives the elements of the other operand, all their bits."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 100))
    x = rng.standard_normal((n, n), dtype=np.float32) * np.float32(2.0**power)
    order = rng.permutation(n)
    one = np.eye(n, dtype=np.float32)[order]
    if side == "left":
        assert np.array_equal(multiplied(one, x), x[order])
    else:
        assert np.array_equal(multiplied(x, one.T), x[:, order])


SPECIAL = [np.inf, -np.inf, np.nan, 3.4e38, -3.3961776e38, 1.7e38, 1e-40, -1e-45, 1.2e-38, 1e-33,
           -0.0, np.uint32(0x7FFFFFFF).view(np.float32), np.float32(1e-30) * np.float32(1 + 2**-20)]


@native
@pytest.mark.parametrize("value", SPECIAL, ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("other", ["normal", "zero", "tiny", "large"])
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_special_values_are_those_of_float32(value, side, other, seed):
    rng = np.random.default_rng(seed)
    m, n, k = 37, 45, 70
    a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n),
                                                                              dtype=np.float32)
    x, y = (a, b) if side == "left" else (b, a)
    x[rng.integers(0, x.shape[0]), rng.integers(0, x.shape[1])] = value
    x[-1, -1] = value
    if other == "zero":
        y[rng.random(y.shape) < 0.7] = 0
    elif other == "tiny":
        y *= np.float32(2.0**-70)
    elif other == "large":
        y *= np.float32(2.0**60)
    got = multiplied(a, b)
    with np.errstate(all="ignore"):
        wide = a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    finite = np.isfinite(size) & (size < 3.3e38)
    unknown = np.isfinite(size) & ~finite  # where the order of additions decides
    got_finite, wide_finite = got[finite], wide[finite]
    assert np.all(np.abs(got_finite - wide_finite) <= 8 * ROUNDING * size[finite] + 1e-44)
    rest = ~finite & ~unknown
    with np.errstate(over="ignore"):
        expected = wide.astype(np.float32)
    assert np.array_equal(got[rest], expected[rest], equal_nan=True)


@native
@pytest.mark.parametrize("least", [-149, -141, -135, -134, -133, -127, -110])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_the_smallest_values_count_beside_the_largest(least, side, seed):
    """What rounds to a zero of bfloat16 is no zero: times a large number it is a normal one."""
    rng = np.random.default_rng(seed)
    small = np.ldexp(rng.uniform(1, 2, (40, 33)), least).astype(np.float32)
    small[rng.random(small.shape) < 0.5] = 0
    large = np.ldexp(rng.uniform(1, 2, (33, 50)), 110).astype(np.float32)
    a, b = (small, large) if side == "left" else (large.T, small.T)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    assert np.all(np.abs(multiplied(a, b) - wide) <= 8 * ROUNDING * wide)


@native
def test_sums_that_overflow_are_infinite():
    a, b = np.full((40, 64), 1e19, np.float32), np.full((64, 50), 1e19, np.float32)
    assert np.all(np.isposinf(multiplied(a, b)))
    b[::2] = -1e19
    assert not np.any(np.isnan(multiplied(a[:, :2], b[:2])))


@native
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_batches_transposes_and_epilogues(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 50, 64), dtype=np.float32)
    y = rng.standard_normal((3, 70, 64), dtype=np.float32)
    w = rng.standard_normal((90, 64), dtype=np.float32)
    bias = rng.standard_normal(90, dtype=np.float32)
    f = weft.jit(lambda x, y: x @ y.transpose(1, 2))
    assert np.allclose(np.asarray(f(weft.tensor(x), weft.tensor(y))), x @ y.transpose(0, 2, 1),
                       atol=1e-4)
    g = weft.jit(lambda x, w, b: weft.relu(x @ w.T + b))
    got = g(weft.tensor(x[0]), weft.tensor(w), weft.tensor(bias))
    assert np.allclose(np.asarray(got), np.maximum(x[0] @ w.T + bias, 0), atol=1e-4)
    t = weft.jit(lambda x, y: x.T @ y)
    got = t(weft.tensor(x[0]), weft.tensor(x[1]))
    assert np.allclose(np.asarray(got), x[0].T @ x[1], atol=1e-4)


@native
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_a_factor_of_bfloat16_is_one_part(seed):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((40, 96), dtype=np.float32)
    b = weft.tensor(rng.standard_normal((96, 60), dtype=np.float32)).to(weft.bfloat16)
    f = weft.jit(lambda x, y: x @ y.to(weft.float32))
    got = np.asarray(f(weft.tensor(a), b))
    assert error(got, a, np.asarray(b.to(weft.float32)))[0] < 8
