"""Control flow in C: loops, parallel regions, failures, atomics, private memory, printing."""

import ctypes

import numpy as np
import pytest
from c_compiled import COMPILERS, agree, c_compiler, load, run, target
from compiled import Code, Status, memory

from seeds import seeds
from weft.compilers.llvm import compiler as llvm
from weft.compilers.llvm import session
from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.interpret.interpret import run_linear
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.ir.text.print_format import shown
from weft.renderers.base import NO_MEMORY, STOPPED
from weft.renderers.cstyle.c.renderer import CRenderer
from weft.target import STACK_BYTES

I64, F32, BOOL = dt.int64, dt.float32, dt.bool_

pytestmark = pytest.mark.parametrize("compiler", COMPILERS)


@pytest.mark.parametrize("pipeline", ["quick", "short", "O3", "Os"])
def test_B8_loop_while_and_if(pipeline, compiler):
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
    _, got = agree(b.kernel(x, y), [np.arange(n), np.zeros(n, np.int64)], compiler,
                   pipeline=pipeline)
    assert got[27] == 111


@pytest.mark.parametrize("extent", [0, 1, 7])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_loops_of_any_extent(extent, kind, compiler):
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
        agree(kernel, [np.arange(64), np.zeros(64, np.int64)], compiler, (value,))


def test_what_a_parallel_region_captures(compiler, rng):
    """Bools, vectors of bools, narrow and wide values, memories, variables read inside."""
    n = ex.Variable("n", 0, 1 << 40)
    x, m, y = memory("x", dt.float64, 16), memory("m", BOOL, 16), memory("y", dt.float64, 64)
    tmp = Memory("tmp", dt.float64, (ex.index(16),), "local")
    b = Code()
    b.emit(li.StorageInst(tmp, 16))
    b.store(tmp, b.i(0), b.load(x, b.i(0), 16))
    bits, one = b.load(m, b.i(0), 16), b.load(m, b.i(3))
    wide_flags = b.op(Op.LT, b.load(x, b.i(0), 16), b.const(0.5, dt.float64, 16))
    half = b.op(Op.CAST, b.load(x, b.i(0)), dtype=F32)
    spread = b.op(Op.BROADCAST, b.load(x, b.i(1)), lanes=16)
    i = b.loop(4, "parallel")
    size = b.value("n", I64)
    b.emit(li.VariableInst(size, 0, n.attr))
    v = b.op(Op.WHERE, bits, b.load(tmp, b.i(0), 16), spread)
    v = b.op(Op.WHERE, wide_flags, v, b.const(-1.0, dt.float64, 16))
    b.store(y, b.op(Op.MUL, i, b.i(16)), v)
    b.emit(li.IfBegin(one))
    wide = b.op(Op.CAST, size, dtype=dt.float64)
    b.store(y, i, b.op(Op.ADD, wide, b.op(Op.CAST, half, dtype=dt.float64)))
    b.emit(li.EndIf())
    b.end()
    kernel = b.kernel(x, m, y, variables=(n,))
    for flags in (np.zeros(16, bool), rng.random(16) < 0.5, np.ones(16, bool)):
        agree(kernel, [rng.random(16), flags, np.zeros(64)], compiler, (1 << 35,))


def test_private_arrays_are_of_one_iteration(compiler):
    """What is declared in a parallel loop no two threads share: chunks run one inside another."""
    x, y = memory("x", I64, 64), memory("y", I64, 64)
    own = Memory("mine", I64, (ex.index(32),), "local")
    b = Code()
    i = b.loop(64, "parallel")
    b.emit(li.StorageInst(own, 32))
    j = b.loop(32)
    b.store(own, j, b.op(Op.ADD, b.load(x, i), j))
    b.end()
    b.store(y, i, b.load(own, b.op(Op.MOD, i, b.i(32))))
    b.end()
    text = CRenderer(target()).render(b.kernel(x, y)).text
    body = text[text.index("_body(") :]
    assert body.index("for (") < body.index("i64 mine[32]")
    agree(b.kernel(x, y), [np.arange(64) * 100, np.zeros(64, np.int64)], compiler)


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
def test_the_first_failure_is_reported(kind, compiler):
    kernel = guarded(kind)
    x, y = np.arange(10, dtype=np.float32), np.zeros(30, np.float32)
    good = np.arange(30) % 10
    assert run(kernel, [x, good, y], compiler)[0] == 0
    assert y.tolist() == [-1.0, *(good[1:].tolist())]
    bad = good.copy()
    bad[[7, 22]] = -5, 99
    y[:] = 0
    code, status = run(kernel, [x, bad, y], compiler)
    assert code == 4
    assert (status.code, status.statement, status.index, status.bound) == (4, 3, -5, 10)
    assert y[0] == 0  # nothing after the failure ran
    bad[7] = 0
    code, status = run(kernel, [x, bad, y], compiler)
    assert (code, status.statement, status.index) == (5, 4, 99)


