"""Every strategy keeps the meaning of every nest, on several targets and thread counts."""


import pytest

import processor
import schedule_nests as nests
from schedule_costs import Cost
from schedule_nests import assert_replays, assert_same, loop, memory, n, v
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import (
    Accumulator,
    Assert,
    Axis,
    For,
    If,
    Kernel,
    Load,
    Meta,
    Reduce,
    Store,
    lhs,
    rhs,
)
from weft.ir.traverse import walk
from weft.schedule import Schedule
from weft.strategies import choose
from weft.strategies.common import nest
from weft.target import CostModel, Target

WIDE = Target("cpu", "x86_64", vector_bytes=64, vector_registers=32, l1_bytes=32 << 10,
              l2_bytes=1 << 20, l3_bytes=32 << 20, cores=2)
NARROW = Target("cpu", "aarch64", vector_bytes=16, vector_registers=32, cores=1)
TINY = WIDE.replace(vector_bytes=16, l3_bytes=128)  # streams everything


def check(kernel, target=WIDE, threads=2, exact=True, variables=None):
    made = choose(kernel, target, threads)
    assert_same(kernel, made, exact=exact, variables=variables)
    assert_replays(kernel, made)
    assert dict(made.meta.hints)["why"]
    return made


def kinds(kernel):
    found = {}
    for stmt in walk(kernel.body):
        if isinstance(stmt, For):
            found[stmt.var.attr] = stmt.kind
        elif isinstance(stmt, Reduce):
            found.update((a.var.attr, a.kind) for a in stmt.axes)
    return found


@pytest.mark.parametrize("target", [WIDE, NARROW, TINY])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 15, 16, 17, 31, 64, 65, 127, 130, 257])
def test_flat_elementwise(size, target):
    check(nests.chain(size), target)


@pytest.mark.parametrize(("whole", "terms", "lanes"), [(True, 0, 8), (False, 0, 64), (True, 9, 32)])
def test_quotients_take_half_a_register_where_units_take_whole_ones(whole, terms, lanes):
    x, y = memory("x", 1024), memory("y", 1024)
    a = nests.f("a")
    value = ex.unary(Op.SQRT, a) / a
    for number in range(2 * terms):  # the other units then have more to do than the divider
        value = (value + float(number)) * a
    kernel = Kernel("quotient", (x, y), (loop("i", 1024, Load(a, x, (v("i"),)),
                                              Store(y, (v("i"),), value)),))
    made = check(kernel, WIDE.replace(whole_vectors=whole))
    assert f"in vectors of {lanes}" in dict(made.meta.hints)["why"]


def test_quotients_that_a_row_shares_leave_vectors_whole():
    x, c, y = memory("x", 3, 1024), memory("c", 3), memory("y", 3, 1024)
    i, j = v("i"), v("j")
    value = nests.f("a") * ex.unary(Op.RSQRT, nests.f("b"))
    body = (Load(nests.f("a"), x, (i, j)), Load(nests.f("b"), c, (i,)), Store(y, (i, j), value))
    kernel = Kernel("scaled", (x, c, y), (loop("i", 3, loop("j", 1024, *body)),))
    made = check(kernel, WIDE.replace(whole_vectors=True))
    assert "in vectors of 64" in dict(made.meta.hints)["why"]


@pytest.mark.parametrize("target", [WIDE, NARROW, TINY])
@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (5, 0), (1, 1), (3, 10), (7, 33), (2, 130)])
def test_two_dimensional_elementwise(rows, columns, target):
    check(nests.bias(rows, columns), target)


@pytest.mark.parametrize("target", [WIDE, NARROW])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 40), (16, 16), (17, 37), (48, 32),
                                               (33, 50)])
def test_transpose(rows, columns, target):
    made = check(nests.transpose(rows, columns), target)
    if target is WIDE and min(rows, columns) >= 32:
        assert "unrolled" in kinds(made).values()


@pytest.mark.parametrize(("rows", "columns", "lanes"), [
    (48, 32, 16), (40, 48, 8), (48, 40, 8), (33, 51, 8), (17, 515, 8)])
def test_tiles_between_lines_are_half_as_wide(rows, columns, lanes):
    """They read whole lines where those would not stay in the first cache for the next tile."""
    made = check(nests.transpose(rows, columns), WIDE)
    assert Cost(made).stored_at_once("y") == lanes


