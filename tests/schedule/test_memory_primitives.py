"""Stage, layout, pad, flatten, inline, stream, hoist."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same, memory
from weft.errors import ScheduleError
from weft.ir.stmt import Alloc, Kernel, Let, Load, Store
from weft.ir.traverse import walk
from weft.schedule import Schedule


def allocations(kernel):
    return {s.memory.name: [e.attr for e in s.memory.shape] for s in walk(kernel.body)
            if isinstance(s, Alloc)}


@pytest.mark.parametrize("size", [1, 5, 8, 13])
def test_stage_packs_a_panel(size):
    kernel = nests.matmul(5, size, 7)
    done = Schedule(kernel).tile("i", "j", 2, 4).stage("b", "j.o", layout=("k", "j.i"))
    assert allocations(done.kernel) == {"b.s": [7, 4]}
    assert_same(kernel, done.kernel)
    done = Schedule(kernel).tile("i", "j", 2, 4).stage("b", "j.o", layout=("j.i", "k"), skew=1)
    assert allocations(done.kernel) == {"b.s": [4, 8]}
    assert_same(kernel, done.kernel)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (5, 9), (1, 1), (0, 4)])
def test_stage_a_transposed_tile(rows, columns):
    kernel = nests.transpose(rows, columns)
    done = Schedule(kernel).tile("i", "j", 4, 4)
    done.stage("x", "j.o", layout=("j.i", "i.i"), skew=1)
    assert_same(kernel, done.kernel)


def test_stage_refuses_a_clamped_start_that_varies():
    # The start and the offset of an overlapping split count as one point, which moves inside.
    kernel = nests.matmul(7, 8, 4)
    clamped = Schedule(kernel).split("i", 4, "overlap").reorder("j", "i.o", "i.i")
    with pytest.raises(ScheduleError, match="varies with"):
        clamped.stage("a", "j", layout=("k",))


def test_stage_refuses():
    matmul = nests.matmul(4, 8, 4)
    with pytest.raises(ScheduleError, match="varies with j"):
        Schedule(matmul).stage("b", "i", layout=("k",))
    with pytest.raises(ScheduleError, match="no load of d inside"):
        Schedule(nests.matmul(4, 8, 4, epilogue=False).replace(params=matmul.params)).stage(
            "d", "i", layout=("j",))
    with pytest.raises(ScheduleError, match="a load outside k"):
        Schedule(matmul).stage("d", "j", layout=("k",))
    with pytest.raises(ScheduleError, match="no memory 'z'"):
        Schedule(matmul).stage("z", "i", layout=("k",))
    with pytest.raises(ScheduleError, match="stores to y"):
        Schedule(nests.running_sum(3, 4)).stage("y", "r", layout=("k",))
    x, y, i = memory("x", 9), memory("y", 8), nests.v("i")
    pair = nests.loop("i", 8, Load(nests.f("a"), x, (i,)), Load(nests.f("b"), x, (i + 1,)),
                      Store(y, (i,), nests.f("a") + nests.f("b")))
    kernel = Kernel("pair", (x, y), (nests.loop("t", 2, pair),))
    with pytest.raises(ScheduleError, match="different subscripts"):
        Schedule(kernel).stage("x", "t", layout=("i",))


def test_layout_and_pad():
    kernel = Schedule(nests.transpose(8, 8)).tile("i", "j", 4, 4)
    kernel.stage("x", "j.o", layout=("j.i", "i.i"))
    done = Schedule(kernel.kernel).layout("x.s", (1, 0)).pad("x.s", 1, 16)
    assert allocations(done.kernel) == {"x.s": [4, 16]}
    assert_same(kernel.kernel, done.kernel)
    with pytest.raises(ScheduleError, match="the parameter x"):
        Schedule(nests.chain(8)).pad("x", 0, 16)
    with pytest.raises(ScheduleError, match="permutation"):
        Schedule(kernel.kernel).layout("x.s", (0, 0))


def test_flatten_lets_a_tile_run_past_its_row():
    kernel = Schedule(nests.matmul(5, 8, 7)).split("i", 2).stage("a", "i.o", layout=("i.i", "k"))
    done = Schedule(kernel.kernel).flatten("a.s")
    assert allocations(done.kernel) == {"a.s": [14]}
    assert_same(kernel.kernel, done.kernel)
    done = Schedule(kernel.kernel).flatten("a.s", 3)
    assert allocations(done.kernel) == {"a.s": [17]}
    assert_same(kernel.kernel, done.kernel)
    with pytest.raises(ScheduleError, match="the parameter x"):
        Schedule(nests.chain(8)).flatten("x")


def test_stream_marks_every_store():
    kernel = nests.softmax(3, 5)
    done = Schedule(kernel).stream("y").kernel
    assert {s.memory.name: s.streaming for s in walk(done.body) if isinstance(s, Store)} == {
        "row": False, "y": True}
    assert_same(kernel, done)


def test_inline():
    kernel = nests.softmax(3, 5)
    done = Schedule(kernel).inline("e").kernel
    assert not [s for s in walk(done.body) if isinstance(s, Let)]
    assert_same(kernel, done)
    with pytest.raises(ScheduleError, match="no let 'a'"):
        Schedule(kernel).inline("a")


def test_hoist():
    kernel = nests.matmul(3, 4, 5)
    done = Schedule(kernel).reorder("j", "i").hoist("t")
    assert_same(kernel, done.kernel)
    with pytest.raises(ScheduleError, match="uses of j"):
        Schedule(kernel).hoist("t")
    with pytest.raises(ScheduleError, match="at least one iteration"):
        Schedule(nests.matmul(0, 4, 5)).reorder("j", "i").hoist("t")
    assert memory("m", 3).name == "m"
