"""Control flow, memory, parallel regions and failures of the LLVM renderer."""

import ctypes
import re

import numpy as np
import pytest
from compiled import Code, Status, elementwise, load, memory, run

from weft.backends import cpu
from weft.compilers.llvm import compiler, session
from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_linear
from weft.ir.op import Op
from weft.ir.stmt import Memory, Meta
from weft.renderers.base import Style

I64, F32, BOOL = dt.int64, dt.float32, dt.bool_


def agree(kernel, arrays, variables=(), **options):
    """Natively and interpreted, the arrays end up bit for bit the same."""
    native, expected = [a.copy() for a in arrays], [a.copy() for a in arrays]
    names = {v.attr.name: x for v, x in zip(kernel.variables, variables, strict=True)}
    run_linear(kernel, expected, names)
    code, _ = run(kernel, native, variables, **options)
    assert code == 0
    for n, e, p in zip(native, expected, kernel.params, strict=True):
        np.testing.assert_array_equal(n.view(np.uint8), e.view(np.uint8), err_msg=p.name)
    return native


def square(parallel, streaming=False, lanes=16, size=64):
    x, y = memory("x", F32, size), memory("y", F32, size)
    b = Code()
    i = b.loop(size // lanes, "parallel" if parallel else "serial")
    at = b.op(Op.MUL, i, b.i(lanes))
    v = b.load(x, at, lanes)
    b.store(y, at, b.op(Op.MUL, v, v), streaming=streaming)
    b.end()
    return b.kernel(x, y)


def test_golden_parallel_streaming_square(golden):
    target = cpu.target_from("x86_64", "znver4", ("+avx512f",), {})
    golden("llvm_square.ll", cpu.renderer(target).render(square(True, streaming=True)).text)


def test_golden_masked_reduction(golden):
    """A sum over a tail, with an assertion: masks, private memory, failure."""
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
    kernel = b.kernel(x, y, messages=(("the sum is a number", None),))
    target = cpu.target_from("x86_64", "", (), {})
    golden("llvm_reduction.ll", cpu.renderer(target).render(kernel).text)
    _, got = agree(kernel, [np.arange(20, dtype=np.float32), np.zeros(1, np.float32)])
    assert got[0] == 190


@pytest.mark.parametrize("pipeline", ["short", "O2"])
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("lanes", [16, 64])
def test_streaming_stores_take_any_alignment(lanes, parallel, shift, pipeline, rng):
    size = 1024
    block = np.zeros(size + 64, np.float32)
    start = (-block.ctypes.data // 4) % 16 + shift
    out, x = block[start : start + size], rng.random(size, np.float32)
    kernel = square(parallel, True, lanes, size)
    assert run(kernel, [x, out], pipeline=pipeline)[0] == 0
    np.testing.assert_array_equal(out, x * x)
    assert not block[:start].any()
    assert not block[start + size :].any()


def test_a_streaming_store_needs_the_alignment_of_one_register():
    """An output is aligned to 64 bytes, whatever the width of the vectors stored to it."""
    target = cpu.target_from("x86_64", "znver4", ("+avx512f",), {})
    for lanes in (16, 64):
        text = cpu.renderer(target).render(square(False, True, lanes)).text
        assert "align 64, !nontemporal" in text


def test_a_style_is_in_the_text_and_in_the_machine_code():
    style = Style(attributes=("optsize",), loop_bytes=32, inlined=True, inlined_failure=True)
    target = cpu.target_from("x86_64", "", (), {})
    text = cpu.renderer(target).render(square(False), "k", style).text
    assert "define internal i32 @k(ptr noalias %buffers, ptr noalias %vars, ptr %status) " \
           "alwaysinline #0 {" in text
    assert "attributes #0 = { nounwind optsize }" in text
    (node,) = re.findall(r"label %loop\d+, label %end\d+, !llvm.loop (!\d+)$", text, re.MULTILINE)
    (align,) = re.findall(rf"^{node} = distinct !{{{node}, (!\d+)}}$", text, re.MULTILINE)
    assert f'{align} = !{{!"llvm.loop.align", i32 32}}' in text
    plain = Style(loop_bytes=32)
    if cpu.host_target().arch == "x86_64":
        kernel = square(False, size=1 << 20)  # a loop that stays one
        found = compiler().assembly(cpu.renderer().render(kernel, "k", plain).text, "O3")
        assert ".p2align\t5" in found


def test_streaming_stores_are_streaming_in_the_machine_code():
    for pipeline in ("short", "O2"):
        text = compiler().assembly(cpu.renderer().render(square(False, True)).text, pipeline)
        if cpu.host_target().arch == "x86_64":
            assert "movntps" in text
            assert "sfence" in text


@pytest.mark.grid
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.text)
def test_every_form_of_load_and_store(d, lanes, rng):
    """Contiguous, masked, filled, gathered and scattered, scalar and vector."""
    n = 64
    x, y, z, w = (memory(name, d, n) for name in "xyzw")
    where, index = memory("m", BOOL, n), memory("j", I64, n)
    b = Code()
    i = b.loop(n // lanes)
    at = b.op(Op.MUL, i, b.i(lanes))
    mask, spot = b.load(where, at, lanes), b.load(index, at, lanes)
    fill = b.load(x, b.i(5)) if lanes == 1 else b.load(x, b.i(5), lanes)
    b.store(y, at, b.load(x, at, lanes, mask=mask))
    b.store(z, at, b.load(x, at, lanes, mask=mask, fill=fill), mask=mask)
    b.store(w, spot, b.load(x, spot, lanes), mask=mask)
    b.store(y, spot, b.load(y, spot, lanes, mask=mask, fill=fill), mask=mask)
    b.end()
    kernel = b.kernel(x, y, z, w, where, index)
    data = rng.integers(0, 2 if d.is_bool else 100, n).astype(d.numpy)
    zeros = [np.zeros(n, d.numpy) for _ in range(3)]
    agree(kernel, [data, *zeros, rng.random(n) < 0.6, rng.permutation(n)])


def test_a_masked_access_touches_nothing_else():
    """The array ends where its page ends: reading one byte more would fault."""
    import mmap

    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + page), page, 0) == 0
    data = np.frombuffer(area, np.float32, page // 4)
    data[:] = np.arange(page // 4)
    x, y = memory("x", F32, 5), memory("y", F32, 16)
    b = Code()
    mask = b.op(Op.LT, b.op(Op.RAMP, b.i(0), lanes=16), b.const(5, I64, 16))
    v = b.load(x, b.i(0), 16, mask=mask)
    b.store(y, b.i(0), v)
    b.store(x, b.i(0), v, mask=mask)
    out = np.ones(16, np.float32)
    assert run(b.kernel(x, y), [data[-5:], out])[0] == 0
    np.testing.assert_array_equal(out[:5], data[-5:])
    assert not out[5:].any()
    assert libc.mprotect(ctypes.c_void_p(address + page), page, 3) == 0


@pytest.mark.parametrize("fill", [0.0, 2.0])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("d", [dt.float32, dt.float64, dt.int16])
def test_a_load_of_no_lane_reads_nothing_into_a_shuffle(d, lanes, fill):
    """The array begins where its page begins, and the first round would read before it."""
    import mmap

    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address), page, 0) == 0
    data = np.frombuffer(area, d.numpy, 6 * lanes, page)
    data[:] = np.arange(6 * lanes)
    x, y = memory("x", d, 6 * lanes), memory("y", d, 4 * lanes)
    b = Code()
    i = b.loop(4)
    at = b.op(Op.MUL, b.op(Op.SUB, i, b.i(1)), b.i(2 * lanes))
    mask = b.op(Op.BROADCAST, b.op(Op.LT, b.i(0), i), lanes=lanes)
    halves = [b.load(x, b.op(Op.ADD, at, b.i(n)), lanes, mask=mask) for n in (0, lanes)]
    even = "_".join(str(2 * n) for n in range(lanes))
    picked = b.compute(Op.SHUFFLE, d, lanes, tuple(halves), even)
    chosen = b.op(Op.WHERE, mask, picked, b.const(d.numpy.type(fill).item(), d, lanes))
    b.store(y, b.op(Op.MUL, i, b.i(lanes)), chosen)
    b.end()
    out = np.ones(4 * lanes, d.numpy)
    assert run(b.kernel(x, y), [data, out])[0] == 0
    want = np.concatenate([np.full(lanes, fill), np.arange(0, 6 * lanes, 2)]).astype(d.numpy)
    np.testing.assert_array_equal(out, want)
    assert libc.mprotect(ctypes.c_void_p(address), page, 3) == 0