@pytest.mark.parametrize("columns", [3, 5, 8, 9])
@pytest.mark.parametrize("long", [50, 257, 300])
def test_few_columns_come_from_every_vector(columns, long):
    made = check(nests.transpose(columns, long), WIDE)
    assert (kinds(made).get("i") == "unrolled") == (columns < 9 and long > 256)


@pytest.mark.parametrize("value", [0, 1, 5, 64, 100])
def test_symbolic_sizes(value):
    size = ex.Variable("n", 0, 1000)
    check(nests.chain(size), variables={"n": value})
    check(nests.bias(3, size), variables={"n": value})
    check(nests.add_sum(size), variables={"n": value})
    check(nests.matvec(size, 40), variables={"n": value})
    check(nests.matmul(size, 24, 5), variables={"n": value})
    check(nests.matmul(5, size, 5), variables={"n": value})
    check(nests.matmul(5, 8, size), variables={"n": value})
    check(nests.matmul(5, 8, size, right="jk"), variables={"n": value})
    check(nests.column_sum(size, 40), variables={"n": value})
    check(nests.column_sum(40, size), variables={"n": value})


@pytest.mark.parametrize("target", [WIDE, NARROW, TINY])
@pytest.mark.parametrize(("rows", "columns"), [(0, 4), (1, 1), (3, 2), (3, 10), (4, 16), (2, 67),
                                               (2, 300), (40, 3)])
def test_softmax(rows, columns, target):
    check(nests.softmax(rows, columns), target, exact=False)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 2), (3, 10), (2, 67), (40, 3)])
def test_argmax(rows, columns):
    check(nests.argmax(rows, columns))


@pytest.mark.parametrize("size", [0, 1, 5, 16, 100, 1000])
def test_full_sum(size):
    check(nests.add_sum(size))


@pytest.mark.parametrize("size", [1 << 19, (1 << 19) + 7])
def test_full_sum_in_chunks(size):
    made = choose(nests.add_sum(size), WIDE, 2)
    assert "parallel" in kinds(made).values()
    assert "parallel" not in kinds(choose(nests.add_sum(size), WIDE, 1)).values()
    # the same chunks, small enough to interpret
    small = nests.add_sum(67)
    steps = Schedule(small).split("k", 16, "peel").rfactor("k.o").parallel("k.o")
    steps.split("k.i", 8).vectorize("k.i.i")
    assert_same(small, steps.kernel)


@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (5, 17), (8, 64), (9, 100), (64, 300),
                                               (30, 3), (0, 16)])
def test_column_sum(rows, columns):
    check(nests.column_sum(rows, columns))


def test_column_sum_with_few_columns(monkeypatch):
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1))
    for rows, columns in ((300, 20), (257, 16), (1000, 33)):
        made = check(nests.column_sum(rows, columns))
        assert kinds(made)["k.o"] == "parallel"


@pytest.mark.grid
@pytest.mark.parametrize("target", [WIDE, NARROW])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 2), (8, 32, 7), (9, 33, 4), (17, 70, 3),
                                   (4, 10, 20), (64, 3, 5), (2, 20, 0), (0, 8, 3), (1, 40, 9)])
@pytest.mark.parametrize("layout", [("ik", "kj"), ("ik", "jk"), ("ki", "kj"), ("ki", "jk")])
def test_matmul(shape, layout, target):
    check(nests.matmul(*shape, *layout), target)


@pytest.mark.parametrize("shape", [(3, 8, 16), (5, 3, 33), (9, 3, 100), (1, 4, 64)])
def test_matmul_along_the_reduced_axis(shape):
    made = check(nests.matmul(*shape, right="jk", epilogue=False))
    assert Cost(made).form == "dot_product"


@pytest.mark.parametrize("shape", [(8, 8, 16), (13, 15, 3), (13, 5, 3), (40, 7, 30)])
def test_few_columns_are_turned_into_panels(shape):
    cost = Cost(check(nests.matmul(*shape, right="jk", epilogue=False)))
    assert cost.form == "register_tile"
    assert cost.written["b.s"] >= shape[1] * shape[2]


