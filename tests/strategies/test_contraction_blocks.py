"""Panels, blocks and broad tiles of products that are too large for the interpreter."""

import math

import numpy as np
import pytest
from test_contraction_forms import NARROW, traced

import schedule_nests as nests
import weft
from weft.ir import traverse
from weft.ir.stmt import PARALLEL, Alloc, For
from weft.strategies import choose, contraction
from weft.target import ARRAY_BYTES


@pytest.mark.parametrize(("shape", "rows_first"), [
    ((832, 974, 9), True), ((832, 487, 9), True), ((24, 40, 9), False),
    ((832, 974, 25), True), ((832, 487, 25), False), ((520, 974, 25), False)])
def test_large_results_of_few_steps_are_written_row_by_row(shape, rows_first):
    """Though the first cache, of 8 KiB here, does not keep the other operand.

    From 25 terms on the results have to exceed the second cache.
    """
    trace = traced(shape, l1_bytes=8 << 10, l2_bytes=2 << 20)
    strips = "j.o, i.i.o" in trace  # in the rows of each thread
    assert ("i.o, j.o" in trace and not strips) is rows_first


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
    assert ("partial=" in traced(shape, "jk", whole_vectors=True, **caches)) is partial
    assert "partial=" in traced(shape, "jk", **caches)


@pytest.mark.parametrize(("rows", "columns", "broad"), [
    (197, 512, True), (250, 512, True), (64, 512, False), (197, 64 * 3, False), (512, 512, True)])
def test_broad_tiles(rows, columns, broad):
    """Where panels are copied and no thread gets more to do."""
    trace = traced((rows, columns, 761))
    assert ("split(j, 64, " in trace) == broad
    assert "split(j, 64, " not in traced((rows, columns, 761), vector_registers=16)


@pytest.mark.parametrize(("rows", "depth", "block"), [
    (64, 768, 96), (47, 600, 100), (130, 2304, 96), (64, 761, 96), (64, 131, 0),
    (16, 768, 0)])
def test_the_next_rows_are_asked_for(rows, depth, block):
    """Where several tiles read them meanwhile, in blocks that divide the matrix."""
    trace = traced((rows, 1008, depth), l2_bytes=256 << 10)
    assert rows >= 64 or "prefetch" not in traced((rows, 1001, depth), l2_bytes=256 << 10)
    asks = block > 0
    assert ("prefetch_rows(b, k.i, i.o, k.i, j.i.o, around=k.o)" in trace) == asks
    assert ("split(j.i, 48, " in trace) == asks
    assert (f"block_reduction(s, j.i.o, k, {block})" in trace) == asks


@pytest.mark.parametrize(("rows", "depth", "l1_bytes", "block"), [
    (197, 768, 48 << 10, 96), (399, 600, 48 << 10, 75), (197, 768, 32 << 10, 64),
    (160, 768, 48 << 10, 96), (143, 768, 48 << 10, 0), (197, 761, 48 << 10, 0),
    (400, 768, 48 << 10, 0)])
def test_the_next_rows_are_copied_meanwhile(rows, depth, l1_bytes, block):
    """Where many tiles read them, in blocks that divide the matrix, two in the first cache."""
    trace = traced((rows, 1008, depth), l1_bytes=l1_bytes, l2_bytes=256 << 10)
    assert ("copy_ahead(b, k.i.s, i.o, k.i, j.i.o, around=k.o" in trace) == (block > 0)
    assert (f"block_reduction(s, j.i.o, k, {block})" in trace) == (block > 0)
    assert "settle(j.i.o.end, k.o, i.o)" in trace or rows >= 192
    assert "copy_ahead" not in traced((rows, 512, depth), l2_bytes=256 << 10) or rows < 192


def test_broad_tiles_share_copies():
    """Results of many rows and long sums do not fit beside a broad panel."""
    assert "split(j, 64, " not in traced((2048, 2048, 2048))


@pytest.mark.parametrize(("l2_bytes", "panel"), [
    (64 << 10, 256 << 10), (1 << 20, 256 << 10), (2 << 20, 512 << 10), (1 << 30, ARRAY_BYTES)])
def test_panels_take_a_share_of_a_large_cache(l2_bytes, panel):
    target = NARROW.replace(l2_bytes=l2_bytes)
    assert contraction.usual(target).panel_bytes == panel


def test_broad_panels_fill_a_large_cache():
    """What 1 MiB holds only in blocks, 2 MiB hold whole, beside the rows that pass by."""
    assert "split(j, 64, " in traced((2048, 2048, 2048), l2_bytes=2 << 20)
    assert "split(j, 64, " not in traced((2048, 2048, 2048), l2_bytes=1 << 20)


@pytest.mark.parametrize(("depth", "around"), [(761, ""), (3067, "j.o")])
def test_the_next_panel_is_asked_for(depth, around):
    trace = traced((200, 512, depth), l2_bytes=1 << 20)
    assert "prefetch_rows(b, k" in trace
    assert (f"around={around}" in trace) == bool(around)
    assert "prefetch" not in traced((200, 512, depth), l2_bytes=64 << 20)
    assert "prefetch_rows" not in traced((500, 512, depth), l2_bytes=1 << 20)


@pytest.mark.parametrize(("rows", "whole", "asks"), [
    (192, True, True), (197, True, False), (197, False, True), (401, False, False)])
def test_quick_tiles_ask_ahead_for_fewer_rows(rows, whole, asks):
    trace = traced((rows, 1024, 768), l2_bytes=1 << 20, whole_vectors=whole)
    assert "split(j, 64, " in trace
    assert ("prefetch_rows" in trace) == asks


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
        made = choose(kernel, NARROW.replace(vector_bytes=64), threads)
        sizes = [math.prod(n.attr for n in s.memory.shape) * s.memory.dtype.itemsize
                 for s in traverse.walk(made.body) if isinstance(s, Alloc)]
        assert max(sizes, default=0) <= ARRAY_BYTES
        assert any(isinstance(s, For) and s.kind == PARALLEL for s in traverse.walk(made.body))
