"""More points of a sum, whose products are zeros, against the sum that they are added to."""

import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same
from weft.errors import ScheduleError
from weft.ir.stmt import Reduce
from weft.ir.text.text import print_kernel
from weft.ir.traverse import walk
from weft.kernelize.build import kernelize
from weft.schedule import Schedule
from weft.target import Target


def gradient(pad):
    """A gradient by weights: windows of the right factor reach out of its memory."""
    x, w = weft.zeros(2, 3, 7, dtype=weft.bfloat16), weft.zeros(4, 3, 3, dtype=weft.bfloat16)
    g = weft.zeros(2, 4, 5 + 2 * pad, dtype=weft.bfloat16)
    x, w, g = x.realize(), w.realize(), g.realize()
    made = weft.grad(lambda v: (x.conv1d(v, padding=pad) * g).sum())(w)
    (step,) = kernelize([made._read()], Target("cpu", "x86_64"))
    return step.kernel


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(("inner", "multiple"), [(5, 8), (8, 8), (1, 2), (7, 1)])
def test_widen(inner, multiple, side):
    kernel = nests.narrow(2, 3, inner, "bf16", "bf16")
    made = Schedule(kernel).widen("s", "k", multiple, side)
    assert_same(kernel, made.kernel)
    assert bool(made.trace) is (inner % multiple > 0)
    again = Schedule.replay(kernel, made.trace)
    assert print_kernel(again.kernel) == print_kernel(made.kernel)


@pytest.mark.parametrize("pad", [0, 1, 2])
def test_what_windows_read_stays_in_its_memory(pad):
    kernel = gradient(pad)
    reduce = next(s for s in walk(kernel.body) if isinstance(s, Reduce))
    name, axis = str(reduce.accumulators[0].var.attr), str(reduce.axes[-1].var.attr)
    side = next(s for s in ("left", "right") if widens(kernel, name, axis, s))
    assert_same(kernel, Schedule(kernel).widen(name, axis, 16, side).kernel)


def widens(kernel, name, axis, side):
    """Whether the factor of a side is an element of a memory."""
    try:
        Schedule(kernel).widen(name, axis, 16, side)
    except ScheduleError:
        return False
    return True


@pytest.mark.parametrize("arguments", [("s", "k", 0, "left"), ("s", "k", 4, "middle"),
                                       ("s", "m", 4, "left")])
def test_what_it_refuses(arguments):
    with pytest.raises(ScheduleError):
        Schedule(nests.narrow(2, 3, 5, "bf16", "bf16")).widen(*arguments)


def test_sums_of_wide_elements_are_refused():
    with pytest.raises(ScheduleError, match="factor"):
        Schedule(nests.matmul(2, 3, 5)).widen("s", "k", 8, "left")