@pytest.mark.parametrize("form", [{}, {"kind": "custom"}])
def test_a_choice_sees_what_was_read_before_a_write(form):
    """Masked lanes are read, written, and chosen by the same mask only then."""
    x, y, limit = memory("x", F32, 16), memory("y", F32, 16), memory("limit", I64, 1)
    b = Code()
    few = b.op(Op.BROADCAST, b.load(limit, b.i(0)), lanes=16)
    mask = b.op(Op.LT, b.op(Op.RAMP, b.i(0), lanes=16), few)
    old = b.load(x, b.i(0), 16, mask=mask)
    b.store(x, b.i(0), b.const(5.0, F32, 16), mask=mask)
    b.store(y, b.i(0), b.op(Op.WHERE, mask, old, b.const(2.0, F32, 16)))
    data = np.arange(10, 26, dtype=np.float32)
    arrays = [data, np.zeros(16, np.float32), np.array([5])]
    got = agree(b.kernel(x, y, limit, **form), arrays)
    np.testing.assert_array_equal(got[1], [10, 11, 12, 13, 14] + [2] * 11)


def test_scatter_keeps_the_last_lane():
    x = memory("x", I64, 4)
    b = Code()
    b.store(x, b.const(2, I64, 8), b.op(Op.RAMP, b.i(10), lanes=8))
    (got,) = agree(b.kernel(x), [np.zeros(4, np.int64)])
    assert got.tolist() == [0, 0, 17, 0]


