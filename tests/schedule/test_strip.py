"""The primitive strip: rows of a copied box, with shared zeros between them, as one long row."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same, convolution
from weft.errors import ScheduleError
from weft.ir import stmt as st
from weft.ir.traverse import walk
from weft.schedule import Schedule


def local(kernel):
    """Return the shapes of the memories that a kernel allocates."""
    return {s.memory.name: [e.attr for e in s.memory.shape] for s in walk(kernel.body)
            if isinstance(s, st.Alloc)}


# Height, width, padding, kernel and dilation, the places between two rows' beginnings.
@pytest.mark.parametrize(("height", "width", "pad", "kernel", "dilation", "pitch"), [
    (6, 7, 0, 3, 1, 7), (6, 7, 1, 3, 1, 8), (5, 3, 2, 3, 1, 5), (8, 5, 1, 3, 2, 6),
    (4, 9, 3, 7, 1, 12), (7, 4, 2, 4, 1, 6)])
def test_rows_of_a_convolution(height, width, pad, kernel, dilation, pitch):
    before = convolution(height, width, 1, pad, kernel=kernel, dilation=dilation)
    made = Schedule(before).window("x", "n").strip("o", "x.w")
    assert_same(before, made.kernel)
    rows, columns = (m + 2 * pad - dilation * (kernel - 1) for m in (height, width))
    shapes = local(made.bare)
    assert shapes["s.l"] == [5, (rows - 1) * pitch + columns]
    assert shapes["x.w"] == [2, (height + 2 * pad - 1) * pitch + width + 2 * pad]
    assert_same(before, Schedule.replay(before, made.trace).kernel)


@pytest.mark.parametrize("lanes", [4, 16])
def test_vectors_go_along_the_strip(lanes):
    before = convolution(6, 5, 1, 1)
    made = Schedule(before).window("x", "n").strip("o", "x.w").split("i_j", lanes, "overlap")
    assert_same(before, made.decompose_reduction("s", "i_j.i").vectorize("i_j.i").kernel,
                exact=False)


def test_blocks_of_a_sum_are_added_behind_the_strip():
    before = convolution(6, 5, 1, 1, channels=6)
    made = Schedule(before).block_reduction("s", "o", "c", 2).window("x", "c.o")
    assert_same(before, made.strip("o", "x.w").kernel, exact=False)


def test_steps_that_all_loops_take_are_none():
    before = convolution(9, 7, 2, 1, dilation=2)
    assert_same(before, Schedule(before).window("x", "n").strip("o", "x.w").kernel)


def test_what_is_no_strip():
    for kernel, loop, memory in ((convolution(9, 7, 2, 1), "o", "x.w"),
                                 (convolution(6, 7, 1, 1), "o", "w"),
                                 (convolution(6, 7, 1, 1), "j", "x.w")):
        made = Schedule(kernel).window("x", "n")
        with pytest.raises(ScheduleError):
            made.strip(loop, memory)
    with pytest.raises(ScheduleError, match="REDUCE"):
        Schedule(nests.transpose(4, 5)).strip("i", "x")
