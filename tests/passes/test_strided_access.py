"""Strided accesses become contiguous ones and shuffles, with the same result."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same, loop, memory, v
from seeds import seeds
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Kernel, Load, Meta, Store
from weft.ir.traverse import walk
from weft.ir.verify.verify import verify
from weft.passes.vector.vectorize import vectorize
from weft.schedule import Schedule

GRAPH = Meta(kind="elementwise")


def copying(rows, columns, source, target, meta=GRAPH, dtype=dt.float32, mask=None):
    """y[target] = x[source] over two loops; both memories are large enough for any index."""
    size = 4 * rows * columns
    x, y = memory("x", size, dtype=dtype), memory("y", size, dtype=dtype)
    a = ex.var("a", dtype)
    body = loop("i", rows, loop("j", columns, Load(a, x, (source,), mask),
                                       Store(y, (target,), a)))
    return Kernel("copying", (x, y), (body,), meta)


def vector_accesses(kernel):
    return [s for s in walk(kernel.body) if isinstance(s, Load | Store) and s.index[0].lanes > 1]


def lowered(kernel, rows, lanes):
    made = Schedule(kernel)
    made.split("i", rows).split("j", lanes).reorder("i.o", "j.o", "i.i", "j.i")
    made.unroll("i.i").vectorize("j.i")
    flat = vectorize(made.kernel)
    verify(flat)
    assert_same(kernel, flat)
    return flat


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [dt.float32, dt.int8, dt.float64])
@pytest.mark.parametrize("rows", [4, 8, 16, 32, 5, 7, 12])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_rows_are_read_whole_and_transposed(rows, lanes, dtype):
    i, j = v("i"), v("j")
    m, k = 2 * rows, 2 * lanes
    flat = lowered(copying(m, k, j * m + i, i * k + j, dtype=dtype), rows, lanes)
    left = vector_accesses(flat)
    rest = rows
    while rest >= 4:
        rest -= min(1 << (rest.bit_length() - 1), lanes, 16)
    assert len(left) <= rest  # what a power of two does not cover


@pytest.mark.parametrize("dtype", [dt.float32, dt.float16, dt.float64])
@pytest.mark.parametrize("there", [1, 13, 17, 30])
@pytest.mark.parametrize("apart", [16, 19])
def test_rows_of_lanes_that_are_not_there_are_not_read(there, apart, dtype):
    i, j = v("i"), v("j")
    kernel = copying(16, 32, j * apart + i, i * 32 + j, dtype=dtype, mask=j.lt(there))
    flat = lowered(kernel, 16, 16)
    assert not vector_accesses(flat)
    masks = [s.mask for s in walk(flat.body) if isinstance(s, Load)]
    assert len(masks) == 16
    assert all(m is not None and m.op is Op.BROADCAST for m in masks)


def test_a_mask_that_differs_by_row_keeps_loads_apart():
    i, j = v("i"), v("j")
    kernel = copying(8, 32, j * 19 + i, i * 32 + j, mask=(i + j).lt(30))
    assert len(vector_accesses(lowered(kernel, 8, 16))) == 8


@pytest.mark.parametrize("rows", [4, 8, 16, 6])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_columns_are_written_whole(rows, lanes):
    i, j = v("i"), v("j")
    m, k = 2 * rows, 2 * lanes
    flat = lowered(copying(m, k, i * k + j, j * m + i), rows, lanes)
    assert len(vector_accesses(flat)) == (2 if rows == 6 and lanes >= 4 else 0)


@pytest.mark.parametrize("rows", [2, 5, 7, 8, 13])
def test_pairs_of_lanes_stay_right(rows):
    i, j = v("i"), v("j")
    for source, target in ((j * 2 * rows + i, i * 4 + j), (i * 4 + j, j * 2 * rows + i)):
        lowered(copying(2 * rows, 4, source, target), rows, 2)


@pytest.mark.parametrize("stride", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("first", [0, 3])
def test_small_strides_are_picked(stride, first):
    i, j = v("i"), v("j")
    kernel = copying(3, 32, (i * 32 + j) * stride // 1 + first, i * 32 + j)
    kernel = Kernel("picked", (memory("x", 96 * stride + first), kernel.params[1]), (
        loop("i", 3, loop("j", 32, Load(nests.f("a"), memory("x", 96 * stride + first), (
            (i * 32 + j) * stride + first,)), Store(kernel.params[1], (i * 32 + j,),
                                                    nests.f("a")))),), GRAPH)  # fmt: skip
    flat = lowered(kernel, 1, 16)
    assert not vector_accesses(flat)
    assert any(e.op is Op.SHUFFLE for s in walk(flat.body) for x in s.exprs()
               for e in ex.toposort([x]))  # fmt: skip


@pytest.mark.parametrize("stride", [2, 3, 4, 7])
def test_interleaved_stores_are_whole(stride):
    """Colours side by side: each of `stride` unrolled copies writes every stride-th element."""
    i, j = v("i"), v("j")
    flat = lowered(copying(stride, 32, i * 32 + j, j * stride + i), stride, 16)
    assert not vector_accesses(flat)


@pytest.mark.parametrize("dtype", [dt.float32, dt.int8, dt.float64, dt.bool_])
@pytest.mark.parametrize("stride", [2, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_lanes_of_lone_stores_are_spread(stride, lanes, dtype):
    """What lies between the lanes keeps its value; large strides stay a scatter."""
    j, a = v("j"), ex.var("a", dtype)
    x, y = memory("x", 64, dtype=dtype), memory("y", 64 * stride + 1, dtype=dtype)
    kernel = Kernel("lone", (x, y), (loop(
        "j", 64, Load(a, x, (j,)), Store(y, (j * stride + 1,), a)),), GRAPH)
    flat = vectorize(Schedule(kernel).split("j", lanes).vectorize("j.i").kernel)
    verify(flat)
    assert_same(kernel, flat)
    assert bool(vector_accesses(flat)) == (stride > 8)


def test_two_lone_stores_are_both_spread():
    """Two strided stores of one memory, side by side in one line of statements."""
    x, y = memory("x", 64), memory("y", 132)
    j, a = v("j"), nests.f("a")
    kernel = Kernel("meet", (x, y), (loop(
        "j", 8, Load(a, x, (j,)), Store(y, (j * 2,), a), Store(y, (j * 2 + 36,), a * 2.0)),),
        GRAPH)
    flat = vectorize(Schedule(kernel).split("j", 8).vectorize("j.i").kernel)
    verify(flat)
    assert_same(kernel, flat)
    assert not vector_accesses(flat)


@pytest.mark.grid
@pytest.mark.parametrize("step", [2, 3, 5, 8, 11])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, np.bool_])
def test_writes_with_a_stride_leave_the_rest(step, dtype):
    base = np.arange(-100, 101).astype(dtype)
    found = weft.tensor(base)
    found[3::step] = weft.tensor(base[3::step][::-1].copy())
    wanted = base.copy()
    wanted[3::step] = base[3::step][::-1]
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_storage_of_their_own_does_not_keep_stores_apart():
    """Sums in registers: each unrolled copy has its own, and comes between two stores."""
    x, y, kept = (memory("x", 128), memory("y", 64), memory("kept", 1, scope="register"))
    i, j, a, b = v("i"), v("j"), nests.f("a"), nests.f("b")
    kernel = Kernel("kept", (x, y), (loop("i", 2, loop(
        "j", 32, Alloc(kept), Store(kept, (ex.index(0),), ex.const(2.0, dt.float32)),
        Load(a, x, (i * 32 + j,)), Load(b, kept, (ex.index(0),)),
        Store(y, (j * 2 + i,), a * b))),), GRAPH)
    assert not vector_accesses(lowered(kernel, 2, 16))


def test_a_write_to_the_memory_that_is_read_is_an_obstacle():
    """x[j*4 + 1] = x[j*4]; then x[j*4 + 1] is read: the second read sees the first write."""
    x, y = memory("x", 64), memory("y", 16)
    j = v("j")
    kernel = Kernel("order", (x, y), (loop(
        "j", 16, Load(nests.f("a"), x, (j * 4,)), Store(x, (j * 4 + 1,), nests.f("a") + 1.0),
        Load(nests.f("b"), x, (j * 4 + 1,)), Store(x, (j * 4 + 1,), nests.f("b") * 2.0),
        Load(nests.f("c"), x, (j * 4 + 1,)), Store(y, (j,), nests.f("c"))),), GRAPH)  # fmt: skip
    flat = vectorize(Schedule(kernel).split("j", 8).vectorize("j.i").kernel)
    verify(flat)
    assert_same(kernel, flat)


def test_memories_that_may_overlap_are_left_alone():
    i, j = v("i"), v("j")
    kernel = copying(8, 16, j * 8 + i, i * 16 + j, Meta(kind="custom"))
    assert len(vector_accesses(lowered(kernel, 8, 8))) == 8


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, np.bool_])
@pytest.mark.parametrize("shape", [(1, 7), (3, 64), (130, 3), (37, 41), (64, 129), (2, 33, 35)])
def test_strided_views_and_transposes(shape, dtype):
    a = (np.random.default_rng(0).standard_normal(shape) * 10).astype(dtype)
    x = weft.tensor(a)
    for step in (2, 3, 5, 9):
        np.testing.assert_array_equal(x[..., ::step].contiguous().numpy(), a[..., ::step])
        np.testing.assert_array_equal(x[..., 1::step].contiguous().numpy(), a[..., 1::step])
    np.testing.assert_array_equal(x.transpose(-1, -2).contiguous().numpy(), a.swapaxes(-1, -2))
    if len(shape) == 3:
        for order in ((2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0, 2)):
            np.testing.assert_array_equal(x.permute(*order).contiguous().numpy(),
                                          a.transpose(order))


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.float32])
@pytest.mark.parametrize("seed", seeds(3))
def test_transposes_larger_than_the_second_cache(dtype, seed):
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(128, 700))
    a = rng.integers(-99, 99, (rows, int(700_000 / rows * rng.uniform(1, 2)))).astype(dtype)
    np.testing.assert_array_equal(weft.tensor(a).T.contiguous().numpy(), a.T)
    wide = weft.tensor(a[None].repeat(2, 0))
    np.testing.assert_array_equal(wide.transpose(1, 2).contiguous().numpy()[1], a.T)


@pytest.mark.grid
@pytest.mark.parametrize("beyond", [0, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
@pytest.mark.parametrize("seed", seeds(2))
def test_transposes_past_the_caches(dtype, beyond, seed):
    """Rows of the result of half lines, and such as begin anywhere, of 9 to 10 MiB."""
    rng, size = np.random.default_rng(seed), np.dtype(dtype).itemsize
    rows = int(rng.integers(5, 30)) * 32 // size + 256 + beyond
    a = rng.integers(-99, 99, (rows, int((rng.uniform(9, 10) * 2**20) / (rows * size))))
    a = a.astype(dtype)
    np.testing.assert_array_equal(weft.tensor(a).T.contiguous().numpy(), a.T)


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("blocks", [1, 15, 16, 37, 100])
def test_side_by_side(blocks, count):
    """A short innermost axis whose points differ: written out, and stored in whole vectors."""
    a = np.random.default_rng(count).standard_normal((blocks, count)).astype(np.float32)
    x = weft.tensor(a[:, 0].copy())
    wide = x.unsqueeze(1).expand(blocks, count)
    got = (weft.arange(count) == 1).where(wide * 2, wide + 1)
    want = np.where(np.arange(count) == 1, a[:, :1] * 2, a[:, :1] + 1)
    np.testing.assert_array_equal(got.numpy(), want)
