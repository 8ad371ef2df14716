"""rfactor and decompose_reduction."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same, loop, memory, v
from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Axis, For, If, Kernel, Load, Reduce, Store
from weft.ir.traverse import walk
from weft.schedule import Schedule

ODD = [1, 2, 3, 7, 13, 16]


def names(kernel):
    return [s.var.attr for s in walk(kernel.body) if isinstance(s, For)]


@pytest.mark.parametrize("tail", ["mask", "peel"])
@pytest.mark.parametrize("size", ODD)
def test_rfactor(size, tail):
    for kernel in (nests.add_sum(size), nests.argmax(3, size), nests.column_sum(size, 3)):
        schedule = Schedule(kernel).split("k", 4, tail)
        assert_same(kernel, schedule.rfactor("k.i").kernel)
        if size >= 4:
            schedule = Schedule(kernel).split("k", 4, tail).rfactor("k.o")
            assert_same(kernel, schedule.parallel("k.o").kernel)


def test_rfactor_of_a_tuple_of_accumulators():
    kernel = nests.argmax(2, 12)
    done = Schedule(kernel).split("k", 4).rfactor("k.o").parallel("k.o").vectorize("k.i").kernel
    assert_same(kernel, done)


def test_rfactor_where_each_point_stores_an_element_of_its_own():
    kernel = nests.softmax(2, 9)
    done = Schedule(kernel).parallel("r").split("q", 4).rfactor("q.i").bind("q.i").bind("c").kernel
    assert_same(kernel, done, exact=False)


def test_bind_refuses():
    kernel = nests.chain(8)
    store = kernel.body[0].body[1].replace(index=(ex.index(0),))
    same = kernel.body[0].replace(body=(kernel.body[0].body[0], store))
    with pytest.raises(ScheduleError, match="independent"):
        Schedule(kernel.replace(body=(same,))).bind("i")
    with pytest.raises(ScheduleError, match="thread"):
        Schedule(nests.bias(4, 8)).bind("i").bind("j")


def test_one_iteration_is_one_threads():
    kernel = nests.carried(3, 1)
    assert_same(kernel, Schedule(kernel).bind("k").kernel)
    with pytest.raises(ScheduleError, match="independent"):
        Schedule(nests.carried(3, 2)).bind("k")


def test_rfactor_refuses():
    with pytest.raises(ScheduleError, match="split"):
        Schedule(nests.add_sum(8)).rfactor("k")
    with pytest.raises(ScheduleError, match="constant number"):
        Schedule(nests.add_sum(ex.Variable("n", 0, 99))).split("k", 4).rfactor("k.o")
    kernel = nests.add_sum(8)
    reduce = kernel.body[0]
    stores = reduce.replace(body=(*reduce.body, Store(kernel.params[1], (ex.index(0),),
                                                      reduce.body[0].var)))  # fmt: skip
    with pytest.raises(ScheduleError, match="stores to y"):
        Schedule(kernel.replace(body=(stores, *kernel.body[1:]))).split("k", 4).rfactor("k.o")
    with pytest.raises(ScheduleError, match="FOR loop"):
        Schedule(nests.chain(8)).rfactor("i")


@pytest.mark.parametrize("tail", ["mask", "overlap", "clamp"])
@pytest.mark.parametrize("shape", [(4, 8, 5), (5, 9, 3), (7, 11, 1), (6, 8, 0)])
def test_register_tile(shape, tail):
    kernel = nests.matmul(*shape)
    lanes = "mask" if tail == "clamp" else tail  # clamped places are not side by side
    done = Schedule(kernel).split("j", 8, lanes).split("i", 4, tail).sink("i.i")
    done.reorder("j.o", "i.o", "i.i", "j.i").parallel("j.o")
    done.decompose_reduction("s", "i.i")
    for suffix in ("", ".z", ".f"):
        done.unroll(f"i.i{suffix}").vectorize(f"j.i{suffix}")
    assert "k" in names(done.kernel)
    assert_same(kernel, done.kernel)


@pytest.mark.parametrize("spill", [False, True])
@pytest.mark.parametrize("shape", [(4, 4, 8), (5, 6, 12), (4, 8, 7)])
def test_partial_results(shape, spill):
    kernel = nests.matmul(*shape, right="jk")
    done = Schedule(kernel).split("k", 4).split("j", 4, "overlap").split("i", 4, "overlap")
    done.reorder("j.o", "i.o", "i.i", "j.i")
    done.decompose_reduction("s", "i.i", partial=("k.i",), spill=spill)
    done.vectorize("k.i").vectorize("k.i.z").vectorize("k.i.f")
    assert_same(kernel, done.kernel)


def test_a_reduction_without_tile_columns():
    kernel = nests.matvec(7, 13)
    done = Schedule(kernel).split("k", 4).split("i", 4, "overlap")
    done.decompose_reduction("s", "i.i", partial=("k.i",)).unroll("i.i").vectorize("k.i")
    assert_same(kernel, done.kernel.replace())


def test_a_tuple_is_decomposed_together():
    kernel = nests.argmax(6, 9)
    done = Schedule(kernel).split("r", 4).decompose_reduction("best", "r.i").unroll("r.i")
    assert_same(kernel, done.kernel)


def test_what_the_reduction_and_the_epilogue_both_need_is_duplicated():
    x, y, w = memory("x", 6, 9), memory("y", 6), memory("w", 6)
    first = Load(nests.f("scale"), w, (v("r"),))
    reduce = Reduce((Axis(v("k"), nests.n(9)),),
                    (nests.total("s", value=nests.f("a") * nests.f("scale")),),
                    (Load(nests.f("a"), x, (v("r"), v("k"))),))
    kernel = Kernel("scaled", (x, w, y), (loop("r", 6, first, reduce, Store(
        y, (v("r"),), nests.f("s") + nests.f("scale"))),))
    done = Schedule(kernel).split("r", 4).decompose_reduction("s", "r.i").unroll("r.i").kernel
    assert_same(kernel, done)


def test_decompose_refuses():
    matmul = nests.matmul(4, 4, 4)
    with pytest.raises(ScheduleError, match="no accumulator 'z'"):
        Schedule(matmul).decompose_reduction("z", "i")
    with pytest.raises(ScheduleError, match="no loop 'z'"):
        Schedule(matmul).decompose_reduction("s", "z")
    with pytest.raises(ScheduleError, match="constant extents"):
        Schedule(nests.matmul(ex.Variable("n", 1, 9), 4, 4)).decompose_reduction("s", "i")
    outer = matmul.body[0]
    extra = Store(matmul.params[-1], (v("i"), nests.n(0)), ex.const(0.0, nests.dt.float32))
    broken = matmul.with_body((outer.replace(body=(*outer.body, extra)),))
    with pytest.raises(ScheduleError, match="perfect nest"):
        Schedule(broken).decompose_reduction("s", "i")
    c = memory("c", 4, 4)
    reduce = Reduce((Axis(v("k"), nests.n(4)),), (nests.total("s", value=nests.f("p")),),
                    (Load(nests.f("p"), c, (v("i"), v("k"))),))
    place = (v("i"), nests.n(0))
    kernel = Kernel("aliased", (c,), (loop("i", 4, reduce, Store(c, place, nests.f("s"))),))
    with pytest.raises(ScheduleError, match="c read by the reduction and written behind it"):
        Schedule(kernel).decompose_reduction("s", "i")


def test_conditions_in_the_tile_become_masks():
    kernel = nests.matmul(5, 9, 3)
    done = Schedule(kernel).split("j", 8).split("i", 4).sink("i.i")
    done.reorder("i.o", "j.o", "i.i", "j.i").decompose_reduction("s", "i.i")
    update = [s for s in walk(done.kernel.body) if isinstance(s, For) and s.var.attr == "k"]
    assert not [s for s in walk(update) if isinstance(s, If)]
    assert all(s.mask is not None for s in walk(update) if isinstance(s, Load)
               and s.memory.name in "ab")
    assert [s.memory.scope for s in walk(done.kernel.body) if isinstance(s, Alloc)] == ["register"]
    assert_same(kernel, done.kernel)


def test_blocks_mask_only_loads_that_the_mask_moves():
    """Results past the last column are never read, so their sums may gather anything."""
    kernel = nests.matmul(8, 9, 10)
    done = Schedule(kernel).split("j", 8).split("i", 4).sink("i.i")
    done.reorder("i.o", "j.o", "i.i", "j.i").block_reduction("s", "i.i", "k", 4)
    sums = [s for s in walk(done.bare.body) if isinstance(s, Reduce)]
    assert not any(e.op is Op.WHERE for s in sums for e in ex.toposort(list(s.exprs())))
    masked = {s.memory.name: s.mask is not None for s in walk(tuple(sums)) if isinstance(s, Load)}
    assert masked == {"a": False, "b": True}
    assert_same(kernel, done.kernel)


def test_decompose_masks_only_loads_that_the_mask_moves():
    # The rows of a tile read the same elements in the lanes whose results are dropped.
    kernel = nests.matmul(4, 13, 5)
    done = Schedule(kernel).split("j", 8).sink("j.i").reorder("j.o", "i", "j.i")
    done.decompose_reduction("s", "j.i")
    masks = {s.memory.name: s.mask is not None for s in walk(done.kernel.body)
             if isinstance(s, Load)}
    assert masks["b"]
    assert not masks["a"]
    assert_same(kernel, done.kernel)
