"""Split, fuse, reorder, tile, peel and the axis kinds: same results, or a typed refusal."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same, loop, memory, n, v
from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.stmt import Alloc, For, Kernel, Load, Location, Reduce, Store
from weft.ir.traverse import walk
from weft.schedule import Schedule

SIZES = [0, 1, 2, 3, 7, 8, 13, 16, 31]


def loops_of(kernel):
    found = {}
    for stmt in walk(kernel.body):
        if isinstance(stmt, For):
            found[stmt.var.attr] = stmt
        elif isinstance(stmt, Reduce):
            found.update((a.var.attr, a) for a in stmt.axes)
    return found


@pytest.mark.parametrize("tail", ["mask", "peel", "trim"])
@pytest.mark.parametrize("size", SIZES)
def test_split(size, tail):
    kernel = nests.chain(size)
    done = Schedule(kernel).split("i", 4, tail).kernel
    assert {"i.o", "i.i"} <= loops_of(done).keys()
    assert_same(kernel, done)


@pytest.mark.parametrize("size", [4, 5, 7, 13])
def test_split_overlap(size):
    kernel = nests.chain(size)
    assert_same(kernel, Schedule(kernel).split("i", 4, "overlap").kernel)


@pytest.mark.parametrize("size", SIZES)
def test_split_that_repeats_the_last_iteration(size):
    kernel = nests.chain(size)
    assert_same(kernel, Schedule(kernel).split("i", 4, "clamp").kernel)
    twice = Schedule(kernel).split("i", 4, "clamp").split("i.o", 2, "clamp").parallel("i.o.o")
    assert_same(kernel, twice.kernel)


def test_split_that_divides_has_no_tail():
    done = Schedule(nests.chain(16)).split("i", 4, "peel").kernel
    assert list(loops_of(done)) == ["i.o", "i.i"]


def test_split_of_a_symbolic_extent():
    size = ex.Variable("n", 0, 100)
    kernel = nests.chain(size)
    for tail in ("mask", "peel", "trim", "clamp"):
        done = Schedule(kernel).split("i", 4, tail).kernel
        for value in (0, 1, 4, 7):
            assert_same(kernel, done, variables={"n": value})
    whole = nests.chain(size * 8)
    assert list(loops_of(Schedule(whole).split("i", 4).kernel)) == ["i.o", "i.i"]


@pytest.mark.parametrize("tail", ["mask", "peel"])
@pytest.mark.parametrize("size", SIZES)
def test_split_of_a_reduction(size, tail):
    for make in (nests.add_sum, lambda s: nests.argmax(3, s), lambda s: nests.column_sum(s, 3)):
        kernel = make(size)
        done = Schedule(kernel).split("k", 4, tail).kernel
        assert_same(kernel, done)


@pytest.mark.parametrize("tail", ["mask", "peel"])
@pytest.mark.parametrize("columns", SIZES)
def test_split_of_rows_with_a_buffer(columns, tail):
    kernel = nests.softmax(2, columns)
    done = Schedule(kernel)
    for name in "kqc":
        done.split(name, 4, tail)
    assert_same(kernel, done.kernel, exact=False)
    rows = Schedule(nests.softmax(7, 3)).split("r", 4, tail).kernel
    assert_same(nests.softmax(7, 3), rows, exact=False)


def test_split_refuses():
    with pytest.raises(ScheduleError, match=r"no loop 'z'.*one of i"):
        Schedule(nests.chain(8)).split("z", 4)
    with pytest.raises(ScheduleError, match="factor 0"):
        Schedule(nests.chain(8)).split("i", 0)
    with pytest.raises(ScheduleError, match="at least 4 iterations"):
        Schedule(nests.chain(3)).split("i", 4, "overlap")
    with pytest.raises(ScheduleError, match="counted once"):
        Schedule(nests.add_sum(7)).split("k", 4, "overlap")
    with pytest.raises(ScheduleError, match="allocated memories"):
        Schedule(nests.chain(7)).split("i", 4, "pad")
    x = memory("x", 9)
    update = Kernel("update", (x,), (loop("i", 9, Load(nests.f("a"), x, (v("i"),)),
                                          Store(x, (v("i"),), nests.f("a") + 1.0)),))
    with pytest.raises(ScheduleError, match="flow dependence"):
        Schedule(update).split("i", 4, "overlap")
    with pytest.raises(ScheduleError, match="flow dependence"):
        Schedule(update).split("i", 4, "clamp")
    with pytest.raises(ScheduleError, match="serial loop"):
        Schedule(nests.chain(8)).vectorize("i").split("i", 4)


def test_a_refusal_leaves_the_schedule_as_it_was():
    schedule = Schedule(nests.chain(8)).split("i", 4)
    before = schedule.kernel.body
    with pytest.raises(ScheduleError):
        schedule.parallel("nothing")
    assert schedule.kernel.body is before
    assert schedule.trace == ["split(i, 4, tail=mask)"]


def test_pad_makes_room_for_whole_rounds():
    t = memory("t", 13, scope="local")
    y = memory("y", 13)
    x = memory("x", 13)
    kernel = Kernel("padded", (x, y), (
        Alloc(t),
        loop("i", 13, Load(nests.f("a"), x, (v("i"),)), Store(t, (v("i"),), nests.f("a"))),
        loop("z", 13, Store(t, (v("z"),), ex.const(0.0, nests.dt.float32))),
        loop("j", 13, Load(nests.f("b"), t, (v("j"),)), Store(y, (v("j"),), nests.f("b")))))
    with pytest.raises(ScheduleError, match="pad the memory first"):
        Schedule(kernel).split("z", 8, "pad")
    assert_same(kernel, Schedule(kernel).pad("t", 0, 8).split("z", 8, "pad").kernel)
    with pytest.raises(ScheduleError, match="allocated memories only"):
        Schedule(kernel).pad("t", 0, 8).split("j", 8, "pad")


@pytest.mark.parametrize("size", [1, 2, 9])
def test_peel(size):
    kernel = nests.chain(size)
    done = Schedule(kernel).peel("i").kernel
    assert list(loops_of(done)) == ["i", "i.t"]
    assert_same(kernel, done)
    with pytest.raises(ScheduleError, match="at least 10"):
        Schedule(kernel).peel("i", 10)


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0), (1, 1), (3, 5)])
def test_fuse(rows, columns):
    kernel = nests.bias(rows, columns)
    done = Schedule(kernel).fuse("i", "j").kernel
    assert list(loops_of(done)) == ["i_j"]
    assert_same(kernel, done)


def test_fuse_axes_of_a_reduction():
    kernel = nests.add_sum(12)
    done = Schedule(kernel).split("k", 4).fuse("k.o", "k.i").kernel
    assert list(loops_of(done)) == ["k.o_k.i"]
    assert_same(kernel, done)


def test_fuse_refuses():
    with pytest.raises(ScheduleError, match="perfectly nested"):
        Schedule(nests.softmax(2, 3)).fuse("r", "c")
    ragged = Schedule(nests.chain(7)).split("i", 4, "trim")
    with pytest.raises(ScheduleError, match=r"without i\.o"):
        ragged.fuse("i.o", "i.i")


def test_reorder():
    for make in (nests.bias, nests.transpose):
        kernel = make(3, 5)
        done = Schedule(kernel).reorder("j", "i").kernel
        assert list(loops_of(done)) == ["j", "i"]
        assert_same(kernel, done)


def test_reorder_of_reduce_axes():
    kernel = nests.add_sum(12)
    done = Schedule(kernel).split("k", 4).reorder("k.i", "k.o").kernel
    assert list(loops_of(done)) == ["k.i", "k.o"]
    assert_same(kernel, done)


def test_reorder_refuses_a_reversed_dependence():
    # y[i, j] = y[i - 1, j + 1]: distance (1, -1), the textbook case
    y = memory("y", 6, 6)
    a = nests.f("a")
    kernel = Kernel("skewed", (y,), (loop("i", 5, loop(
        "j", 5, Load(a, y, (v("i"), v("j") + 1)), Store(y, (v("i") + 1, v("j")), a))),))
    with pytest.raises(ScheduleError, match="flow dependence between load y"):
        Schedule(kernel).reorder("j", "i")
    # y[i, j] = y[i - 1, j]: distance (1, 0), which may be exchanged
    kernel = Kernel("straight", (y,), (loop("i", 5, loop(
        "j", 5, Load(a, y, (v("i"), v("j"))), Store(y, (v("i") + 1, v("j")), a))),))
    Schedule(kernel).reorder("j", "i")


@pytest.mark.parametrize("order", ["i.o j.o j.i i.i", "j.i i.i j.o i.o", "i.i j.i i.o j.o"])
@pytest.mark.parametrize("tail", ["mask", "overlap"])
def test_reorder_of_tiles_in_any_order(order, tail):
    # No loop alone tells two elements apart: i.i does once i.o is known to be the same.
    kernel = nests.transpose(10, 9)
    done = Schedule(kernel).split("i", 4, tail).split("j", 3, tail)
    for name in ("i.i", "j.i", "i.o", "j.o"):
        done.sink(name)
    assert_same(kernel, done.reorder(*order.split()).kernel)


def test_reorder_refuses_tiles_that_carry_a_dependence():
    y = memory("y", 8, 8)
    a = nests.f("a")
    kernel = Kernel("skewed", (y,), (loop("i", 4, loop("j", 4, Load(
        a, y, (v("i"), v("j") + 1)), Store(y, (v("i") + 1, v("j")), a))),))
    for order in ("i.o j.o i.i j.i", "j.i i.i i.o j.o"):
        with pytest.raises(ScheduleError, match="dependence"):
            Schedule(kernel).split("i", 2).split("j", 2).reorder(*order.split())
    with pytest.raises(ScheduleError, match="dependence"):
        Schedule(kernel).reorder("j", "i")


def test_reorder_refuses_what_is_not_a_nest():
    with pytest.raises(ScheduleError, match="perfectly nested"):
        Schedule(nests.softmax(2, 3)).reorder("c", "r")
    with pytest.raises(ScheduleError, match="outer loops only"):
        Schedule(nests.chain(7)).split("i", 4, "trim").reorder("i.i", "i.o")
    with pytest.raises(ScheduleError, match="given twice"):
        Schedule(nests.bias(2, 2)).reorder("i", "i")
    with pytest.raises(ScheduleError, match="axis of a REDUCE"):
        Schedule(nests.column_sum(2, 2)).reorder("j", "k")


@pytest.mark.parametrize("tail", ["mask", "overlap"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 8), (5, 9), (7, 11)])
def test_tile(rows, columns, tail):
    kernel = nests.transpose(rows, columns)
    done = Schedule(kernel).tile("i", "j", 4, 8, tail).kernel
    assert list(loops_of(done)) == ["i.o", "j.o", "i.i", "j.i"]
    assert_same(kernel, done)


def test_kinds():
    kernel = nests.chain(64)
    done = Schedule(kernel).split("i", 16).split("i.i", 8).vectorize("i.i.i").unroll("i.i.o")
    done.parallel("i.o")
    assert {name: f.kind for name, f in loops_of(done.kernel).items()} == {
        "i.o": "parallel", "i.i.o": "unrolled", "i.i.i": "vector"}
    assert_same(kernel, done.kernel)


def test_kinds_refuse():
    scan = nests.running_sum(3, 8)
    Schedule(scan).parallel("r")
    for primitive in ("parallel", "vectorize"):
        with pytest.raises(ScheduleError, match="flow dependence between load y"):
            getattr(Schedule(scan), primitive)("k")
    with pytest.raises(ScheduleError, match="rfactor"):
        Schedule(nests.add_sum(8)).parallel("k")
    with pytest.raises(ScheduleError, match="power of two"):
        Schedule(nests.chain(12)).vectorize("i")
    with pytest.raises(ScheduleError, match="split first"):
        Schedule(nests.chain(ex.Variable("n", 0, 9))).unroll("i")
    with pytest.raises(ScheduleError, match="serial loops around"):
        Schedule(nests.bias(4, 4)).parallel("i").parallel("j")


def test_scatter_is_not_parallel():
    x, y = memory("x", 8, dtype=nests.dt.int64), memory("y", 8)
    kernel = Kernel("scatter", (x, y), (loop("i", 8, Load(v("p"), x, (v("i"),)), Store(
        y, (v("p"),), ex.const(1.0, nests.dt.float32))),))
    with pytest.raises(ScheduleError, match="on itself"):
        Schedule(kernel).parallel("i")


def test_mixed_radix_subscripts_are_understood():
    """A flat memory indexed by i * n + j, with fixed and with symbolic n."""
    for columns in (5, ex.Variable("n", 1, 50)):
        y = memory("y", n(3) * columns)
        store = Store(y, (v("i") * columns + v("j"),), ex.const(1.0, nests.dt.float32))
        kernel = Kernel("flat", (y,), (loop("i", 3, loop("j", columns, store)),))
        Schedule(kernel).parallel("i")
        Schedule(kernel).parallel("j")
        Schedule(kernel).reorder("j", "i")
    y = memory("y", 30)
    store = Store(y, (v("i") * 4 + v("j"),), ex.const(1.0, nests.dt.float32))
    kernel = Kernel("overlapping", (y,), (loop("i", 3, loop("j", 5, store)),))
    with pytest.raises(ScheduleError, match="output dependence"):
        Schedule(kernel).parallel("i")


def test_quotient_and_remainder_meet_again():
    y = memory("y", 4, 8)
    store = Store(y, (v("i") // 8, v("i") % 8), ex.const(1.0, nests.dt.float32))
    Schedule(Kernel("divided", (y,), (loop("i", 32, store),))).parallel("i")
    store = Store(y, (v("i") // 8, v("i") % 7), ex.const(1.0, nests.dt.float32))
    with pytest.raises(ScheduleError):
        Schedule(Kernel("divided", (y,), (loop("i", 32, store),))).parallel("i")


@pytest.mark.parametrize("size", SIZES)
def test_reverse_goes_through_a_sum_from_its_end(size):
    kernel = nests.matmul(3, 4, size)
    done = Schedule(kernel).reverse("k").kernel
    assert_same(kernel, done, exact=False)
    first = {s.memory.name: s.index for s in walk(done.body) if isinstance(s, Load)}
    assert v("k") not in (*first["a"], *first["b"])
    assert_same(kernel, Schedule(done).reverse("k").kernel)


def test_reverse_refuses_loops_whose_order_may_matter():
    with pytest.raises(ScheduleError, match="an axis of a REDUCE"):
        Schedule(nests.chain(8)).reverse("i")


def test_sink_makes_the_nest_perfect():
    kernel = nests.bias(5, 4)
    done = Schedule(kernel).split("i", 4).sink("i.i").reorder("j", "i.i")
    assert_same(kernel, done.kernel)


def test_names_stay_unique_and_locations_survive():
    kernel = nests.softmax(5, 7)
    place = Location("user.py", 3)
    kernel = kernel.replace(locations={s: place for s in walk(kernel.body)})
    schedule = Schedule(kernel).split("r", 2, "peel").split("k", 4, "peel").split("c", 4, "peel")
    schedule.split("c.t", 2, "peel").split("q.t", 4, "mask")
    names = [e.attr for s in walk(schedule.kernel.body) for e in s.binds()]
    names += [a.var.attr for s in walk(schedule.kernel.body) if isinstance(s, Reduce)
              for a in s.axes]
    names += [s.memory.name for s in walk(schedule.kernel.body) if isinstance(s, Alloc)]
    assert len(names) == len(set(names))
    assert all(schedule.kernel.locations[s] == place for s in walk(schedule.kernel.body))
    assert_same(kernel, schedule.kernel, exact=False)


@pytest.mark.parametrize(("quotient", "remainder", "apart"), [
    (2, 2, True), (1, 3, True), (2, 1, True), (2, 0, False), (0, 2, False)])
def test_places_by_quotient_and_remainder_are_told_apart(quotient, remainder, apart):
    """y[q * (i // 7), r * (i % 7) + 1] is written once for each i, if neither q nor r is 0."""
    x, y = memory("x", 28), memory("y", 9, 22)
    i = v("i")
    place = ((i // 7) * quotient, (i % 7) * remainder + 1)
    kernel = Kernel("spread", (x, y), (loop("i", 28, Load(nests.f("a"), x, (i,)),
                                            Store(y, place, nests.f("a"))),))
    made = Schedule(kernel)
    if not apart:
        with pytest.raises(ScheduleError, match="independent"):
            made.split("i", 8, "overlap")
        return
    assert_same(kernel, made.split("i", 8, "overlap").vectorize("i.i").kernel)


def test_equal_remainders_of_different_divisors_are_no_proof():
    x, y = memory("x", 28), memory("y", 9, 22)
    i = v("i")
    kernel = Kernel("spread", (x, y), (loop("i", 28, Load(nests.f("a"), x, (i,)),
                                            Store(y, (i // 4, i % 3), nests.f("a"))),))
    with pytest.raises(ScheduleError, match="independent"):
        Schedule(kernel).split("i", 8, "overlap")


@pytest.mark.parametrize(("rows", "columns", "apart"), [
    (4, 5, True), (4, 4, True), (5, 5, False), (4, 6, False), (1, 5, True)])
def test_tiles_at_quotients_and_remainders_are_told_apart(rows, columns, apart):
    """y[4 * (t // 7) + i, 5 * (t % 7) + j]: no tile of another t begins before one ends."""
    x, y, t, i, j = memory("x", 28), memory("y", 21, 41), v("t"), v("i"), v("j")
    place = ((t // 7) * 4 + i, (t % 7) * 5 + j)
    kernel = Kernel("tiles", (x, y), (loop("t", 28, Load(nests.f("a"), x, (t,)), loop(
        "i", rows, loop("j", columns, Store(y, place, nests.f("a"))))),))
    if not apart:
        with pytest.raises(ScheduleError, match="independent"):
            Schedule(kernel).parallel("t")
        return
    assert_same(kernel, Schedule(kernel).parallel("t").kernel)


def test_tiles_at_quotients_of_quotients_are_told_apart():
    """Three loops that are fused, of which two are cut into tiles of 2."""
    x, y, t, i, j = memory("x", 30), memory("y", 2, 6, 10), v("t"), v("i"), v("j")
    outer = t // 5
    place = (outer // 3, (outer % 3) * 2 + i, (t % 5) * 2 + j)
    kernel = Kernel("tiles", (x, y), (loop("t", 30, Load(nests.f("a"), x, (t,)), loop(
        "i", 2, loop("j", 2, Store(y, place, nests.f("a"))))),))
    assert_same(kernel, Schedule(kernel).parallel("t").kernel)
