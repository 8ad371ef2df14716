"""Copies of the next panel while one is used, and results that leave in a loop's last iteration."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir.stmt import Alloc, If, Load, Prefetch
from weft.ir.traverse import walk
from weft.schedule import Schedule


def blocks(rows, columns, depth, block=16, width=8):
    """Blocks of the sum outside, panels of columns inside them, and a copy for each panel."""
    return Schedule(nests.matmul(rows, columns, depth)).split("j", width, "overlap").reorder(
        "j.o", "i", "j.i").block_reduction("s", "j.o", "k", block)


def panels(rows, columns, depth, block=16, width=8):
    return blocks(rows, columns, depth, block, width).stage(
        "b", "j.o", ("k.i", "j.i")).decompose_reduction("s.b", "j.i")


@pytest.mark.parametrize("distance", [0, 3, 40])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(6, 24, 48), (3, 8, 16), (7, 41, 32),
                                                        (40, 20, 16), (1, 9, 64)])
def test_the_next_panel_is_copied_meanwhile(rows, columns, depth, distance):
    """Also of one panel or block, panels that overlap, more tiles than rows and one tile."""
    schedule = panels(rows, columns, depth)
    before = schedule.kernel
    schedule.software_pipeline("b", "k.i", "j.o", distance, read="k.i.s", first="i", around="k.o")
    assert_same(before, schedule.kernel)
    again = Schedule.replay(before, schedule.kernel.meta.schedule[-1:])
    assert_same(schedule.kernel, again.kernel)
    found = list(walk(schedule.kernel.body))
    assert any(isinstance(s, Prefetch) for s in found) == (distance > 0)
    assert [s.memory.shape[0].attr for s in found
            if isinstance(s, Alloc) and s.memory.name.startswith("b.s")] == [2]
    assert sum(isinstance(s, Load) and s.memory.name == "b" for s in found) == 2


def test_panels_of_whole_sums_are_copied_meanwhile():
    schedule = Schedule(nests.matmul(5, 27, 12)).split("j", 8, "overlap").reorder(
        "j.o", "i", "j.i").stage("b", "j.o", ("k", "j.i")).decompose_reduction("s", "j.i")
    before = schedule.kernel
    schedule.software_pipeline("b", "k", "j.o", read="k.s", first="i")
    assert_same(before, schedule.kernel)


def test_each_block_may_begin_with_a_copy_of_its_own():
    schedule = panels(6, 24, 48)
    before = schedule.kernel
    schedule.software_pipeline("b", "k.i", "j.o", read="k.i.s", first="i")
    assert_same(before, schedule.kernel)


OF_TILES = {"read": "k.i.s", "first": "i", "around": "k.o"}


def test_copies_ahead_are_refused():
    with pytest.raises(ScheduleError, match="lengths vary"):  # a shorter last block
        panels(6, 24, 37).software_pipeline("b", "k.i", "j.o", **OF_TILES)
    with pytest.raises(ScheduleError, match="shared loops"):
        panels(6, 24, 48).parallel("j.o").software_pipeline("b", "k.i", "j.o", **OF_TILES)
    with pytest.raises(ScheduleError, match="a loop inside"):
        panels(6, 24, 48).software_pipeline("b", "k.i", "j.o", **(OF_TILES | {"first": "j.o"}))
    repeated = Schedule(nests.matmul(8, 24, 48)).split("j", 8).split("i", 4).reorder(
        "i.o", "j.o", "i.i", "j.i").block_reduction("s", "i.o", "k", 16).stage(
        "b", "j.o", ("k.i", "j.i")).decompose_reduction("s.b", "j.i")
    with pytest.raises(ScheduleError, match="come again"):  # panels of k.o, for each of i.o
        repeated.software_pipeline("b", "k.i", "j.o", read="k.i.s", first="i.i", around="k.o")


@pytest.mark.parametrize(("rows", "columns", "depth"), [(6, 24, 48), (3, 8, 16), (7, 41, 37)])
def test_results_leave_in_the_last_iteration(rows, columns, depth):
    schedule = blocks(rows, columns, depth).decompose_reduction("s.b", "j.i")
    before = schedule.kernel
    schedule.fuse_prologue_epilogue("j.o.end", "k.o", "i")
    assert_same(before, schedule.kernel)
    assert sum(isinstance(s, If) for s in walk(schedule.kernel.body)) == 1
    again = Schedule.replay(before, schedule.kernel.meta.schedule[-1:])
    assert_same(schedule.kernel, again.kernel)


def test_what_stands_before_a_loop_is_done_in_its_first_iteration():
    schedule = blocks(6, 24, 37).decompose_reduction("s.b", "j.i")
    before = schedule.kernel
    schedule.fuse_prologue_epilogue("j.o.begin", "k.o", "i")
    schedule.fuse_prologue_epilogue("j.o.end", "k.o", "i")
    assert_same(before, schedule.kernel)


def test_settling_is_refused():
    made = blocks(6, 24, 48).decompose_reduction("s.b", "j.i")
    with pytest.raises(ScheduleError, match="right beside"):
        made.fuse_prologue_epilogue("j.o.end", "j.o", "i")
    with pytest.raises(ScheduleError, match="other lengths"):
        made.fuse_prologue_epilogue("j.o.end", "k.o", "k.i")
    with pytest.raises(ScheduleError, match="no loop inside"):
        made.fuse_prologue_epilogue("j.o.end", "k.o", "k.o")
