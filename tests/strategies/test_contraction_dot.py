"""Contractions of bfloat16 and 8-bit integers, compiled and run as dot products of words."""

import numpy as np
import pytest
from test_contraction_forms import near

import schedule_nests as nests
import weft
from schedule_costs import Cost
from schedule_nests import assert_same
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir.op import Op
from weft.strategies import choose
from weft.strategies.common import nest
from weft.target import CostModel, Target, native_operations

RNG = np.random.default_rng(34)
INTEGERS = [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]
TARGET = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32,
                operations=native_operations(dots=(Op.DOT2, Op.DOT4)))  # fmt: skip


def size(most):
    return int(np.exp(RNG.uniform(0, np.log(most + 1))))


def whole(*shape):
    return RNG.integers(-4, 5, shape).astype(np.float32)


def bf16(array):
    return weft.from_numpy(np.ascontiguousarray(array)).astype(weft.bfloat16).realize()


@pytest.mark.grid
@pytest.mark.parametrize("kinds", [("f16", "f16"), ("f16", "f32"), ("bf16", "f16")])
@pytest.mark.parametrize("layout", ["ik,kj", "ik,jk", "ki,kj", "ki,jk"])
@pytest.mark.parametrize("shape", [(48, 33, 20), (61, 40, 35)])
def test_factors_that_are_widened_are_computed_once(kinds, layout, shape):
    """In panels, for whichever layout, and not in each step of a tile."""
    kernel = nests.narrow(*shape, *kinds, *layout.split(","))
    made = choose(kernel, TARGET, 1)
    cost = Cost(made)
    assert cost.form == "dot_instructions"
    assert near(cost, "a") or near(cost, "b")
    assert_same(kernel, made)


def test_a_number_of_tiles_without_divisors_shares_panels_all_the_same():
    """89 tiles of rows, in runs of which the last one begins within the one before it."""
    cost = Cost(choose(nests.narrow(89 * 8, 512, 2048, "f16", "f16"), TARGET, 1))
    assert cost.read["b"] < 89 / 20 * 512 * 2048


def test_columns_that_do_not_fill_a_block_are_filled_up():
    """In one block, for which the rows are widened once, without computing more."""
    made = choose(nests.narrow(96, 147, 64, "f16", "f16", "ik", "jk"), TARGET, 1)
    cost = Cost(made)
    assert cost.computed == 96 * 160 * 64
    assert cost.read["a"] < 1.1 * 96 * 64
    kernel = nests.narrow(48, 39, 20, "f16", "f16", "ik", "jk")
    assert_same(kernel, choose(kernel, TARGET, 1))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_the_blocks_of_many_columns_evenly(threads):
    large = TARGET.replace(l2_bytes=2 << 20)
    made = choose(nests.narrow(16, 2067, 200, "f16", "f16", "ik", "jk"), large, threads)
    cost = Cost(made)
    assert cost.form == "dot_instructions"
    assert bool(cost.shares) == (threads > 1)
    assert not cost.shares or cost.shares[0] % threads == 0


@pytest.mark.grid
@pytest.mark.parametrize(("shape", "pairs"), [
    ((61, 70, 9), False), ((37, 70, 18), True), ((5, 70, 9), True)])
@pytest.mark.parametrize("layout", ["ik,kj", "ik,jk", "ki,kj"])
def test_short_sums_of_bfloat16_are_of_single_elements(shape, pairs, layout, monkeypatch):
    """Where units take vectors whole; threads share the rows, not the lines, of the results."""
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 8))
    kernel = nests.narrow(*shape, "bf16", "bf16", *layout.split(","))
    made = choose(kernel, TARGET.replace(whole_vectors=True), 2)
    cost = Cost(made)
    assert (cost.unit == "dot") == pairs
    assert pairs or cost.shares == [2]
    assert_same(kernel, made)
    assert Cost(choose(kernel, TARGET, 2)).unit == "dot"


