"""Plans of launches on a device whose queue keeps their order."""

import numpy as np
import pytest

import weft
from weft.driver.context import context
from weft.ir.plan.plan import parse_plan
from weft.runtimes.base import Event
from weft.runtimes.in_order import rows_of

PLAN = """plan "step" {
  variable "n" 1 1024
  input (mul n #4)
  output (mul n #4)
  arena 65536
  program "relu" ("n" 1 1024) reads (mul n #4) writes (mul n #4)
  alloc 0 at 256 size (mul n #4)
  launch "relu" [input 0, arena 0] (n)
  launch "relu" [arena 0 + 8, output 0] (n)
  free 0
}
"""


def test_rows_name_memory_by_number():
    rows = rows_of(parse_plan(PLAN), {"n": 7}, {"relu": "loaded"})
    assert [tuple(r) for r in rows.rows] == [
        ("loaded", ((0, 0), (2, 256)), (7,), (), ()),
        ("loaded", ((2, 264), (1, 0)), (7,), (), ()),
    ]
    assert rows.written == {1, 2}
    assert (rows.outputs, rows.arena) == ((28,), 65536)


@pytest.mark.parametrize("step", [
    "copy arena 0 from input 0 size 4", "fill arena 0 size 4 byte 0", "wait 0",
])  # fmt: skip
def test_other_steps_are_left_to_the_executor(step):
    text = PLAN.replace("  free 0", f"  {step}\n  free 0")
    assert rows_of(parse_plan(text), {"n": 7}, {"relu": "loaded"}) is None


def test_an_event_precedes_what_its_own_queue_does_later():
    class Late(Event):
        __slots__ = ("order",)
        done = False

    event, order = Late("far"), object()
    event.order = None
    assert not event.precedes(None)
    event.order = order
    assert event.precedes(order)
    assert not event.precedes(object())
    assert not event.precedes(None)


@pytest.mark.requires("opencl:pocl")
def test_a_burst_of_calls_keeps_one_event_and_two_blocks():
    x = weft.arange(1 << 20, dtype=weft.float32).to("opencl:pocl").realize()
    call = weft.jit(lambda x, y: (x + y) * 0.5)
    y = call(x, x)
    pool = context("opencl:pocl").runtime.pool
    taken = pool.bytes_reserved
    for _ in range(100):
        y = call(x, y)
        assert len(x._buffer.uses) <= 1
    assert pool.bytes_reserved <= taken + 2 * x.numel() * 4
    np.testing.assert_array_equal(y.numpy(), np.arange(1 << 20, dtype=np.float32))


@pytest.mark.requires("opencl:pocl")
def test_sizes_of_several_calls_have_rows_of_their_own():
    call = weft.jit(lambda x: x.cumsum(0) + x)
    for n in (5, 9, 1000, 5, 9, 1000, 37):
        x = np.arange(n, dtype=np.float32)
        found = call(weft.from_numpy(x).to("opencl:pocl"))
        np.testing.assert_allclose(found.numpy(), np.cumsum(x) + x)
