"""Launches that become one kernel: results, what is refused and why."""


import numpy as np
import pytest

import weft
from launch_parts import parts_of
from weft import cg, gpu
from weft.errors import BoundsError, LaunchError
from weft.ir.stmt import Barrier, For
from weft.ir.traverse import walk
from weft.lang.launch_fusion import fuse_launches
from weft.schedule.launch_fusion.fused_kernel import joined
from weft.schedule.launch_fusion.legality import group as group_of


@weft.kernel
def scale(a, x, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] = weft.float32(a) * x[i]


@weft.kernel
def shift(b, x, y):
    i = gpu.grid(1)
    if i >= y.size:
        return
    y[i] = x[i] + weft.float32(b)


@weft.kernel
def neighbour(x, y):
    i = gpu.grid(1)
    if i < y.size - 1:
        y[i] = x[i + 1]


@weft.kernel
def within(x, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] = x[gpu.blockIdx.x * gpu.blockDim.x + (gpu.threadIdx.x ^ 1)]


@weft.kernel
def reversed_block(x, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] = x[gpu.blockIdx.x * gpu.blockDim.x + (gpu.blockDim.x - 1 - gpu.threadIdx.x)]


@weft.kernel
def gather(x, index, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] = x[index[i]]


@weft.kernel(unchecked=True)
def gather_unchecked(x, index, y):
    i = gpu.grid(1)
    if i < y.size:
        y[i] = x[index[i]]


def kernels_of(f):
    return f.explain().split("\n")


