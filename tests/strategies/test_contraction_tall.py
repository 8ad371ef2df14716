"""Tall tiles where units multiply whole vectors, two a cycle, and which loop gives the vectors."""

import re

import numpy as np
import pytest
from test_contraction_forms import large

import schedule_nests as nests
import weft
from schedule_costs import Cost
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.strategies import choose, contraction
from weft.strategies.common import nest
from weft.strategies.common.nest import Plan
from weft.target import CostModel, Target

WHOLE = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, whole_vectors=True,
               l1_bytes=48 << 10, l2_bytes=2 << 20, cores=1)
HALVES = WHOLE.replace(whole_vectors=False, l1_bytes=32 << 10, l2_bytes=1 << 20)


def tall(shape, right="kj", target=WHOLE, threads=1, **options):
    """Return the cost of a product that is too large for the interpreter."""
    return large(shape, right, threads=threads, target=target, **options)


@pytest.mark.parametrize(("shape", "rows"), [
    ((753, 165, 573), 14), ((300, 95, 700), 14), ((200, 200, 200), 10), ((91, 32, 900), 13)])
def test_tiles_fill_the_registers(shape, rows):
    """More products for each line of the second cache; a near panel asks for little waste."""
    assert tall(shape).tile == (rows, 32)
    assert tall(shape, target=HALVES).tile[0] < rows


@pytest.mark.parametrize(("columns", "depth", "whole"), [
    (66, 2921, True), (80, 4000, True), (66, 7000, False), (120, 3000, False)])
def test_rows_that_the_second_cache_holds_are_read_whole(columns, depth, whole):
    """Strips of columns would read the rows of the other operand once each."""
    assert (tall((70, columns, depth)).read["a"] == 70 * depth) == whole


def test_few_steps_leave_tiles_low():
    """Results are written in as many rows at once as a tile has."""
    assert tall((608, 40, 5), "jk").tile[0] == 8


@pytest.mark.parametrize(("shape", "streams"), [
    ((57, 2435, 449), False), ((57, 2448, 449), True), ((60, 1021, 3000), True),
    ((28, 2435, 449), True), ((197, 2304, 768), False)])
def test_rows_across_lines_are_copied_into_panels(shape, streams):
    """Unless broad panels would have to be cut, or few rows read them."""
    assert (tall(shape).form == "skinny_gemm") == streams


@pytest.mark.parametrize(("shape", "panels"), [
    ((39, 109, 256), True), ((26, 761, 447), False), ((30, 1024, 512), True),
    ((20, 1024, 512), False)])
def test_few_rows_share_a_panel_where_a_strip_lies_badly(shape, panels):
    cost = tall(shape, target=WHOLE.replace(l2_bytes=4 << 20))
    assert (cost.read["b"] < 1.1 * shape[1] * shape[2]) == panels


def test_threads_have_as_many_blocks_of_far_rows():
    """Seven blocks of 236 rows would leave one of two threads without work for one of them."""
    assert tall((1650, 128, 256), left="ki", threads=2).shares == [8]


@pytest.mark.parametrize("shape", [(94, 1140, 2048), (200, 64, 2048), (256, 121, 1695),
                                   (70, 1140, 1500)])
def test_threads_have_blocks_of_few_far_rows(shape):
    """One block of rows, or of columns, would leave a thread without work."""
    (blocks,) = tall(shape, left="ki", threads=2).shares
    assert blocks % 2 == 0


@pytest.mark.parametrize("right", ["kj", "jk"])
def test_rows_in_other_pages_are_copied_once_for_all_panels(right):
    """Their pages are too many for the processor's first table of them."""
    cost = tall((901, 917, 155), right, left="ki")
    assert cost.read["a"] < 2.5 * 901 * 155  # for two halves of the columns
    assert cost.read["b"] < 2.5 * 917 * 155


@pytest.mark.parametrize(("shape", "first"), [
    ((2048, 82, 4), True), ((1112, 261, 18), True), ((1112, 261, 60), False),
    ((100, 900, 5), False), ((192, 40, 4), False)])
def test_panels_come_first_where_sums_have_few_terms(shape, first):
    """Strips of columns would write each line of the results in pieces."""
    assert tall(shape, "jk").by_rows == first


