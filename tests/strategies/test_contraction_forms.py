"""Each form of a contraction, on nests small enough to interpret, with replay of its trace."""

import re

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same
from weft.ir import expr as ex
from weft.ir import traverse
from weft.ir.stmt import VECTOR, For, Load
from weft.schedule import Schedule
from weft.strategies import (
    contraction,
    contraction_deep,
    contraction_image,
    contraction_inner,
    contraction_lines,
    contraction_pattern,
    contraction_position,
    contraction_stream,
    contraction_wide,
    contraction_window,
    nest,
)
from weft.strategies.nest import Plan
from weft.target import Target

NARROW = Target("cpu", "aarch64", vector_bytes=16, vector_registers=32, cores=1)
CROWDED = NARROW.replace(l1_bytes=4 << 10)  # images are never near enough where they lie


def scheduled(kernel, target, threads=1, **parameters):
    plan = Plan(kernel, target, threads)
    pattern = contraction.match(plan, kernel.body[0].var.attr)
    assert contraction.schedule_contraction(plan, pattern, contraction.Parameters(**parameters))
    made = plan.schedule.kernel
    assert_same(kernel, made)
    assert_same(made, Schedule.replay(kernel, made.meta.schedule).kernel)
    return " ".join(made.meta.schedule)


def traced(shape, right="kj", **features):
    """Return the schedule of a product on a large target: too large for the interpreter."""
    target = NARROW.replace(vector_bytes=64, **features)
    plan = Plan(nests.matmul(*shape, right=right), target, 2)
    pattern = contraction.match(plan, plan.kernel.body[0].var.attr)
    assert contraction.schedule_contraction(plan, pattern)
    return " ".join(plan.schedule.kernel.meta.schedule)


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("panel", [256 << 10, 512])
@pytest.mark.parametrize("shape", [(8, 8, 1, 1, 2, 8), (13, 9, 2, 1, 5, 9), (6, 17, 1, 0, 3, 4)])
def test_windows(shape, panel, registers, crowded):
    target = (CROWDED if crowded else NARROW).replace(vector_registers=registers)
    trace = scheduled(nests.convolution(*shape), target, panel_bytes=panel, window_rows=6)
    if panel > 512:
        assert ("window(x" in trace) == crowded


@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("bytes_", [16, 64])
@pytest.mark.parametrize("shape", [(8, 8, 1, 1, 6, 20), (5, 6, 1, 1, 6, 32)])
def test_windows_of_long_sums(shape, bytes_, crowded):
    target = (CROWDED if crowded else NARROW).replace(vector_bytes=bytes_)
    trace = scheduled(nests.convolution(*shape), target, window_rows=6, whole_bytes=4 << 10,
                      window_bytes=bytes_ * 40, sum_bytes=64, chain=18, nested_chain=6)
    assert ("window(x" in trace) == crowded
    assert trace.count("block_reduction(") == 2  # for the caches, and for short chains


@pytest.mark.parametrize(("shape", "omitted"), [
    ((5, 5, 1, 1, 2, 8), "reorder(j, q)"), ((4, 8, 1, 2, 2, 8, 5), "reorder(j.i, q)"),
    ((5, 24, 1, 1, 2, 8), "branch(j.i)"), ((5, 37, 1, 2, 2, 8, 5), "branch(j.i)"),
    ((5, 37, 1, 3, 2, 8, 7), "omit(s, j)"), ((5, 5, 1, 0, 2, 8), "")])
def test_what_lies_outside_is_left_out(shape, omitted):
    trace = scheduled(nests.convolution(*shape), NARROW, window_rows=6)
    assert ("omit(" in trace) == bool(omitted)
    assert omitted in trace
    assert ("unroll(q)" in trace) == ("branch(q)" in trace) == omitted.startswith("reorder")


@pytest.mark.parametrize(("images", "split"), [(12, "split(n, 2"), (5, ""), (1, "")])
def test_threads_share_out_runs_of_small_images(images, split, monkeypatch):
    for module in (contraction_pattern, contraction_window, nest):
        monkeypatch.setattr(module, "PARALLEL_WORK", 1 << 10)
    kernel = nests.convolution(5, 5, outputs=4, images=images)
    trace = scheduled(kernel, NARROW, threads=2)
    assert split in trace
    assert ("split(n" in trace) == bool(split)
    if split:  # each run copies the weights once
        assert "parallel(n.o) " in trace