@pytest.mark.parametrize("pipeline", ["none", "short", "O2"])
def test_control_flow(pipeline, rng):
    """Collatz lengths: a loop, a while and both branches, with private memory."""
    n = 30
    x, y, s = memory("x", I64, n), memory("y", I64, n), Memory("s", I64, (ex.index(2),), "register")
    b = Code()
    i = b.loop(n)
    b.emit(li.StorageInst(s, 2))
    b.store(s, b.i(0), b.load(x, i))
    b.store(s, b.i(1), b.i(0))
    b.emit(li.WhileBegin())
    now = b.load(s, b.i(0))
    b.emit(li.WhileTest(b.op(Op.LT, b.i(1), now)))
    b.emit(li.IfBegin(b.op(Op.EQ, b.op(Op.MOD, now, b.i(2)), b.i(0))))
    b.store(s, b.i(0), b.op(Op.FLOORDIV, now, b.i(2)))
    b.emit(li.Else())
    b.store(s, b.i(0), b.op(Op.ADD, b.op(Op.MUL, now, b.i(3)), b.i(1)))
    b.emit(li.EndIf())
    b.store(s, b.i(1), b.op(Op.ADD, b.load(s, b.i(1)), b.i(1)))
    b.emit(li.EndWhile())
    count = b.load(s, b.i(1))
    b.emit(li.IfBegin(b.op(Op.LT, b.i(10), count)))
    b.store(y, i, count)
    b.emit(li.EndIf())
    b.end()
    _, got = agree(b.kernel(x, y), [np.arange(n), np.zeros(n, np.int64)], pipeline=pipeline)
    assert got[27] == 111


