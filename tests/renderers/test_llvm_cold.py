"""Functions of a module that LLVM spends no time on, because they hardly do anything."""

import re

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

TARGET = cpu.target_from("x86_64", "znver4", ("+avx512f",), {})
COUNT = 37


def copies(beside, kind="elementwise"):
    """Return y[i] = x[i] + x[i] by threads, with y[0] = x[1] before them if `beside`."""
    x, y = memory("x", dt.float32, COUNT), memory("y", dt.float32, COUNT)
    b = LinearBuilder()
    if beside:
        one = b.value("one", dt.float32)
        b.emit(li.LoadInst(one, x, b.const(1, dt.int64)))
        b.emit(li.StoreInst(y, b.const(0, dt.int64), one))
    i = b.value("i", dt.int64)
    b.emit(li.Loop(i, b.const(COUNT, dt.int64), li.PARALLEL))
    found = b.value("found", dt.float32)
    b.emit(li.LoadInst(found, x, i))
    b.emit(li.StoreInst(y, i, b.compute(Op.ADD, dt.float32, 1, (found, found), None)))
    b.emit(li.EndLoop())
    return LinearKernel("k", (x, y), (), tuple(b.code), (), Meta(kind=kind))


def attributes(text, function):
    """Return the attributes of a function of a module."""
    group = re.search(rf"^define .*@{function}\(.*\) (#\d+) \{{$", text, re.MULTILINE)[1]
    return re.search(rf"^attributes {group} = (.*)$", text, re.MULTILINE)[1].split()


@pytest.mark.parametrize(("beside", "kind", "cold"), [
    (False, "elementwise", True), (True, "elementwise", False), (False, "custom", False),
])  # fmt: skip
def test_an_entry_that_only_shares_out_is_not_optimised(beside, kind, cold):
    text = cpu.renderer(TARGET).render(copies(beside, kind), "k").text
    assert ("optnone" in attributes(text, "k")) == cold
    assert "optnone" not in attributes(text, "k.par0")
    assert '"target-cpu"="znver4"' in attributes(text, "k")


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("seed", seeds(1))
def test_results_stay(beside, seed):
    arrays = [np.random.default_rng(seed).standard_normal(COUNT, np.float32),
              np.zeros(COUNT, np.float32)]
    expected = [a.copy() for a in arrays]
    run_linear(copies(beside), expected, {})
    run(copies(beside), arrays)
    np.testing.assert_array_equal(arrays[1], expected[1])
