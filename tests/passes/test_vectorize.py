"""Vector loops: forms of access, masks, nested loops, assertions."""

import numpy as np
import pytest
from nests import (
    BOOL,
    F32,
    I64,
    accumulator,
    check,
    f32,
    kernel,
    loads_of,
    loop,
    memory,
    reduce,
    stores_to,
    total,
    unrolled,
    var,
    vector,
)

from weft.errors import BoundsError, LaunchError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret import run, run_linear
from weft.ir.op import Op
from weft.ir.stmt import Alloc, Assert, Atomic, For, If, Let, Load, Location, Prefetch, Store, While
from weft.ir.traverse import walk
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize

i, j, k, o, q = (var(n) for n in "ijkoq")
x, y, z = (ex.var(n, F32) for n in "xyz")


def test_contiguous_copy_is_one_vector_load_and_store():
    a, b = memory("a", 64), memory("b", 64)
    at = o * 16 + i
    nest = loop(o, 4, vector(i, 16, Load(x, a, (at,)), Store(b, (at,), x * x)))
    arrays, made = check(kernel([a, b], nest))
    np.testing.assert_array_equal(arrays["b"], arrays["a"] ** 2)
    (load,), (store,) = loads_of(made, a), stores_to(made, b)
    assert load.var.lanes == store.value.lanes == 16
    assert load.index[0].lanes == store.index[0].lanes == 1


def test_uniform_load_is_scalar():
    a, b = memory("a", 4), memory("b", 4, 8)
    nest = loop(o, 4, vector(i, 8, Load(x, a, (o,)), Store(b, (o, i), x + 1.0)))
    _, made = check(kernel([a, b], nest))
    assert loads_of(made, a)[0].var.lanes == 1


@pytest.mark.parametrize("index", [i * 3, 23 - i * 2, i * i, ex.minimum(i, 3)])
def test_other_strides_gather(index):
    a, b = memory("a", 64), memory("b", 8)
    _, made = check(kernel([a, b], vector(i, 8, Load(x, a, (index,)), Store(b, (i,), x))))
    assert loads_of(made, a)[0].index[0].lanes == 8


def test_transposed_access():
    a, b = memory("a", 8, 5), memory("b", 5, 8)
    nest = loop(o, 5, vector(i, 8, Load(x, a, (i, o)), Store(b, (o, i), x)))
    arrays, _ = check(kernel([a, b], nest))
    np.testing.assert_array_equal(arrays["b"].reshape(5, 8), arrays["a"].reshape(8, 5).T)


