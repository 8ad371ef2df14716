"""The primitives block_reduction and share_reduction: any factor, any tile, what can follow."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir.stmt import Alloc
from weft.ir.traverse import walk
from weft.schedule import Schedule


@pytest.mark.parametrize("factor", [1, 3, 4, 7, 12])
@pytest.mark.parametrize("shape", [(5, 8, 7), (4, 8, 12), (1, 3, 4)])
def test_blocks_of_a_sum(shape, factor):
    kernel = nests.matmul(*shape)
    made = Schedule(kernel).block_reduction("s", "i", "k", factor)
    assert_same(kernel, made.kernel)
    assert_same(made.kernel, Schedule.replay(kernel, made.trace).kernel)


@pytest.mark.parametrize("tail", ["mask", "overlap", "clamp"])
@pytest.mark.parametrize("factor", [3, 5])
def test_panels_and_register_tiles_of_a_block(factor, tail):
    kernel = nests.matmul(9, 10, 7)
    lanes = "mask" if tail == "clamp" else tail
    made = Schedule(kernel).split("i", 2, tail).split("j", 4, lanes).sink("i.i").sink("j.i")
    made.sink("i.o").reorder("j.o", "i.o", "i.i", "j.i")
    made.block_reduction("s", "i.o", "k", factor).stage("b", "k.o", ("k.i", "j.i"))
    made.decompose_reduction("s.b", "i.i")
    for suffix in (".z", "", ".f"):
        made.unroll(f"i.i{suffix}").vectorize(f"j.i{suffix}")
    made.vectorize("j.i.begin").vectorize("j.i.end")
    assert_same(kernel, made.kernel)


@pytest.mark.parametrize("factor", [1, 2, 5])
@pytest.mark.parametrize("lanes", [4, 8])
def test_lanes_have_sums_of_their_own_until_the_last_block(factor, lanes):
    kernel = nests.matmul(4, 3, 21)
    made = Schedule(kernel).split("k", lanes, "mask")
    made.block_reduction("s", "i", "k.o", factor, partial=("k.i",))
    made.decompose_reduction("s.b", "i")
    for suffix in (".z", "", ".f"):
        made.unroll(f"i{suffix}").unroll(f"j{suffix}").vectorize(f"k.i{suffix}")
    made.vectorize("k.i.begin").vectorize("k.i.end")
    assert_same(kernel, made.kernel)
    assert_same(made.kernel, Schedule.replay(kernel, made.trace).kernel)
    (sums,) = [s.memory for s in walk(made.bare.body) if isinstance(s, Alloc)
               and s.memory.name == "s.t"]
    assert [e.attr for e in sums.shape] == [4, 3, lanes]


def test_a_tuple_is_summed_together():
    kernel = nests.argmax(3, 10)
    made = Schedule(kernel).block_reduction("best", "r", "k", 4)
    assert_same(kernel, made.kernel)
    memories = [s.memory.name for s in walk(made.bare.body) if isinstance(s, Alloc)]
    assert memories == ["best.t", "at.t"]


def test_block_reduction_refuses():
    kernel = nests.matmul(4, 8, 6)
    for arguments, text in ((("s", "i", "q", 2), "no axis 'q'"), (("s", "k", "k", 2), "no loop"),
                            (("x", "i", "k", 2), "no accumulator"), (("s", "i", "k", 0), "factor"),
                            (("s", "i", "k", 2, ("k",)), "no axis 'k'")):
        with pytest.raises(ScheduleError, match=text):
            Schedule(kernel).block_reduction(*arguments)
    with pytest.raises(ScheduleError, match="only reads"):
        Schedule(nests.softmax(2, 5)).block_reduction("s", "r", "q", 2)


@pytest.mark.parametrize("factor", [1, 3, 4, 7, 12])
@pytest.mark.parametrize("shape", [(5, 8, 7), (4, 8, 12), (1, 3, 4)])
def test_shares_of_a_sum(shape, factor):
    kernel = nests.matmul(*shape)
    made = Schedule(kernel).share_reduction("s", "i", "k", factor).parallel("k.o")
    assert_same(kernel, made.kernel)
    assert_same(made.kernel, Schedule.replay(kernel, made.trace).kernel)


@pytest.mark.parametrize("tail", ["mask", "overlap"])
def test_tiles_of_a_share(tail):
    kernel = nests.matmul(3, 10, 29)
    made = Schedule(kernel).split("j", 4, tail).share_reduction("s", "j.o", "k", 10)
    made.parallel("k.o").vectorize("j.i.end").block_reduction("s.b", "j.o", "k.i", 3)
    made.vectorize("j.i.begin").vectorize("j.i.end1").decompose_reduction("s.b.b", "j.i")
    for suffix in (".z", "", ".f"):
        made.vectorize(f"j.i{suffix}")
    assert_same(kernel, made.kernel)


def test_shares_of_a_tuple():
    kernel = nests.argmax(3, 10)
    made = Schedule(kernel).share_reduction("best", "r", "k", 4)
    assert_same(kernel, made.kernel)
    memories = [s.memory for s in walk(made.bare.body) if isinstance(s, Alloc)]
    assert [(m.name, len(m.shape)) for m in memories] == [("best.h", 2), ("at.h", 2)]


def test_share_reduction_refuses():
    kernel = nests.matmul(4, 8, 6)
    for arguments, text in ((("s", "i", "q", 2), "no axis 'q'"), (("s", "k", "k", 2), "no loop"),
                            (("x", "i", "k", 2), "no accumulator"), (("s", "i", "k", 0), "factor")):
        with pytest.raises(ScheduleError, match=text):
            Schedule(kernel).share_reduction(*arguments)