def test_a_failure_before_stays(compiler):
    function, library = load(guarded("parallel"), compiler)
    arrays = [np.zeros(10, np.float32), np.full(30, 50), np.zeros(30, np.float32)]
    buffers = (ctypes.c_void_p * 3)(*(a.ctypes.data for a in arrays))
    status = Status(code=7, statement=2, index=1)
    function(buffers, None, ctypes.byref(status))
    assert (status.code, status.statement, status.index) == (7, 2, 1)
    library.unload()


# private memory that no stack has room for


def through(kind, room):
    """Return y[i] = x[i] by way of a private array of `room` bytes, then y[0] = 7."""
    count = 37
    x, y = memory("x", dt.uint8, count), memory("y", dt.uint8, count)
    own = Memory("own", dt.uint8, memory("n", dt.uint8, room).shape, "local")
    b = Code()
    i = b.loop(count, kind)
    b.emit(li.StorageInst(own, room))
    last = b.op(Op.SUB, b.i(room - 1), b.op(Op.MOD, i, b.i(2)))
    b.store(own, last, b.load(x, i))
    b.store(y, i, b.load(own, last))
    b.end()
    b.store(y, b.i(0), b.const(7, dt.uint8))
    return b.kernel(x, y, kind="custom")


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("seed", seeds(1))
def test_values_go_through_the_heap(kind, seed, compiler):
    x = np.random.default_rng(seed).integers(0, 256, 37, np.uint8)
    y = np.zeros(37, np.uint8)
    code, status = run(through(kind, 2 * STACK_BYTES), [x, y], compiler)
    assert (code, status.code) == (0, 0)
    np.testing.assert_array_equal(y, [7, *x[1:]])


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_no_memory_is_reported_with_its_bytes(kind, compiler):
    many = 1 << 56
    x, y = np.ones(37, np.uint8), np.zeros(37, np.uint8)
    code, status = run(through(kind, many), [x, y], compiler)
    assert (code, status.code, status.bound) == (NO_MEMORY, NO_MEMORY, 0)
    assert many <= status.index <= many + 128
    assert not y.any()  # nothing after the failure ran


def test_large_private_memory_is_refused(compiler):
    big = Memory("big", F32, (ex.index(1 << 22),), "local")
    b = Code()
    b.emit(li.StorageInst(big, 1 << 22))
    with pytest.raises(UnsupportedError, match="16777216 bytes of big"):
        CRenderer(target()).render(b.kernel())


# atomics

ATOMICS = [("add", "uif"), ("sub", "uif"), ("min", "uif"), ("max", "uif"), ("and", "bui"),
           ("or", "bui"), ("xor", "bui"), ("exch", "buif"), ("cas", "buif"), ("inc", "ui"),
           ("dec", "ui"), ("nanmin", "f"), ("nanmax", "f")]  # fmt: skip