@pytest.mark.parametrize(("images", "split"), [(15, "split(n, 3"), (13, "")])
def test_runs_may_be_a_bit_uneven(images, split, monkeypatch):
    for module in (contraction_pattern, contraction_window, nest):
        monkeypatch.setattr(module, "PARALLEL_WORK", 1 << 10)
    trace = scheduled(nests.convolution(3, 3, outputs=4, images=images), NARROW, threads=2)
    assert split in trace
    assert ("parallel(n.o)" in trace) == bool(split)


@pytest.mark.parametrize(("images", "tiles"), [(13, 4), (12, 8)])
def test_threads_share_out_tiles_where_images_cannot_be_cut(images, tiles, monkeypatch):
    for module in (contraction_pattern, contraction_window, nest):
        monkeypatch.setattr(module, "PARALLEL_WORK", 1 << 10)
    kernel = nests.convolution(5, 5, outputs=24, images=images)
    trace = scheduled(kernel, NARROW, threads=2)
    assert f"split(o, {tiles}" in trace
    assert ("parallel(o.o)" in trace) == (images == 13)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(5, 4, 1, 1, 4, 8), (7, 7, 1, 0, 5, 15),
                                   (13, 9, 2, 1, 3, 8)])
def test_deep_windows(shape, threads):
    sizes = {"window_rows": 6, "whole_bytes": 256, "window_bytes": 800, "sum_bytes": 8 << 10}
    trace = scheduled(nests.convolution(*shape), CROWDED, threads, **sizes)
    assert "prefetch_panel(w" in trace
    assert trace.index("window(x, c.o)") < trace.index("stage(w")
    assert "window(x" not in scheduled(nests.convolution(*shape), NARROW, threads, **sizes)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("outputs", [9, 12, 15, 17, 31])
def test_vectors_that_are_not_full_gather_nothing(outputs, long):
    parameters = {"window_rows": 6, "sum_bytes": 64}
    if long:
        parameters |= {"window_bytes": 2000, "whole_bytes": 256, "sum_bytes": 8 << 10}
    kernel = nests.convolution(7, 9, outputs=outputs, channels=5)
    target = NARROW.replace(vector_bytes=64)
    plan = Plan(kernel, target, 1)
    pattern = contraction.match(plan, "n")
    assert contraction.schedule_contraction(plan, pattern, contraction.Parameters(**parameters))
    made = plan.schedule.kernel
    assert_same(kernel, made)
    trace = " ".join(made.meta.schedule)
    assert "split(o, 16" in trace
    assert bool(re.search(r"block_reduction\(s, o\.o\S*, c", trace)) == long
    tile = next(s for s in traverse.walk(made.body) if isinstance(s, For)
                and s.var.attr == "o.i" and s.kind == VECTOR)
    reads = [s for s in traverse.walk(tile.body) if isinstance(s, Load)]
    assert len(reads) == 3  # the image, the weight, and the sum: those of whole rows
    assert not any(tile.var in ex.free_vars([s.mask]) for s in reads if s.mask is not None)


@pytest.mark.parametrize(("shape", "boxed"), [
    ((9, 13, 1, 1, 4, 8), False), ((9, 14, 1, 0, 4, 8), False), ((9, 37, 1, 3, 2, 8, 7), True),
    ((16, 64, 1, 1, 8, 8), True)])
def test_boxes_where_images_are_not_near_as_they_lie(shape, boxed):
    """Conditions at many places of a row, or channels that share a few places of the cache."""
    target = NARROW.replace(vector_bytes=64)
    trace = scheduled(nests.convolution(*shape), target, window_rows=6)
    assert ("window(x" in trace) == boxed


def test_strided_images_of_few_outputs_are_gone_through_in_blocks(monkeypatch):
    wide = CROWDED.replace(vector_bytes=64)
    few = scheduled(nests.convolution(9, 9, 2, 1, 5, 3), wide, window_bytes=600)
    assert " vectorize(j.i) " in few
    for module in (contraction_position, contraction_image):
        monkeypatch.setattr(module, "BOX_BYTES", 100)
    for outputs in (2, 3, 5):
        made = scheduled(nests.convolution(9, 9, 2, 1, 5, outputs), wide, window_bytes=600)
        assert "window(x" in made
        assert " vectorize(o.i) " in made
    even = scheduled(nests.convolution(9, 9, 1, 1, 5, 3), wide, window_bytes=600)
    assert "window(x" not in even  # neighbours are read as they lie


