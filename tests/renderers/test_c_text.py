"""The text of C kernels: readable, nothing dead in it, vectors that fit the registers."""

import re
import subprocess

import numpy as np
import pytest
from c_compiled import COMPILERS, agree, c_compiler, target
from compiled import Code, memory
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.backends import cpu
from weft.compilers import c
from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_linear
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.ir.verify.verify_linear import verify_linear
from weft.renderers.base import Style
from weft.renderers.cstyle.c.renderer import CRenderer
from weft.renderers.cstyle.c.target import c_target
from weft.renderers.cstyle.split import split_vectors

F32, I64 = dt.float32, dt.int64
DESCRIBED = c_target(cpu.target_from("x86_64", "haswell", ("+avx", "+avx2", "+fma"), {}))


def square(parallel, streaming=False, lanes=16, size=64):
    x, y = memory("x", F32, size), memory("y", F32, size)
    b = Code()
    i = b.loop(size // lanes, "parallel" if parallel else "serial")
    at = b.op(Op.MUL, i, b.i(lanes))
    v = b.load(x, at, lanes)
    b.store(y, at, b.op(Op.MUL, v, v), streaming=streaming)
    b.end()
    return b.kernel(x, y)


def reduction():
    """Return a sum over a tail, with an assertion: masks, private memory, failure."""
    x, y = memory("x", F32, 20), memory("y", F32, 1)
    acc = Memory("acc", F32, (ex.index(8),), "register")
    b = Code()
    b.emit(li.StorageInst(acc, 8))
    b.store(acc, b.i(0), b.const(0.0, F32, 8))
    i = b.loop(3)
    at = b.op(Op.MUL, i, b.i(8))
    lane = b.op(Op.RAMP, at, lanes=8)
    mask = b.op(Op.LT, lane, b.const(20, I64, 8))
    v = b.load(x, at, 8, mask=mask)
    b.store(acc, b.i(0), b.op(Op.ADD, b.load(acc, b.i(0), 8), v))
    b.end()
    total = b.load(acc, b.i(0), 8)
    for lanes in (4, 2, 1):
        lower, upper = (b.op(Op.HALF, total, attr=k, lanes=lanes) for k in (0, 1))
        total = b.op(Op.ADD, lower, upper)
    b.emit(li.AssertInst(b.op(Op.EQ, total, total), 0))
    b.store(y, b.i(0), total)
    return b.kernel(x, y, messages=(("the sum is a number", None),))


def test_B9_golden_parallel_streaming_square(golden):
    golden("c_square.c", CRenderer(DESCRIBED).render(square(True, streaming=True)).text)


def test_B9_golden_masked_reduction(golden):
    golden("c_reduction.c", CRenderer(DESCRIBED).render(reduction()).text)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_a_masked_reduction_runs(compiler):
    arrays = [np.arange(20, dtype=np.float32), np.zeros(1, np.float32)]
    _, got = agree(reduction(), arrays, compiler)
    assert got[0] == 190


def test_B7_dead_values_are_dropped():
    """What nothing stores leaves no line, nor do loads that only it used."""
    x, y, z = (memory(n, F32, 16) for n in "xyz")
    b = Code()
    used, unused = b.load(x, b.i(0), 8), b.load(y, b.i(8), 8)
    dead = b.op(Op.SQRT, b.op(Op.ADD, unused, used))
    b.op(Op.MUL, dead, dead)
    b.store(z, b.i(0), used)
    text = CRenderer(DESCRIBED).render(b.kernel(x, y, z)).text
    assert "sqrt" not in text
    assert not re.search(r"load_f32x8\(y", text)


def test_B7_values_of_one_use_are_written_there():
    """But not inside a loop that they stand before, nor twice where they are used twice."""
    x, y = memory("x", F32, 64), memory("y", F32, 64)
    b = Code()
    first = b.load(x, b.i(0))
    outside = b.op(Op.DIV, first, b.load(x, b.i(1)))
    i = b.loop(8)
    inside = b.op(Op.MUL, b.op(Op.ADD, b.load(x, i), first), outside)
    twice = b.op(Op.SUB, inside, first)
    b.store(y, i, b.op(Op.MUL, twice, twice))
    b.end()
    text = CRenderer(DESCRIBED).render(b.kernel(x, y)).text
    lines = text.splitlines()
    (quotient,) = [n for n, line in enumerate(lines) if " / " in line]
    (loop,) = [n for n, line in enumerate(lines) if "for (" in line]
    assert quotient < loop
    assert sum(" - " in line for line in lines[loop:]) == 1
    assert re.search(r"= \(x_\d+ \+ x_\d+\) \* v_\d+ - x_\d+;", text)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_B7_register_tiles_are_variables(compiler, rng):
    """Arrays whose places are constants: accumulators of a product, of vectors and of scalars."""
    x, y, out = memory("x", F32, 16), memory("y", F32, 8), memory("out", F32, 40)
    tile = Memory("tile", F32, (ex.index(32),), "register")
    ones = Memory("ones", F32, (ex.index(2),), "local")
    b = Code()
    i = b.loop(2, "parallel")
    b.emit(li.StorageInst(tile, 32))
    b.emit(li.StorageInst(ones, 2))
    for k in range(4):
        b.store(tile, b.i(8 * k), b.const(0.5, F32, 8))
    for k in range(2):
        b.store(ones, b.i(k), b.const(1.0, F32))
    j = b.loop(4)
    row = b.load(y, b.i(0), 8)
    for k in range(4):
        factor = b.load(x, b.op(Op.ADD, b.op(Op.MUL, j, b.i(4)), b.i(k)))
        old = b.load(tile, b.i(8 * k), 8)
        b.store(tile, b.i(8 * k), b.op(Op.MAD, b.op(Op.BROADCAST, factor, lanes=8), row, old))
    b.store(ones, b.i(1), b.op(Op.ADD, b.load(ones, b.i(1)), b.load(ones, b.i(0))))
    b.end()
    b.emit(li.IfBegin(b.op(Op.LT, i, b.i(1))))
    for k in range(4):
        b.store(out, b.i(8 * k), b.load(tile, b.i(8 * k), 8))
    b.store(out, b.i(32), b.load(ones, b.i(1)))
    b.emit(li.EndIf())
    b.end()
    kernel = b.kernel(x, y, out)
    text = CRenderer(DESCRIBED).render(kernel).text
    assert "f32x8 tile, tile_at8, tile_at16, tile_at24;" in text
    assert "f32 ones, ones_at1;" in text
    assert not re.search(r"(tile|ones)\[", text)
    agree(kernel, [rng.random(16, np.float32), rng.random(8, np.float32),
                   np.zeros(40, np.float32)], compiler)


def test_styles_change_no_text_and_kernels_for_inlining_are_refused():
    renderer, kernel = CRenderer(DESCRIBED), square(False)
    plain = renderer.render(kernel)
    assert renderer.render(kernel, None, Style(attributes=("optsize",), loop_bytes=32)) == plain
    with pytest.raises(UnsupportedError, match="own module"):
        renderer.render(kernel, None, Style(inlined=True))


def test_array_of_two_lengths_stays_an_array():
    x = memory("x", F32, 16)
    own = Memory("own", F32, (ex.index(16),), "local")
    b = Code()
    b.emit(li.StorageInst(own, 16))
    b.store(own, b.i(0), b.load(x, b.i(0), 8))
    b.store(own, b.i(8), b.load(x, b.i(8), 8))
    b.store(x, b.i(3), b.load(own, b.i(3)))
    assert "[16]" in CRenderer(DESCRIBED).render(b.kernel(x)).text


# vectors that are cut

MOVES = ("half", "reverse", "slide", "shuffle", "extract", "bits", "words", "cast", "where", "mask",
         "gather", "ramp")  # fmt: skip


@st.composite
def movements(draw):
    """Draw a kernel of vectors wider than registers whose lanes go elsewhere, and its arrays."""
    lanes = draw(st.sampled_from([8, 16, 32, 64]))
    d = draw(st.sampled_from([dt.int8, dt.uint16, F32, dt.float64, I64]))
    x, y, out = memory("x", d, 2 * lanes), memory("y", d, lanes), memory("out", d, 1024)
    where, index = memory("m", dt.bool_, lanes), memory("j", I64, lanes)
    b = Code()
    pool = [b.load(x, b.i(3), lanes), b.load(y, b.i(0), lanes)]
    flags = [b.load(where, b.i(0), lanes)]
    place = 0
    for _ in range(draw(st.integers(1, 8))):
        a, c = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        flag = draw(st.sampled_from(flags))
        match draw(st.sampled_from(MOVES)):
            case "half":
                half = b.op(Op.HALF, a, attr=draw(st.integers(0, 1)), lanes=lanes // 2)
                picks = "_".join(str(draw(st.integers(0, lanes - 1))) for _ in range(lanes))
                pool.append(b.compute(Op.SHUFFLE, d, lanes, (half, half), picks))
            case "reverse":
                pool.append(b.op(Op.REVERSE, a, attr=lanes))
                flags.append(b.op(Op.REVERSE, flag, attr=lanes))
            case "slide":
                pool.append(b.op(Op.SLIDE, a, c, attr=draw(st.integers(1, lanes - 1))))
            case "shuffle":
                picks = "_".join(str(draw(st.integers(0, 2 * lanes - 1))) for _ in range(lanes))
                pool.append(b.compute(Op.SHUFFLE, d, lanes, (a, c), picks))
            case "extract":
                one = b.op(Op.EXTRACT, a, attr=draw(st.integers(0, lanes - 1)), lanes=1)
                pool.append(b.op(Op.BROADCAST, one, lanes=lanes))
            case "bits":
                bits = b.compute(Op.BITS, dt.uint64, 1, (flag,), lanes)
                low = b.op(Op.AND, bits, b.const(0x55, dt.uint64))
                flags.append(b.op(Op.BROADCAST, b.op(Op.EQ, low, b.const(0x51, dt.uint64)),
                                  lanes=lanes))  # fmt: skip
            case "words" if d.itemsize < 4:
                count = lanes * d.itemsize // 4
                words = b.compute(Op.WORDS, dt.uint32, count, (a,))
                b.store(out, b.i(place), b.op(Op.CAST, words, dtype=d))
                place += count
            case "cast":
                wide = b.op(Op.CAST, a, dtype=dt.float64)
                pool.append(b.op(Op.CAST, b.op(Op.ADD, wide, wide), dtype=d))
                flags.append(b.op(Op.LT, wide, b.op(Op.CAST, c, dtype=dt.float64)))
            case "where":
                pool.append(b.op(Op.WHERE, flag, a, c))
            case "mask":
                flags += [b.op(Op.LT, a, c), b.op(Op.XOR, flag, b.op(Op.EQ, a, c))]
            case "gather":
                pool.append(b.load(x, b.load(index, b.i(0), lanes), lanes, mask=flag, fill=c))
            case "ramp" if not d.is_float:
                pool.append(b.op(Op.ADD, a, b.op(Op.RAMP, b.const(5, d), lanes=lanes)))
    for value in (pool[-1], pool[len(pool) // 2]):
        b.store(out, b.i(place), value)
        place += lanes
    b.store(out, b.i(place), pool[-1], mask=flags[-1])
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    data = [rng.integers(0, 20, n).astype(d.numpy) for n in (2 * lanes, lanes)]
    data += [np.zeros(1024, d.numpy), rng.random(lanes) < 0.5, rng.integers(0, 2 * lanes, lanes)]
    return b.kernel(x, y, out, where, index), data


@given(movements(), st.sampled_from([16, 32, 64]))
@settings(max_examples=150)
def test_cut_vectors_compute_the_same(drawn, nbytes):
    kernel, arrays = drawn
    cut = split_vectors(kernel, nbytes)
    verify_linear(cut)
    wide = [v for inst in cut.code for v in inst.results()
            if v.lanes * (v.dtype.itemsize if not v.dtype.is_bool else 4) > nbytes]
    assert all(v.dtype.is_bool or v.dtype is I64 for v in wide)  # offsets of a gather, masks
    got, want = ([a.copy() for a in arrays] for _ in range(2))
    run_linear(kernel, want, {})
    run_linear(cut, got, {})
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize("compiler", COMPILERS)
@given(movements())
@settings(max_examples=15, deadline=None)
def test_movements_of_lanes(compiler, drawn):
    kernel, arrays = drawn
    agree(kernel, arrays, compiler)


def test_kernels_without_wide_vectors_are_left_alone():
    kernel = square(False, lanes=4)
    assert split_vectors(kernel, 16) is kernel


@pytest.mark.parametrize("compiler", COMPILERS)
def test_shuffles_without_a_builtin(compiler, monkeypatch, rng):
    """The form for compilers that have none: each lane by itself."""
    monkeypatch.setattr(c, "_found", {})
    monkeypatch.setattr(c, "arguments", lambda t, plain=c.arguments: (
        *plain(t), "-DWEFT_NO_SHUFFLES"))  # fmt: skip
    x, y = memory("x", F32, 16), memory("y", F32, 64)
    b = Code()
    u, v = b.load(x, b.i(0), 8), b.load(x, b.i(8), 8)
    moved = [b.compute(Op.SHUFFLE, F32, 8, (u, v), "0_9_2_11_15_15_4_8"),
             b.op(Op.REVERSE, u, attr=8), b.op(Op.SLIDE, u, v, attr=3)]  # fmt: skip
    for k, value in enumerate(moved):
        b.store(y, b.i(8 * k), value)
    b.store(y, b.i(24), b.op(Op.HALF, v, attr=1, lanes=4))
    agree(b.kernel(x, y), [rng.random(16, np.float32), np.zeros(64, np.float32)], compiler)


# targets


def test_the_target_has_what_c_has():
    host = cpu.target_from("x86_64", "sapphirerapids", (
        "+amx-bf16", "+amx-int8", "+amx-tile", "+avx", "+avx2", "+avx512bf16", "+avx512dq",
        "+avx512f", "+avx512vl", "+avx512vnni", "+f16c", "+fma"), {"l2_bytes": 2 << 20})
    made = c_target(host)
    lacking = (Op.MATRIX2, Op.MATRIX4, Op.MATRIX4S, Op.DOT2, Op.DOT4, Op.LOOKUP, Op.SCALB,
               Op.MAXNUM, Op.MINNUM, Op.NANOF, Op.COMPRESS, Op.PLACES)  # fmt: skip
    for op in lacking:
        assert not any(made.supports(op, d) for d in dt.ALL), op.name
    kept = {(op, d) for op, d in host.operations if op not in {o.name for o in lacking}}
    assert made.operations == kept
    for field in ("vector_bytes", "vector_registers", "l2_bytes", "cores", "whole_vectors"):
        assert getattr(made, field) == getattr(host, field)


@pytest.mark.parametrize(("arch", "features", "fused"), [
    ("x86_64", ("+sse2",), False), ("x86_64", ("+avx", "+avx2"), False),
    ("x86_64", ("+avx2", "+fma"), True), ("x86_64", ("+avx512f",), True),
    ("aarch64", ("+neon",), True),
])  # fmt: skip
def test_a_target_without_fused_multiply_add_says_so(arch, features, fused):
    made = c_target(cpu.target_from(arch, "", features, {}))
    assert made.supports(Op.MAD, F32) is made.supports(Op.MAD, dt.float64) is fused


def test_D2_decompositor_asks_the_target():
    lacks = CRenderer(target()).decompositor()
    assert lacks(Op.EXP, F32)
    assert not lacks(Op.ADD, F32)
    assert lacks(Op.ADD, dt.float16)


@pytest.mark.parametrize("name", ["square", "reduction"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_text_compiles_without_a_warning(name, compiler, tmp_path):
    kernel = square(True, True) if name == "square" else reduction()
    file = tmp_path / "k.c"
    file.write_text(CRenderer(target()).render(kernel).text)
    found = c_compiler(compiler)
    done = subprocess.run([found.path, *(a for a in found._arguments if a != "-w"), "-Wall",
                           "-Wextra", "-Wno-unused-parameter", "-Werror", "-O2", "-c", str(file),
                           "-o", str(tmp_path / "k.o")], capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
