"""The primitive window: boxes of windows that overlap, stride, reach over borders, or run back."""

import pytest

import schedule_nests as nests
from schedule_nests import assert_same, loop, memory, n, v
from weft.errors import ScheduleError
from weft.ir import expr as ex
from weft.ir.stmt import Axis, Kernel, Load, Meta, Reduce, Store, walk
from weft.schedule import Schedule


def convolution(height, width, stride=1, pad=1, channels=2, outputs=5, kernel=3, flip=False):
    x, w = memory("x", 2, channels, height, width), memory("w", outputs, channels, kernel, kernel)
    rows, columns = ((m + 2 * pad - kernel) // stride + 1 for m in (height, width))
    y = memory("y", 2, outputs, rows, columns)
    p, q = (kernel - 1 - v("p"), kernel - 1 - v("q")) if flip else (v("p"), v("q"))
    i, j = v("i") * stride + p - pad, v("j") * stride + q - pad
    inside = n(0).le(i) & i.lt(height) & n(0).le(j) & j.lt(width) if pad else None
    a = nests.f("a")
    read = a if inside is None else ex.where(inside, a, 0.0)
    axes = (("c", channels), ("p", kernel), ("q", kernel))
    reduce = Reduce(tuple(Axis(v(t), n(m)) for t, m in axes),
                    (nests.total("s", value=read * nests.f("b")),),
                    (Load(a, x, (v("n"), v("c"), i, j), inside),
                     Load(nests.f("b"), w, (v("o"), v("c"), v("p"), v("q")))))
    out = Store(y, (v("n"), v("o"), v("i"), v("j")), nests.f("s"))
    nest = loop("n", 2, loop("o", outputs, loop("i", rows, loop("j", columns, reduce, out))))
    return Kernel("conv", (x, w, y), (nest,), Meta("contraction"))


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


def test_rounds_that_overlap():
    kernel = convolution(7, 9)
    made = Schedule(kernel).split("j", 4, "overlap").reorder("i", "j.o", "o", "j.i")
    assert_same(kernel, made.window("x", "j.o").kernel)
    with pytest.raises(ScheduleError, match=r"not linear in .*j\.o"):
        Schedule(kernel).split("j", 4, "overlap").window("x", "i")


def test_rows_of_a_matrix():
    kernel = nests.matmul(9, 6, 7)
    made = Schedule(kernel).split("i", 4).window("a", "i.o", skew=1)
    assert_same(kernel, made.kernel)


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
