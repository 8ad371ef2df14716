"""Copies that windows share: each place once, and tiles that begin anywhere in one."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.schedule import Schedule


def words(stride, pad=0, width=9, outputs=2):
    kernel = nests.convolution(4, width, stride, pad, 5, outputs, images=1, dtype=dt.bfloat16)
    made = Schedule(kernel)
    made.sink("o").reorder("n", "i", "j", "o")
    return made.tensorize("s", "c", "dot2", bias="left", multiple=16).split("c.q", 16)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("pad", [0, 1, 2])
@pytest.mark.parametrize("layout", [
    ("c.q.o", "i&p", "j&q", "c.q.i"), ("c.q.o", "c.q.i", "p&i", "q&j"),
    ("q", "c.q.o", "i&p", "c.q.i", "j"),
])  # fmt: skip
def test_what_windows_share_is_computed_once(stride, pad, layout):
    made = words(stride, pad).precompute("s.left", "n", layout)
    assert_same(made.start, made.kernel)
    rows = (4 + 2 * pad - 3) // stride * stride + 3
    alloc = next(line for line in print_kernel(made.bare).splitlines() if "alloc s.left.p" in line)
    assert str(rows) in alloc
    again = Schedule.replay(made.start, made.trace)
    assert print_kernel(again.kernel) == print_kernel(made.kernel)


@pytest.mark.parametrize("pair", ["i&q", "j&p", "i&j", "o&p", "p&q"])
def test_loops_that_do_not_move_together_make_no_dimension(pair):
    loops = [x for x in ("i", "j", "p", "q") if x not in pair.split("&")]
    with pytest.raises(ScheduleError):
        words(1).precompute("s.left", "n", ("c.q.o", "c.q.i", pair, *loops))


@pytest.mark.grid
@pytest.mark.parametrize("width", [18, 41])
@pytest.mark.parametrize("stride", [1, 2])
def test_tiles_are_parts_of_the_copy(width, stride):
    columns = (width - 3) // stride + 1
    if columns < 16:
        width, columns = width + 16, columns + 8
    made = words(stride, 0, width, 16).precompute("s.left", "n", ("c.q.o", "i&p", "j&q", "c.q.i"))
    made.precompute("s.right", "n", ("c.q.o", "p", "q", "c.q.i", "o"))
    made.split("j", 16, "overlap").reorder("i", "j.o", "j.i", "o")
    made.reorder("c.q.o", "p", "q", "c.q.i").decompose_reduction("s", "j.i", spill=True)
    made.reorder("j.i", "o", "c.q.i").matrix("j.i.z").matrix("j.i").matrix("j.i.s")
    assert_same(made.start, made.kernel)
    text = print_kernel(made.bare)
    assert f"places.{16 * stride}(" in text
    assert print_kernel(parse_kernel(text)) == text