@pytest.mark.parametrize(("sums", "threads", "images", "wanted"), [
    (1 << 20, 1, 2, "split(o, 4, tail=mask) reorder"), (1 << 20, 2, 2, "split(n, 1"),
    (2 << 10, 2, 2, "reorder(n, i.o, o.o"), (2 << 10, 2, 11, "reorder(n, i.o, o.o"),
    (512, 1, 2, "split(i, 4"), (512, 2, 2, "split(i, 4")])
def test_deep_windows_share_out(sums, threads, images, wanted, monkeypatch):
    monkeypatch.setattr(contraction_deep, "PARALLEL_WORK", 1 << 10)
    trace = scheduled(nests.convolution(8, 8, channels=8, outputs=12, images=images), CROWDED,
                      threads, window_rows=6, whole_bytes=256, window_bytes=800, sum_bytes=sums)
    assert wanted in trace
    assert "window(x, c.o)" in trace
    assert ("parallel(" in trace) == (threads == 2)


@pytest.mark.parametrize(("length", "padding", "share"), [
    (90, 0, 22), (90, 1, 45), (38, 0, 18), (40, 3, 22), (36, 2, 19)])
def test_deep_windows_of_one_row(length, padding, share, monkeypatch):
    """One image of one row: threads share out its positions, and parts of it are the rows."""
    monkeypatch.setattr(contraction_deep, "PARALLEL_WORK", 64)
    monkeypatch.setattr(contraction_deep, "LEAST_POSITIONS", 16)
    kernel = nests.row_of_windows(length, padding)
    sizes = {"window_rows": 6, "whole_bytes": 256, "window_bytes": 700}
    both = scheduled(kernel, NARROW, 2, sum_bytes=2 << 10, **sizes)
    assert f"split(i, {share}, tail=mask) reorder(i.o, " in both
    assert "parallel(i.o) block_reduction(s, o.o" in both
    alone = scheduled(kernel, NARROW, 1, sum_bytes=8 << 10, **sizes)
    assert "block_reduction(s, o.o, c, 8)" in alone
    assert "decompose_reduction(s.b, i.i)" in alone
    sizes["window_bytes"] = 800  # of which all weights take less than half
    assert "block_reduction(s, o.o" not in scheduled(kernel, NARROW, 1, sum_bytes=8 << 10, **sizes)


@pytest.mark.parametrize("panel", [256 << 10, 4 << 10])
@pytest.mark.parametrize("shape", [(9, 13, 1, 1, 3, 2), (7, 11, 2, 1, 2, 3), (12, 9, 1, 0, 5, 1)])
def test_positions(shape, panel):
    trace = scheduled(nests.convolution(*shape), NARROW, panel_bytes=panel)
    assert "window(x" in trace
    assert "stage(w" not in trace


@pytest.mark.parametrize("box", [500, 900])
@pytest.mark.parametrize("shape", [(9, 13, 1, 1, 9, 2), (7, 23, 2, 1, 12, 3), (12, 9, 1, 0, 8, 1)])
def test_positions_of_sums_over_many_channels(shape, box, monkeypatch):
    monkeypatch.setattr(contraction_position, "BOX_BYTES", box)
    monkeypatch.setattr(contraction_position, "LEAST", 9)
    trace = scheduled(nests.convolution(*shape), NARROW, rows=2)
    assert "block_reduction(s, j.o, c, " in trace
    assert "window(x, c.o)" in trace


@pytest.mark.parametrize(("outputs", "width", "lanes"), [
    (4, 5, "o"), (3, 5, "j"), (6, 9, "o"), (5, 9, "j")])
def test_few_channels_of_short_rows_fill_vectors_best(outputs, width, lanes):
    kernel = nests.convolution(9, width, 1, 1, 9, outputs, turned=True, flip=True)
    trace = scheduled(kernel, NARROW.replace(vector_bytes=64))
    assert ("vectorize(o.i)" in trace) == (lanes == "o")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 300, 37), (3, 161, 32), (7, 130, 50), (11, 70, 32)])
def test_streams(shape, threads):
    target = NARROW.replace(l2_bytes=4 << 10)
    trace = scheduled(nests.matmul(*shape), target, threads, stream_bytes=512, stream_depth=8)
    assert "block_reduction" in trace


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(4, 41, 19), (3, 70, 16)])
def test_streams_of_several_matrices(shape, threads):
    target = NARROW.replace(l2_bytes=1 << 10, vector_registers=8)
    trace = scheduled(nests.vectors_times_matrices(*shape), target, threads, stream_depth=8)
    assert "block_reduction(s, j." in trace
    assert "reorder(n, " in trace


