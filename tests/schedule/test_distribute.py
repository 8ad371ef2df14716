"""Statistics of several rows before what uses them: distribute and lift."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same, f, loop, memory, v
from weft.errors import ScheduleError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.op import Op
from weft.ir.stmt import For, Kernel, Let, Load, Reduce, Store
from weft.ir.traverse import walk
from weft.schedule import Schedule


def shifted(rows, columns):
    """y[r, c] = w[r] * x[r, c] - log(sum of x[r, :])"""
    x, w, y = memory("x", rows, columns), memory("w", rows), memory("y", rows, columns)
    log = ex.unary(Op.LOG, f("s"))
    total = Reduce((st.Axis(v("k"), ex.index(columns)),),
                   (nests.total("s", value=ex.unary(Op.ABS, f("a"))),),
                   (Load(f("a"), x, (v("r"), v("k"))),))
    last = loop("c", columns, Load(f("b"), x, (v("r"), v("c"))),
                Store(y, (v("r"), v("c")), f("d") * f("b") - log))
    return Kernel("shifted", (x, w, y), (loop("r", rows, Load(f("d"), w, (v("r"),)), total, last),))


@pytest.mark.parametrize(("rows", "columns"), [(4, 5), (7, 3), (8, 1), (5, 17)])
def test_statistics_first(rows, columns):
    kernel = shifted(rows, columns)
    done = Schedule(kernel).lift("c").split("r", 4, "overlap").distribute("r.i", 2)
    assert_same(kernel, done.kernel)
    done.distribute("r.i", 3).vectorize("r.i.d1")
    assert_same(kernel, done.kernel)
    (log,) = [s for s in walk(done.kernel.body) if isinstance(s, Let)]
    around = [s for s in walk(done.kernel.body) if isinstance(s, For) and log in s.body]
    assert [s.var.attr for s in around] == ["r.i.d1"]
    assert_same(kernel, Schedule.replay(kernel, done.trace).kernel)


def test_what_was_loaded_is_loaded_again():
    done = Schedule(shifted(4, 5)).distribute("r", 2).kernel
    kept = {s.memory.name for s in walk(done.body) if isinstance(s, st.Alloc)}
    assert kept == {"s.d"}


def test_refusals():
    kernel = shifted(4, 5)
    for count in (0, 3):
        with pytest.raises(ScheduleError, match="on either side"):
            Schedule(kernel).distribute("r", count)
    with pytest.raises(ScheduleError, match="names, loads and reductions"):
        Schedule(nests.softmax(4, 5)).distribute("r", 1)
    with pytest.raises(ScheduleError, match="nothing of the kind"):
        Schedule(kernel).lift("k")
    x = memory("x", 9)
    i = v("i")
    moving = loop("i", 8, Load(f("a"), x, (i + 1,)), Store(x, (i,), f("a")))
    with pytest.raises(ScheduleError, match="separate memories"):
        Schedule(Kernel("moving", (x,), (moving,))).distribute("i", 1)
    n = v("n", dt.int64)
    many = Kernel("many", kernel.params, (kernel.body[0].replace(extent=n),))
    with pytest.raises(ScheduleError, match="constant extent"):
        Schedule(many).distribute("r", 2)
