"""Modules as a whole: what they declare, what they ask of a device, what their image says."""

import json
import struct

import pytest
from spirv_kernels import (
    Code,
    capabilities,
    checked,
    elementwise,
    memory,
    shown,
    source,
    target,
    words,
)

from weft.errors import CompileError, UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.op import Op
from weft.renderers.base import Style
from weft.renderers.spirv.image import image
from weft.renderers.spirv.renderer import SpirvRenderer
from weft.runtimes.launches.header import header_of

LEAST = {"Shader", "PhysicalStorageBufferAddresses", "Int64"}


def doubled(d):
    x = ex.var("x", d)
    return elementwise([x + x], [x])


@pytest.mark.requires("spirv-tools")
def test_the_text_of_a_square(golden):
    x = ex.var("x", dt.float32)
    golden("spirv_square.txt", shown(checked(source(elementwise([x * x], [x])))))


@pytest.mark.requires("spirv-tools")
def test_the_text_of_a_checked_sum(golden):
    b = Code()
    x, out = memory("x", dt.int8, 7), memory("out", dt.int64, 1)
    total = b.storage("total", dt.int64, 1)
    b.store(total, b.i(0), b.i(0))
    i = b.loop(7)
    value = b.op(Op.CAST, b.load(x, i), dtype=dt.int64)
    b.emit(li.AssertInst(b.op(Op.LT, value, b.i(100)), 0, value, b.i(100)))
    b.store(total, b.i(0), b.op(Op.ADD, b.load(total, b.i(0)), value))
    b.end()
    b.store(out, b.i(0), b.load(total, b.i(0)))
    kernel = b.kernel(x, out, messages=(("a message", None),))
    golden("spirv_checked_sum.txt", shown(checked(source(kernel))))


@pytest.mark.requires("spirv-tools")
@pytest.mark.parametrize(("d", "more"), [
    (dt.float32, {"RoundingModeRTE", "SignedZeroInfNanPreserve", "DenormPreserve"}),
    (dt.float64, {"Float64", "RoundingModeRTE", "SignedZeroInfNanPreserve", "DenormPreserve"}),
    (dt.int64, set()),
    (dt.uint8, {"StorageBuffer8BitAccess"}),
    (dt.int16, {"StorageBuffer16BitAccess"}),
], ids=lambda x: getattr(x, "text", ""))  # fmt: skip
def test_only_capabilities_that_are_used_are_declared(d, more):
    assert capabilities(checked(source(doubled(d)))) == LEAST | more


@pytest.mark.parametrize(("d", "feature"), [
    (dt.uint8, "storageBuffer8BitAccess"), (dt.uint16, "storageBuffer16BitAccess"),
    (dt.float64, "shaderFloat64"), (dt.int64, "shaderInt64"),
], ids=lambda x: getattr(x, "text", x))  # fmt: skip
def test_a_device_without_a_feature_is_told_so(d, feature):
    with pytest.raises(UnsupportedError, match=feature) as raised:
        source(doubled(d), target(without=(feature,)))
    assert "vulkan" in str(raised.value)


def test_a_device_without_float64_leaves_it_to_decompositions():
    goal = target(without=("shaderFloat64",))
    assert goal.supports(Op.ADD, dt.float32)
    assert not goal.supports(Op.ADD, dt.float64)


def test_the_image_is_a_line_and_words():
    made = source(doubled(dt.float32))
    body, header = header_of("k", image(made.text))
    assert body == words(made)
    assert struct.unpack_from("<2I", body) == (0x07230203, 0x00010500)
    assert len(body) % 4 == 0
    (entry,) = header.entries
    assert (entry.name, entry.groups, entry.items) == ("k_0", 1, 64)
    assert not header.fails
    assert header.room == 0


def test_an_image_that_is_cut_or_changed_is_refused():
    text = source(doubled(dt.float32)).text
    with pytest.raises(CompileError, match="base 64"):
        image(text[:-3] + "?")


def test_the_same_kernel_gives_the_same_words():
    assert source(doubled(dt.float16)).text == source(doubled(dt.float16)).text


def test_what_is_printed_is_numbered():
    b = Code()
    b.emit(li.PrintInst("first {}\n", (b.const(2.5, dt.float32),)))
    b.emit(li.PrintInst("second", (b.i(3), b.const(True, dt.bool_))))
    head = json.loads(source(b.kernel()).text.partition("\n")[0].removeprefix("// weft "))
    assert head["prints"] == [["first {}\n", ["f32"]], ["second {} {}\n", ["i64", "bool"]]]
    assert head["room"] > 0


def test_a_kernel_for_a_caller_in_its_own_module_is_refused():
    with pytest.raises(UnsupportedError, match="its own module"):
        SpirvRenderer(target()).render(doubled(dt.int32), style=Style(inlined=True))