@pytest.fixture
def eager_threads(monkeypatch):
    """Let threads share out nests that are small enough to interpret."""
    for module in (contraction_lines, contraction_stream, nest):
        monkeypatch.setattr(module, "PARALLEL_WORK", 1 << 10)


@pytest.mark.parametrize(("shape", "shared"), [
    ((4, 41, 19), "n"), ((1, 17, 130), "k.o"), ((7, 5, 3), ""), ((1, 40, 63), ""),
    ((1, 131, 67), "j.o"), ((3, 18, 70), "k.o")])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_a_matrix_line_by_line(shape, shared, threads, eager_threads):
    trace = scheduled(nests.vectors_times_matrices(*shape), NARROW, threads, chain=24)
    assert "unroll(j.o)" in trace or "unroll(j.i.o)" in trace or shape[1] < 8
    assert ("share_reduction(" in trace) == (threads == 2 and shared == "k.o")
    assert ("parallel(" in trace) == (threads == 2 and shared != "")
    assert f"parallel({shared})" in trace or threads == 1 or not shared


@pytest.mark.parametrize("shape", [(1, 96, 70), (1, 34, 128)])
def test_streams_whose_terms_are_shared_out(shape, eager_threads):
    target = NARROW.replace(l2_bytes=4 << 10, vector_registers=8)
    trace = scheduled(nests.vectors_times_matrices(*shape), target, 2, stream_depth=16)
    assert "share_reduction(s, j.o, k" in trace
    assert "parallel(k.o)" in trace
    assert ("split(k.i.i, 8" in trace) == (shape[2] == 128)  # none is left over


@pytest.mark.parametrize("shape", [(3, 37, 96), (7, 50, 160), (4, 33, 88)])
def test_streams_of_many_sums(shape):
    target = NARROW.replace(l2_bytes=4 << 10)
    trace = scheduled(nests.matmul(*shape), target, stream_bytes=512, stream_depth=8, stream_sums=8)
    assert trace.count("block_reduction") == (1 if shape[2] == 88 else 2)  # 11 blocks: no divisor


@pytest.mark.parametrize("shape", [(256, 20, 30), (260, 36, 20), (260, 44, 31), (257, 37, 8)])
def test_far_rows(shape):
    nest = nests.matmul(*shape, left="ki")
    trace = scheduled(nest, NARROW, pack_rows=4, far_block=8, far_depth=1)
    assert "window(a" in trace
    assert "stage(b" in trace
    assert ("block_reduction" in trace) == (shape[2] > 8)  # one block: nothing is kept for others


@pytest.mark.parametrize(("rows", "l2_bytes", "far"), [
    (512, 1 << 20, True), (1024, 1 << 20, True), (1000, 1 << 20, False), (1000, 2 << 20, True),
    (200, 2 << 20, False)])
def test_far_rows_that_the_first_cache_does_not_hold(rows, l2_bytes, far):
    """Rows a power of two apart share a few places there; others are read from the second."""
    target = NARROW.replace(vector_bytes=64, l1_bytes=32 << 10, l2_bytes=l2_bytes)
    plan = Plan(nests.matmul(rows, 400, 512, left="ki"), target, 1)
    pattern = contraction.match(plan, plan.kernel.body[0].var.attr)
    assert contraction.schedule_contraction(plan, pattern)
    trace = " ".join(plan.schedule.kernel.meta.schedule)
    assert ("window(a" in trace) == far
    assert not far or ("split(j, " in trace and "split(j.i, " in trace) == (l2_bytes == 1 << 20)


