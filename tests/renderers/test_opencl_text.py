"""The text of kernels in OpenCL C: its first line, and what the language does not have."""

import json
import re

import pytest
from test_opencl_phases import GRAPHS, TARGET, linear

import graphs
from graphs import el, leaf
from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.linear import LinearBuilder, LinearKernel, Value
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.renderers.cstyle.opencl.renderer import OpenCLRenderer

INT = Memory("numbers", dt.int64, (ex.index(4),))


def text_of(kernel, target=TARGET):
    return OpenCLRenderer(target).render(kernel, "tested").text


def header(text):
    first = text.partition("\n")[0]
    assert first.startswith("// weft ")
    return json.loads(first.removeprefix("// weft "))


def built(emit, *params):
    """Return a kernel whose instructions `emit` makes with a builder."""
    b = LinearBuilder()
    emit(b)
    return LinearKernel("tested", params, (), tuple(b.code), (("a message", None),))


@pytest.mark.parametrize("name", GRAPHS)
def test_the_first_line_names_each_entry_of_the_text(name):
    text = text_of(linear(GRAPHS[name]()))
    said = header(text)
    assert [e["name"] for e in said["entries"]] == re.findall(r"__kernel void (\w+)\(", text)
    assert (said["shared"] > 0) is ("(scratch +" in text)
    assert not said["fails"]
    assert said["room"] == 0


def test_numbers_of_64_bits_are_long_and_pointers_have_an_address_space():
    text = text_of(linear(el(Op.ADD, leaf(99, dtype=dt.uint64), leaf(99, dtype=dt.uint64))))
    assert not re.search(r"\d(u?)ll\b", text)
    for line in text.splitlines():
        for kind in re.findall(r"(\w+ )?(?:const )?[fiu](?:8|16|32|64)(?:x\d+)?u? \*", line):
            assert kind.strip() in ("__global", "__private", "volatile", ""), line


def test_an_assertion_says_so_and_later_phases_end_where_one_failed():
    def emit(b):
        zero, limit = b.const(0, dt.int64), b.const(3, dt.int64)
        value = b.value("v", dt.int64)
        b.emit(li.LoadInst(value, INT, zero))
        b.emit(li.AssertInst(b.compute(Op.LT, dt.bool_, 1, (value, limit)), 0, value, limit))
        extent = b.const(7, dt.int64)
        b.emit(li.Loop(b.value("i", dt.int64), extent, li.PARALLEL))
        b.emit(li.StoreInst(INT, zero, value))
        b.emit(li.EndLoop())

    text = text_of(built(emit, INT))
    assert header(text)["fails"]
    assert [e["groups"] for e in header(text)["entries"]] == [1, 7]
    assert text.count("if (status->code != 0) return;") == 1


def test_what_is_printed_is_numbered():
    def emit(b):
        value = b.const(2.5, dt.float32)
        b.emit(li.PrintInst("first {}\n", (value,)))
        b.emit(li.PrintInst("second", (b.const(3, dt.int64), b.const(True, dt.bool_))))

    said = header(text_of(built(emit)))
    assert said["prints"] == [["first {}\n", ["f32"]], ["second {} {}\n", ["i64", "bool"]]]
    assert said["room"] > 0


@pytest.mark.parametrize(("inst", "found"), [
    (li.CallInst((), "exit", ()), "exit"),
    (li.ClockInst(Value("t", 0, dt.int64)), "clock"),
])  # fmt: skip
def test_what_the_language_lacks_is_refused(inst, found):
    with pytest.raises(UnsupportedError, match=found):
        text_of(built(lambda b: b.emit(inst)))


def test_float32_is_rounded_correctly_where_the_driver_must_be_asked():
    kernel = linear(graphs.softmax(leaf(3, 5)))
    assert header(text_of(kernel))["options"] == []
    asked = text_of(kernel, TARGET.replace(features=("+rounded",)))
    assert header(asked)["options"] == ["-cl-fp32-correctly-rounded-divide-sqrt"]


def test_a_mask_of_all_lanes_is_a_whole_vector():
    def emit(b):
        zero, value = b.const(0, dt.int64), b.value("v", dt.int64, 4)
        steps = b.compute(Op.RAMP, dt.int64, 4, (zero,))
        mask = b.compute(Op.LT, dt.bool_, 4, (steps, b.const(3, dt.int64, 4)))
        b.emit(li.LoadInst(value, INT, zero, mask))
        b.emit(li.StoreInst(INT, zero, value, mask))

    text = text_of(built(emit, INT))
    assert "if (all(__builtin_astype(m, long4))) return load_i64x4(p);" in text
    assert "if (all(__builtin_astype(m, long4))) {\n    store_i64x4(p, x);" in text