@pytest.mark.parametrize(("kind", "kinds"), ATOMICS)
def test_B8_atomics(kind, kinds, compiler, rng):
    """Every kind on every type, narrow floats and NaN included, in one kernel."""
    b, params, arrays = Code(), [], []
    i = b.loop(40)
    at = b.op(Op.MOD, i, b.i(4))
    for d in (d for d in dt.ALL if d.kind in kinds and not d.is_storage_only):
        x, y, z = (memory(f"{n}{d.text}", d, size) for n, size in (("x", 4), ("y", 40), ("z", 40)))
        old, value = b.value("old", d), b.load(y, i)
        compare = b.load(y, b.op(Op.MOD, i, b.i(7))) if kind == "cas" else None
        b.emit(li.AtomicInst(old, kind, x, at, value, compare))
        b.store(z, i, old)
        params += [x, y, z]
        data = rng.integers(0, 2 if d.is_bool else 5, 40).astype(d.numpy)
        if d.is_float:
            odd = np.array([0.0, -0.0, np.inf, -np.inf, 0.5, -1.5], d.numpy)
            data[rng.integers(0, 40, 6)] = odd
            data[rng.integers(4, 40, 3)] = np.nan if kind != "cas" else 1
        arrays += [data[:4].copy(), data, np.zeros(40, d.numpy)]
    b.end()
    native = [a.copy() for a in arrays]
    run_linear(b.kernel(*params), arrays, {})
    assert run(b.kernel(*params), native, compiler)[0] == 0
    for got, want, param in zip(native, arrays, params, strict=True):
        same = got.view(np.uint8) == want.view(np.uint8)
        same = same.reshape(got.size, -1).all(1)
        if param.dtype.is_float:
            same |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
        assert same.all(), (param.name, got, want)


def test_atomics_of_bytes_leave_their_neighbours(compiler):
    """Elements of one byte that four iterations each add to, side by side in a word."""
    x = memory("x", dt.uint8, 64)
    b = Code()
    i = b.loop(64 * 200, "parallel")
    b.emit(li.AtomicInst(b.value("old", dt.uint8), "add", x, b.op(Op.MOD, i, b.i(64)),
                         b.const(3, dt.uint8)))
    b.end()
    total = np.zeros(64, np.uint8)
    assert run(b.kernel(x), [total], compiler)[0] == 0
    assert (total == 600 % 256).all()


# what kernels ask of the process


def test_prefetch_call_and_print(compiler, capfd):
    x = memory("x", dt.float64, 4)
    b = Code()
    i = b.loop(2)
    b.emit(li.PrefetchInst(x, b.op(Op.MUL, i, b.i(1 << 40))))
    root = b.value("r", dt.float64)
    b.emit(li.CallInst((root,), "rint", (b.load(x, i),)))
    b.store(x, i, root)
    b.emit(li.PrintInst('100 % of "it" \\ ??/:', (i, root, b.op(Op.EQ, i, b.i(0)))))
    b.end()
    kernel = b.kernel(x)
    assert CRenderer(target()).render(kernel).imports == ("rint",)
    data = np.array([3.25, 1.75, 0, 0])
    assert run(kernel, [data], compiler)[0] == 0
    ctypes.CDLL(None).fflush(None)
    assert data.tolist() == [3.0, 2.0, 0, 0]
    line = '100 % of "it" \\ ??/:'
    assert capfd.readouterr().out == f"{line} 0 3.0 True\n{line} 1 2.0 False\n"


def test_numbers_are_printed_with_the_fewest_digits(compiler, capfd):
    values = {dt.float64: [0.1, 1e16, 1e-5, 1 / 3, 5e-324, -0.0, np.inf, -np.inf, np.nan, 123.0],
              dt.float32: [0.1, 1e16, 1 / 3, 16777216.0], dt.float16: [0.1, 65504.0],
              dt.bfloat16: [0.1], dt.int8: [-128], dt.uint64: [(1 << 64) - 1],
              dt.int64: [-(1 << 63)]}  # fmt: skip
    b, params, arrays, lines = Code(), [], [], []
    for d, given in values.items():
        x = memory(f"x{d.text}", d, len(given))
        params.append(x)
        arrays.append(np.array(given).astype(d.numpy))
        for k, value in enumerate(arrays[-1].tolist()):
            b.emit(li.PrintInst("", (b.load(x, b.i(k)),)))
            lines.append(f" {shown(value, d)}\n")
    assert run(b.kernel(*params), arrays, compiler)[0] == 0
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "".join(lines)


@pytest.mark.parametrize("kind", ["cycles", "nanoseconds"])
def test_clocks_go_on(kind, compiler):
    x = memory("x", I64, 2)
    b = Code()
    for k in range(2):
        now = b.value("now", I64)
        b.emit(li.ClockInst(now, kind))
        b.store(x, b.i(k), now)
    times = np.zeros(2, np.int64)
    assert run(b.kernel(x), [times], compiler)[0] == 0
    assert 0 < times[0] <= times[1]