@pytest.mark.parametrize(("kernel", "shared"), [
    (nests.matvec(400, 400), True), (nests.matvec(35, 8192), True), (nests.matvec(100, 300), False),
    (nests.vectors_times_matrices(1, 500, 300), True),
    (nests.vectors_times_matrices(1, 7421, 32), True),
    (nests.vectors_times_matrices(1, 200, 200), False)])
def test_a_second_thread_pays_where_a_matrix_is_read_for_4_microseconds(kernel, shared):
    plan = Plan(kernel, WHOLE, 2)
    pattern = contraction.match(plan, kernel.body[0].var.attr)
    assert contraction.schedule_contraction(plan, pattern)
    assert bool(Cost(plan.schedule.kernel).shares) == shared


@pytest.mark.parametrize("columns", [19, 23, 31])
def test_panels_are_filled_up_to_two_vectors(columns):
    cost = tall((800, columns, 330), "jk")
    assert cost.tile == (14, 32)
    assert cost.computed == 58 * 14 * 32 * 330


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("right", ["n", "t"])
@pytest.mark.parametrize("seed", range(3))
def test_products_of_all_sizes(dtype, right, seed):
    rng = np.random.default_rng([seed, right == "t", dtype().itemsize])
    m, n, k = (int(2 ** rng.uniform(2, 9)) for _ in range(3))
    a = rng.standard_normal((m, k)).astype(dtype)
    b = rng.standard_normal((k, n) if right == "n" else (n, k)).astype(dtype)
    x, y = weft.from_numpy(a), weft.from_numpy(b)
    found = [(x @ (y if right == "n" else y.T)).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*found)
    wide, turned = a.astype(np.longdouble), (b if right == "n" else b.T).astype(np.longdouble)
    bound = np.abs(wide) @ np.abs(turned) * np.finfo(dtype).eps * 8
    assert (np.abs(found[0] - wide @ turned) <= bound).all()


@pytest.mark.parametrize(("shape", "shared"), [
    ((996, 43, 96), "rows"), ((646, 194, 235), "rows"), ((700, 768, 300), "strips"),
    ((40, 43, 300), "strips")])
def test_threads_share_rows_where_strips_are_uneven(shape, shared):
    """Each copies the panels for itself, unless its rows are few."""
    assert (tall(shape, "jk", threads=2).shares == [2]) == (shared == "rows")


@pytest.mark.parametrize(("shape", "right", "shared"), [
    ((690, 421, 30), "jk", True), ((2048, 50, 30), "jk", True), ((661, 275, 40), "kj", True),
    ((680, 432, 30), "jk", True), ((680, 528, 30), "jk", False)])
def test_threads_share_rows_where_strips_end_within_lines(shape, right, shared):
    """A line of results would go from thread to thread in every row, of short ones any line."""
    assert (tall(shape, right, threads=2, epilogue=False).shares == [2]) == shared


@pytest.mark.parametrize(("dtype", "rows", "shared"), [
    ("f32", 600, False), ("f32", 900, True), ("f64", 900, True)])
def test_threads_share_what_takes_long_to_read(dtype, rows, shared):
    """Rows of a matrix times a vector, by how many bytes they have."""
    nest = re.sub("f32", dtype, print_kernel(nests.matvec(rows, 157)))
    made = choose(parse_kernel(nest), WHOLE, 2)
    assert bool(Cost(made).shares) is shared


@pytest.mark.parametrize(("rows", "threads"), [(1109, 2), (1205, 2), (1300, 4)])
def test_threads_have_as_many_blocks_of_wide_results(rows, threads):
    """Three blocks would leave one of two threads without work for a third of the time."""
    cost = tall((rows, 1799, 15), threads=threads, epilogue=False)
    assert cost.by_rows
    assert cost.shares[0] % threads == 0


@pytest.mark.grid
@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("shape", [(130, 33, 21), (97, 20, 300), (64, 37, 5)])
def test_rows_of_threads_run(shape, threads, monkeypatch):
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1 << 8))
    kernel = nests.matmul(*shape, right="jk")
    plan = Plan(kernel, WHOLE, threads)
    pattern = contraction.match(plan, "i")
    assert contraction.schedule_contraction(plan, pattern)
    nests.assert_same(kernel, plan.schedule.kernel)