@pytest.mark.parametrize("extent", [0, 1, 2, 7])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_loops_of_any_extent(extent, kind):
    """Constant and symbolic extents, nested, with what the outside computed used inside."""
    n = ex.Variable("n", 0, 100)
    x, y = memory("x", I64, 64), memory("y", I64, 64)
    b = Code()
    size = b.value("n", I64)
    b.emit(li.VariableInst(size, 0, n.attr))
    outside = b.op(Op.ADD, size, b.i(1000))
    flag = b.op(Op.LT, size, b.i(3))
    lanes = b.load(x, b.i(8), 8)
    i = b.loop(size, kind)
    at = b.op(Op.MUL, i, b.i(8))
    j = b.loop(extent, kind)
    b.store(y, b.op(Op.ADD, at, j), b.op(Op.WHERE, flag, outside, j))
    b.end()
    b.emit(li.IfBegin(flag))
    b.store(y, at, b.op(Op.ADD, b.load(y, at, 8), lanes))
    b.emit(li.EndIf())
    b.end()
    kernel = b.kernel(x, y, variables=(n,))
    for value in (0, 1, 2, 5, 8):
        agree(kernel, [np.arange(64), np.zeros(64, np.int64)], (value,))


def test_what_a_parallel_region_captures(rng):
    """Bools, vectors of bools, narrow and wide values, memories, variables read inside."""
    n = ex.Variable("n", 0, 1 << 40)
    x, m, y = memory("x", dt.float64, 16), memory("m", BOOL, 16), memory("y", dt.float64, 64)
    tmp = Memory("tmp", dt.float64, (ex.index(16),), "local")
    b = Code()
    b.emit(li.StorageInst(tmp, 16))
    b.store(tmp, b.i(0), b.load(x, b.i(0), 16))
    bits, one = b.load(m, b.i(0), 16), b.load(m, b.i(3))
    half = b.op(Op.CAST, b.load(x, b.i(0)), dtype=F32)
    i = b.loop(4, "parallel")
    size = b.value("n", I64)
    b.emit(li.VariableInst(size, 0, n.attr))
    v = b.op(Op.WHERE, bits, b.load(tmp, b.i(0), 16), b.const(-1.0, dt.float64, 16))
    b.store(y, b.op(Op.MUL, i, b.i(16)), v)
    b.emit(li.IfBegin(one))
    wide = b.op(Op.CAST, size, dtype=dt.float64)
    b.store(y, i, b.op(Op.ADD, wide, b.op(Op.CAST, half, dtype=dt.float64)))
    b.emit(li.EndIf())
    b.end()
    kernel = b.kernel(x, m, y, variables=(n,))
    for flags in (np.zeros(16, bool), rng.random(16) < 0.5, np.ones(16, bool)):
        agree(kernel, [rng.random(16), flags, np.zeros(64)], (1 << 35,))


def guarded(kind):
    x, j, y = memory("x", F32, 10), memory("j", I64, 30), memory("y", F32, 30)
    b = Code()
    i = b.loop(30, kind)
    k = b.load(j, i)
    b.emit(li.AssertInst(b.op(Op.LE, b.i(0), k), 3, k, b.i(10)))
    b.emit(li.AssertInst(b.op(Op.LT, k, b.i(10)), 4, k, b.i(10)))
    b.store(y, i, b.load(x, k))
    b.end()
    b.store(y, b.i(0), b.const(-1.0, F32))
    return b.kernel(x, j, y, messages=(("", None),) * 5)


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_the_first_failure_is_reported(kind):
    kernel = guarded(kind)
    x, y = np.arange(10, dtype=np.float32), np.zeros(30, np.float32)
    good = np.arange(30) % 10
    assert run(kernel, [x, good, y])[0] == 0
    assert y.tolist() == [-1.0, *(good[1:].tolist())]
    bad = good.copy()
    bad[[7, 22]] = -5, 99
    y[:] = 0
    code, status = run(kernel, [x, bad, y])
    assert code == 4
    found = (status.code, status.statement, status.index, status.bound)
    assert found == (4, 3, -5, 10)
    assert y[0] == 0  # nothing after the failure ran
    bad[7] = 0
    code, status = run(kernel, [x, bad, y])
    assert (code, status.statement, status.index) == (5, 4, 99)


def test_a_failure_before_stays():
    function, library = load(guarded("parallel"))
    arrays = [np.zeros(10, np.float32), np.full(30, 50), np.zeros(30, np.float32)]
    buffers = (ctypes.c_void_p * 3)(*(a.ctypes.data for a in arrays))
    status = Status(code=7, statement=2, index=1)
    function(buffers, None, ctypes.byref(status))
    assert (status.code, status.statement, status.index) == (7, 2, 1)
    library.unload()