def test_merged_axis_stays_contiguous():
    """Rows are a multiple of the lanes: the row is uniform, the column counts up."""
    a, b = memory("a", 4, 32), memory("b", 128)
    at = o * 16 + i
    nest = loop(o, 8, vector(i, 16, Load(x, a, (at // 32, at % 32)), Store(b, (at,), x)))
    _, made = check(kernel([a, b], nest))
    assert loads_of(made, a)[0].index[0].lanes == 1


def test_division_that_splits_a_vector():
    a, b = memory("a", 6), memory("b", 32)
    at = o * 8 + i
    nest = loop(o, 4, vector(i, 8, Load(x, a, (at // 6,)), Store(b, (at,), x)))
    _, made = check(kernel([a, b], nest))
    assert loads_of(made, a)[0].index[0].lanes == 8


def test_bias_row_divides_by_the_columns():
    bias, b = memory("bias", 48), memory("b", 4, 48)
    at = o * 16 + i
    nest = loop(o, 12, vector(i, 16, Load(x, bias, (at % 48,)), Store(b, (at // 48, at % 48), x)))
    _, made = check(kernel([bias, b], nest))
    assert loads_of(made, bias)[0].index[0].lanes == 1


def test_base_that_wraps_around_is_not_taken_for_aligned():
    """A product that wraps around is no multiple of its factor."""
    a, b = memory("a", 3, dtype=I64), memory("b", 3, 8, dtype=I64)
    h = var("h")
    nest = loop(o, 3, Load(h, a, (o,)), vector(i, 8, Store(b, (o, i), (h * 9 + i) // 9)))
    # 9 * 2**61 wraps to 2**61, which leaves 2 when divided by 9: lane 7 is one further.
    arrays = {"a": np.array([2**61, 2**62, -(2**61)]), "b": np.zeros(24, np.int64)}
    results, _ = check(kernel([a, b], nest), arrays)
    assert results["b"][7] == results["b"][0] + 1


def masked_copy(n, lanes=8):
    a, b = memory("a", n), memory("b", n)
    at = o * lanes + i
    body = If(at.lt(n), (Load(x, a, (at,)), Store(b, (at,), x + 1.0)))
    return kernel([a, b], loop(o, -(-n // lanes), vector(i, lanes, body)))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 23])
def test_masked_tail(n):
    arrays, made = check(masked_copy(n))
    np.testing.assert_array_equal(arrays["b"], arrays["a"] + np.float32(1))
    masked = any(s.mask is not None for s in loads_of(made, memory("a", n)))
    assert masked == (n % 8 != 0)


def test_masks_nest_and_else_is_the_rest():
    a, b = memory("a", 20), memory("b", 20)
    at = o * 8 + i
    inner = If(
        ex.const(0.0, F32).lt(x),
        (If(at.lt(13), (Store(b, (at,), x),)),),
        (Store(b, (at,), -x),),
    )
    nest = loop(o, 3, vector(i, 8, If(at.lt(20), (Load(x, a, (at,)), inner))))
    check(kernel([a, b], nest))


def test_uniform_condition_stays_a_branch():
    a, b = memory("a", 3), memory("b", 3, 8)
    body = If(f32(0.0).lt(x), (Store(b, (o, i), x),), (Store(b, (o, i), x * 2.0),))
    _, made = check(kernel([a, b], loop(o, 3, Load(x, a, (o,)), vector(i, 8, body))))
    assert any(isinstance(s, If) for s in walk(made.body))
    assert all(s.mask is None for s in stores_to(made, b))


def test_branches_ask_what_ranges_leave_open():
    """Of what a loop keeps between two bounds, one side is known."""
    a, b = memory("a", 9), memory("b", 9, 8)
    body = If(ex.index(-1).lt(o) & o.lt(7) & (o + 3).lt(20), (Store(b, (o, i), x),))
    _, made = check(kernel([a, b], loop(o, 9, Load(x, a, (o,)), vector(i, 8, body))))
    asked = [s.condition for s in walk(made.body) if isinstance(s, If)]
    assert [c.op for c in asked] == [Op.LT]


def test_uniform_load_under_a_mask_reads_nothing_if_no_lane_is_active():
    a, b, c = memory("a", 2), memory("b", 16), memory("c", 2, dtype=I64)
    n = var("n")
    at = ex.where(n.lt(1), ex.index(99), o)
    body = If(i.lt(n), (Load(x, a, (at,)), Store(b, (o * 8 + i,), x)))
    nest = loop(o, 2, Load(n, c, (o,)), vector(i, 8, body))
    arrays = {"a": np.float32([1, 2]), "b": np.zeros(16, np.float32), "c": np.array([3, 0])}
    check(kernel([a, b, c], nest), arrays)


def test_prefix_of_no_active_lane_reads_nothing():
    """Some lane passes each condition, none passes both, and the address is out of bounds."""
    a, b, f = memory("a", 1), memory("b", 8), memory("f", 8, dtype=BOOL)
    c, flag, n = memory("c", 1, dtype=I64), ex.var("flag", BOOL), var("n")
    inner = If(i.lt(3), (Load(x, a, (n,)), Store(b, (i,), x)))
    nest = (Load(n, c, (ex.index(0),)), vector(i, 8, Load(flag, f, (i,)), If(flag, (inner,))))
    arrays = {
        "a": np.ones(1, np.float32),
        "b": np.zeros(8, np.float32),
        "f": np.arange(8) > 5,
        "c": np.array([99]),
    }
    check(kernel([a, b, f, c], *nest), arrays)


@pytest.mark.parametrize("condition", [(7 - i).lt(3), (7 - i).le(3), ex.index(4).lt(i)])
def test_condition_that_holds_for_the_last_lanes(condition):
    a, b = memory("a", 1), memory("b", 8)
    body = If(condition, (Load(x, a, (ex.index(0),)), Store(b, (i,), x)))
    arrays, _ = check(kernel([a, b], vector(i, 8, body)))
    assert (arrays["b"][5:] == arrays["a"][0]).all()


@pytest.mark.parametrize("op", [Op.LT, Op.LE, Op.EQ, Op.NE])
@pytest.mark.parametrize("value", [-(2**32), -1, 0, 3, 7, 8, 2**32, 2**32 + 3])
def test_comparison_of_the_lane_with_a_large_size(op, value):
    n = ex.Variable("n", -(2**40), 2**40)
    b = memory("b", 3, 8)
    swapped = ex.where(ex.binary(op, n, i), f32(1.0), f32(2.0))
    nest = vector(
        i,
        8,
        If(ex.binary(op, i, n), (Store(b, (ex.index(0), i), f32(1.0)),)),
        Store(b, (ex.index(1), i), swapped),
        Store(b, (ex.index(2), i), ex.where(ex.binary(op, i + n, n + 3), f32(1.0), f32(2.0))),
    )
    check(kernel([b], nest), variables={"n": value})


def test_scattered_condition_over_a_uniform_load():
    a, b, f = memory("a", 1), memory("b", 8), memory("f", 8, dtype=BOOL)
    flag = ex.var("flag", BOOL)
    body = If(flag, (Load(x, a, (ex.index(0),)), Store(b, (i,), x)))
    check(kernel([a, b, f], vector(i, 8, Load(flag, f, (i,)), body)))


@pytest.mark.parametrize("fill", [None, f32(7.0), "vector"])
@pytest.mark.parametrize("at", [i, ex.index(2), i * 2])
def test_mask_and_fill_of_a_load(at, fill):
    a, b, c = memory("a", 16), memory("b", 8), memory("c", 8)
    fill = y if fill == "vector" else fill
    load = Load(x, a, (at,), (i % 3).lt(2), fill)
    check(kernel([a, b, c], vector(i, 8, Load(y, c, (i,)), load, Store(b, (i,), x + y))))


def test_store_to_one_place_keeps_the_last_lane():
    a, b = memory("a", 8), memory("b", 3)
    body = (
        Load(x, a, (i,)),
        Store(b, (ex.index(0),), x),
        Store(b, (ex.index(1),), x, (i % 4).lt(2)),
        Store(b, (ex.index(2),), f32(3.0), i.lt(1)),
    )
    arrays, _ = check(kernel([a, b], vector(i, 8, *body)))
    assert arrays["b"].tolist() == [arrays["a"][7], arrays["a"][5], 3.0]


def test_scatter_keeps_the_highest_lane():
    a, b = memory("a", 8), memory("b", 4)
    check(kernel([a, b], vector(i, 8, Load(x, a, (i,)), Store(b, (i // 3,), x))))


def test_gather_with_checked_indices():
    a, b, idx = memory("a", 10), memory("b", 16), memory("idx", 16, dtype=I64)
    n = var("n")
    at = o * 8 + i
    body = (
        Load(n, idx, (at,)),
        Assert(ex.binary(Op.AND, n.ge(0), n.lt(10)), "index out of range", n, ex.index(10)),
        Load(x, a, (n,)),
        Store(b, (at,), x),
    )
    k = kernel([a, b, idx], loop(o, 2, vector(i, 8, *body)))
    check(k)
    arrays = {"a": np.zeros(10, np.float32), "b": np.zeros(16, np.float32), "idx": np.arange(16)}
    made = vectorize(k)
    for execute, form in ((run, k), (run, made), (run_linear, linearize(made))):
        with pytest.raises(BoundsError, match="index out of range: found 10"):
            execute(form, {n: v.copy() for n, v in arrays.items()})


def test_assertion_of_masked_lanes_does_not_count():
    a, b = memory("a", 8), memory("b", 8)
    body = If(i.lt(5), (Assert(i.lt(5), "masked"), Load(x, a, (i,)), Store(b, (i,), x)))
    check(kernel([a, b], vector(i, 8, body)))
    failing = kernel([a, b], vector(i, 8, If(i.lt(5), (Assert(i.lt(4), "masked", i),))))
    for form in (failing, vectorize(failing)):
        with pytest.raises(LaunchError, match="masked: found 4"):
            run(form, [np.zeros(8, np.float32), np.zeros(8, np.float32)])


def test_uniform_assertion_under_a_mask():
    a, b = memory("a", 8), memory("b", 8)
    n = var("n")
    c = memory("c", 1, dtype=I64)
    flag = ex.const(0.0, F32).lt(x)
    nest = (
        Load(n, c, (ex.index(0),)),
        vector(i, 8, Load(x, a, (i,)), If(flag, (Assert(n.lt(3), "n"), Store(b, (i,), x)))),
    )
    k = kernel([a, b, c], *nest)
    zeros = np.zeros(8, np.float32)
    check(k, {"a": -1 + zeros, "b": zeros, "c": np.array([5])})
    with pytest.raises(LaunchError):
        run(vectorize(k), {"a": 1 + zeros, "b": zeros.copy(), "c": np.array([5])})


def test_serial_loop_inside_a_vector_loop():
    a, b = memory("a", 5, 8), memory("b", 8)
    acc = memory("acc", 1, scope="local")
    body = (
        Alloc(acc),
        Store(acc, (ex.index(0),), f32(0.0)),
        loop(k, 5, Load(x, a, (k, i)), Load(y, acc, (ex.index(0),)),
             Store(acc, (ex.index(0),), x + y)),
        Load(z, acc, (ex.index(0),)),
        Store(b, (i,), z),
    )
    _, made = check(kernel([a, b], vector(i, 8, *body)))
    assert loads_of(made, a)[0].var.lanes == 8
    assert next(s for s in walk(made.body) if isinstance(s, Alloc)).memory.size is ex.index(8)


def test_local_arrays_get_one_copy_a_lane():
    a, b = memory("a", 8, 4), memory("b", 8, 4)
    tmp = memory("tmp", 4, scope="local")
    body = (
        Alloc(tmp),
        loop(j, 4, Load(x, a, (i, j)), Store(tmp, (3 - j,), x)),
        loop(k, 4, Load(y, tmp, (k,)), Store(b, (i, k), y)),
        Load(z, tmp, (i % 4,)),
        Store(b, (i, ex.index(0)), z),
    )
    arrays, made = check(kernel([a, b], vector(i, 8, *body)))
    assert arrays["b"].reshape(8, 4)[0, 1] == arrays["a"].reshape(8, 4)[0, 2]
    assert loads_of(made, tmp)[0].index[0].lanes == 1


def test_loop_whose_extent_differs_by_lane():
    a, b = memory("a", 8, 8), memory("b", 8)
    s = total("s", x)
    body = (reduce([(k, i + 1, "serial")], [s], Load(x, a, (i, k))), Store(b, (i,), s.var))
    arrays, _ = check(kernel([a, b], vector(i, 8, *body)))
    np.testing.assert_allclose(arrays["b"], np.tril(arrays["a"].reshape(8, 8)).sum(1), rtol=1e-5)


def test_triangle_written_by_a_vector_loop():
    b = memory("b", 8, 8)
    check(kernel([b], vector(i, 8, loop(j, i, Store(b, (i, j), f32(1.0))))))


def test_reduction_inside_a_vector_loop_keeps_lanes_apart():
    a, b = memory("a", 6, 8), memory("b", 8)
    s = total("s", x)
    axes = [(k, 3, "serial"), (j, 2, "unrolled")]
    body = (reduce(axes, [s], Load(x, a, (k * 2 + j, i))), Store(b, (i,), s.var))
    check(kernel([a, b], vector(i, 8, *body)))


def test_let_chains_and_casts():
    a, b = memory("a", 32), memory("b", 32, dtype=dt.int32)
    n, at = ex.var("n", dt.int32), var("at")
    body = (
        Let(at, o * 8 + i),
        Load(x, a, (at,)),
        Let(y, x * 10.0),
        Let(n, ex.cast(y, dt.int32) + ex.cast(at, dt.int32)),
        Store(b, (at,), n % 7),
    )
    _, made = check(kernel([a, b], loop(o, 4, vector(i, 8, *body))))
    assert stores_to(made, b)[0].index[0].lanes == 1


def test_vector_loop_in_a_vector_loop_runs_serially():
    a, b = memory("a", 8, 8), memory("b", 8, 8)
    inner = vector(j, 8, Load(x, a, (i, j)), Store(b, (i, j), x))
    check(kernel([a, b], vector(i, 8, inner)))


@pytest.mark.parametrize("n", [0, 1, 3, 128])
def test_extents_without_a_vector_run_serially(n):
    a, b = memory("a", n), memory("b", n)
    check(kernel([a, b], vector(i, n, Load(x, a, (i,)), Store(b, (i,), x))))


def test_atomics_calls_and_while_run_lane_after_lane():
    a, b = memory("a", 8, dtype=I64), memory("b", 4, dtype=I64)
    n, old, c = var("n"), var("old"), memory("c", 1, dtype=I64, scope="local")
    count = var("count")
    halve = While(
        (Load(count, c, (ex.index(0),)),),
        ex.index(1).lt(count),
        (Store(c, (ex.index(0),), count // 2),),
    )
    body = (
        Load(n, a, (i,)),
        Atomic(old, "add", b, (n % 4,), n),
        Alloc(c),
        Store(c, (ex.index(0),), n),
        halve,
    )
    _, made = check(kernel([a, b], vector(i, 8, *body)))
    assert any(isinstance(s, For) for s in walk(made.body))


def test_prefetch_and_streaming_survive():
    a, b = memory("a", 16), memory("b", 16)
    body = (Prefetch(a, (i,)), Load(x, a, (i,)), Store(b, (i,), x, None, True))
    _, made = check(kernel([a, b], vector(i, 16, *body)))
    assert stores_to(made, b)[0].streaming
    assert any(isinstance(s, Prefetch) for s in walk(made.body))


def test_locations_are_kept():
    a = memory("a", 8)
    store = Store(a, (i,), f32(1.0))
    k = kernel([a], vector(i, 8, store)).replace(locations={store: Location("f.py", 3)})
    made = vectorize(k)
    assert [made.locations[s] for s in stores_to(made, a)] == [Location("f.py", 3)]


def test_symbolic_sizes():
    n = ex.Variable("n", 0, 1000)
    a, b = memory("a", n), memory("b", n)
    at = o * 8 + i
    body = If(at.lt(n), (Load(x, a, (at,)), Store(b, (at,), x * 2.0)))
    k = kernel([a, b], loop(o, (n + 7) // 8, vector(i, 8, body)))
    for size in (0, 1, 8, 13):
        check(k, variables={"n": size})


def test_register_tile():
    """Unroll and jam: rows unrolled, columns in vectors, k outside."""
    m, n, depth = 3, 16, 5
    a, b, c = memory("a", m, depth), memory("b", depth, n), memory("c", m, n)
    tile = memory("tile", m, n, scope="register")
    u, v, w, uv, vv, wv = map(var, ("u", "v", "w", "uv", "vv", "wv"))
    r = ex.var("r", F32)
    product = (
        Load(x, a, (v, k)),
        Load(y, b, (k, vv)),
        Load(z, tile, (v, vv)),
        Store(tile, (v, vv), ex.mad(x, y, z)),
    )
    nest = (
        Alloc(tile),
        unrolled(u, m, vector(uv, n, Store(tile, (u, uv), f32(0.0)))),
        loop(k, depth, unrolled(v, m, vector(vv, n, *product))),
        unrolled(w, m, vector(wv, n, Load(r, tile, (w, wv)), Store(c, (w, wv), r))),
    )
    arrays, made = check(kernel([a, b, c], *nest))
    want = arrays["a"].reshape(m, depth) @ arrays["b"].reshape(depth, n)
    np.testing.assert_allclose(arrays["c"].reshape(m, n), want, rtol=1e-5, atol=1e-5)
    kept = [s for s in linearize(made).code if type(s).__name__ == "LoadInst"
            and s.memory.name == "b"]
    assert len(kept) == 1


def test_argmax_across_rows():
    a, b = memory("a", 8, 9), memory("b", 8, dtype=I64)
    best = ex.var("best", F32)
    where = var("where")
    better = best.lt(x)
    accs = [
        accumulator("best", f32(-np.inf), lambda s: ex.where(better, x, s), ex.maximum),
        accumulator("where", ex.index(0), lambda s: ex.where(better, k, s), ex.minimum, I64),
    ]
    body = (reduce([(k, 9, "serial")], accs, Load(x, a, (i, k))), Store(b, (i,), where))
    arrays, _ = check(kernel([a, b], vector(i, 8, *body)))
    np.testing.assert_array_equal(arrays["b"], arrays["a"].reshape(8, 9).argmax(1))