def random(name, *shape):
    info = np.iinfo(name)
    return RNG.integers(info.min, info.max + 1, shape).astype(name)


@pytest.mark.parametrize("kinds", [("bf16", "bf16"), ("i8", "i8"), ("u8", "i8"), ("u8", "u8")])
@pytest.mark.parametrize("layout", ["ik,kj", "ik,jk", "ki,kj", "ki,jk"])
@pytest.mark.parametrize("shape", [(5, 16, 9), (9, 33, 8)])
def test_the_schedule_is_exact(kinds, layout, shape):
    kernel = nests.narrow(*shape, *kinds, *layout.split(","))
    made = choose(kernel, TARGET, 2)
    assert Cost(made).unit == "dot"
    assert_same(kernel, made)


def test_a_target_without_dot_products_does_without():
    made = choose(nests.narrow(9, 33, 8), TARGET.replace(operations=native_operations()), 1)
    assert Cost(made).unit == "vector"


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(2, 21, 128), (5, 18, 160), (4, 19, 170)])
def test_few_rows_are_multiplied_along_the_sum(shape, threads):
    kernel = nests.narrow(*shape, "bf16", "bf16", "ik", "jk")
    made = choose(kernel, TARGET, threads)
    cost = Cost(made)
    assert cost.form == "dot_instructions"
    assert cost.written.keys() == {"c"}  # no operand is copied
    assert_same(kernel, made)


@pytest.mark.parametrize("shape", [(2, 300, 129), (3, 77, 512), (9, 101, 1030), (19, 64, 1001),
                                   (31, 33, 896), (47, 130, 1500)])
def test_few_rows_of_bfloat16(shape):
    m, n, k = shape
    a, b = whole(m, k), whole(n, k)
    found = (bf16(a) @ bf16(b).T + 1).astype(weft.float32).numpy()
    exact = weft.from_numpy(a @ b.T).astype(weft.bfloat16) + 1
    np.testing.assert_array_equal(found, exact.astype(weft.float32).numpy())
    a[0, 3], a[1, 5], b[7, 6] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        exact = weft.from_numpy(a @ b.T).astype(weft.bfloat16).astype(weft.float32).numpy()
    found = (bf16(a) @ bf16(b).T).astype(weft.float32).numpy()
    np.testing.assert_array_equal(found, exact)


@pytest.mark.grid
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matmul_of_bfloat16(layout):
    for _ in range(5):
        m, n, k = size(130), size(150), size(300)
        a = whole(m, k) if layout[0] == "n" else whole(k, m)
        b = whole(k, n) if layout[1] == "n" else whole(n, k)
        x, y = bf16(a), bf16(b)
        a, x = (a, x) if layout[0] == "n" else (a.T, x.T)
        b, y = (b, y) if layout[1] == "n" else (b.T, y.T)
        found = weft.matmul(x, y).astype(weft.float32).numpy()
        exact = weft.from_numpy(np.ascontiguousarray(a @ b)).astype(weft.bfloat16)
        np.testing.assert_array_equal(found, exact.astype(weft.float32).numpy())


@pytest.mark.grid
@pytest.mark.parametrize(("left", "right"), INTEGERS)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matmul_of_bytes(left, right, layout):
    for _ in range(3):
        m, n, k = size(130), size(150), size(300)
        a = random(left, m, k) if layout[0] == "n" else random(left, k, m)
        b = random(right, k, n) if layout[1] == "n" else random(right, n, k)
        x, y = weft.from_numpy(a), weft.from_numpy(b)
        a, x = (a, x) if layout[0] == "n" else (a.T, x.T)
        b, y = (b, y) if layout[1] == "n" else (b.T, y.T)
        found = (x.astype(weft.int32) @ y.astype(weft.int32)).numpy()
        np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))
        if left == right:
            np.testing.assert_array_equal((x @ y).numpy(), a @ b)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_matmul_of_float16(layout):
    for m, n, k in ((64, 64, 64), (97, 33, 130), (50, 70, 1), (130, 290, 1200)):
        a = whole(m, k) if layout[0] == "n" else whole(k, m)
        b = whole(k, n) if layout[1] == "n" else whole(n, k)
        x, y = (weft.from_numpy(v.astype(np.float16)) for v in (a, b))
        a, x = (a, x) if layout[0] == "n" else (a.T, x.T)
        b, y = (b, y) if layout[1] == "n" else (b.T, y.T)
        np.testing.assert_array_equal((x @ y).numpy(), (a @ b).astype(np.float16))


