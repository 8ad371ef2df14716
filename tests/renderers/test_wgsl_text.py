"""The text of kernels in WGSL: what 32 bits are enough for, and what the language does not have."""

import json

import numpy as np
import pytest

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.linear import LinearBuilder, LinearKernel
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.renderers.cstyle.wgsl.library import needed
from weft.renderers.cstyle.wgsl.loop_bounds import turns
from weft.renderers.cstyle.wgsl.renderer import WGSLRenderer
from weft.renderers.cstyle.wgsl.target import webgpu_target
from weft.renderers.launches.narrow_integers import narrow_integers
from weft.runtimes.webgpu.bindings import header_of, module, uniforms

X = Memory("x", dt.float32, (ex.index(100),))
BYTES = Memory("bytes", dt.uint8, (ex.index(100),))
LONGS = Memory("longs", dt.int64, (ex.index(100),))


def kernel(emit, *params):
    """Return a kernel whose instructions `emit` makes with a builder."""
    b = LinearBuilder()
    emit(b)
    return LinearKernel("tested", params, (), tuple(b.code), (("a message", None),))


def text_of(made):
    return WGSLRenderer(webgpu_target()).render(made, "tested").text


def looped(b):
    """Emit ``for i in 100: x[(i * 7 + 3) % 100] = x[i]``."""
    i, n = b.value("i", dt.int64), b.const(100, dt.int64)
    b.emit(li.Loop(i, n, li.PARALLEL))
    at = b.compute(Op.MUL, dt.int64, 1, (i, b.const(7, dt.int64)))
    at = b.compute(Op.ADD, dt.int64, 1, (at, b.const(3, dt.int64)))
    at = b.compute(Op.MOD, dt.int64, 1, (at, n))
    found = b.value("found", dt.float32)
    b.emit(li.LoadInst(found, X, i))
    b.emit(li.StoreInst(X, at, found))
    b.emit(li.EndLoop())


def test_indices_are_of_32_bits():
    text = text_of(kernel(looped, X))
    assert "vec2<u32>" not in text.partition("@compute")[2]
    assert "% 100i" in text


def test_only_low_words_that_nobody_else_asks_for_are_narrow():
    """A loaded int64 stays whole where it is stored, divided or compared."""
    def emit(b):
        zero = b.const(0, dt.int64)
        a = b.value("a", dt.int64)
        b.emit(li.LoadInst(a, LONGS, zero))
        b.emit(li.StoreInst(LONGS, b.compute(Op.ADD, dt.int64, 1, (a, a)), a))
        b.emit(li.StoreInst(LONGS, zero, b.compute(Op.MUL, dt.int64, 1, (a, a))))
        b.emit(li.StoreInst(LONGS, b.compute(Op.FLOORDIV, dt.int64, 1, (a, a)), a))

    made = narrow_integers(kernel(emit, LONGS), 32)
    found = [(i.op.name, i.result.dtype) for i in made.code
             if isinstance(i, li.Compute) and i.op in (Op.ADD, Op.MUL, Op.FLOORDIV)]
    assert found == [("add", dt.int32), ("mul", dt.int64), ("floordiv", dt.int64)]
    whole = narrow_integers(kernel(emit, LONGS), 64)
    assert all(i.result.dtype is dt.int64 for i in whole.code
               if isinstance(i, li.Compute) and i.op is Op.ADD)


def test_a_store_of_a_byte_leaves_the_rest_of_its_word():
    def emit(b):
        b.emit(li.StoreInst(BYTES, b.const(5, dt.int64), b.const(7, dt.uint8)))

    image = text_of(kernel(emit, BYTES)).encode()
    text, header = header_of("tested", image)
    assert header.memories[0].uses == ("and", "or")
    assert "array<atomic<u32>>" in module(text, header, (0,))


def test_arrays_of_one_binding_are_atomic_if_one_is():
    def emit(b):
        zero = b.const(0, dt.int64)
        found = b.value("found", dt.float32)
        b.emit(li.LoadInst(found, X, zero))
        b.emit(li.StoreInst(BYTES, zero, b.compute(Op.CAST, dt.uint8, 1, (found,))))

    text, header = header_of("tested", text_of(kernel(emit, X, BYTES)).encode())
    assert header.bindings((0, 0)) == ["uniform", 0]
    assert "atomicLoad(&weft_words1[i])" in module(text, header, (0, 0))
    apart = module(text, header, (0, 1))
    name = header.memories[0].name
    assert f"weft_load_{name}(i: u32) -> u32 {{ return weft_words1[i]; }}" in apart
    assert "@binding(2)" in apart


def test_the_uniform_buffer():
    held = np.frombuffer(uniforms([3, 4, 5], [-1, 1 << 40]), np.uint32)
    assert held.tolist() == [*[0] * 8, 3, 4, 5, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 1 << 8]


@pytest.mark.parametrize("emit", [
    lambda b: b.emit(li.FenceInst()),
    lambda b: b.emit(li.ClockInst(b.value("c", dt.int64))),
    lambda b: b.emit(li.CallInst((), "puts", ())),
    lambda b: b.emit(li.AtomicInst(b.value("a", dt.int64), "max", LONGS, b.const(0, dt.int64),
                                   b.const(0, dt.int64))),
])  # fmt: skip
def test_what_the_language_lacks_is_refused(emit):
    with pytest.raises(UnsupportedError, match="webgpu: found"):
        text_of(kernel(emit, LONGS))


def test_turns_of_loops():
    made = kernel(looped, X)
    assert turns(narrow_integers(made, 32).code) == 100
    assert turns(made.code) == 100 + 64 * 100  # by a division of 64 bits


def test_functions_stand_before_those_that_call_them():
    names = [name for name, _ in needed(["weft_mad_f64", "weft_fmod_f32", "weft_f16_of_f32"])]
    assert names.index("weft_pack64") < names.index("weft_pack128") < names.index("weft_mad_f64")
    assert len(names) == len(set(names))


def test_the_first_line_is_json():
    line = text_of(kernel(looped, X)).partition("\n")[0]
    said = json.loads(line.removeprefix("// weft "))
    assert said["entries"][0]["items"] == 64
    (array,) = said["memories"]
    assert (array["bytes"], array["uses"], array["count"]) == (4, ["load", "store"], 100)