@pytest.mark.parametrize("right", ["kj", "jk"])
@pytest.mark.parametrize("shape", [(33, 40, 50), (17, 70, 61)])
def test_blocks_of_a_long_sum(shape, right):
    target = NARROW.replace(l1_bytes=512)
    trace = scheduled(nests.matmul(*shape, right=right), target, pack_rows=4, panel_bytes=1 << 10)
    assert "block_reduction" in trace


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layouts", [("ik", "kj"), ("ik", "jk"), ("ki", "jk")])
@pytest.mark.parametrize("shape", [(40, 67, 5), (37, 64, 9), (41, 255, 8)])
def test_panels_before_the_tiles(shape, layouts, threads, monkeypatch):
    for module in (contraction_pattern, contraction_wide, nest):
        monkeypatch.setattr(module, "PARALLEL_WORK", 1 << 10)
    target = NARROW.replace(l1_bytes=64, l2_bytes=8 << 10)
    trace = scheduled(nests.matmul(*shape, *layouts), target, threads, pack_rows=4, wide_rows=16,
                      panel_bytes=4 << 10, turn_rows=1, far_depth=1 << 20)
    assert "o+k+j." in trace  # several panels at once
    # equal parts: hardly a row is computed twice
    assert re.search(r"split\(i, 1[056], ", trace) or shape[0] > 40
    assert ("parallel(" in trace) == (threads == 2)


@pytest.mark.parametrize(("columns", "pieces"), [(17, 3), (24, 3), (33, 5), (40, 5), (50, 7),
                                                 (25, 0), (16, 0), (57, 0)])
def test_rows_of_half_vectors(columns, pieces):
    target = NARROW.replace(vector_bytes=64)
    trace = scheduled(nests.matmul(9, columns, 7), target)
    assert ("split(j, 8, tail=" in trace) == bool(pieces)
    assert ("unroll(j.o)" in trace) == bool(pieces)


@pytest.mark.parametrize(("columns", "pieces", "groups"), [
    (20, 2, 1), (40, 3, 1), (56, 4, 1), (72, 5, 1), (90, 3, 2), (110, 4, 2), (96, 0, 0)])
def test_rows_where_units_are_whole(columns, pieces, groups):
    """Half a vector takes as long as a whole one: the last of a row overlaps."""
    trace = traced((23, columns, 300), whole_vectors=True)
    assert (f"split(j{'.i' * (groups - 1)}, 16, tail=" in trace and "unroll(j" in trace) == (
        pieces > 0)
    assert (f"split(j, {16 * pieces}, tail=overlap)" in trace) == (groups == 2)
    assert "split(j, 8, " not in trace


@pytest.mark.parametrize(("columns", "pieces"), [(41, 3), (48, 3), (77, 5), (80, 5), (100, 7),
                                                 (64, 0), (96, 0), (130, 0)])
def test_rows_of_whole_vectors(columns, pieces):
    """An odd number of whole vectors: broader tiles would compute more than there is."""
    trace = traced((23, columns, 300))
    assert (f"split(j, 16, tail={'mask' if columns % 16 == 0 else 'overlap'})" in trace
            and "unroll(j.o)" in trace) == bool(pieces)


@pytest.mark.parametrize("shape", [(23, 1411, 77), (64, 300, 72), (7, 33, 45), (31, 700, 97)])
def test_rows_of_whole_vectors_run(shape):
    m, k, n = shape
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n)))
    got = (weft.from_numpy(a) @ weft.from_numpy(b)).numpy()
    bound = np.abs(a).astype(np.float64) @ np.abs(b) * 1e-6
    assert (np.abs(got - a.astype(np.float64) @ b) <= bound).all()


@pytest.mark.parametrize("rows", [197, 200, 320, 512])
def test_broad_tiles_read_panels_seldom(rows):
    """A panel lies in the second cache: few, high tiles, even if some rows are there twice."""
    assert "split(i, 6, " in traced((rows, 512, 768), l2_bytes=2 << 20)


@pytest.mark.parametrize("columns", [17, 40])
def test_rows_of_half_vectors_in_long_sums(columns):
    target = NARROW.replace(vector_bytes=64)
    trace = scheduled(nests.matmul(5, columns, 40), target, chain=8)
    assert "unroll(j.o.begin)" in trace
    assert "block_reduction" in trace


@pytest.mark.parametrize(("shape", "registers", "tile"), [
    ((5, 183, 64), 32, (5, 5)), ((5, 87, 64), 32, (5, 4)), ((61, 4, 64), 32, (5, 4)),
    ((61, 61, 64), 16, (4, 3))])
def test_tiles_of_partial_sums_fit_the_registers(shape, registers, tile):
    target = NARROW.replace(vector_bytes=64, vector_registers=registers)
    plan = Plan(nests.matmul(*shape, right="jk"), target, 1)
    pattern = contraction.match(plan, "i")
    p = contraction.Parameters()
    found = contraction_inner._find(plan, pattern)
    sides = contraction_inner._sizes(plan, found, p)
    assert sides[0] * sides[1] + min(sides) < registers
    assert tuple(sides) == tile
