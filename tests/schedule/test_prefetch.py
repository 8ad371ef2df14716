"""The primitive that asks for memory ahead changes nothing but speed."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir.interpret.interpret import evaluate
from weft.ir.stmt import For, If, Prefetch
from weft.ir.text.text_expr import print_expr
from weft.ir.traverse import walk
from weft.schedule import Schedule
from weft.strategies import choose
from weft.target import Target

SMALL = Target("cpu", "x86_64", vector_bytes=32, l1_bytes=32 << 10, l2_bytes=64 << 10)


def test_refuses():
    kernel = nests.softmax(3, 8)
    with pytest.raises(ScheduleError, match="no access to y"):
        Schedule(kernel).prefetch("y", nests_phase(kernel, 1), "r")
    with pytest.raises(ScheduleError, match="a loop around"):
        Schedule(kernel).prefetch("x", "r", nests_phase(kernel, 1))
    with pytest.raises(ScheduleError, match="distance"):
        Schedule(kernel).prefetch("x", nests_phase(kernel, 1), "r", 0)
    with pytest.raises(ScheduleError, match="everything at distance 1"):
        Schedule(kernel).prefetch("x", nests_phase(kernel, 1), "r", granularity="everything")


def panels(rows, columns, inner):
    kernel = nests.matmul(inner, columns, rows, right="jk")
    return Schedule(kernel).split("j", 8, "overlap").reorder("j.o", "i", "j.i").stage(
        "b", "j.o", ("k", "j.i"))


@pytest.mark.parametrize("shape", [(40, 24, 3), (33, 17, 9), (5, 8, 1)])
def test_panels_are_fetched_ahead(shape):
    schedule = panels(*shape)
    before = schedule.kernel
    schedule.prefetch("b", "i", "j.o", granularity="panel", read="k.s")
    assert sum(isinstance(s, Prefetch) for s in walk(schedule.kernel.body)) == 1
    assert_same(before, schedule.kernel)
    again = Schedule.replay(panels(*shape).kernel, schedule.kernel.meta.schedule[-1:])
    assert_same(schedule.kernel, again.kernel)


@pytest.mark.parametrize("shape", [(40, 24, 6), (33, 17, 9), (7, 41, 2)])
def test_rows_of_panels_are_fetched_ahead(shape):
    depth, columns, rows = shape
    schedule = Schedule(nests.matmul(rows, columns, depth)).split("j", 8, "overlap").reorder(
        "j.o", "i", "j.i").stage("b", "j.o", ("k", "j.i")).decompose_reduction("s", "j.i")
    before = schedule.kernel
    schedule.prefetch("b", "k", "j.o", granularity="row", read="k.s", first="i")
    assert_same(before, schedule.kernel)
    again = Schedule.replay(before, schedule.kernel.meta.schedule[-1:])
    assert_same(schedule.kernel, again.kernel)
    panels = range(8, columns, 8)
    assert lines_of(schedule.kernel, columns) >= {
        (k, min(j, columns - 8)) for j in panels for k in range(depth)}


@pytest.mark.parametrize("depth", [32, 48])
def test_each_block_of_panels_is_fetched_ahead(depth):
    """The last block of a panel asks for the first one of the next panel."""
    schedule = Schedule(nests.matmul(6, 24, depth)).split("j", 8).reorder(
        "j.o", "i", "j.i").block_reduction("s", "i", "k", 16).stage(
        "b", "k.o", ("k.i", "j.i")).decompose_reduction("s.b", "j.i")
    before = schedule.kernel
    schedule.prefetch("b", "k.i", "k.o", granularity="row", read="k.i.s", first="i", around="j.o")
    assert_same(before, schedule.kernel)
    again = Schedule.replay(before, schedule.kernel.meta.schedule[-1:])
    assert_same(schedule.kernel, again.kernel)
    every = {(k, j) for j in (0, 8, 16) for k in range(depth)}
    assert lines_of(schedule.kernel, 24) >= every - {(k, 0) for k in range(16)}


@pytest.mark.parametrize("shape", [(40, 24, 6), (33, 17, 9), (7, 41, 2), (5, 25, 8)])
def test_rows_are_fetched_ahead(shape):
    depth, columns, rows = shape
    schedule = Schedule(nests.matmul(rows, columns, depth)).split("j", 8, "overlap").reorder(
        "j.o", "i", "j.i").decompose_reduction("s", "j.i")
    before = schedule.kernel
    schedule.prefetch("b", "k", "j.o", granularity="row", first="i")
    assert_same(before, schedule.kernel)
    again = Schedule.replay(before, schedule.kernel.meta.schedule[-1:])
    assert_same(schedule.kernel, again.kernel)
    assert lines_of(schedule.kernel, columns) >= {
        (k, min(j, columns - 8)) for j in range(8, columns, 8) for k in range(depth)}


@pytest.mark.parametrize("shape", [(40, 24, 6), (33, 16, 9), (35, 40, 7)])
def test_rows_are_asked_for_between_sums(shape):
    """Rows of the next tile and of the next panel, and the lines of the present results."""
    depth, columns, rows = shape
    schedule = Schedule(nests.matmul(rows, columns, depth)).split("j", 8).split(
        "i", 3, "overlap").reorder("j.o", "i.o", "i.i", "j.i").stage("b", "j.o", ("k", "j.i"))
    schedule.block_reduction("s", "i.i", "k", 7).decompose_reduction("s.b", "i.i")
    before = schedule.kernel
    asked = {}
    for memory, wanted in {"a": ("i.o", 1, "rows", 1, "i.i"), "c": ("k.o", 0, "rows", 0, "i.i.end"),
                           "b": ("j.o", 1, "rows", 0, "k.s", "i.o")}.items():
        one = Schedule(before).prefetch(memory, "k.o", *wanted)
        asked[memory] = lines_of(one.kernel, columns)
        schedule.prefetch(memory, "k.o", *wanted)
    assert_same(before, schedule.kernel)
    again = Schedule.replay(before, schedule.kernel.meta.schedule[-3:])
    assert_same(schedule.kernel, again.kernel)
    panels = range(0, columns, 8)
    assert asked["a"] >= {(i, 0) for i in range(3, rows)}
    assert asked["c"] >= {(i, j) for i in range(rows) for j in panels}
    assert asked["b"] >= {(k, j) for k in range(depth) for j in panels[1:]}


def test_refuses_rows_between_sums():
    schedule = Schedule(nests.matmul(6, 24, 40)).split("j", 8).split("i", 3).reorder(
        "j.o", "i.o", "i.i", "j.i").block_reduction("s", "i.i", "k", 20).decompose_reduction(
        "s.b", "i.i")
    with pytest.raises(ScheduleError, match=r"k\.i or i\.o not around"):
        schedule.prefetch("a", "k.o", "i.o", granularity="rows", read="i.i", first="k.i")
    with pytest.raises(ScheduleError, match=r"no rows of b in i\.i\.end"):
        schedule.prefetch("b", "k.o", "k.o", 0, granularity="rows", read="i.i.end")
    with pytest.raises(ScheduleError, match="40 hints in a turn"):
        schedule.prefetch("a", "k.o", "i.o", granularity="rows", count=20, read="i.i")


def test_each_line_of_wide_rows_is_fetched_ahead():
    """The last columns of a block ask for the first ones of the next block."""
    schedule = Schedule(nests.matmul(6, 96, 32)).split("j", 48).split("j.i", 16).reorder(
        "j.o", "i", "j.i.o", "j.i.i").block_reduction("s", "j.o", "k", 16).decompose_reduction(
        "s.b", "j.i.o")
    before = schedule.kernel
    schedule.prefetch("b", "k.i", "j.o", granularity="row", first="i", around="k.o")
    assert_same(before, schedule.kernel)
    every = {(k, j) for j in range(0, 96, 16) for k in range(32)}
    first = {(k, j) for j in (0, 16, 32) for k in range(16)}
    assert lines_of(schedule.kernel, 96) >= every - first


def test_rows_of_a_shorter_last_block():
    schedule = Schedule(nests.matmul(6, 24, 37)).split("j", 8).reorder(
        "j.o", "i", "j.i").block_reduction("s", "j.o", "k", 16).decompose_reduction("s.b", "j.i")
    before = schedule.kernel
    schedule.prefetch("b", "k.i", "j.o", granularity="row", first="i", around="k.o")
    assert_same(before, schedule.kernel)
    every = {(k, j) for j in (0, 8, 16) for k in range(37)}
    rest = {(k, 0) for k in range(16)} | {(k, j) for k in range(32, 37) for j in (0, 8, 16)}
    assert lines_of(schedule.kernel, 24) >= every - rest


@pytest.mark.parametrize(("shape", "right"), [
    ((40, 96, 3), "kj"), ((33, 80, 9), "kj"), ((64, 48, 2), "jk"), ((37, 50, 5), "kj"),
])  # fmt: skip
def test_long_steps_ask_for_lines(shape, right):
    """All lines of all panels but the first, where each step asks for several of them."""
    depth, columns, rows = shape
    schedule = Schedule(nests.matmul(rows, columns, depth, "ik", right)).split("j", 32).reorder(
        "j.o", "i", "j.i").stage("b", "j.o", ("k", "j.i")).split("k", 8)
    schedule.decompose_reduction("s", "j.i")
    before = schedule.kernel
    schedule.prefetch("b", "k.o", "j.o", granularity="lines", read="k.s", first="i")
    assert_same(before, schedule.kernel)
    again = Schedule.replay(before, schedule.kernel.meta.schedule[-1:])
    assert_same(schedule.kernel, again.kernel)
    size = columns if right == "kj" else depth
    asked = {(at[0] * size + at[1]) // 16 for at in lines_of(schedule.kernel, columns)}
    elements = [(k, j) if right == "kj" else (j, k) for j in range(32, columns)
                for k in range(depth)]
    assert asked >= {(x * size + y) // 16 for x, y in elements}


def test_lines_of_blocks_of_the_sum():
    """The last panel of a block asks for the first one of the next block."""
    schedule = Schedule(nests.matmul(6, 64, 64)).split("j", 32).reorder(
        "j.o", "i", "j.i").block_reduction("s", "j.o", "k", 32).stage(
        "b", "j.o", ("k.i", "j.i")).decompose_reduction("s.b", "j.i")
    before = schedule.kernel
    schedule.prefetch("b", "k.i", "j.o", granularity="lines", read="k.i.s", first="i", around="k.o")
    assert_same(before, schedule.kernel)
    asked = {(k, j // 16) for k, j in lines_of(schedule.kernel, 64)}
    assert asked >= {(k, j) for k in range(64) for j in range(4) if k >= 32 or j >= 2}


def test_only_the_first_iteration_of_what_is_written_out_asks_for_lines():
    schedule = Schedule(nests.matmul(6, 64, 48)).split("j", 32).reorder("j.o", "i", "j.i").stage(
        "b", "j.o", ("k", "j.i")).split("k", 24).decompose_reduction("s", "j.i").unroll("k.o")
    before = schedule.kernel
    schedule.prefetch("b", "k.i", "j.o", granularity="lines", read="k.s", first="i")
    assert_same(before, schedule.kernel)
    (asked,) = [s for s in walk(schedule.kernel.body)
                if isinstance(s, If) and any(isinstance(t, Prefetch) for t in walk(s.then))]
    assert print_expr(asked.condition) == "%k.o == 0"


def test_requests_of_a_long_step_are_written_once():
    schedule = Schedule(nests.matmul(2, 96, 40)).split("j", 32).reorder("j.o", "i", "j.i").stage(
        "b", "j.o", ("k", "j.i")).split("k", 8).decompose_reduction("s", "j.i")
    schedule.prefetch("b", "k.o", "j.o", granularity="lines", read="k.s", first="i")
    (loop,) = [s for s in walk(schedule.kernel.body)
               if isinstance(s, For) and any(isinstance(t, Prefetch) for t in s.body)]
    assert print_expr(loop.extent) == "8"  # of two lines of 40 rows, in ten steps
    assert len([s for s in walk(schedule.kernel.body) if isinstance(s, Prefetch)]) == 1


def test_refuses_lines():
    tiles = Schedule(nests.matmul(4, 640, 20)).split("j", 320).reorder(
        "j.o", "i", "j.i").decompose_reduction("s", "j.i")
    with pytest.raises(ScheduleError, match="loads of a that"):
        tiles.prefetch("a", "k", "j.o", granularity="lines", first="i")
    with pytest.raises(ScheduleError, match="not between"):
        tiles.prefetch("b", "k", "j.o", granularity="lines", first="none")
    short = Schedule(nests.matmul(1, 640, 640)).split("j", 320).split("k", 320).reorder(
        "j.o", "i", "j.i").stage("b", "j.o", ("k.o", "k.i", "j.i")).decompose_reduction("s", "j.i")
    with pytest.raises(ScheduleError, match="lines for 2 steps"):
        short.prefetch("b", "k.o", "j.o", granularity="lines", read="k.o.s", first="i")


def lines_of(kernel, columns):
    """Return the places that the prefetches of a kernel name, by walking its loops."""
    places = set()

    def run(body, names):
        for s in body:
            if isinstance(s, Prefetch):
                places.add(tuple(int(evaluate(e, names)) for e in s.index))
            elif isinstance(s, For) and any(isinstance(t, Prefetch) for t in walk(s.body)):
                for n in range(int(evaluate(s.extent, names))):
                    run(s.body, {**names, s.var: n})

    run(kernel.body, {})
    return places


def test_refuses_rows_of_panels():
    schedule = Schedule(nests.matmul(2, 24, 40)).split("j", 8).reorder(
        "j.o", "i", "j.i").stage("b", "j.o", ("k", "j.i")).decompose_reduction("s", "j.i")
    with pytest.raises(ScheduleError, match="not between"):
        schedule.prefetch("b", "k", "j.o", granularity="row", read="k.s", first="j.o")
    with pytest.raises(ScheduleError, match="0 loads of a"):
        schedule.prefetch("a", "k", "j.o", granularity="row", read="k.s", first="i")
    narrow = Schedule(nests.matmul(1, 128, 5, right="jk")).split("j", 64).reorder(
        "j.o", "i", "j.i").stage("b", "j.o", ("k", "j.i")).decompose_reduction("s", "j.i")
    with pytest.raises(ScheduleError, match="64 rows for 5 steps"):
        narrow.prefetch("b", "k", "j.o", granularity="row", read="k.s", first="i")


def test_refuses_rows():
    tiles = Schedule(nests.matmul(4, 640, 20)).split("j", 160).reorder(
        "j.o", "i", "j.i").decompose_reduction("s", "j.i")
    with pytest.raises(ScheduleError, match="10 lines in a row"):
        tiles.prefetch("b", "k", "j.o", granularity="row", first="i")
    with pytest.raises(ScheduleError, match="loads of a that"):
        tiles.prefetch("a", "k", "j.o", granularity="row", first="i")
    with pytest.raises(ScheduleError, match="not between"):
        tiles.prefetch("b", "k", "j.o", granularity="row", first="none")


@pytest.mark.parametrize("lanes", [16, 32, 64])
@pytest.mark.parametrize(("places", "block"), [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 4)])
@pytest.mark.parametrize("columns", [64, 320, 1024])
def test_places_of_rows(columns, places, block, lanes):
    """Lines of every later row are asked for, all but a few if the places have unequal shares."""
    rows = 2 * max(block, 2)
    schedule = Schedule(nests.bias(rows, columns)).split("j", lanes).vectorize("j.i")
    before = schedule.kernel
    schedule.prefetch("x", "j.o", "i", block, "pages", places)
    assert_same(before, schedule.kernel)
    again = Schedule.replay(before, schedule.kernel.meta.schedule[-1:])
    assert_same(schedule.kernel, again.kernel)
    asked = lines_of(schedule.kernel, columns)
    flat = {i * columns + j for i, j in asked}
    later = {e for e in range(block * columns, rows * columns, 16)}
    turns = max(places * 16 // lanes, 1)
    if columns // lanes * block % turns == 0:
        assert flat >= later
    assert len(flat & later) >= 0.8 * len(later)
    parts = places * max(lanes // 16, 1)
    assert len(flat) <= rows * (columns // 16 + parts)


@pytest.mark.parametrize(("places", "block"), [(1, 8), (2, 8), (4, 8), (4, 16), (8, 2)])
@pytest.mark.parametrize("lanes", [16, 64])
@pytest.mark.parametrize("size", [4096, 5000])
def test_places_of_blocks(size, lanes, places, block):
    schedule = Schedule(nests.chain(size)).split("i", lanes, "peel").vectorize("i.i")
    before = schedule.kernel
    schedule.prefetch("x", "i.o", "i.o", block, "pages", places)
    assert_same(before, schedule.kernel)
    asked = {e for e, in lines_of(schedule.kernel, size)}
    assert asked >= set(range(block * lanes, size // lanes * lanes, 16))


@pytest.mark.parametrize("columns", [320, 333])
def test_places_of_rows_whose_last_vector_overlaps(columns):
    schedule = Schedule(nests.bias(4, columns)).split("j", 64, "overlap").vectorize("j.i")
    before = schedule.kernel
    schedule.prefetch("x", "j.o", "i", 1, "pages", 4)
    assert_same(before, schedule.kernel)
    flat = {i * columns + j for i, j in lines_of(schedule.kernel, columns)}
    assert flat >= {i * columns + j for i in (1, 2, 3) for j in range(0, columns - 16, 16)}


def test_lines_are_fetched_before_they_are_written():
    schedule = Schedule(nests.bias(4, 100)).split("j", 16, "overlap").vectorize("j.i")
    before = schedule.kernel
    schedule.prefetch("y", "j.i", "j.o", 2)
    assert_same(before, schedule.kernel)
    hint = next(s for s in walk(schedule.kernel.body) if isinstance(s, Prefetch))
    assert hint.memory.name == "y"


def test_refuses_places():
    schedule = Schedule(nests.bias(8, 64)).split("j", 16).vectorize("j.i")
    with pytest.raises(ScheduleError, match="in blocks of 1, 3 places"):
        schedule.prefetch("x", "j.o", "i", 1, "pages", 3)
    with pytest.raises(ScheduleError, match="in blocks of 2, 4 places"):
        schedule.prefetch("x", "j.o", "i", 2, "pages", 4)
    with pytest.raises(ScheduleError, match="in blocks of 1, 4 places"):
        schedule.prefetch("b", "j.o", "i", 1, "pages", 4)
    with pytest.raises(ScheduleError, match="no such load of y"):
        schedule.prefetch("y", "j.o", "i", 1, "pages", 4)
    with pytest.raises(ScheduleError, match="no such load of x"):
        Schedule(nests.bias(8, 64)).split("j", 8).prefetch("x", "j.o", "i", 1, "pages", 4)
    with pytest.raises(ScheduleError, match="no such load of x"):
        Schedule(nests.transpose(64, 64)).split("j", 16).prefetch("x", "j.o", "i", 1, "pages", 4)


def test_refuses_panels():
    with pytest.raises(ScheduleError, match="a loop around both"):
        panels(4, 24, 3).prefetch("b", "i", "i", granularity="panel", read="k.s")
    with pytest.raises(ScheduleError, match="0 loads of a"):
        panels(4, 24, 3).prefetch("a", "i", "j.o", granularity="panel", read="k.s")


def nests_phase(kernel, number):
    """The name of the loop of one phase of a row."""
    phases = [s for s in kernel.body[0].body if s.bodies()]
    stmt = phases[number]
    return (stmt.axes[0].var if hasattr(stmt, "axes") else stmt.var).attr


@pytest.mark.parametrize("columns", [600, 601])
def test_heavy_rows_are_fetched_ahead(columns):
    kernel = nests.softmax(40, columns)
    made = choose(kernel, SMALL, 1)
    assert sum(isinstance(s, Prefetch) and s.memory.name == "x" for s in walk(made.body)) == 1
    assert_same(kernel, made, exact=False)
    again = Schedule.replay(kernel, made.meta.schedule)
    assert_same(made, again.kernel)


@pytest.mark.parametrize("shape", [(300, 1000), (1, 1), (7, 1), (0, 5), (129, 2053)])
def test_softmax_runs(shape):
    data = np.random.default_rng(5).standard_normal(shape).astype(np.float32) * 4
    got = weft.from_numpy(data).softmax(-1).numpy()
    wide = data.astype(np.float64)
    e = np.exp(wide - wide.max(-1, keepdims=True, initial=-np.inf))
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=4e-6)