@pytest.mark.parametrize(("rows", "inner"), [(1, 1), (3, 5), (4, 64), (7, 100), (33, 17)])
def test_matvec(rows, inner):
    check(nests.matvec(rows, inner))
    check(nests.matvec(rows, inner), NARROW)


def test_contraction_uses_registers_and_fma():
    made = check(nests.matmul(16, 64, 9))
    cost = Cost(made)
    assert set(cost.products) == {"mad"}
    assert cost.registers
    assert kinds(made)["j.i"] == "vector"


def convolution(batch, channels, outputs, size, window):
    """out[n, o] = sum over c of in[n, c] (padded by one) correlated with w[o, c]."""
    image = memory("image", batch, channels, size, size)
    weight = memory("weight", outputs, channels, window, window)
    out = memory("out", batch, outputs, size, size)
    y, x = v("y") + v("p") - 1, v("x") + v("q") - 1
    inside = n(0).le(y) & y.lt(size) & n(0).le(x) & x.lt(size)
    reduce = Reduce(
        (Axis(v("c"), n(channels)), Axis(v("p"), n(window)), Axis(v("q"), n(window))),
        (nests.total("s", value=ex.where(inside, nests.f("a"), 0.0) * nests.f("b")),),
        (Load(nests.f("a"), image, (v("b0"), v("c"), y, x), inside),
         Load(nests.f("b"), weight, (v("o"), v("c"), v("p"), v("q")))))
    nest = loop("b0", batch, loop("o", outputs, loop("y", size, loop(
        "x", size, reduce, Store(out, (v("b0"), v("o"), v("y"), v("x")), nests.f("s"))))))
    return Kernel("conv", (image, weight, out), (nest,), Meta("contraction"))


@pytest.mark.parametrize("shape", [(1, 2, 3, 5, 3), (2, 1, 4, 8, 3), (1, 1, 1, 17, 3)])
def test_convolution(shape):
    made = check(convolution(*shape))
    assert "contraction" in dict(made.meta.hints)["why"] or shape[2] == 1


@pytest.mark.grid
@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize(("size", "form"), [(32, "windows"), (33, "rows")])
def test_a_convolution_with_few_outputs_is_not_taken_for_a_gradient_of_weights(size, form, window):
    made = check(convolution(1, 6, 4, size, window))
    assert f"{form} of image copied" in dict(made.meta.hints)["why"]
    assert "partial sums" not in dict(made.meta.hints)["why"]


def test_batched_matmul():
    a, b, c = memory("a", 3, 5, 4), memory("b", 3, 4, 20), memory("c", 3, 5, 20)
    reduce = Reduce((Axis(v("k"), n(4)),),
                    (nests.total("s", value=nests.f("p") * nests.f("q")),),
                    (Load(nests.f("p"), a, (v("t"), v("i"), v("k"))),
                     Load(nests.f("q"), b, (v("t"), v("k"), v("j")))))
    nest = loop("t", 3, loop("i", 5, loop("j", 20, reduce, Store(
        c, (v("t"), v("i"), v("j")), nests.f("s")))))
    made = check(Kernel("batched", (a, b, c), (nest,)))
    assert "contraction" in dict(made.meta.hints)["why"]


def test_rows_that_share_an_index_are_no_contraction():
    a, b, y = memory("a", 6, 40), memory("b", 6, 40), memory("y", 6)
    reduce = Reduce((Axis(v("k"), n(40)),), (nests.total("s", value=nests.f("p") * nests.f("q")),),
                    (Load(nests.f("p"), a, (v("r"), v("k"))),
                     Load(nests.f("q"), b, (v("r"), v("k")))))
    nest = loop("r", 6, reduce, Store(y, (v("r"),), nests.f("s")))
    made = check(Kernel("dots", (a, b, y), (nest,)))
    assert "contraction" not in dict(made.meta.hints)["why"]
    assert kinds(made)["k.i"] == "vector"


@pytest.mark.parametrize("columns", [3, 16, 40])
def test_scan_is_parallel_over_rows_only(columns, monkeypatch):
    monkeypatch.setattr(nest.Plan, "costs", CostModel(parallel_work=1))
    made = check(nests.running_sum(8, columns))
    assert kinds(made)["r"] == "parallel"