ATOMICS = [("add", "uif"), ("sub", "uif"), ("min", "uif"), ("max", "uif"), ("and", "bui"),
           ("or", "bui"), ("xor", "bui"), ("exch", "buif"), ("cas", "uif"), ("inc", "u"),
           ("dec", "u")]  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize(("kind", "kinds"), ATOMICS)
def test_atomics(kind, kinds, rng):
    for d in (d for d in dt.ALL if d.kind in kinds and not (d.is_float and d.bits < 32)):
        x, y, z = memory("x", d, 4), memory("y", d, 40), memory("z", d, 40)
        b = Code()
        i = b.loop(40)
        old = b.value("old", d)
        value = b.load(y, i)
        at = b.op(Op.MOD, i, b.i(4))
        compare = b.load(y, b.i(0)) if kind == "cas" else None
        b.emit(li.AtomicInst(old, kind, x, at, value, compare))
        b.store(z, i, old)
        b.end()
        data = rng.integers(0, 2 if d.is_bool else 5, 40).astype(d.numpy)
        agree(b.kernel(x, y, z), [data[:4], data, np.zeros(40, d.numpy)])


def test_atomics_of_threads():
    """Threads of the real pool add to one element."""
    x = memory("x", I64, 1)
    b = Code()
    b.loop(100_000, "parallel")
    b.emit(li.AtomicInst(b.value("old", I64), "add", x, b.i(0), b.i(3)))
    b.end()
    total = np.zeros(1, np.int64)
    assert run(b.kernel(x), [total])[0] == 0
    assert total[0] == 300_000


def test_prefetch_call_and_print(capfd):
    x = memory("x", dt.float64, 4)
    b = Code()
    i = b.loop(2)
    b.emit(li.PrefetchInst(x, b.op(Op.MUL, i, b.i(1 << 20))))
    root = b.value("r", dt.float64)
    b.emit(li.CallInst((root,), "rint", (b.load(x, i),)))
    b.store(x, i, root)
    b.emit(li.PrintInst('100 % of "it":', (i, root, b.op(Op.EQ, i, b.i(0)))))
    b.end()
    kernel = b.kernel(x)
    source = cpu.renderer().render(kernel)
    assert source.imports == ("rint",)
    library = session().load([compiler().compile(source.text)], ["k"])
    data = np.array([3.25, 1.75, 0, 0])
    buffers = (ctypes.c_void_p * 1)(data.ctypes.data)
    ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(library["k"])(buffers, None, None)
    ctypes.CDLL(None).fflush(None)
    assert data.tolist() == [3.0, 2.0, 0, 0]
    assert capfd.readouterr().out == '100 % of "it": 0 3.0 True\n100 % of "it": 1 2.0 False\n'


def test_parameters_of_user_kernels_may_overlap():
    """Without a proof, a value loaded before a store is loaded again after it."""
    x, y = memory("x", F32, 2), memory("y", F32, 1)
    b = Code()
    first = b.load(x, b.i(0))
    b.store(y, b.i(0), b.op(Op.ADD, first, b.const(1.0, F32)))
    b.store(x, b.i(1), b.load(x, b.i(0)))
    shared = np.array([1.0, 0.0], np.float32)
    kernel = b.kernel(x, y, kind="custom")
    assert "alias.scope" not in cpu.renderer().render(kernel).text
    assert run(kernel, [shared, shared[:1]], pipeline="O2")[0] == 0
    assert shared.tolist() == [2.0, 2.0]
    proved = b.kernel(x, y, kind="custom", hints=(("noalias", True),))
    assert "alias.scope" in cpu.renderer().render(proved).text


def test_large_private_memory_is_refused():
    big = Memory("big", F32, (ex.index(1 << 22),), "local")
    b = Code()
    b.emit(li.StorageInst(big, 1 << 22))
    with pytest.raises(UnsupportedError, match="16777216 bytes of big"):
        cpu.renderer().render(b.kernel())


