"""Products of whole matrices against the nests over their points."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir.text.text import print_kernel
from weft.ir.text.text_parse import parse_kernel
from weft.schedule import Schedule


def tiled(left="bf16", right="bf16", op="dot2", inner=40, transposed=False):
    layout = ("ki", "jk") if transposed else ("ik", "kj")
    made = Schedule(nests.narrow(16, 32, inner, left, right, *layout))
    made.tensorize("s", "k", op, multiple=16).split("k.q", 16).split("j", 16)
    for loop in ("i", "j.i"):
        made.sink(loop)
    made.reorder("j.o", "i", "j.i")
    made.precompute("s.right", "j.o", ("k.q.o", "k.q.i", "j.i"))
    made.precompute("s.left", "j.o", ("k.q.o", "i", "k.q.i"))
    return made.decompose_reduction("s", "i", spill=True).reorder("i", "j.i", "k.q.i")


@pytest.mark.grid
@pytest.mark.parametrize("inner", [3, 32, 70])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kinds", [("bf16", "bf16", "dot2"), ("u8", "i8", "dot4"),
                                   ("i8", "i8", "dot4s")])
def test_matrix(inner, transposed, kinds):
    made = tiled(*kinds, inner, transposed).matrix("i.z").matrix("i").matrix("i.s")
    assert_same(made.start, made.kernel)
    assert print_kernel(made.bare).count("matrix" + kinds[2][3:]) == 1
    again = Schedule.replay(made.start, made.trace)
    assert print_kernel(again.kernel) == print_kernel(made.kernel)
    assert print_kernel(parse_kernel(print_kernel(made.bare))) == print_kernel(made.bare)


def in_tiles(inner=40):
    return tiled(inner=inner).matrix("i.z").matrix("i").matrix("i.s")


@pytest.mark.parametrize("inner", [3, 70])
def test_refresh(inner):
    made = in_tiles(inner).refresh("k.q.o", "s.r", "s.s")
    assert_same(made.start, made.kernel)
    assert print_kernel(made.bare).count("store s.s[") == 2
    again = Schedule.replay(made.start, made.trace)
    assert print_kernel(again.kernel) == print_kernel(made.kernel)
    assert print_kernel(parse_kernel(print_kernel(made.bare))) == print_kernel(made.bare)


def test_refresh_within_a_loop_that_is_written_out():
    """What all of it is copied to may be written behind the loops around."""
    made = Schedule(nests.matmul(16, 32, 70)).separate("s")
    made.tensorize("s", "k", "dot2", multiple=16).split("k.q", 16).split("j", 16)
    for loop in ("i", "j.i"):
        made.sink(loop)
    made.reorder("j.o", "i", "j.i").reorder("k.q.o", "s.l", "s.h", "k.q.i")
    made.precompute("s.right", "j.o", ("k.q.o", "s.h", "k.q.i", "j.i"), written="s.h")
    made.precompute("s.left", "j.o", ("k.q.o", "s.l", "i", "k.q.i"), written="s.l")
    made.sweep("s").reorder("s.w", "k.q.o", "s.p", "k.q.i")
    made.decompose_reduction("s", "i", spill=True).reorder("i", "j.i", "k.q.i")
    made.matrix("i.z").matrix("i").matrix("i.s").unroll("s.w").unroll("s.p")
    made.refresh("k.q.o", "s.r", "s.s")
    assert_same(made.start, made.kernel, exact=False)
    assert print_kernel(made.bare).count("store s.s[") == 2


@pytest.mark.parametrize("names", [
    ("k.q.o", "s.s", "s.r"), ("k.q.o", "s.left.p", "s.s"), ("j.o", "s.r", "s.s"),
    ("k.q.o", "s.r", "c"),
])  # fmt: skip
def test_only_what_is_copied_behind_the_loop_is_stored_in_it(names):
    with pytest.raises(ScheduleError):
        in_tiles().refresh(*names)


@pytest.mark.parametrize(("made", "loop"), [
    (lambda: tiled("i8", "u8", "dot4"), "i"),  # the unsigned side would have to be the left one
    (lambda: tiled(), "k.q.o"), (lambda: tiled(), "i.f"), (lambda: tiled(), "j.i"),
    (lambda: Schedule(nests.transpose(16, 16)), "i"), (lambda: Schedule(nests.chain(16)), "i"),
    (lambda: Schedule(nests.matmul(16, 16, 16)).decompose_reduction("s", "i").reorder(
        "i", "j", "k"), "i"),
])  # fmt: skip
def test_what_is_no_product_of_matrices_is_refused(made, loop):
    schedule = made()
    with pytest.raises(ScheduleError):
        schedule.matrix(loop)
