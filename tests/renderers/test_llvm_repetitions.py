"""Addresses and splats that a block of LLVM IR has once, however often the kernel names them."""

import numpy as np
import pytest
from compiled import memory, run

from seeds import seeds
from weft.backends import cpu
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_linear
from weft.ir.linear import LinearBuilder, LinearKernel
from weft.ir.op import Op
from weft.ir.stmt import Meta

LANES = 16
TARGET = cpu.target_from("x86_64", "znver4", ("+avx512f",), {})


def updates(count, branches):
    """Return y += x[i] for some i, each in a block of its own if `branches`."""
    x, y = memory("x", dt.float32, count), memory("y", dt.float32, LANES)
    b = LinearBuilder()
    zero = b.const(0, dt.int64)
    for i in range(count):
        if branches:
            some = b.compute(Op.LT, dt.bool_, 1, (zero, b.const(i + 1, dt.int64)), None)
            b.emit(li.IfBegin(some))
        one, old = b.value("one", dt.float32), b.value("old", dt.float32, LANES)
        at = b.const(1, dt.int64)
        b.emit(li.LoadInst(one, x, b.const(i, dt.int64)))
        b.emit(li.LoadInst(old, y, zero))
        first, again = (b.compute(Op.BROADCAST, dt.float32, LANES, (one,), None) for _ in "ab")
        new = b.compute(Op.ADD, dt.float32, LANES, (old, first), None)
        b.emit(li.StoreInst(y, zero, b.compute(Op.MUL, dt.float32, LANES, (new, again), None)))
        last = b.value("last", dt.float32)
        b.emit(li.LoadInst(last, y, at))
        b.emit(li.StoreInst(y, at, b.compute(Op.ADD, dt.float32, 1, (last, one), None)))
        if branches:
            b.emit(li.EndIf())
    return LinearKernel("k", (x, y), (), tuple(b.code), (), Meta(kind="elementwise"))


@pytest.mark.parametrize(("branches", "addresses"), [(False, 1), (True, 3)])
def test_a_block_has_an_address_once(branches, addresses):
    text = cpu.renderer(TARGET).render(updates(3, branches), "k").text
    assert text.count("getelementptr inbounds float, ptr %p1, i64 1\n") == addresses
    assert text.count("zeroinitializer\n") == 3  # a splat of each element


@pytest.mark.parametrize("branches", [False, True])
@pytest.mark.parametrize("seed", seeds(1))
def test_results_stay(branches, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(5, np.float32), rng.standard_normal(LANES, np.float32)]
    expected = [a.copy() for a in arrays]
    kernel = updates(5, branches)
    run_linear(kernel, expected, {})
    run(kernel, arrays)
    np.testing.assert_array_equal(arrays[1], expected[1])


def neighbours(distances, kind="elementwise"):
    """Return y[8 i + d] = x[8 i + d], or the index plus the value, for i of a loop."""
    x, y = memory("x", dt.int64, 64), memory("y", dt.int64, 64)
    b = LinearBuilder()
    i = b.value("i", dt.int64)
    b.emit(li.Loop(i, b.const(6, dt.int64)))
    start = b.compute(Op.MUL, dt.int64, 1, (i, b.const(8, dt.int64)), None)
    for d in distances:
        at = b.compute(Op.ADD, dt.int64, 1, (start, b.const(d, dt.int64)), None)
        found = b.value("found", dt.int64)
        b.emit(li.LoadInst(found, x, at))
        far = b.compute(Op.ADD, dt.int64, 1, (at, b.const(1, dt.int64)), None)
        b.emit(li.StoreInst(y, at, b.compute(Op.ADD, dt.int64, 1, (found, far), None)))
    b.emit(li.EndLoop())
    return LinearKernel("k", (x, y), (), tuple(b.code), (), Meta(kind=kind))


def test_addresses_a_number_apart_begin_at_one_pointer():
    lines = cpu.renderer(TARGET).render(neighbours((0, 3, 16, 21)), "k").text.split("\n")
    for parameter in ("%p0", "%p1"):
        assert sum(f"i64, ptr {parameter}, i64 %t" in line for line in lines) == 1
    assert sum(f"i64 {d}" in line for line in lines for d in (3, 16, 21)
               if "getelementptr" in line) == 6  # fmt: skip


@pytest.mark.parametrize(("kind", "hidden"), [("elementwise", 2), ("custom", 0)])
def test_where_neighbours_begin_is_hidden_once(kind, hidden):
    text = cpu.renderer(TARGET).render(neighbours((0, 3, 16, 21), kind), "k").text
    assert text.count("= call ptr @llvm.launder.invariant.group") == hidden


@pytest.mark.parametrize("distances", [(0, 3), (5, 1, 22), (16, 17)])
@pytest.mark.parametrize("seed", seeds(1))
def test_sums_that_are_addresses_and_values(distances, seed):
    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-99, 99, 64), np.zeros(64, np.int64)]
    expected = [a.copy() for a in arrays]
    kernel = neighbours(distances)
    run_linear(kernel, expected, {})
    run(kernel, arrays)
    np.testing.assert_array_equal(arrays[1], expected[1])