def test_an_address_is_where_the_array_begins(compiler):
    x, y = memory("x", F32, 8), memory("y", I64, 1)
    b = Code()
    at = b.value("at", I64)
    b.emit(li.AddressInst(at, x))
    b.store(y, b.i(0), at)
    data, out = np.zeros(8, np.float32), np.zeros(1, np.int64)
    assert run(b.kernel(x, y), [data, out], compiler)[0] == 0
    assert out[0] == data.ctypes.data


def test_a_barrier_inside_a_parallel_loop_is_refused(compiler):
    b = Code()
    b.emit(li.BarrierInst())
    b.emit(li.FenceInst())
    b.loop(4, "parallel")
    b.emit(li.BarrierInst())
    b.end()
    with pytest.raises(UnsupportedError, match="barrier"):
        CRenderer(target()).render(b.kernel())


@pytest.mark.parametrize("parallel", [False, True])
def test_an_endless_loop_ends_with_an_interrupt(parallel, compiler):
    """It asks after some turns; what answers is linked by symbol, as plans do it."""
    x = memory("x", I64, 1)
    b = Code()
    if parallel:
        b.loop(1, "parallel")
    b.emit(li.WhileBegin(endless=True))
    now = b.load(x, b.i(0))
    b.emit(li.WhileTest(b.op(Op.LT, now, b.i(1 << 40))))
    b.store(x, b.i(0), b.op(Op.ADD, now, b.i(1)))
    b.emit(li.EndWhile())
    if parallel:
        b.end()
    b.store(x, b.i(0), b.i(-1))
    source = CRenderer(target()).render(b.kernel(x, kind="custom"))
    assert {"weft_stop", "weft_turns", "weft_turned"} <= set(source.imports)
    answers = """
@weft_stop = global i64 41
@asked = global i64 0
@left = global i64 0
define i64 @weft_turns(ptr %launch) {
  %before = load i64, ptr %launch
  %good = icmp eq i64 %before, 41
  %flag = getelementptr i64, ptr %launch, i64 1
  store i64 1, ptr %flag
  %n = load i64, ptr @asked
  %n1 = add i64 %n, 1
  store i64 %n1, ptr @asked
  %many = icmp sge i64 %n1, 5
  %stop = and i1 %many, %good
  %r = zext i1 %stop to i64
  ret i64 %r
}
define void @weft_turned(ptr %launch) {
  %n = load i64, ptr @left
  %n1 = add i64 %n, 1
  store i64 %n1, ptr @left
  ret void
}
"""
    images = [c_compiler(compiler).compile(source.text), llvm().compile(answers)]
    library = session().load(images, ["k", "asked", "left"])
    data, status = np.zeros(1, np.int64), Status()
    buffers = (ctypes.c_void_p * 1)(data.ctypes.data)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(library["k"])
    assert function(buffers, None, ctypes.byref(status)) == STOPPED
    assert status.code == STOPPED
    assert data[0] in (5 * 256, 5 * 256 - 1)
    assert ctypes.c_int64.from_address(library["asked"]).value == 5
    assert ctypes.c_int64.from_address(library["left"]).value == 1
    library.unload()


def test_names_of_users_are_no_words_of_c(compiler):
    """Arrays called as keywords, types and functions of the prelude, or by other alphabets."""
    names = ["int", "status", "f32", "load_f32x8", "weft_fail", "0x", "größe", "a b", "linux",
             "main", "printf", "NULL", "_Bool", "x"]  # fmt: skip
    params = [memory(name, F32, 8) for name in names]
    b = Code()
    i = b.loop(1, "parallel")
    for p in params:
        v = b.load(p, b.op(Op.MUL, i, b.i(8)), 8)
        b.store(p, b.op(Op.MUL, i, b.i(8)), b.op(Op.ADD, v, b.const(1.0, F32, 8)))
    b.emit(li.AssertInst(b.op(Op.EQ, i, b.i(0)), 0))
    b.end()
    kernel = b.kernel(*params, messages=(("", None),)).replace(name="main")
    agree(kernel, [np.full(8, k, np.float32) for k in range(len(params))], compiler)
