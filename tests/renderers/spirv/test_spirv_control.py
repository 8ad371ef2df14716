"""Loops, branches, arrays, atomic operations and work-groups as valid SPIR-V."""

import json

import pytest
from spirv_kernels import Code, capabilities, checked, launched, memory, shown, source, target

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import linear as li
from weft.ir.linear import Value
from weft.ir.op import Op

pytestmark = pytest.mark.requires("spirv-tools")

NUMBERS = memory("numbers", dt.int32)
KINDS = ("add", "sub", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")


def head(made):
    return json.loads(made.text.partition("\n")[0].removeprefix("// weft "))


def test_regions_are_nested():
    """A branch in a while loop in a loop, with an assertion in the midst of it."""
    b = Code()
    i = b.loop(64, "parallel")
    own = b.storage("own", dt.int32, 2)
    b.store(own, b.i(0), b.load(NUMBERS, i))
    b.emit(li.WhileBegin())
    now = b.load(own, b.i(0))
    b.emit(li.WhileTest(b.op(Op.NE, now, b.const(1, dt.int32))))
    b.emit(li.IfBegin(b.op(Op.EQ, b.op(Op.AND, now, b.const(1, dt.int32)), b.const(0, dt.int32))))
    b.store(own, b.i(0), b.op(Op.FLOORDIV, now, b.const(2, dt.int32)))
    b.emit(li.Else())
    b.emit(li.AssertInst(b.op(Op.LT, now, b.const(9, dt.int32)), 0, i, i))
    b.store(own, b.i(0), b.op(Op.ADD, now, b.const(1, dt.int32)))
    b.end(li.EndIf)
    b.end(li.EndWhile)
    b.end()
    made = source(b.kernel(NUMBERS, messages=(("stop", None),)))
    text = shown(checked(made))
    assert text.count("OpLoopMerge") == 2
    assert head(made)["fails"]


def test_masked_accesses_are_branches():
    b = Code()
    i = b.loop(64, "parallel")
    mask = b.op(Op.LT, i, b.i(60))
    value = b.load(NUMBERS, i, mask=mask, fill=b.const(-7, dt.int32))
    b.store(NUMBERS, i, value, mask=mask)
    b.end()
    text = shown(checked(source(b.kernel(NUMBERS))))
    assert text.count("OpSelectionMerge") == 2
    assert "OpPhi" in text


@pytest.mark.grid
@pytest.mark.parametrize("scope", ["global", "shared", "register"])
@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.text)
def test_atomic_operations_are_valid_or_refused(d, scope):
    for kind in KINDS:
        b = Code()
        mem = memory("m", d) if scope == "global" else b.storage("m", d, 8, scope)
        value = b.load(memory("x", d), b.i(0))
        compare = value if kind == "cas" else None
        b.store(memory("x", d), b.i(1), b.atomic(kind, mem, b.i(3), value, compare))
        params = [memory("m", d)] * (scope == "global") + [memory("x", d)]
        kernel = b.kernel(*params)
        if (d.is_bool and kind not in ("and", "or", "xor", "exch", "cas")) or (
            d.is_float and kind in ("and", "or", "xor", "inc", "dec")
        ):
            with pytest.raises(UnsupportedError, match=f"atomic {kind}"):
                launched(kernel, 1)
        else:
            checked(launched(kernel, 1))


@pytest.mark.parametrize(("scope", "feature"), [
    ("global", "shaderBufferInt64Atomics"), ("shared", "shaderSharedInt64Atomics"),
])  # fmt: skip
def test_atomic_words_of_64_bits_need_a_feature(scope, feature):
    b = Code()
    mem = memory("m", dt.int64) if scope == "global" else b.storage("m", dt.int64, 8, scope)
    b.atomic("add", mem, b.i(0), b.i(1))
    with pytest.raises(UnsupportedError, match="atomic add of int64"):
        launched(b.kernel(memory("m", dt.int64)), 1, target(without=(feature,)))