def test_gather_and_scatter():
    index, x, y = memory("index", 40, dtype=dt.int64), memory("x", 9), memory("y", 40)
    at = v("p") % 9
    body = loop("i", 40, Load(v("p"), index, (v("i"),)),
                Assert(at.lt(9), "index", at, n(9)), Load(nests.f("a"), x, (at,)),
                Store(y, (v("i"),), nests.f("a")))
    made = check(Kernel("gather", (index, x, y), (body,)))
    assert set(kinds(made).values()) == {"serial"}  # loads beat a gather instruction
    out = memory("out", 9)
    body = loop("i", 40, Load(v("p"), index, (v("i"),)), Load(nests.f("a"), y, (v("i"),)),
                Store(out, (at,), nests.f("a")))
    made = check(Kernel("scatter", (index, y, out), (body,)))
    assert set(kinds(made).values()) == {"serial"}


@pytest.mark.parametrize("size", [1, 30, 100])
def test_conditions_and_narrow_types(size):
    check(nests.guarded(size, 20))
    for d in (dt.uint8, dt.float64, dt.int16, dt.bool_):
        x, y = memory("x", size, dtype=d), memory("y", size, dtype=d)
        a = v("a", d)
        check(Kernel("copy", (x, y), (loop("i", size, Load(a, x, (v("i"),)),
                                           Store(y, (v("i"),), a)),)))


def test_online_pair_of_accumulators():
    """Maximum and sum of exponentials in one pass: both halves are combined together."""
    x, y = memory("x", 3, 50), memory("y", 3)
    m, s, a = nests.f("m"), nests.f("s"), nests.f("a")

    def exp(e):
        return ex.unary(Op.EXP, e)

    def merge(m1, s1, m2, s2):
        top = ex.maximum(m1, m2)
        return top, s1 * exp(m1 - top) + s2 * exp(m2 - top)

    one = ex.const(1.0, dt.float32)
    top, grown = merge(m, s, a, one)
    joined, both = merge(lhs(m), lhs(s), rhs(m), rhs(s))
    accumulators = (Accumulator(m, ex.const(-1e30, dt.float32), top, joined),
                    Accumulator(s, ex.const(0.0, dt.float32), grown, both))
    reduce = Reduce((Axis(v("k"), n(50)),), accumulators, (Load(a, x, (v("r"), v("k"))),))
    kernel = Kernel("online", (x, y), (loop("r", 3, reduce, Store(y, (v("r"),), s)),))
    check(kernel, exact=False)


def streams(kernel):
    """Whether a kernel writes past the caches."""
    return any(s.streaming for s in walk(kernel.body) if isinstance(s, Store))


def test_a_scheduled_kernel_is_left_alone():
    kernel = Schedule(nests.chain(64)).split("i", 8).kernel
    assert choose(kernel, WIDE, 2) is kernel


def test_outputs_of_many_arrays_are_streamed_together():
    size = 1 << 20
    arrays = [memory(name, size) for name in "abcdy"]
    loads = [Load(v(f"x{m.name}", dt.float32), m, (v("i"),)) for m in arrays[:4]]
    total = loads[0].var + loads[1].var + loads[2].var + loads[3].var
    kernel = Kernel("sum", tuple(arrays),
                    (loop("i", size, *loads, Store(arrays[4], (v("i"),), total)),))
    for l3, streamed in ((9 << 20, True), (11 << 20, False)):
        target = WIDE.replace(l2_bytes=1 << 20, l3_bytes=l3)
        assert streams(choose(kernel, target, 1)) == streamed


def test_large_nests_are_parallel_and_streamed():
    made = choose(nests.chain(1 << 24), WIDE, 2)
    assert kinds(made) == {"i.o": "parallel", "i.i": "vector"}
    assert streams(made)
    made = choose(nests.softmax(4096, 4096), WIDE, 2)
    assert kinds(made)["r"] == "parallel"
    assert sum(kind == "vector" for kind in kinds(made).values()) == 3
    made = choose(nests.matmul(1024, 1024, 1024), WIDE, 2)
    assert not [s for s in walk(made.body) if isinstance(s, If)]
    assert "parallel" in kinds(made).values()
    assert "parallel" not in kinds(choose(nests.chain(1 << 24), WIDE, 1)).values()


