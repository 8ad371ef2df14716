"""Kernels at the limit of memory ask ahead, walk along what they read, and give what they gave."""

import numpy as np
import pytest

import schedule_nests as nests
import weft
from schedule_nests import assert_same, f, loop, memory, n, total, v
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import Axis, For, Kernel, Load, Meta, Prefetch, Reduce, Store
from weft.ir.traverse import walk
from weft.schedule import Schedule
from weft.strategies import choose
from weft.target import Target

TARGET = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, l1_bytes=48 << 10,
                l2_bytes=2 << 20, l3_bytes=8 << 20)


def prefetches(kernel):
    return [s for s in walk(kernel.body) if isinstance(s, Prefetch)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("rows", "columns"), [(3000, 4096), (20000, 512), (2, 6000000)])
def test_long_arrays_are_fetched_ahead(rows, columns, threads):
    kernel = nests.bias(rows, columns)
    made = choose(kernel, TARGET, threads)
    assert {s.memory.name for s in prefetches(made)} >= {"x"}
    again = Schedule.replay(kernel, made.meta.schedule)
    assert nests.written(made) == nests.written(again.kernel)


@pytest.mark.parametrize(("columns", "wanted"), [(4099, True), (4096, False)])
def test_rows_of_broken_lines_are_fetched_before_they_are_written(columns, wanted):
    made = choose(nests.softmax(1000, columns), TARGET, 1)
    assert ("y" in {s.memory.name for s in prefetches(made)}) == wanted


@pytest.mark.parametrize(("rows", "columns", "wanted"),
                         [(141, 903, True), (141, 896, False), (20, 903, True),
                          (10, 903, False)])
def test_sums_with_a_row_fetch_lines_before_they_write_them(rows, columns, wanted):
    made = choose(nests.bias(rows, columns), TARGET, 1)
    assert ("y" in {s.memory.name for s in prefetches(made)}) == wanted


def softmax_of_columns(rows, columns):
    """Softmax over the first axis."""
    x, y = memory("x", rows, columns), memory("y", rows, columns)
    a, b = f("a"), f("b")
    first = Reduce((Axis(v("k"), n(rows)),), (total("s", value=ex.unary(Op.EXP, a)),),
                   (Load(a, x, (v("k"), v("r"))),))
    second = loop("c", rows, Load(b, x, (v("c"), v("r"))),
                  Store(y, (v("c"), v("r")), ex.unary(Op.EXP, b) / f("s")))
    return Kernel("columns", (x, y), (loop("r", columns, first, second),), Meta("rowwise"))


@pytest.mark.parametrize(("columns", "wanted"), [(40_001, True), (101, False)])
def test_columns_fetch_the_lines_of_the_next_ones(columns, wanted):
    made = choose(softmax_of_columns(40, columns), TARGET, 1)
    assert ("y" in {s.memory.name for s in prefetches(made)}) == wanted


@pytest.mark.parametrize("columns", [17, 95, 100])
def test_columns_give_what_they_gave(columns):
    kernel = softmax_of_columns(5, columns)
    made = choose(kernel, TARGET.replace(l1_bytes=16), 2)
    assert prefetches(made)
    assert_same(kernel, made, exact=False)


@pytest.mark.parametrize("size", [1000, 100_000])
def test_what_caches_keep_is_not(size):
    assert not prefetches(choose(nests.chain(size), TARGET, 1))


def test_a_flat_array_is_fetched_in_blocks():
    made = choose(nests.chain(10_000_001), TARGET, 1)
    assert len(prefetches(made)) == 4


@pytest.mark.parametrize(("size", "op", "wanted"), [
    (1_000_003, Op.EXP, True), (1_000_003, Op.ABS, False), (100_003, Op.EXP, False)])
def test_arithmetic_fetches_later_vectors_of_arrays_from_memory(size, op, wanted):
    x, y = memory("x", size), memory("y", size)
    kernel = Kernel("map", (x, y), (loop("i", size, Load(f("a"), x, (v("i"),)),
                                         Store(y, (v("i"),), ex.unary(op, f("a")))),),
                    Meta("elementwise"))  # fmt: skip
    made = choose(kernel, TARGET, 1)
    assert [s.memory.name for s in prefetches(made)] == ["x"] * wanted
    again = Schedule.replay(kernel, made.meta.schedule)
    assert nests.written(made) == nests.written(again.kernel)


def test_running_sums_fetch_the_next_row():
    made = choose(nests.carried(3000, 4096), TARGET, 1)
    assert len(prefetches(made)) >= 4


@pytest.mark.parametrize(("rows", "columns", "first"), [(3000, 4000, "j.o"), (100, 120, "i.o")])
def test_large_transposes_walk_along_what_they_read(rows, columns, first):
    made = choose(nests.transpose(rows, columns), TARGET, 1)
    outermost = made.body[0]
    assert isinstance(outermost, For)
    assert outermost.var.attr == first
    streamed = [s.streaming for s in walk(made.body) if isinstance(s, Store)]
    assert any(isinstance(s, Load) for s in walk(made.body))
    assert all(streamed) == (first == "j.o")


@pytest.mark.parametrize("pair", [(16, 40), (17, 32), (31, 40), (32, 16), (47, 88), (64, 96)])
def test_pairs_of_tiles(pair):
    """With a last-level cache of nothing much, every transpose is written past it."""
    kernel = nests.transpose(*pair)
    made = choose(kernel, TARGET.replace(l2_bytes=64, l3_bytes=64), 1)
    assert any(s.streaming for s in walk(made.body) if isinstance(s, Store))
    assert_same(kernel, made)


@pytest.mark.grid
@pytest.mark.parametrize("shape", [(3001, 3000), (2048, 4608), (48, 200_001), (9_000_001, 1)])
def test_large_results(shape):
    rng = np.random.default_rng(shape[0])
    data = rng.standard_normal(shape, dtype=np.float32)
    x = weft.from_numpy(data)
    np.testing.assert_array_equal(x.T.contiguous().numpy(), data.T)
    np.testing.assert_array_equal((x * 2 + 1).numpy(), data * 2 + 1)
    np.testing.assert_array_equal((x + x[:, :1]).numpy(), data + data[:, :1])
    np.testing.assert_allclose(x.cumsum(1).numpy(), np.cumsum(data, 1, dtype=np.float64),
                               rtol=1e-5, atol=1e-3)
    wide = data.astype(np.float64)
    top = np.exp(wide - wide.max(0))
    np.testing.assert_allclose(x.softmax(0).numpy(), top / top.sum(0), rtol=1e-4)
    normed = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(x.layer_norm((shape[1],)).numpy(), normed, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "columns", "wanted"), [
    (1024, 4096, True), (1000, 4097, True), (1003, 4096, False), (1003, 40960, False),
    (512, 2048, False)])
def test_transposes_stream_where_rows_begin_with_half_lines(rows, columns, wanted):
    """Each result of more than four second caches, the last of fewer."""
    x, y = memory("x", rows, columns), memory("y", columns, rows)
    turn = Load(f("a"), x, (v("j"), v("i"))), Store(y, (v("i"), v("j")), f("a"))
    made = choose(Kernel("turn", (x, y), (loop("i", columns, loop("j", rows, *turn)),),
                         Meta("elementwise")), TARGET.replace(l3_bytes=64 << 20), 1)
    assert {s.streaming for s in walk(made.body) if isinstance(s, Store)} == {wanted}
