"""Private arrays too large for a stack: memory that a function gets, and what it does without."""

import ctypes

import numpy as np
import pytest
from compiled import Status, load, memory, run

from seeds import seeds
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import LinearBuilder, LinearKernel
from weft.ir.stmt import Memory, Meta
from weft.renderers.base import NO_MEMORY
from weft.target import STACK_BYTES

COUNT = 37
ROOM = 2 * STACK_BYTES  # elements of one byte
TOO_MANY = 1 << 56


def through(kind, room):
    """Return y[i] = x[i] by way of a private array of `room` bytes, then y[0] = 7."""
    x, y = memory("x", dt.uint8, COUNT), memory("y", dt.uint8, COUNT)
    own = Memory("own", dt.uint8, memory("n", dt.uint8, room).shape, "private")
    b = LinearBuilder()
    i = b.value("i", dt.int64)
    b.emit(li.Loop(i, b.const(COUNT, dt.int64), kind))
    b.emit(li.StorageInst(own, room))
    first, second = b.value("first", dt.uint8), b.value("second", dt.uint8)
    b.emit(li.LoadInst(first, x, i))
    b.emit(li.StoreInst(own, b.const(room - 1, dt.int64), first))
    b.emit(li.LoadInst(second, own, b.const(room - 1, dt.int64)))
    b.emit(li.StoreInst(y, i, second))
    b.emit(li.EndLoop())
    b.emit(li.StoreInst(y, b.const(0, dt.int64), b.const(7, dt.uint8)))
    return LinearKernel("kernel", (x, y), (), tuple(b.code), (), Meta(kind="custom"))


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("seed", seeds(1))
def test_values_go_through_the_heap(kind, seed):
    x = np.random.default_rng(seed).integers(0, 256, COUNT, np.uint8)
    y = np.zeros(COUNT, np.uint8)
    code, status = run(through(kind, ROOM), [x, y])
    assert (code, status.code) == (0, 0)
    np.testing.assert_array_equal(y, [7, *x[1:]])


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_no_memory_is_reported_with_its_bytes(kind):
    x, y = np.ones(COUNT, np.uint8), np.zeros(COUNT, np.uint8)
    code, status = run(through(kind, TOO_MANY), [x, y])
    assert (code, status.code, status.bound) == (NO_MEMORY, NO_MEMORY, 0)
    assert TOO_MANY <= status.index <= TOO_MANY + 128
    assert not y.any()  # nothing after the failure ran


def test_a_failure_before_no_memory_stays():
    function, library = load(through("parallel", TOO_MANY))
    arrays = [np.ones(COUNT, np.uint8), np.zeros(COUNT, np.uint8)]
    buffers = (ctypes.c_void_p * 2)(*(a.ctypes.data for a in arrays))
    status = Status(code=7, statement=2, index=1)
    assert function(buffers, None, ctypes.byref(status)) == 7
    assert (status.code, status.statement, status.index) == (7, 2, 1)
    library.unload()


def test_a_function_of_failures_is_only_for_assertions():
    """LLVM takes a millisecond for it."""
    text = cpu.renderer().render(through("parallel", ROOM)).text
    assert "@malloc(" in text
    assert "@weft.fail(" not in text