def floats(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


class TestResults:
    @pytest.mark.parametrize("n", [1, 7, 256, 257, 1009])
    def test_chain(self, n):
        x, y, t = floats(n), np.zeros(n, np.float32), np.zeros(n, np.float32)
        blocks = weft.cdiv(n, 256)
        with weft.fuse() as f:
            scale[blocks, 256](2.5, x, t)
            shift[blocks, 256](-1.25, t, y)
            assert not t.any()
            assert not y.any()
        assert f.explain() == "fused: scale, shift"
        np.testing.assert_array_equal(t, np.float32(2.5) * x)
        np.testing.assert_array_equal(y, t - np.float32(1.25))

    def test_values_that_nobody_keeps_stay_in_registers(self):
        n = 300
        x, y = floats(n), np.zeros(n, np.float32)
        kept = []
        with weft.fuse() as f:
            t = f.empty(n, weft.float32)
            u = f.empty((n,), "float32")
            t[:] = 77
            scale[2, 256](2.0, x, t)
            shift[2, 256](1.0, t, u)
            scale[2, 256](3.0, u, y)
            kept.append(t)
        assert f.explain() == "fused: scale, shift, scale"
        np.testing.assert_array_equal(y, np.float32(3) * (np.float32(2) * x + np.float32(1)))
        assert (kept[0] == 77).all()

    def test_temporary_that_two_kernels_need_is_written(self):
        n = 300
        x, y = floats(n), np.zeros(n, np.float32)
        with weft.fuse() as f:
            t = f.empty(n, weft.float32)
            scale[2, 256](2.0, x, t)
            shift[2, 256](0.0, t, t)
            neighbour[2, 256](t, y)
        assert kernels_of(f)[0] == "fused: scale, shift"
        np.testing.assert_array_equal(y[:-1], np.float32(2) * x[1:] + np.float32(0))

    def test_in_place(self):
        x = floats(1000)
        expected = (np.float32(2) * x + np.float32(1)) * np.float32(3)
        with weft.fuse() as f:
            scale[4, 256](2.0, x, x)
            shift[4, 256](1.0, x, x)
            scale[4, 256](3.0, x, x)
        assert len(kernels_of(f)) == 1
        np.testing.assert_array_equal(x, expected)

    def test_a_second_time_with_other_arrays_and_sizes(self):
        for n in (100, 100, 200, 37):
            x, y, t = floats(n), np.zeros(n, np.float32), np.zeros(n, np.float32)
            with weft.fuse() as f:
                scale[1, 256](2.0, x, t)
                shift[1, 256](1.0, t, y)
            assert f.explain() == "fused: scale, shift"
            np.testing.assert_array_equal(y, np.float32(2) * x + np.float32(1))

    def test_barrier_between_threads_of_a_block(self):
        n = 512
        x = floats(n)
        t, y, z = (np.zeros(n, np.float32) for _ in range(3))
        with weft.fuse() as f:
            scale[4, 128](2.0, x, t)
            reversed_block[4, 128](t, y)
            shift[4, 128](1.0, y, z)
        assert f.explain() == "fused: scale, reversed_block, shift"
        expected = (np.float32(2) * x).reshape(4, 128)[:, ::-1].reshape(-1)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(z, expected + np.float32(1))

    def test_shared_memory_of_both(self):
        @weft.kernel
        def flip(x, y):
            s = gpu.shared.array(64, weft.float32)
            t = gpu.threadIdx.x
            i = gpu.grid(1)
            s[t] = x[i]
            gpu.syncthreads()
            y[i] = s[63 - t]

        x, t, y = floats(256), np.zeros(256, np.float32), np.zeros(256, np.float32)
        with weft.fuse() as f:
            flip[4, 64](x, t)
            flip[4, 64](t, y)
        assert f.explain() == "fused: flip, flip"
        np.testing.assert_array_equal(t, x.reshape(4, 64)[:, ::-1].reshape(-1))
        np.testing.assert_array_equal(y, x)

    def test_two_axes_and_guards(self):
        @weft.kernel
        def add(x, y, out):
            i, j = gpu.grid(2)
            if i < out.shape[0] and j < out.shape[1]:
                out[i, j] = x[i, j] + y[i, j]

        @weft.kernel
        def flat(x, out, width):
            i, j = gpu.grid(2)
            if i < out.size // width and j < width:
                out[i * width + j] = x[i, j] * weft.float32(2)

        x = floats(13 * 29).reshape(13, 29)
        t, y = np.zeros_like(x), np.zeros(13 * 29, np.float32)
        z = np.zeros_like(y)
        with weft.fuse() as f:
            add[(2, 4), (8, 8)](x, x, t)
            flat[(2, 4), (8, 8)](t, y, 29)
            flat[(2, 4), (8, 8)](t, z, 29)
        assert f.explain() == "fused: add, flat, flat"
        np.testing.assert_array_equal(y, (x + x).reshape(-1) * np.float32(2))
        np.testing.assert_array_equal(z, y)

    @pytest.mark.parametrize("style", ["for", "while"])
    def test_grid_stride(self, style):
        @weft.kernel
        def with_for(x, y):
            for i in range(gpu.grid(1), y.size, gpu.gridsize(1)):
                y[i] = x[i] + weft.float32(1)

        @weft.kernel
        def with_while(x, y):
            i = gpu.grid(1)
            while i < y.size:
                y[i] = x[i] + weft.float32(1)
                i += gpu.gridsize(1)

        k = with_for if style == "for" else with_while
        x, t, y = floats(1009), np.zeros(1009, np.float32), np.zeros(1009, np.float32)
        with weft.fuse() as f:
            k[2, 64](x, t)
            k[2, 64](t, y)
        assert f.explain() == f"fused: {k.__name__}, {k.__name__}"
        np.testing.assert_array_equal(y, x + np.float32(1) + np.float32(1))

    def test_loops_are_joined_where_turns_do_not_need_each_other(self):
        @weft.kernel
        def rows(x, y):
            i = gpu.grid(1)
            if i < y.shape[0]:
                for j in range(y.shape[1]):
                    y[i, j] = x[i, j] * weft.float32(2)

        @weft.kernel
        def back(x, y):
            i = gpu.grid(1)
            if i < y.shape[0]:
                total = weft.float32(0)
                for j in range(y.shape[1]):
                    total += x[i, y.shape[1] - 1 - j]
                    y[i, j] = total

        @weft.kernel
        def running(x, y):
            i = gpu.grid(1)
            if i < y.shape[0]:
                total = weft.float32(0)
                for j in range(y.shape[1]):
                    total += x[i, j]
                    y[i, j] = total

        x = floats(37 * 11).reshape(37, 11)
        t, y, z, w = (np.zeros_like(x) for _ in range(4))
        with weft.fuse() as f:
            rows[1, 64](x, t)
            running[1, 64](t, y)
            back[1, 64](t, z)
            running[1, 64](z, w)
        assert f.explain() == "fused: rows, running, back, running"
        np.testing.assert_array_equal(t, x * np.float32(2))
        np.testing.assert_array_equal(y, np.cumsum(t, 1, dtype=np.float32))
        np.testing.assert_array_equal(z, np.cumsum(t[:, ::-1], 1, dtype=np.float32))
        np.testing.assert_array_equal(w, np.cumsum(z, 1, dtype=np.float32))
        # one loop for the first two, one for the last two, which go the other way
        noted = [fuse_launches._Noted(k[1, 64], h, h.types, ()) for k, h in (
            (k, k[1, 64].take(a)) for k, a in ((rows, (x, t)), (running, (t, y)), (back, (t, z)),
                                               (running, (z, w))))]
        made = group_of(parts_of(noted))[0][0]
        assert sum(isinstance(s, For) and s.kind == "serial" for s in walk(joined(made).body)) == 2

    def test_strided_views(self):
        base, y = floats(200), np.zeros(100, np.float32)
        x = base[::2]
        expected = np.float32(2) * x + np.float32(1)
        with weft.fuse() as f:
            scale[1, 128](2.0, x, x)
            shift[1, 128](1.0, x, y)
        assert f.explain() == "fused: scale, shift"
        np.testing.assert_array_equal(y, expected)

    def test_commuting_atomics(self):
        @weft.kernel
        def count(x, out):
            i = gpu.grid(1)
            if i < x.size:
                gpu.atomic.add(out, x[i] % 4, 1)

        x, out = np.arange(1000), np.zeros(4, np.int64)
        with weft.fuse() as f:
            count[4, 256](x, out)
            count[4, 256](x, out)
        # the index depends on data, but its interval is known
        assert f.explain() == "fused: count, count"
        assert (out == 500).all()

    def test_arrays_from_outside(self):
        table = np.arange(8, dtype=np.float32)

        @weft.kernel
        def look(x, y):
            i = gpu.grid(1)
            if i < y.size:
                y[i] = x[i] + table[i % 8]

        x, t, y = floats(50), np.zeros(50, np.float32), np.zeros(50, np.float32)
        with weft.fuse() as f:
            look[1, 64](x, t)
            look[1, 64](t, y)
        assert f.explain() == "fused: look, look"
        once = x + table[np.arange(50) % 8]
        np.testing.assert_array_equal(y, once + table[np.arange(50) % 8])

    def test_nothing_to_do(self):
        x = np.zeros(0, np.float32)
        with weft.fuse() as f:
            pass
        assert f.explain() == ""
        with weft.fuse() as f:
            scale[1, 32](2.0, x, x)
            shift[1, 32](2.0, x, x)
        assert f.explain() == "fused: scale, shift"

    def test_blocks_in_blocks(self):
        x, t, y = floats(9), np.zeros(9, np.float32), np.zeros(9, np.float32)
        with weft.fuse() as outer:
            scale[1, 32](2.0, x, t)
            with weft.fuse() as inner:
                shift[1, 32](1.0, t, y)
            assert inner is outer
            assert not y.any()
        assert outer.explain() == "fused: scale, shift"
        np.testing.assert_array_equal(y, np.float32(2) * x + np.float32(1))

    def test_loop_nests_come_in_order(self):
        @weft.compute
        def doubled(x):
            for i in weft.ndrange(x.shape[0]):
                x[i] = x[i] * 2

        x, y = floats(40), np.zeros(40, np.float32)
        with weft.fuse() as f:
            scale[1, 64](2.0, x, y)
            shift[1, 64](1.0, y, y)
            doubled(y)
            shift[1, 64](1.0, y, y)
        assert kernels_of(f) == ["fused: scale, shift", "alone: shift"]
        np.testing.assert_array_equal(y, (np.float32(2) * x + np.float32(1)) * 2 + np.float32(1))

    def test_a_block_that_raises_runs_nothing(self):
        x, y = floats(9), np.zeros(9, np.float32)
        f = weft.fuse()

        def block():
            with f:
                scale[1, 32](2.0, x, y)
                return 1 / 0

        with pytest.raises(ZeroDivisionError):
            block()
        assert not y.any()
        scale[1, 32](2.0, x, y)  # at once again
        assert y.any()
        with pytest.raises(LaunchError, match="inside of the with block"):
            f.empty(3, weft.float32)

    def test_failures_are_those_of_the_launches(self):
        x, y, z = floats(9), np.zeros(9, np.float32), np.zeros(9, np.float32)
        index = np.full(9, 99)

        def block():
            with weft.fuse():
                scale[1, 32](2.0, x, y)
                gather[1, 32](x, index, z)
                scale[1, 32](2.0, x, z)

        with pytest.raises(BoundsError, match="index 99"):
            block()
        np.testing.assert_array_equal(y, np.float32(2) * x)
        assert not z.any()

    def test_on_the_interpreter(self):
        x, t, y = floats(40), np.zeros(40, np.float32), np.zeros(40, np.float32)
        weft.set_default_device("interpreter")
        try:
            with weft.fuse() as f:
                scale[2, 32](2.0, x, t)
                shift[2, 32](1.0, t, y)
        finally:
            weft.set_default_device("cpu")
        assert "interpreter" in f.explain()
        np.testing.assert_array_equal(y, np.float32(2) * x + np.float32(1))


@pytest.mark.usefixtures("compiled")
class TestTensors:
    def test_chain(self):
        n = 300
        x = floats(n)
        for _ in range(3):
            given, t, y = weft.tensor(x), weft.zeros(n), weft.zeros(n)
            before = t + 1
            with weft.fuse() as f:
                scale[2, 256](2.0, given, t)
                shift[2, 256](1.0, t, y)
                neighbour[2, 256](y, given)
            assert kernels_of(f)[0] == "fused: scale, shift"
            np.testing.assert_array_equal(before.numpy(), np.ones(n))
            np.testing.assert_array_equal(t.numpy(), np.float32(2) * x)
            np.testing.assert_array_equal(y.numpy(), np.float32(2) * x + np.float32(1))
            np.testing.assert_array_equal(given.numpy(), [*y.numpy()[1:], x[-1]])

    def test_beside_arrays_and_in_place(self):
        x = floats(100)
        y = weft.tensor(x)
        kept = y * 1
        with weft.fuse() as f:
            scale[1, 128](2.0, x, y)
            scale[1, 128](3.0, y, y)
        assert f.explain() == "fused: scale, scale"
        np.testing.assert_array_equal(y.numpy(), np.float32(2) * x * np.float32(3))
        np.testing.assert_array_equal(kept.numpy(), x)

    def test_views(self):
        base = weft.zeros(4, 50)
        x = weft.tensor(floats(50))
        with weft.fuse() as f:
            scale[1, 64](2.0, x, base[1])
            scale[1, 64](3.0, x, x)
        assert f.explain() == "fused: scale, scale"
        np.testing.assert_array_equal(base.numpy()[1], np.float32(2) * floats(50))
        row = base[2]
        with weft.fuse() as f:
            scale[1, 64](2.0, base[1], row)
            shift[1, 64](1.0, row, row)
        assert f.explain() == "not fused: one of several views of a tensor is written to"
        np.testing.assert_array_equal(row.numpy(), np.float32(4) * floats(50) + np.float32(1))

    def test_shared_with_an_array(self):
        held = floats(60)
        expected = np.float32(2) * held + np.float32(1)
        y = weft.from_numpy(held)
        with weft.fuse() as f:
            scale[1, 64](2.0, held, y)
            shift[1, 64](1.0, y, held)
        assert f.explain() == "fused: scale, shift"
        np.testing.assert_array_equal(held, expected)
        np.testing.assert_array_equal(y.numpy(), expected)


def refused(*launches):
    """Return why the second of two launches is not joined to the first, after running them."""
    with weft.fuse() as f:
        for launch in launches:
            launch()
    lines = kernels_of(f)
    assert len(lines) == 3, lines
    return lines[1]


def arrays(*sizes):
    return [np.zeros(n, np.float32) for n in sizes]


def line_of(kernel, text):
    code = kernel.__weft_function__.__code__
    with open(code.co_filename) as file:
        lines = file.read().split("\n")
    first = code.co_firstlineno - 1
    return f"{code.co_filename}:{next(k for k in range(first, len(lines)) if text in lines[k]) + 1}"


class TestRefused:
    def test_read_of_what_another_block_writes(self):
        x, t, y = arrays(500, 500, 500)
        found = refused(lambda: scale[4, 128](2.0, x, t), lambda: neighbour[4, 128](t, y))
        where = line_of(neighbour, "y[i] = x[i + 1]")
        assert found == (
            f"not fused: neighbour reads x[i + 1], which another block writes, {where}")

    def test_write_of_what_another_block_reads(self):
        x, t = arrays(500, 500)
        found = refused(lambda: neighbour[4, 128](x, t), lambda: scale[4, 128](2.0, t, x))
        where = line_of(scale, "y[i] = ")
        assert found == ("not fused: scale writes y[i], which another block of neighbour reads, "
                         f"{where}")

    def test_write_of_what_another_block_writes(self):
        @weft.kernel
        def spread(x):
            i = gpu.grid(1)
            if i * 2 < x.size:
                x[i * 2] = weft.float32(1)

        x, y = arrays(500, 500)
        found = refused(lambda: scale[4, 128](2.0, y, x), lambda: spread[4, 128](x))
        assert "spread writes x[i * 2], which another block of scale writes" in found

    def test_every_block_writes_one_element(self):
        @weft.kernel
        def total(x):
            x[0] = weft.float32(gpu.gridDim.x)

        x, y = arrays(500, 500)
        assert "total writes x[0], which another block of" in refused(
            lambda: scale[4, 128](2.0, y, x), lambda: total[4, 128](x))

    def test_index_from_memory(self):
        x, t, y = arrays(500, 500, 500)
        index = np.arange(500)
        found = refused(lambda: scale[4, 128](2.0, x, t),
                        lambda: gather_unchecked[4, 128](t, index, y))
        assert "gather_unchecked reads x[index[i]], which another block writes" in found

    def test_check_that_is_not_proved(self):
        x, t, y = arrays(500, 500, 500)
        index = np.arange(500)
        found = refused(lambda: scale[4, 128](2.0, x, t), lambda: gather[4, 128](x, index, y))
        where = line_of(gather, "y[i] = x[index[i]]")
        assert found == ("not fused: gather may fail (index out of bounds), and nothing else must "
                         f"have run, {where}")
        f = weft.fuse()

        def block():
            with f:
                scale[4, 128](2.0, x[:100], t)  # which is too small
                shift[4, 128](2.0, t, y)

        with pytest.raises(BoundsError):
            block()
        assert "scale may fail (index out of bounds)" in f.explain()

    def test_assertion(self):
        @weft.kernel
        def positive(x, y):
            i = gpu.grid(1)
            if i < y.size:
                assert x[i] >= 0, "negative"
                y[i] = x[i]

        x, t, y = arrays(500, 500, 500)
        assert "positive may fail (negative)" in refused(
            lambda: positive[4, 128](x, t), lambda: scale[4, 128](2.0, t, y))

    def test_overlapping_views(self):
        base = floats(501)
        y = np.zeros(500, np.float32)
        expected = base.copy()
        expected[:500] *= np.float32(2)
        found = refused(lambda: scale[4, 128](2.0, base[:500], base[:500]),
                        lambda: shift[4, 128](1.0, base[1:], y))
        assert found == ("not fused: x of shift and x of scale overlap and are different views")
        np.testing.assert_array_equal(base, expected)
        np.testing.assert_array_equal(y, expected[1:] + np.float32(1))

    def test_views_of_other_types(self):
        @weft.kernel
        def bits(x, y):
            i = gpu.grid(1)
            if i < y.size:
                y[i] = x[i]

        x, t = arrays(100, 100)
        y = np.zeros(100, np.int32)
        assert "overlap and are different views" in refused(
            lambda: scale[1, 128](2.0, x, t), lambda: bits[1, 128](t.view(np.int32), y))

    def test_views_that_only_are_read_may_overlap(self):
        base = floats(501)
        t, y = arrays(500, 500)
        with weft.fuse() as f:
            scale[4, 128](2.0, base[:500], t)
            scale[4, 128](2.0, base[1:], y)
        assert f.explain() == "fused: scale, scale"

    def test_other_grids_and_blocks(self):
        x, t, y = arrays(100, 100, 100)
        assert refused(lambda: scale[1, 128](2.0, x, t), lambda: scale[2, 128](2.0, t, y)) == (
            "not fused: scale runs on (2, 1, 1) blocks of (128, 1, 1), scale on (1, 1, 1) blocks "
            "of (128, 1, 1)")
        assert "blocks of (64, 1, 1)" in refused(
            lambda: scale[2, 128](2.0, x, t), lambda: scale[2, 64](2.0, t, y))

    def test_shared_memory(self):
        @weft.kernel
        def large(x):
            s = gpu.shared.array(30000, weft.float32)
            i = gpu.threadIdx.x
            s[i] = x[i]
            x[i] = s[i]

        x, y = arrays(32, 32)
        assert refused(lambda: large[1, 32](x), lambda: large[1, 32](y)) == (
            "not fused: large would bring the shared memory of a block to 240000 bytes, of 232448")

    def test_registers(self):
        @weft.kernel(max_registers=8)
        def product(x, y):
            i = gpu.grid(1)
            if i < y.size:
                y[i] = x[0] * x[1] * x[2] * x[3]

        @weft.kernel
        def products(x, y, u, v):
            i = gpu.grid(1)
            if i < v.size:
                u[i] = y[0] * y[1] * y[2] * y[3]
                v[i] = x[0] * x[1] * x[2] * x[3]

        x, y, t, u, v = arrays(100, 100, 100, 100, 100)
        found = refused(lambda: product[1, 128](x, t), lambda: products[1, 128](x, y, u, v))
        assert found == "not fused: products would bring a thread to 12 registers, of 8"
        with weft.fuse() as f:
            product[1, 128](x, t)
            products[1, 128](y, x, u, v)
        assert f.explain() == "fused: product, products"

    def test_printing_in_both(self, capfd):
        @weft.kernel
        def say(n):
            if gpu.threadIdx.x == 0:
                print("said", n)

        x, y = arrays(10, 10)
        found = refused(lambda: say[1, 32](1), lambda: say[1, 32](2))
        assert "say prints after say has" in found
        with weft.fuse() as f:
            scale[1, 32](2.0, x, y)
            say[1, 32](3)
        assert f.explain() == "fused: scale, say"

    def test_float_atomics(self):
        @weft.kernel
        def add(x, total):
            i = gpu.grid(1)
            if i < x.size:
                gpu.atomic.add(total, 0, x[i])

        x, total = floats(100), np.zeros(1, np.float32)
        found = refused(lambda: add[2, 64](x, total), lambda: add[2, 64](x, total))
        assert "add changes total[0], which another block of add changes atomically" in found

    def test_integer_atomics_whose_result_is_used(self):
        @weft.kernel
        def ticket(counter, out):
            i = gpu.grid(1)
            if i < out.size:
                out[i] = gpu.atomic.add(counter, 0, 1)

        @weft.kernel
        def count(counter):
            gpu.atomic.add(counter, 0, 1)

        counter = np.zeros(1, np.int64)
        a, b = np.zeros(100, np.int64), np.zeros(100, np.int64)
        found = refused(lambda: ticket[2, 64](counter, a), lambda: ticket[2, 64](counter, b))
        assert "ticket changes counter[0], which another block of ticket changes" in found
        with weft.fuse() as f:
            count[2, 64](counter)
            count[2, 64](counter)
        assert f.explain() == "fused: count, count"
        assert counter[0] == 200 + 256

    def test_fields_through_copies(self):
        @weft.kernel
        def double(r):
            i = gpu.grid(1)
            if i < r.size:
                r[i].v = r[i].v * 2

        packed = np.zeros(5, np.dtype([("pad", np.int8), ("v", np.float32)]))
        packed["v"] = 1.5
        found = refused(lambda: double[1, 32](packed), lambda: double[1, 32](packed))
        assert "double works on copies of fields" in found
        assert (packed["v"] == 6).all()

    def test_barrier_of_the_grid(self):
        @weft.kernel
        def waits(x, y):
            i = gpu.grid(1)
            x[i] += weft.float32(1)
            cg.this_grid().sync()
            y[i] = x[127 - i]

        x, t, y = arrays(128, 128, 128)
        found = refused(lambda: waits[2, 64](x, t), lambda: scale[2, 64](2.0, t, y))
        assert found.startswith("not fused: waits waits for the whole grid, ")
        assert (y == 2).all()

    def test_bad_shape(self):
        with weft.fuse() as f:
            for shape in (-3, (1 << 60, 8), "x"):
                with pytest.raises(weft.ShapeError, match="the shape"):
                    f.empty(shape, weft.float32)

    def test_relaxed_arithmetic(self):
        @weft.kernel(fastmath=True)
        def loose(x, y):
            i = gpu.grid(1)
            if i < y.size:
                y[i] = x[i] * x[i]

        x, t, y = arrays(100, 100, 100)
        assert "loose may round otherwise in another kernel" in refused(
            lambda: loose[1, 128](x, t), lambda: scale[1, 128](2.0, t, y))


def streams(n, step):
    """Return five arrays, each of which begins `step` bytes further into a page than the last."""
    memory = np.zeros(5 * (n + 2048), np.float32)
    start = -memory.ctypes.data % 4096 // 4
    arrays = []
    for k in range(5):
        arrays.append(memory[start : start + n])
        start += n
        start += (4096 - memory[start:].ctypes.data % 4096 + (k + 1) * step) % 4096 // 4
    return arrays


@pytest.mark.parametrize(("n", "step", "kept", "barriers"), [
    ((1 << 20) + 5, 0, 5, 3), ((1 << 20) + 5, 16, 5, 3),  # as far into a page
    ((1 << 20) + 5, 208, 5, 0),  # nowhere near each other
    (1 << 10, 0, 5, 0),  # what caches hold
    ((1 << 20) + 5, 0, 4, 0),  # not all are kept
])  # fmt: skip
def test_blocks_write_large_arrays_one_after_the_other(monkeypatch, n, step, kept, barriers):
    made = []

    def noted(group, spare):
        made.append(joined(group, spare))
        return made[-1]

    monkeypatch.setattr(fuse_launches, "joined", noted)
    fuse_launches._decisions.clear()
    arrays = streams(n, step)
    arrays[0][:] = np.random.default_rng(4).standard_normal(n)
    grid = weft.cdiv(n, 256)
    with weft.fuse() as f:
        if kept == 4:
            arrays[2] = f.empty(n, weft.float32)
        for k, (kernel, x, y) in enumerate(zip((scale, shift, scale, shift), arrays, arrays[1:],
                                               strict=False)):
            kernel[grid, 256](k + 1, x, y)
    (one,) = made
    assert sum(isinstance(s, Barrier) for s in walk(one.body)) == barriers
    expected = arrays[0]
    for k, y in enumerate(arrays[1:]):
        expected = expected + np.float32(k + 1) if k % 2 else expected * np.float32(k + 1)
        if k != 1 or kept == 5:
            np.testing.assert_array_equal(y, expected)
