"""Copies that take masks along, dimensions of several loops, and choices left to masked loads."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_replays, assert_same
from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import Load, Reduce
from weft.ir.traverse import walk
from weft.schedule import Schedule

FORMS = [{}, {"stride": 2}, {"dilation": 2, "pad": 2}, {"pad": 0}, {"nested": True},
         {"flip": True, "turned": True}]  # fmt: skip


def choices(kernel):
    return [e for s in walk(kernel.body) for e in ex.toposort(list(s.exprs()))
            if e.op is Op.WHERE]  # fmt: skip


def joined(kernel, rows, terms):
    """Return a schedule with tiles of the joined rows and terms of a convolution."""
    s = Schedule(kernel).unmask("s").contract("s").reorder("o", "n", "i", "j")
    s.fuse("n", "i").fuse("n_i", "j").fuse("c", "p").fuse("c_p", "q")
    s.split("n_i_j", rows).split("n_i_j.i", rows // 2).split("c_p_q", terms)
    s.sink("n_i_j.o").sink("n_i_j.i.o")
    return s.decompose_reduction("s", "n_i_j.i.o", scope="local")


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_unmask_changes_no_bit(form):
    kernel = nests.convolution(6, 7, **form)
    done = Schedule(kernel).unmask("s")
    assert_same(kernel, done.kernel)
    assert not choices(done.kernel)
    if form.get("pad") == 0:
        assert done.trace == []


def test_unmask_keeps_choices_that_masks_do_not_make():
    kernel = nests.convolution(6, 7)
    reduce = next(s for s in walk(kernel.body) if isinstance(s, Reduce))
    (load,) = [s for s in reduce.body if isinstance(s, Load) and s.mask is not None]

    def changed(**fields):
        body = tuple(load.replace(**fields) if s is load else s for s in reduce.body)

        def put(stmt):
            if stmt is reduce:
                return Reduce(reduce.axes, reduce.accumulators, body)
            return stmt.with_bodies(*[tuple(map(put, b)) for b in stmt.bodies()])

        return kernel.with_body(tuple(map(put, kernel.body)))

    for other in (changed(fill=ex.const(1.0, load.var.dtype)),
                  changed(mask=load.mask.args[0])):
        assert choices(Schedule(other).unmask("s").kernel) == choices(other)


@pytest.mark.parametrize("skew", [0, 3])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_copy_of_what_windows_show(form, skew):
    kernel = nests.convolution(6, 7, **form)
    done = joined(kernel, 8, 5)
    layout = ("c_p_q.i", "n_i_j.i.o&n_i_j.i.i")
    done.stage("x", "c_p_q.o", layout=layout, skew=skew, masked=True)
    assert_same(kernel, done.kernel)
    assert_replays(kernel, done.kernel)
    copies = [s for s in walk(done.kernel.body) if isinstance(s, Load) and s.memory.name == "x.s"]
    assert copies
    assert all(s.mask is None for s in copies)
    assert [e.attr for e in copies[0].memory.shape] == [5, 8 + skew]


def test_stage_refuses_loops_that_are_not_one():
    done = Schedule(nests.matmul(8, 8, 8)).split("i", 4).split("k", 4)
    done.decompose_reduction("s", "i.i", scope="local")
    with pytest.raises(ScheduleError, match="not one together"):
        done.stage("a", "k.o", layout=("k.i&i.i",), masked=True)
    with pytest.raises(ScheduleError, match="no loop q inside"):
        done.stage("a", "k.o", layout=("k.i&q",))


def test_stage_refuses_masks_that_vary_otherwise():
    done = Schedule(nests.matmul(5, 8, 8, epilogue=False)).split("i", 4).split("j", 3)
    done.sink("i.o").sink("i.i").sink("j.o")
    kernel = done.reorder("i.o", "j.o", "i.i", "j.i").kernel
    masked = Schedule(kernel).decompose_reduction("s", "i.i", scope="local")
    with pytest.raises(ScheduleError, match="varies with i"):
        Schedule(_with_mask(masked.kernel)).stage("b", "j.o", layout=("k", "j.i"), masked=True)


def _with_mask(kernel):
    """Return the kernel with loads of b that are masked by the row."""

    def put(stmt):
        if isinstance(stmt, Load) and stmt.memory.name == "b":
            return stmt.replace(mask=nests.v("i.i").lt(2))
        return stmt.with_bodies(*[tuple(map(put, b)) for b in stmt.bodies()])

    return kernel.with_body(tuple(map(put, kernel.body)))
