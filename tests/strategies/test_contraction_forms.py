"""Each form of a contraction, on nests small enough to interpret: results, and what they cost."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_costs import Cost, orders
from schedule_nests import assert_replays, assert_same
from weft.strategies import contraction
from weft.strategies.common import convolution_pattern, nest
from weft.strategies.common.nest import Plan
from weft.strategies.convolution import channel_blocked, depthwise
from weft.strategies.gemm import dot_product
from weft.target import CostModel, Target

NARROW = Target("cpu", "aarch64", vector_bytes=16, vector_registers=32, cores=1)
CROWDED = NARROW.replace(l1_bytes=4 << 10)  # images are never near enough where they lie


def made(kernel, target, threads=1, **parameters):
    """Return a kernel as a contraction is scheduled: it computes the same, and can be replayed."""
    plan = Plan(kernel, target, threads)
    pattern = contraction.match(plan, kernel.body[0].var.attr)
    assert contraction.schedule_contraction(plan, pattern, contraction.Parameters(**parameters))
    found = plan.schedule.kernel
    assert_same(kernel, found)
    assert_replays(kernel, found)
    return found


def scheduled(kernel, target, threads=1, **parameters):
    """Return what a contraction costs as it is scheduled."""
    return Cost(made(kernel, target, threads, **parameters))


def large(shape, right="kj", left="ik", threads=2, target=None, epilogue=True, **features):
    """Return the cost of a product that is too large for the interpreter, its form and order."""
    target = target or NARROW.replace(vector_bytes=64, **features)
    plan = Plan(nests.matmul(*shape, left, right, epilogue=epilogue), target, threads)
    pattern = contraction.match(plan, plan.kernel.body[0].var.attr)
    assert contraction.schedule_contraction(plan, pattern)
    cost = Cost(plan.schedule.kernel)
    (cost.form,) = plan.forms
    steps = orders(plan.schedule.kernel, "c")
    cost.by_rows = len(steps) > 1 and steps[0] > steps[1]
    return cost


def near(cost, operand="x"):
    """Whether products read a copy of an operand, and not each time the operand itself."""
    return cost.read[operand] < cost.multiplications


def up(size, unit):
    return -(-size // unit) * unit


@pytest.mark.grid
@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("registers", [16, 32])
@pytest.mark.parametrize("panel", [256 << 10, 512])
@pytest.mark.parametrize("shape", [(8, 8, 1, 1, 2, 8), (13, 9, 2, 1, 5, 9), (6, 17, 1, 0, 3, 4)])
def test_windows(shape, panel, registers, crowded):
    target = (CROWDED if crowded else NARROW).replace(vector_registers=registers)
    cost = scheduled(nests.convolution(*shape), target, panel_bytes=panel, window_rows=6)
    assert near(cost) == crowded


@pytest.mark.grid
@pytest.mark.parametrize("crowded", [False, True])
@pytest.mark.parametrize("bytes_", [16, 64])
@pytest.mark.parametrize("shape", [(8, 8, 1, 1, 6, 20), (5, 6, 1, 1, 6, 32)])
def test_windows_of_long_sums(shape, bytes_, crowded):
    target = (CROWDED if crowded else NARROW).replace(vector_bytes=bytes_)
    cost = scheduled(nests.convolution(*shape), target, window_rows=6, whole_bytes=4 << 10,
                     window_bytes=bytes_ * 40, sum_bytes=64, chain=18, nested_chain=6)
    assert near(cost) == crowded
    assert max(cost.private.values()) <= 4 << 10


@pytest.mark.parametrize(("shape", "omitted"), [
    ((5, 5, 1, 1, 2, 8), True), ((4, 8, 1, 2, 2, 8, 5), True), ((5, 24, 1, 1, 2, 8), True),
    ((5, 37, 1, 2, 2, 8, 5), True), ((5, 37, 1, 3, 2, 8, 7), True), ((5, 5, 1, 0, 2, 8), False)])
def test_what_lies_outside_is_left_out(shape, omitted):
    found = made(nests.convolution(*shape), NARROW, window_rows=6)
    assert (Cost(found, exact=True).computed < 0.9 * Cost(found).computed) == omitted


@pytest.fixture
def small_work(monkeypatch):
    """Let threads share out convolutions that are small enough to interpret."""
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 10))


@pytest.mark.parametrize(("height", "images", "shares"), [(5, 12, 6), (5, 5, 2), (5, 1, 2),
                                                          (3, 15, 5), (3, 13, 13)])
def test_threads_share_out_runs_of_small_images(height, images, shares, small_work):
    """Runs may be a bit uneven. Each copies the weights once."""
    kernel = nests.convolution(height, height, outputs=4, images=images)
    cost = scheduled(kernel, NARROW, threads=2)
    assert cost.shares == [shares]
    assert cost.read["w"] == shares * scheduled(kernel, NARROW).read["w"]


@pytest.mark.parametrize(("images", "shared"), [(13, "tiles"), (12, "images")])
def test_threads_share_out_tiles_where_images_cannot_be_cut(images, shared, small_work):
    kernel = nests.convolution(5, 5, outputs=24, images=images)
    cost = scheduled(kernel, NARROW, threads=2)
    assert cost.shares == [6]
    copies = 1 if shared == "tiles" else 6
    assert cost.read["w"] == copies * scheduled(kernel, NARROW).read["w"]


@pytest.mark.grid
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(5, 4, 1, 1, 4, 8), (7, 7, 1, 0, 5, 15),
                                   (13, 9, 2, 1, 3, 8)])
def test_deep_windows(shape, threads):
    sizes = {"window_rows": 6, "whole_bytes": 256, "window_bytes": 800, "sum_bytes": 8 << 10}
    cost = scheduled(nests.convolution(*shape), CROWDED, threads, **sizes)
    assert cost.prefetched["w"]
    assert near(cost)
    assert not near(scheduled(nests.convolution(*shape), NARROW, threads, **sizes))


@pytest.mark.grid
@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("outputs", [9, 12, 15, 17, 31])
def test_vectors_that_are_not_full_gather_nothing(outputs, long):
    parameters = {"window_rows": 6, "sum_bytes": 64}
    if long:
        parameters |= {"window_bytes": 2000, "whole_bytes": 256, "sum_bytes": 8 << 10}
    kernel = nests.convolution(7, 9, outputs=outputs, channels=5)
    cost = scheduled(kernel, NARROW.replace(vector_bytes=64), **parameters)
    assert cost.computed == 2 * 7 * 9 * 5 * 9 * up(outputs, 16)
    assert cost.masked < cost.multiplications / 100  # none of those of whole rows


@pytest.mark.grid
@pytest.mark.parametrize(("shape", "boxed"), [
    ((9, 13, 1, 1, 4, 8), False), ((9, 14, 1, 0, 4, 8), False), ((9, 37, 1, 3, 2, 8, 7), True),
    ((16, 64, 1, 1, 8, 8), True)])
def test_boxes_where_images_are_not_near_as_they_lie(shape, boxed):
    """Conditions at many places of a row, or channels that share a few places of the cache."""
    target = NARROW.replace(vector_bytes=64)
    assert near(scheduled(nests.convolution(*shape), target, window_rows=6)) == boxed


def test_strided_images_of_few_outputs_are_gone_through_in_blocks(monkeypatch):
    wide = CROWDED.replace(vector_bytes=64)
    assert near(scheduled(nests.convolution(9, 9, 2, 1, 5, 3), wide, window_bytes=600))
    monkeypatch.setattr(nest.Plan, "costs", CostModel(image_bytes=100))
    for outputs in (2, 3, 5):
        assert near(scheduled(nests.convolution(9, 9, 2, 1, 5, outputs), wide, window_bytes=600))
    # neighbours are read as they lie
    assert not near(scheduled(nests.convolution(9, 9, 1, 1, 5, 3), wide, window_bytes=600))


@pytest.mark.grid
@pytest.mark.parametrize(("sums", "threads", "images", "image", "weights"), [
    (1 << 20, 1, 2, 1920, 1152), (1 << 20, 2, 2, 1920, 2304), (2 << 10, 2, 2, 2304, 4608),
    (2 << 10, 2, 11, 12672, 25344), (512, 1, 2, 6912, 6144), (512, 2, 2, 6912, 6144)])
def test_deep_windows_share_out(sums, threads, images, image, weights, monkeypatch):
    """Elements of the image and of the weights that are copied: more, the fewer sums are kept."""
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 10))
    cost = scheduled(nests.convolution(8, 8, channels=8, outputs=12, images=images), CROWDED,
                     threads, window_rows=6, whole_bytes=256, window_bytes=800, sum_bytes=sums)
    assert near(cost)
    assert cost.read["x"] <= image
    assert cost.read["w"] <= weights
    assert cost.shares == ([images] if threads == 2 else [])


@pytest.mark.grid
@pytest.mark.parametrize(("length", "padding", "shares"), [
    (90, 0, 4), (90, 1, 2), (38, 0, 2), (40, 3, 2), (36, 2, 2)])
def test_deep_windows_of_one_row(length, padding, shares, monkeypatch):
    """One image of one row: threads share out its positions, and parts of it are the rows."""
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=64))
    monkeypatch.setattr(channel_blocked, "LEAST_POSITIONS", 16)
    kernel = nests.row_of_windows(length, padding)
    sizes = {"window_rows": 6, "whole_bytes": 256}
    alone = scheduled(kernel, NARROW, 1, sum_bytes=8 << 10, window_bytes=700, **sizes)
    both = scheduled(kernel, NARROW, 2, sum_bytes=2 << 10, window_bytes=700, **sizes)
    assert (alone.shares, both.shares) == ([], [shares])
    assert both.read["w"] == shares * alone.read["w"]
    assert both.computed < 1.15 * alone.computed
    # Of 800 bytes all weights take less than half.
    scheduled(kernel, NARROW, 1, sum_bytes=8 << 10, window_bytes=800, **sizes)


@pytest.mark.parametrize("panel", [256 << 10, 4 << 10])
@pytest.mark.parametrize("shape", [(9, 13, 1, 1, 3, 2), (7, 11, 2, 1, 2, 3), (12, 9, 1, 0, 5, 1)])
def test_positions(shape, panel):
    assert near(scheduled(nests.convolution(*shape), NARROW, panel_bytes=panel))


@pytest.mark.grid
@pytest.mark.parametrize("box", [500, 900])
@pytest.mark.parametrize("shape", [(9, 13, 1, 1, 9, 2), (7, 23, 2, 1, 12, 3), (12, 9, 1, 0, 8, 1)])
def test_positions_of_sums_over_many_channels(shape, box, monkeypatch):
    monkeypatch.setattr(nest.Plan, "costs", CostModel(image_bytes=box))
    monkeypatch.setattr(convolution_pattern, "box_of_rows", lambda *_: 0)  # no image is large
    monkeypatch.setattr(depthwise, "LEAST", 9)
    cost = scheduled(nests.convolution(*shape), NARROW, rows=2)
    assert near(cost)
    assert max(cost.private.values()) < 2 * box


@pytest.mark.grid
@pytest.mark.parametrize(("outputs", "width"), [(4, 5), (3, 5), (6, 9), (5, 9)])
def test_few_channels_of_short_rows_fill_vectors_best(outputs, width):
    """Along the channels, or along the row."""
    kernel = nests.convolution(9, width, 1, 1, 9, outputs, turned=True, flip=True)
    cost = scheduled(kernel, NARROW.replace(vector_bytes=64))
    assert cost.computed < 2 * Cost(kernel).computed


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 300, 37), (3, 161, 32), (7, 130, 50), (11, 70, 32)])
def test_streams(shape, threads):
    target = NARROW.replace(l2_bytes=4 << 10)
    cost = scheduled(nests.matmul(*shape), target, threads, stream_bytes=512, stream_depth=8)
    m, n, k = shape
    assert cost.read["b"] <= 1.1 * n * k * -(-m // 8)  # once for eight rows


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(4, 41, 19), (3, 70, 16)])
def test_streams_of_several_matrices(shape, threads):
    target = NARROW.replace(l2_bytes=1 << 10, vector_registers=8)
    cost = scheduled(nests.vectors_times_matrices(*shape), target, threads, stream_depth=8)
    assert cost.read["b"] == shape[0] * up(shape[1], 16) * shape[2]


@pytest.fixture
def eager_threads(monkeypatch):
    """Let threads share out nests that are small enough to interpret."""
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 10))


@pytest.mark.parametrize(("shape", "shared"), [
    ((4, 41, 19), "n"), ((1, 17, 130), "k.o"), ((7, 5, 3), ""), ((1, 40, 63), ""),
    ((1, 131, 67), "j.o"), ((3, 18, 70), "k.o")])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_a_matrix_line_by_line(shape, shared, threads, eager_threads):
    cost = scheduled(nests.vectors_times_matrices(*shape), NARROW, threads, chain=24)
    matrices, columns, terms = shape
    assert cost.read["b"] <= matrices * (up(columns, 4) + 4) * terms
    pieces = matrices if shared == "n" else 2
    assert cost.shares == ([pieces] if threads == 2 and shared else [])


@pytest.mark.parametrize("shape", [(1, 96, 70), (1, 34, 128)])
def test_streams_whose_terms_are_shared_out(shape, eager_threads):
    target = NARROW.replace(l2_bytes=4 << 10, vector_registers=8)
    cost = scheduled(nests.vectors_times_matrices(*shape), target, 2, stream_depth=16)
    assert cost.shares == [2]
    assert cost.read["b"] == up(shape[1], 16) * shape[2]


@pytest.mark.parametrize("shape", [(3, 37, 96), (7, 50, 160), (4, 33, 88)])
def test_streams_of_many_sums(shape):
    target = NARROW.replace(l2_bytes=4 << 10)
    cost = scheduled(nests.matmul(*shape), target, stream_bytes=512, stream_depth=8, stream_sums=8)
    assert cost.read["b"] <= (shape[1] + 15) * shape[2]
    assert sum(cost.private.values()) < 1 << 10


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(256, 20, 30), (260, 36, 20), (260, 44, 31), (257, 37, 8)])
def test_far_rows(shape):
    nest = nests.matmul(*shape, left="ki")
    cost = scheduled(nest, NARROW, pack_rows=4, far_block=8, far_depth=1)
    assert near(cost, "a")
    assert cost.read["b"] < cost.computed / 2


@pytest.mark.parametrize(("rows", "l2_bytes", "far"), [
    (512, 1 << 20, True), (1024, 1 << 20, True), (1000, 1 << 20, False), (1000, 2 << 20, True),
    (200, 2 << 20, False)])
def test_far_rows_that_the_first_cache_does_not_hold(rows, l2_bytes, far):
    """Rows a power of two apart share a few places there; others are read from the second."""
    target = NARROW.replace(vector_bytes=64, l1_bytes=32 << 10, l2_bytes=l2_bytes)
    cost = large((rows, 400, 512), left="ki", threads=1, target=target)
    assert (cost.read["a"] < cost.multiplications / 4) == far
    assert sum(cost.private.values()) <= l2_bytes // 2


@pytest.mark.grid
@pytest.mark.parametrize("right", ["kj", "jk"])
@pytest.mark.parametrize("shape", [(33, 40, 50), (17, 70, 61)])
def test_blocks_of_a_long_sum(shape, right):
    target = NARROW.replace(l1_bytes=512)
    cost = scheduled(nests.matmul(*shape, right=right), target, pack_rows=4, panel_bytes=1 << 10)
    assert max(cost.private.values()) <= 1 << 10


@pytest.mark.grid
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layouts", [("ik", "kj"), ("ik", "jk"), ("ki", "jk")])
@pytest.mark.parametrize("shape", [(40, 67, 5), (37, 64, 9), (41, 255, 8)])
def test_panels_before_the_tiles(shape, layouts, threads, monkeypatch):
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 10))
    target = NARROW.replace(l1_bytes=64, l2_bytes=8 << 10)
    cost = scheduled(nests.matmul(*shape, *layouts), target, threads, pack_rows=4, wide_rows=16,
                     panel_bytes=4 << 10, turn_rows=1, far_depth=1 << 20)
    assert cost.computed < 1.3 * up(shape[0], 8) * up(shape[1], 8) * shape[2]
    assert bool(cost.shares) == (threads == 2)


@pytest.mark.parametrize("columns", [17, 24, 33, 40, 50, 25, 16, 57])
def test_rows_of_half_vectors(columns):
    """They compute few elements more than there are."""
    cost = scheduled(nests.matmul(9, columns, 7), NARROW.replace(vector_bytes=64))
    assert cost.computed <= up(9, 5) * up(columns, 8) * 7
    assert columns > 50 or columns in (16, 25) or cost.computed == 9 * up(columns, 8) * 7


@pytest.mark.parametrize("columns", [20, 40, 56, 72, 90, 110, 96])
def test_rows_where_units_are_whole(columns):
    """Half a vector takes as long as a whole one: the last of a row overlaps."""
    cost = large((23, columns, 300), whole_vectors=True)
    assert cost.computed <= 25 * (columns + 18) * 300
    assert cost.computed % 16 == 0


@pytest.mark.parametrize("columns", [41, 48, 77, 80, 100, 64, 96, 130])
def test_rows_of_whole_vectors(columns):
    """An odd number of whole vectors: broader tiles would compute more than there is."""
    computed = 24 * (up(columns, 16) if columns < 130 else 160) * 300
    assert large((23, columns, 300)).computed <= computed


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
    cost = large((rows, 512, 768), l2_bytes=2 << 20)
    assert cost.loads < (1 + 1 / 5) * cost.multiplications


@pytest.mark.parametrize("columns", [17, 40])
def test_rows_of_half_vectors_in_long_sums(columns):
    target = NARROW.replace(vector_bytes=64)
    cost = scheduled(nests.matmul(5, columns, 40), target, chain=8)
    assert cost.computed == 5 * up(columns, 8) * 40


@pytest.mark.parametrize(("shape", "registers", "tile"), [
    ((5, 183, 64), 32, (5, 5)), ((5, 87, 64), 32, (5, 4)), ((61, 4, 64), 32, (5, 4)),
    ((61, 61, 64), 16, (4, 3))])
def test_tiles_of_partial_sums_fit_the_registers(shape, registers, tile):
    target = NARROW.replace(vector_bytes=64, vector_registers=registers)
    plan = Plan(nests.matmul(*shape, right="jk"), target, 1)
    pattern = contraction.match(plan, "i")
    p = contraction.Parameters()
    found = dot_product._find(plan, pattern)
    sides = dot_product._sizes(plan, found, p)
    assert sides[0] * sides[1] + min(sides) < registers
    assert tuple(sides) == tile