def test_weights_are_widened_and_scaled_on_the_way():
    x, w, scale = whole(70, 130), random("int8", 90, 130), 2.0 ** RNG.integers(-3, 3, (90, 1))
    weight = weft.from_numpy(w).astype(weft.float32) * weft.from_numpy(scale.astype(np.float32))
    found = weft.from_numpy(x) @ weight.T
    np.testing.assert_array_equal(found.numpy(), x @ (w * scale).astype(np.float32).T)


def test_batches_and_an_epilogue():
    a, b, c = whole(3, 37, 40), whole(3, 40, 65), whole(65)
    found = (bf16(a) @ bf16(b) + bf16(c)).relu().astype(weft.float32).numpy()
    product = weft.from_numpy(a @ b).astype(weft.bfloat16).astype(weft.float32).numpy()
    exact = weft.from_numpy(np.maximum(product + c, 0)).astype(weft.bfloat16)
    np.testing.assert_array_equal(found, exact.astype(weft.float32).numpy())


def test_special_values():
    a, b = whole(20, 34), whole(34, 48)
    a[3, 5], a[4, 6], a[7, 8], b[9, 11] = np.nan, np.inf, -np.inf, np.inf
    a[:, 9] = 1
    with np.errstate(invalid="ignore"):
        exact = weft.from_numpy(a @ b).astype(weft.bfloat16).astype(weft.float32).numpy()
    found = (bf16(a) @ bf16(b)).astype(weft.float32).numpy()
    np.testing.assert_array_equal(found, exact)


def test_subnormals_count_as_zeros():
    """What the hardware's dot products do, and what docs/design/numerics.md promises at most."""
    if not cpu.host_target().supports(Op.DOT2, dt.uint32):
        pytest.skip("this processor multiplies bfloat16 in float32")
    a, b = np.full((16, 24), 2.0**-130, np.float32), np.full((24, 32), 1.0, np.float32)
    assert not (bf16(a) @ bf16(b)).astype(weft.float32).numpy().any()


@pytest.mark.requires("torch")
@pytest.mark.parametrize("shape", [(64, 64, 64), (33, 65, 257), (100, 40, 1000)])
def test_as_accurate_as_pytorch(shape, rng):
    import torch

    m, n, k = shape
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    x, y = bf16(a), bf16(b)
    s, t = torch.from_numpy(a).bfloat16(), torch.from_numpy(b).bfloat16()
    exact = s.double().numpy() @ t.double().numpy()
    mine = (x.astype(weft.float32) @ y.astype(weft.float32)).numpy() - exact
    wide = s.float().numpy() @ t.float().numpy() - exact
    # Mean squares hardly depend on the numbers drawn; the largest errors of two results do.
    assert np.mean(mine**2) <= 2.5**2 * np.mean(wide**2)
    ours = np.abs((x @ y).astype(weft.float32).numpy() - exact).max()
    theirs = np.abs((s @ t).float().numpy() - exact).max()
    assert ours <= theirs * 1.01 + 1e-6


def test_runs_repeat_bit_for_bit(rng):
    a, b = (bf16(rng.standard_normal(s)) for s in ((70, 130), (130, 90)))
    first = (a @ b).astype(weft.float32).numpy()
    for _ in range(3):
        np.testing.assert_array_equal((a @ b).astype(weft.float32).numpy(), first)
