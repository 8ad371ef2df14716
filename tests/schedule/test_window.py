"""The primitive window: boxes of windows that overlap, stride, reach over borders, or run back."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same, convolution, loop, memory, v
from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir import stmt as st
from weft.ir.op import Op
from weft.ir.stmt import Accumulator, Alloc, Axis, Kernel, Load, Reduce, Store
from weft.ir.traverse import walk
from weft.schedule import Schedule


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pad", [0, 1, 2])
def test_windows_of_a_convolution(pad, stride, flip):
    kernel = convolution(6, 7, stride, pad, flip=flip)
    for where in ("n", "o", "i", "j"):
        made = Schedule(kernel).window("x", where)
        assert_same(kernel, made.kernel)
        masks = [s.mask for s in walk(made.bare.body) if isinstance(s, Load) and
                 s.memory.name == "x.w"]
        assert masks == [None]
    swapped = Schedule(kernel).window("x", "o", (0, 3, 1, 2), skew=3)
    assert_same(kernel, swapped.kernel)
    assert swapped.trace == ["window(x, o, order=0+3+1+2, skew=3)"]
    assert_same(swapped.kernel, Schedule.replay(kernel, swapped.trace).kernel)


@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("stride", [2, 3])
def test_what_all_loops_step_over_is_left_out(pad, stride):
    kernel = convolution(8, 7, stride, pad, kernel=1)
    made = Schedule(kernel).window("x", "n")
    assert_same(kernel, made.kernel)
    (copy,) = [s.memory for s in walk(made.bare.body) if isinstance(s, Alloc)]
    sizes = [s.attr for s in copy.shape]
    assert sizes == [2, *[(m + 2 * pad - 1) // stride + 1 for m in (8, 7)]]


def test_choices_around_choices_go():
    kernel = convolution(6, 7, pad=1, nested=True)
    made = Schedule(kernel).window("x", "i")
    assert_same(kernel, made.kernel)
    sums = [s for s in walk(made.bare.body) if isinstance(s, Reduce)]
    assert not any(e.op is Op.WHERE for s in sums for e in ex.toposort(list(s.exprs())))


def test_rounds_that_overlap():
    kernel = convolution(7, 9)
    made = Schedule(kernel).split("j", 4, "overlap").reorder("i", "j.o", "o", "j.i")
    assert_same(kernel, made.window("x", "j.o").kernel)
    inside = Schedule(kernel).split("j", 4, "overlap").window("x", "i")  # starts at 0, 4 and 5
    assert_same(kernel, inside.kernel)
    (copy,) = [s.memory for s in walk(inside.bare.body) if isinstance(s, Alloc)]
    (whole,) = [s.memory for s in walk(Schedule(kernel).window("x", "i").bare.body)
                if isinstance(s, Alloc)]
    assert copy.shape == whole.shape


def test_subscripts_that_are_no_sums_are_refused():
    x, y, value = memory("x", 9), memory("y", 3, 3), nests.f("a")
    body = loop("i", 3, loop("j", 3, Load(value, x, (v("j") * v("j"),)),
                             Store(y, (v("i"), v("j")), value)))
    with pytest.raises(ScheduleError, match=r"not linear in j"):
        Schedule(Kernel("squares", (x, y), (body,))).window("x", "i")


@pytest.mark.parametrize("apart", [1, -2, 4])
def test_loads_of_other_elements_share_a_box(apart):
    x, y, a, b = memory("x", 16), memory("y", 3, 4), nests.f("a"), nests.f("b")
    place = v("i") + v("k") * 2 + 2
    body = loop("i", 3, loop("k", 4, Load(a, x, (place,)), Load(b, x, (place + apart,)),
                             Store(y, (v("i"), v("k")), a - b)))
    kernel = Kernel("apart", (x, y), (body,))
    made = Schedule(kernel).window("x", "i")
    assert_same(kernel, made.kernel)
    (copy,) = [s.memory for s in walk(made.bare.body) if isinstance(s, Alloc)]
    assert copy.shape[0].attr == (8 if apart == 1 else 4 + abs(apart) // 2)


def test_loads_of_several_loops_share_a_box():
    x, y, s, a, b = memory("x", 5, 8), memory("y", 5, 6), nests.f("s"), nests.f("a"), nests.f("b")
    total = Reduce((Axis(v("k"), ex.index(8)),), (Accumulator(
        s, ex.const(0, s.dtype), s + a, st.lhs(s) + st.rhs(s)),), (Load(a, x, (v("i"), v("k"))),))
    body = loop("i", 5, total, loop("j", 6, Load(b, x, (v("i"), v("j") + 1)),
                                    Store(y, (v("i"), v("j")), b * s)))  # fmt: skip
    kernel = Kernel("rows", (x, y), (body,))
    made = Schedule(kernel).window("x", "i")
    assert_same(kernel, made.kernel)
    assert sum(isinstance(s, Load) and s.memory is x for s in walk(made.bare.body)) == 1


def test_rows_of_a_matrix():
    kernel = nests.matmul(9, 6, 7)
    made = Schedule(kernel).split("i", 4).window("a", "i.o", skew=1)
    assert_same(kernel, made.kernel)


@pytest.mark.parametrize("divided", [False, True])
def test_bounds_may_be_divided_by_what_all_loops_step_over(divided):
    x, y, s = memory("x", 9), memory("y", 4), nests.f("s")
    place, value = v("i") + v("k"), nests.f("a")
    at = place * 2 - 3
    mask = (place.gt(1) & place.lt(6)) if divided else (ex.index(0).le(at) & at.lt(9))
    total = Reduce((Axis(v("k"), ex.index(3)),), (
        Accumulator(s, ex.const(0.0, s.dtype), s + ex.where(mask, value, 0.0),
                    st.lhs(s) + st.rhs(s)),),
        (Load(value, x, (at,), mask),))
    kernel = Kernel("strided", (x, y), (
        loop("r", 1, loop("i", 4, total, Store(y, (v("i"),), s))),))
    made = Schedule(kernel).window("x", "r")
    assert_same(kernel, made.kernel)
    (load,) = [f for f in walk(made.bare.body) if isinstance(f, Load) and f.memory.name == "x.w"]
    assert load.mask is None
    sums = [f for f in walk(made.bare.body) if isinstance(f, Reduce)]
    assert not any(e.op is Op.WHERE for f in sums for e in ex.toposort(list(f.exprs())))


def test_a_mask_that_says_more_stays():
    x, y = memory("x", 8), memory("y", 8)
    even = (v("i") % 2).eq(0)
    body = loop("r", 1, loop("i", 8, Load(nests.f("a"), x, (v("i"),), even),
                             Store(y, (v("i"),), ex.where(even, nests.f("a"), 0.0))))
    kernel = Kernel("even", (x, y), (body,))
    made = Schedule(kernel).window("x", "r").kernel
    assert_same(kernel, made)
    assert all(s.mask is not None for s in walk(made.body) if isinstance(s, Load) and
               s.memory.name == "x.w")


def test_window_refuses():
    kernel = convolution(6, 7)
    for arguments, text in ((("y", "n"), "stores to y"), (("w", "c"), "axis of a REDUCE"),
                            (("x", "i", (0, 1)), "order")):
        with pytest.raises(ScheduleError, match=text):
            Schedule(kernel).window(*arguments)