def test_what_was_not_legalized_is_refused():
    x = ex.var("x", F32)
    narrow = ex.unary(Op.NEG, ex.cast(x, dt.bfloat16))
    twice = ex.cast(ex.cast(x, dt.float64), dt.float16)
    for root in (ex.unary(Op.EXP, x), ex.binary(Op.MOD, x, x), narrow, twice):
        with pytest.raises(UnsupportedError, match="legalize"):
            cpu.renderer().render(elementwise([root], [x], 16, 1, legal=False))


def test_a_barrier_inside_a_parallel_loop_is_refused():
    b = Code()
    b.loop(4, "parallel")
    b.emit(li.BarrierInst())
    b.end()
    with pytest.raises(UnsupportedError, match="barrier"):
        cpu.renderer().render(b.kernel())


def test_fastmath_marks_float_arithmetic_only_there():
    for fast in (False, True):
        x = ex.var("x", F32)
        kernel = elementwise([x * x + x], [x], 16, 1, meta=Meta(fastmath=fast))
        assert ("fmul reassoc contract float" in cpu.renderer().render(kernel).text) is fast


def test_a_function_is_compiled_for_its_target():
    kernel = square(False)
    narrow = cpu.target_from("x86_64", "haswell", ("+avx2", "+fma"), {})
    text = cpu.renderer(narrow).render(kernel).text
    assert '"target-cpu"="haswell" "target-features"="+avx2,+fma"' in text
    assert "prefer-vector-width" not in text
    wide = cpu.target_from("x86_64", "znver4", ("+avx512f",), {})
    assert '"prefer-vector-width"="512"' in cpu.renderer(wide).render(kernel).text


def test_decompositor_asks_the_target():
    lacks = cpu.renderer().decompositor()
    assert lacks(Op.EXP, F32)
    assert not lacks(Op.ADD, F32)
    assert lacks(Op.ADD, dt.float16)


def test_foreign_targets_render_and_compile():
    """AArch64 takes the same text: no x86 intrinsic is left in it."""
    from weft.compilers.llvm import LLVMCompiler

    target = cpu.target_from("aarch64", "neoverse-n1", ("+neon",), {})
    text = cpu.renderer(target).render(square(True, streaming=True)).text
    assert "x86" not in text
    machine = LLVMCompiler("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")
    assert machine.compile(text)


@pytest.mark.parametrize("lanes", [1, 8])
def test_index_arithmetic_of_naturals(lanes):
    """Quotients and remainders of values whose range is known, beside ones that may be negative."""
    n = ex.Variable("n", 1, 1 << 40)
    x = memory("x", I64, 1 << 12)
    b = Code()
    size = b.value("n", I64)
    b.emit(li.VariableInst(size, 0, n.attr))
    i = b.loop(40)
    wide = [b.op(Op.BROADCAST, v, lanes=lanes) if lanes > 1 else v for v in (i, size)]
    k = b.op(Op.RAMP, i, lanes=lanes) if lanes > 1 else i
    below = b.op(Op.SUB, k, b.const(20, I64, lanes))
    big = b.op(Op.MUL, k, b.const(1 << 33, I64, lanes))
    natural = b.op(Op.MAX, below, b.const(0, I64, lanes))
    place = 0
    for a in (k, below, big, natural, b.op(Op.MOD, below, b.const(7, I64, lanes))):
        for d in (b.const(3, I64, lanes), b.const(8, I64, lanes), b.const(-3, I64, lanes),
                  b.const(1, I64, lanes), wide[1], below):  # fmt: skip
            for op in (Op.FLOORDIV, Op.MOD, Op.FMOD):
                if place % 10 == 0:
                    at = b.op(Op.ADD, b.op(Op.MUL, i, b.i(8)), b.i(0))
                place += 1
                old = b.load(x, at, lanes)
                value = b.op(op, a, d)
                mixed = b.op(Op.ADD, b.op(Op.MUL, old, b.const(31, I64, lanes)), value)
                b.store(x, at, mixed)
    b.end()
    kernel = b.kernel(x, variables=(n,))
    for value in (1, 5, 1 << 36):
        agree(kernel, [np.zeros(1 << 12, np.int64)], (value,))
    text = cpu.renderer().render(kernel).text
    assert "udiv i32" in text or "udiv <8 x i32>" in text