@pytest.mark.parametrize("make", [
    lambda: nests.chain(1 << 20), lambda: nests.softmax(1000, 1000),
    lambda: nests.matmul(512, 768, 3072), lambda: nests.matmul(50, 70, 30, right="jk"),
    lambda: nests.transpose(1000, 1000), lambda: nests.column_sum(3000, 700),
    lambda: convolution(8, 64, 64, 56, 3)])
def test_strategies_are_cheap(make):
    """Milliseconds of the processor a kernel: here in steps of plain Python."""
    kernel = make()
    best = min(processor.timed(lambda: choose(kernel, WIDE, 2)) for _ in range(5))
    assert best < 5 * processor.unit()


@pytest.mark.parametrize("shape", [(3, 8, 2, 3, 8), (2, 5, 3, 3, 9), (2, 4, 4, 1, 16)])
def test_weight_gradient_of_a_convolution(shape):
    """dw[o, c, p, q] = sum over n, y, x of dy[n, o, y, x] * image[n, c, y + p, x + q]."""
    batch, outputs, channels, window, size = shape
    dy = memory("dy", batch, outputs, size, size)
    image = memory("image", batch, channels, size + window - 1, size + window - 1)
    dw = memory("dw", outputs, channels, window, window)
    reduce = Reduce(
        (Axis(v("b0"), n(batch)), Axis(v("y"), n(size)), Axis(v("x"), n(size))),
        (nests.total("s", value=nests.f("a") * nests.f("b")),),
        (Load(nests.f("a"), dy, (v("b0"), v("o"), v("y"), v("x"))),
         Load(nests.f("b"), image, (v("b0"), v("c"), v("y") + v("p"), v("x") + v("q")))))
    nest = loop("o", outputs, loop("c", channels, loop("p", window, loop(
        "q", window, reduce, Store(dw, (v("o"), v("c"), v("p"), v("q")), nests.f("s"))))))
    made = check(Kernel("gradient", (dy, image, dw), (nest,)))
    assert "partial sums along x" in dict(made.meta.hints)["why"]


def test_a_pooling_window_is_unrolled():
    x, y = memory("x", 6, 8, 8), memory("y", 6, 4, 4)
    at = (v("c"), v("i") * 2 + v("p"), v("j") * 2 + v("q"))
    reduce = Reduce((Axis(v("p"), n(2)), Axis(v("q"), n(2))),
                    (nests.biggest("m", nests.f("a")),), (Load(nests.f("a"), x, at),))
    nest = loop("c", 6, loop("i", 4, loop("j", 4, reduce, Store(
        y, (v("c"), v("i"), v("j")), nests.f("m")))))
    made = check(Kernel("pool", (x, y), (nest,)))
    assert kinds(made)["p"] == kinds(made)["q"] == "unrolled"


@pytest.mark.parametrize("shape", [(50, 40, 30), (64, 70, 9)])
def test_strided_operands_are_packed(shape):
    cost = Cost(check(nests.matmul(*shape, right="jk")))
    assert cost.read["b"] < cost.computed / 4


@pytest.mark.parametrize("inner", [3072, 3001, 30720])
def test_long_reductions_are_cut_into_blocks(inner):
    made = choose(nests.matmul(64, 768, inner, right="jk"), WIDE, 2)
    assert max(Cost(made).private.values()) <= WIDE.l2_bytes // 2


@pytest.mark.parametrize(("rows", "columns"), [(40, 33), (5, 64)])
def test_softmax_over_columns_keeps_private_rows_small(rows, columns):
    x, y = memory("x", rows, columns), memory("y", rows, columns)
    kernel = nests.softmax(columns, rows)
    swapped = {kernel.params[0]: x, kernel.params[1]: y}
    from weft.ir.traverse import Rewriter

    class Turn(Rewriter):
        def visit(self, stmt):
            if isinstance(stmt, Load | Store) and stmt.memory in swapped:
                return stmt.replace(memory=swapped[stmt.memory], index=stmt.index[::-1])
            return stmt

    turned = Turn(kernel).run().replace(params=(x, y))
    made = check(turned, exact=False)
    assert kinds(made)["r.i"] == "vector"
