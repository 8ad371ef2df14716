"""Loads and stores in C: every type and width, masks, gathers, streaming, what may overlap."""

import contextlib
import ctypes
import mmap

import numpy as np
import pytest
from c_compiled import COMPILERS, agree, c_compiler, run, target
from compiled import Code, memory

from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir import linear as li
from weft.ir.op import Op
from weft.ir.stmt import Memory
from weft.renderers.cstyle.c.renderer import CRenderer

I64, F32, BOOL = dt.int64, dt.float32, dt.bool_

pytestmark = pytest.mark.parametrize("compiler", COMPILERS)


@contextlib.contextmanager
def guarded(values, before):
    """Yield a copy that ends where its page ends (or begins so); what is beyond is no memory."""
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    gone = ctypes.c_void_p(address + (0 if before else page))
    assert libc.mprotect(gone, page, 0) == 0
    place = page if before else page - values.nbytes
    data = np.frombuffer(area, values.dtype, values.size, place)
    data[:] = values
    yield data
    assert libc.mprotect(gone, page, 3) == 0


@pytest.mark.grid
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8, 16, 32])
def test_B6_loads_and_stores(lanes, compiler, rng):
    """Contiguous at any place, masked, filled, gathered and scattered; all types in one kernel."""
    n, b, params, arrays = 96, Code(), [], []
    where, index, first = memory("m", BOOL, n), memory("j", I64, n), memory("first", I64, 1)
    i = b.loop(n // lanes - 1)
    start = b.load(first, b.i(0))
    at = b.op(Op.ADD, b.op(Op.MUL, i, b.i(lanes)), start)
    mask, spot = b.load(where, at, lanes), b.load(index, at, lanes)
    for d in dt.ALL:
        x, y, z, w = (memory(f"{name}{d.text}", d, n) for name in "xyzw")
        fill = b.load(x, b.i(5), lanes)
        b.store(y, at, b.load(x, at, lanes))
        b.store(z, at, b.load(x, at, lanes, mask=mask))
        b.store(w, at, b.load(x, at, lanes, mask=mask, fill=fill), mask=mask)
        b.store(w, spot, b.load(x, spot, lanes), mask=mask)
        b.store(y, spot, b.load(z, spot, lanes, mask=mask, fill=fill), mask=mask)
        b.store(z, spot, b.load(y, spot, lanes))
        params += [x, y, z, w]
        data = rng.integers(0, 2 if d.is_bool else 100, n).astype(d.numpy)
        arrays += [data, *(np.zeros(n, d.numpy) for _ in range(3))]
    b.end()
    kernel = b.kernel(*params, where, index, first)
    for shift in (0, 1):
        agree(kernel, [*arrays, rng.random(n) < 0.6, rng.permutation(n), np.array([shift])],
              compiler)  # fmt: skip


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("lanes", [3, 4, 8, 16, 64])
def test_a_masked_access_touches_nothing_else(lanes, before, compiler):
    """The array ends where its page ends: reading or writing one byte more would fault."""
    for d in (dt.bool_, dt.int8, dt.uint16, dt.float32, dt.float64):
        count = lanes - 1
        b = Code()
        x, y = memory("x", d, count), memory("y", d, lanes)
        # Of the lanes from -1 on, or from 0 on, those that are there.
        begin = b.i(-1) if before else b.i(0)
        lane = b.op(Op.RAMP, begin, lanes=lanes)
        mask = b.op(Op.AND, b.op(Op.LE, b.const(0, I64, lanes), lane),
                    b.op(Op.LT, lane, b.const(count, I64, lanes)))
        v = b.load(x, begin, lanes, mask=mask)
        b.store(y, b.i(0), v)
        b.store(x, begin, v, mask=mask)
        g = b.load(x, lane, lanes, mask=mask)
        b.store(x, lane, g, mask=mask)
        values = (np.arange(count) % 2).astype(d.numpy)
        out = np.ones(lanes, d.numpy)
        with guarded(values, before) as data:
            assert run(b.kernel(x, y), [data, out], compiler)[0] == 0
            np.testing.assert_array_equal(data, values)
        want = np.concatenate([np.zeros(1, d.numpy), values] if before else
                              [values, np.zeros(1, d.numpy)])
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_masks_that_count_lanes(lanes, compiler):
    """Lanes below and from a bound, where the bound is before, inside, and far behind them."""
    bounds, out = memory("bounds", I64, 40), memory("out", dt.int32, 40 * 6 * lanes)
    b = Code()
    i = b.loop(40)
    # Bounds of which something is known, and of which nothing is; the same of the first lane.
    loose, near = b.load(bounds, i), b.op(Op.SUB, i, b.i(20))
    limits = [(near, b.op(Op.MIN, b.op(Op.MAX, loose, b.i(-1000)), b.i(1000))), (near, loose),
              (loose, b.load(bounds, b.op(Op.SUB, b.i(39), i)))]  # fmt: skip
    place = b.op(Op.MUL, i, b.i(6 * lanes))
    for k, (begin, limit) in enumerate(limits):
        lane = b.op(Op.RAMP, begin, lanes=lanes)
        edge = b.op(Op.BROADCAST, limit, lanes=lanes)
        below = b.op(Op.LT, lane, edge), b.op(Op.LE, lane, edge)
        above = b.op(Op.LT, edge, lane), b.op(Op.LE, edge, lane)
        one = [b.op(Op.CAST, m, dtype=dt.int32) for m in (*below, *above)]
        scale = [b.op(Op.MUL, v, b.const(10**n, dt.int32, lanes)) for n, v in enumerate(one)]
        total = b.op(Op.ADD, b.op(Op.ADD, *scale[:2]), b.op(Op.ADD, *scale[2:]))
        b.store(out, b.op(Op.ADD, place, b.i(k * lanes)), total)
        bits = b.compute(Op.BITS, dt.uint64, 1, (below[0],), lanes)
        word = b.op(Op.CAST, b.op(Op.AND, bits, b.const(0xFFFF, dt.uint64)), dtype=dt.int32)
        b.store(out, b.op(Op.ADD, place, b.i((k + 3) * lanes)), word)
    b.end()
    far = (1 << 63) - 1
    values = np.array([far, -far - 1, far - 3, -far, 999, -999, far - 5, 1 << 40, *range(-20, 4),
                       far - 4, -far, far, 0, 9, -far - 1, far, -far])  # fmt: skip
    agree(b.kernel(bounds, out), [values, np.zeros(40 * 6 * lanes, np.int32)], compiler)


def test_scatter_keeps_the_last_lane(compiler):
    x = memory("x", I64, 4)
    b = Code()
    b.store(x, b.const(2, I64, 8), b.op(Op.RAMP, b.i(10), lanes=8))
    (got,) = agree(b.kernel(x), [np.zeros(4, np.int64)], compiler)
    assert got.tolist() == [0, 0, 17, 0]


@pytest.mark.parametrize("form", [{}, {"kind": "custom"}])
def test_a_choice_sees_what_was_read_before_a_write(form, compiler):
    x, y, limit = memory("x", F32, 16), memory("y", F32, 16), memory("limit", I64, 1)
    b = Code()
    few = b.op(Op.BROADCAST, b.load(limit, b.i(0)), lanes=16)
    mask = b.op(Op.LT, b.op(Op.RAMP, b.i(0), lanes=16), few)
    old = b.load(x, b.i(0), 16, mask=mask)
    b.store(x, b.i(0), b.const(5.0, F32, 16), mask=mask)
    b.store(y, b.i(0), b.op(Op.WHERE, mask, old, b.const(2.0, F32, 16)))
    data = np.arange(10, 26, dtype=np.float32)
    agree(b.kernel(x, y, limit, **form), [data, np.zeros(16, np.float32), np.array([5])], compiler)


def test_a_mask_of_all_lanes_or_none_reads_nothing_for_none(compiler):
    data = np.arange(32, dtype=np.float32)
    x, y = memory("x", F32, 32), memory("y", F32, 32)
    b = Code()
    i = b.loop(4)
    at = b.op(Op.MUL, b.op(Op.SUB, i, b.i(1)), b.i(8))
    mask = b.op(Op.BROADCAST, b.op(Op.LT, b.i(0), i), lanes=8)
    fill = b.const(3.0, F32, 8)
    b.store(y, b.op(Op.MUL, i, b.i(8)), b.load(x, at, 8, mask=mask, fill=fill))
    b.store(y, at, b.const(9.0, F32, 8), mask=b.op(Op.BROADCAST, b.op(Op.LT, b.i(9), i), lanes=8))
    b.end()
    with guarded(data, True) as near:
        out = np.ones(32, np.float32)
        assert run(b.kernel(x, y), [near, out], compiler)[0] == 0
    np.testing.assert_array_equal(out, [3.0] * 8 + list(range(24)))


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("shift", [0, 1, 3])
@pytest.mark.parametrize("lanes", [4, 16, 64])
def test_streaming_stores_take_any_alignment(lanes, parallel, shift, compiler, rng):
    size = 1024
    block = np.zeros(size + 64, np.float32)
    start = (-block.ctypes.data // 4) % 16 + shift
    out, data = block[start : start + size], rng.random(size, np.float32)
    x, y = memory("x", F32, size), memory("y", F32, size)
    b = Code()
    i = b.loop(size // lanes, "parallel" if parallel else "serial")
    at = b.op(Op.MUL, i, b.i(lanes))
    v = b.load(x, at, lanes)
    b.store(y, at, b.op(Op.MUL, v, v), streaming=True)
    b.end()
    kernel = b.kernel(x, y)
    assert run(kernel, [data, out], compiler)[0] == 0
    np.testing.assert_array_equal(out, data * data)
    assert not block[:start].any()
    assert not block[start + size :].any()
    if target().arch == "x86_64":
        image = c_compiler(compiler).compile(CRenderer(target()).render(kernel).text)
        assert b"\x0f\xae\xf8" in image  # sfence


def test_parameters_of_user_kernels_may_overlap(compiler):
    """Without a proof, a value loaded before a store is loaded again after it."""
    x, y = memory("x", F32, 2), memory("y", F32, 1)
    b = Code()
    first = b.load(x, b.i(0))
    b.store(y, b.i(0), b.op(Op.ADD, first, b.const(1.0, F32)))
    b.store(x, b.i(1), b.load(x, b.i(0)))
    shared = np.array([1.0, 0.0], np.float32)
    kernel = b.kernel(x, y, kind="custom")
    assert "restrict" not in CRenderer(target()).render(kernel).text
    assert run(kernel, [shared, shared[:1]], compiler)[0] == 0
    assert shared.tolist() == [2.0, 2.0]
    proved = b.kernel(x, y, kind="custom", hints=(("noalias", True),))
    assert "restrict" in CRenderer(target()).render(proved).text


def test_memory_over_other_memory_of_another_type(compiler):
    """Bytes written as floats are read as integers, and the other way: no aliasing by type."""
    x, y = memory("x", F32, 8), memory("y", dt.uint32, 8)
    floats = Memory("floats", F32, (ex.index(8),), "local")
    words = Memory("words", dt.uint32, (ex.index(8),), "local")
    b = Code()
    b.emit(li.StorageInst(floats, 8))
    b.emit(li.StorageInst(words, 8, floats))
    b.store(floats, b.i(0), b.load(x, b.i(0), 8))
    i = b.loop(8)
    old = b.load(words, i)
    b.store(words, i, b.op(Op.XOR, old, b.const(1 << 31, dt.uint32)))
    b.store(x, i, b.load(floats, i))
    b.store(y, i, b.load(words, i))
    b.end()
    data = np.arange(1, 9, dtype=np.float32)
    out = np.zeros(8, np.uint32)
    given = data.copy()
    assert run(b.kernel(x, y), [given, out], compiler)[0] == 0
    np.testing.assert_array_equal(given, -data)
    np.testing.assert_array_equal(out.view(np.float32), -data)


def test_indices_beyond_32_bits(compiler):
    """Offsets are int64: an array of 5 GB of address space, of which two pages are touched."""
    count = 5 << 30
    area = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0))
    x = memory("x", dt.uint8, count)
    b = Code()
    i = b.loop(2)
    far = b.op(Op.ADD, b.op(Op.MUL, i, b.i(1 << 32)), b.i((1 << 29) + 7))
    b.store(x, far, b.const(5, dt.uint8))
    b.store(x, b.op(Op.ADD, far, b.i(16)), b.const(6, dt.uint8, 16))
    b.end()
    data = np.frombuffer(area, np.uint8)
    assert run(b.kernel(x), [data], compiler)[0] == 0
    for place in ((1 << 29) + 7, (1 << 32) + (1 << 29) + 7):
        assert data[place] == 5
        assert data[place + 16 : place + 33].tolist() == [6] * 16 + [0]
    del data
