"""Panels, blocks and broad tiles of products that are too large for the interpreter."""

import numpy as np
import pytest
from test_contraction_forms import NARROW, large, near

import schedule_nests as nests
import weft
from schedule_costs import Cost
from weft.strategies import choose, contraction
from weft.target import ARRAY_BYTES


@pytest.mark.parametrize(("shape", "rows_first"), [
    ((832, 974, 9), True), ((832, 487, 9), True), ((24, 40, 9), False),
    ((832, 974, 25), True), ((832, 487, 25), False), ((520, 974, 25), False)])
def test_large_results_of_few_steps_are_written_row_by_row(shape, rows_first):
    """Though the first cache, of 8 KiB here, does not keep the other operand.

    From 25 terms on the results have to exceed the second cache.
    """
    assert large(shape, l1_bytes=8 << 10, l2_bytes=2 << 20).by_rows is rows_first


@pytest.mark.parametrize(("rows", "l3_bytes", "side"), [
    (4096, 480 << 20, 8), (4096, 16 << 20, 8), (512, 480 << 20, 4), (512, 2 << 20, 8)])
def test_rows_of_a_matrix_from_afar_are_read_side_by_side(rows, l3_bytes, side):
    """A third cache that others share holds no more than a few second ones for sure."""
    target = NARROW.replace(vector_bytes=64, l2_bytes=1 << 20, l3_bytes=l3_bytes)
    made = choose(nests.matvec(rows, 1024), target, 1)
    assert f"{side} results as" in dict(made.meta.hints)["why"]


@pytest.mark.parametrize(("shape", "partial"), [
    ((76, 283, 2048), False), ((32, 64, 4096), False), ((40, 60, 1000), False),
    ((18, 18, 512), True)])
def test_partial_sums_whose_operands_come_late_leave_fast_units_idle(shape, partial):
    """Units that multiply twice as fast wait twice as long, in multiplications, for a line."""
    caches = {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20}
    fast = large(shape, "jk", whole_vectors=True, **caches)
    assert (fast.form == "dot_product") is partial
    assert large(shape, "jk", **caches).form == "dot_product"


@pytest.mark.parametrize(("rows", "columns", "broad"), [
    (197, 512, True), (250, 512, True), (64, 512, False), (197, 64 * 3, False), (512, 512, True)])
def test_broad_tiles(rows, columns, broad):
    """Where panels are copied and no thread gets more to do."""
    assert (large((rows, columns, 761)).tile == (6, 64)) == broad
    assert large((rows, columns, 761), vector_registers=16).lanes < 64


@pytest.mark.parametrize(("rows", "depth", "asks"), [
    (64, 768, True), (47, 600, True), (130, 2304, True), (64, 761, True), (64, 131, False),
    (16, 768, False)])
def test_the_next_rows_are_asked_for(rows, depth, asks):
    """Where several tiles read them meanwhile, in blocks that divide the matrix."""
    cost = large((rows, 1008, depth), l2_bytes=256 << 10)
    assert cost.form == "skinny_gemm"
    assert bool(cost.prefetched) == asks
    assert rows >= 64 or not large((rows, 1001, depth), l2_bytes=256 << 10).prefetched


@pytest.mark.parametrize(("rows", "depth", "l1_bytes", "block"), [
    (197, 768, 48 << 10, 96), (399, 600, 48 << 10, 75), (197, 768, 32 << 10, 64),
    (160, 768, 48 << 10, 96), (143, 768, 48 << 10, 0), (197, 761, 48 << 10, 0),
    (400, 768, 48 << 10, 0)])
def test_the_next_rows_are_copied_meanwhile(rows, depth, l1_bytes, block):
    """Where many tiles read them, in blocks that divide the matrix, two in the first cache."""
    cost = large((rows, 1008, depth), l1_bytes=l1_bytes, l2_bytes=256 << 10)
    assert (cost.form == "skinny_gemm" and near(cost, "b")) == (block > 0)
    assert (2 * block * 48 * 4 in cost.private.values()) == (block > 0)
    assert rows < 192 or large((rows, 512, depth), l2_bytes=256 << 10).form == "register_tile"


@pytest.mark.parametrize(("l2_bytes", "panel"), [
    (64 << 10, 256 << 10), (1 << 20, 256 << 10), (2 << 20, 512 << 10), (1 << 30, ARRAY_BYTES)])
def test_panels_take_a_share_of_a_large_cache(l2_bytes, panel):
    target = NARROW.replace(l2_bytes=l2_bytes)
    assert contraction.usual(target).panel_bytes == panel


@pytest.mark.parametrize(("l2_bytes", "lanes"), [(0, 32), (1 << 20, 32), (2 << 20, 64)])
def test_broad_panels_fill_a_large_cache(l2_bytes, lanes):
    """What 1 MiB holds only in blocks, 2 MiB hold whole, beside the rows that pass by."""
    features = {"l2_bytes": l2_bytes} if l2_bytes else {}
    assert large((2048, 2048, 2048), **features).lanes == lanes


@pytest.mark.parametrize("depth", [761, 3067])
def test_the_next_panel_is_asked_for(depth):
    assert large((200, 512, depth), l2_bytes=1 << 20).prefetched["b"]
    assert not large((200, 512, depth), l2_bytes=64 << 20).prefetched


@pytest.mark.parametrize("shape", [(97, 300, 1111), (131, 1500, 200), (53, 331, 705)])
def test_broad_tiles_run(shape):
    m, k, n = shape
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n)))
    got = (weft.from_numpy(a) @ weft.from_numpy(b)).numpy()
    bound = np.abs(a).astype(np.float64) @ np.abs(b) * 1e-6
    assert (np.abs(got - a.astype(np.float64) @ b) <= bound).all()


@pytest.mark.parametrize(("threads", "depth", "columns"), [
    (2, 768, 50257), (2, 64, 33000), (2, 65, 20011), (16, 512, 12500), (192, 20011, 440),
    (400, 40037, 440)])
def test_shares_of_a_sum_are_small_enough_for_a_stack(threads, depth, columns):
    """Threads share the columns where results of theirs for all of them would be too much."""
    for kernel in (nests.vectors_times_matrices(1, columns, depth),
                   nests.column_sum(depth, columns)):
        cost = Cost(choose(kernel, NARROW.replace(vector_bytes=64), threads))
        assert max(cost.private.values(), default=0) <= ARRAY_BYTES
        assert cost.shares