def reversed_in_groups(d):
    b = Code()
    x = memory("x", d, 256)
    part = b.storage("part", d, 64, "shared")
    local, group = b.special("local_id"), b.special("group_id")
    g = b.loop(4, begin=group, step=b.special("num_groups"))
    start = b.op(Op.MUL, g, b.i(64))
    b.store(part, local, b.load(x, b.op(Op.ADD, start, local)))
    b.emit(li.BarrierInst())
    value = b.load(part, b.op(Op.SUB, b.i(63), local))
    b.store(x, b.op(Op.ADD, start, local), value)
    b.emit(li.BarrierInst())
    b.emit(li.FenceInst("device", "acq_rel"))
    b.end()
    return b.kernel(x)


@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.text)
def test_work_groups_share_arrays(d):
    text = shown(checked(launched(reversed_in_groups(d), 64)))
    assert "LocalSize 64 1 1" in text
    assert text.count("OpControlBarrier") == 2
    assert text.count("OpMemoryBarrier") == 1


def test_shared_bytes_are_words_where_the_device_has_no_bytes():
    lacking = target(without=("shaderInt8",))
    assert "Int8" in capabilities(checked(launched(reversed_in_groups(dt.uint8), 64)))
    made = checked(launched(reversed_in_groups(dt.uint8), 64, lacking))
    assert "Int8" not in capabilities(made)


def test_an_array_over_another_one_has_elements_of_its_size():
    b = Code()
    first = b.storage("first", dt.float32, 8, "shared")
    bits = b.storage("bits", dt.uint32, 8, "shared", base=first)
    b.store(first, b.i(0), b.const(1.5, dt.float32))
    b.store(memory("x", dt.uint32), b.i(0), b.load(bits, b.i(0)))
    checked(launched(b.kernel(memory("x", dt.uint32)), 1))
    b.storage("bytes", dt.uint8, 32, "shared", base=first)
    with pytest.raises(UnsupportedError, match="elements of one size"):
        launched(b.kernel(memory("x", dt.uint32)), 1)


def summed(size):
    b = Code()
    total = b.storage("total", dt.int32, 1)
    b.store(total, b.i(0), b.const(0, dt.int32))
    i = b.loop(size)
    b.store(total, b.i(0), b.op(Op.ADD, b.load(total, b.i(0)), b.load(NUMBERS, i)))
    b.end()
    b.store(NUMBERS, b.i(0), b.load(total, b.i(0)))
    return b.kernel(NUMBERS)


def test_long_loops_are_unrolled_where_a_driver_ends_them():
    limited = target(loopIterations=1000)

    def additions(size, goal):
        made = source(summed(size), goal)
        return shown(checked(made)).count("OpIAdd"), head(made)["fails"]

    plain, fails = additions(10_000, target())
    assert not fails
    assert additions(10_000, limited)[0] > plain + 16
    assert additions(100, limited)[0] < plain + 8
    assert additions(100, limited)[1], "a loop that was ended is a failure"


def test_short_loops_in_long_ones_vanish_where_a_driver_ends_them():
    b = Code()
    b.loop(900)
    j = b.loop(4)
    b.store(NUMBERS, j, b.load(NUMBERS, j))
    b.end()
    b.end()
    text = shown(checked(source(b.kernel(NUMBERS), target(loopIterations=1000))))
    assert text.count("OpLoopMerge") == 1


@pytest.mark.parametrize(("inst", "found"), [
    (li.CallInst((), "exit", ()), "a call of the function exit"),
    (li.ClockInst(Value("t", 0, dt.int64)), "a clock"),
    (li.Loop(Value("i", 1, dt.int64), Value("n", 2, dt.int64), li.PARALLEL), "parallel"),
])  # fmt: skip
def test_what_the_language_lacks_is_refused(inst, found):
    b = Code()
    b.emit(inst)
    if isinstance(inst, li.Loop):
        b.end()
    with pytest.raises(UnsupportedError, match=found):
        launched(b.kernel(), 1)
