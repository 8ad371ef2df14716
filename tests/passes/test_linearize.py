"""The linear list: placement of expressions, sharing of loads, refusals; random nests."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nests import (
    F32,
    I64,
    accumulator,
    check,
    f32,
    kernel,
    loop,
    memory,
    nests,
    random_arrays,
    reduce,
    total,
    var,
    vector,
)

from weft.errors import VerifyError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret.interpret import run, run_linear
from weft.ir.linear import (
    Compute,
    EndIf,
    EndLoop,
    IfBegin,
    LoadInst,
    Loop,
    StorageInst,
    StoreInst,
    VariableInst,
)
from weft.ir.op import Op
from weft.ir.stmt import (
    Alloc,
    Assert,
    Atomic,
    Fence,
    For,
    If,
    Let,
    Load,
    Location,
    Meta,
    Prefetch,
    Print,
    Store,
    While,
)
from weft.ir.text.text_parse import parse_kernel
from weft.passes.linearize import linearize
from weft.passes.vector.vectorize import vectorize

i, j, k, n = (var(name) for name in "ijkn")
x, y, z = (ex.var(name, F32) for name in "xyz")
ZERO = ex.index(0)


def depths(made):
    """Yield (instruction, number of loops and conditionals around it)."""
    depth = 0
    for inst in made.code:
        if isinstance(inst, EndLoop | EndIf):
            depth -= 1
        yield inst, depth
        if isinstance(inst, Loop | IfBegin):
            depth += 1


def depth_of(made, op):
    return [d for inst, d in depths(made) if isinstance(inst, Compute) and inst.op is op]


def test_invariant_expressions_leave_loops():
    a, b = memory("a", 4, 9), memory("b", 4, 9)  # rows with a gap: two loops
    m = ex.Variable("m", 1, 8)
    body = loop(j, 8, Load(x, a, (i, j)), Store(b, (i, j), x + ex.cast(m * m, F32)))
    made = linearize(vectorize(kernel([a, b], loop(i, 4, body))))
    assert depth_of(made, Op.CAST) == [0]
    assert sorted(depth_of(made, Op.MUL)) == [0, 1]  # m * m, and the start of the row
    assert [inst.slot for inst in made.code if isinstance(inst, VariableInst)] == [0]


def test_equal_expressions_are_computed_once():
    a, b = memory("a", 8), memory("b", 8)
    body = (Load(x, a, (i,)), Store(b, (i,), (x * x) + (x * x)), Let(y, x * x), Store(a, (i,), y))
    made = linearize(vectorize(kernel([a, b], loop(i, 8, *body))))
    assert len(depth_of(made, Op.MUL)) == 1


def test_nothing_leaves_a_conditional():
    a, b, c = memory("a", 8), memory("b", 8), memory("c", 1)
    expensive = ex.unary(Op.EXP, y)
    inner = loop(j, 8, Store(b, (j,), expensive))
    body = loop(i, 8, Load(x, a, (i,)), If(f32(0.0).lt(x), (inner,)))
    made = linearize(vectorize(kernel([a, b, c], Load(y, c, (ZERO,)), body)))
    assert depth_of(made, Op.EXP) == [2]


def test_vectors_stay_in_parallel_loops():
    a, b = memory("a", 4, 8), memory("b", 1)
    body = vector(j, 8, Store(a, (i, j), y * 2.0))
    nest = Load(y, b, (ZERO,)), loop(i, 4, body, kind="parallel")
    made = linearize(vectorize(kernel([a, b], *nest)))
    assert depth_of(made, Op.MUL) == [0, 1]  # the product is scalar; the other one is an offset
    assert depth_of(made, Op.BROADCAST) == [1]


def loads(made, m):
    return [s for s in made.code if isinstance(s, LoadInst) and s.memory.name == m.name]


def test_loads_are_shared_until_a_store():
    a, b = memory("a", 8), memory("b", 8)
    u, v, w = (ex.var(name, F32) for name in "uvw")
    body = (
        Load(u, a, (ZERO,)),
        Load(v, a, (ZERO,)),
        Store(b, (ZERO,), u + v),
        Load(w, a, (ZERO,)),
        Store(b, (ex.index(1),), w),
    )
    plain = kernel([a, b], *body)
    assert len(loads(linearize(plain), a)) == 2  # b may be the same array as a
    apart = plain.replace(meta=Meta(hints=(("noalias", True),)))
    assert len(loads(linearize(apart), a)) == 1
    shared = np.float32([1, 2, 3, 4, 5, 6, 7, 8])
    run(plain, [shared, shared])
    again = np.float32([1, 2, 3, 4, 5, 6, 7, 8])
    run_linear(linearize(plain), [again, again])
    np.testing.assert_array_equal(shared, again)


def matrices(*names):
    return [ex.var(name, F32, 256) for name in names]


def test_whole_matrices_are_loaded_once_until_a_store():
    p, q, out = (memory(name, 256, scope="local") for name in "pqo")
    a, b, c, d = matrices(*"abcd")
    body = (Alloc(p), Alloc(q), Alloc(out), Load(a, p, (ZERO,)), Store(q, (ZERO,), a),
            Load(b, p, (ZERO,)), Store(p, (ZERO,), b + a), Load(c, p, (ZERO,)),
            Load(d, q, (ZERO,)), Store(out, (ZERO,), c + d))
    made = linearize(kernel([], *body))
    assert len(loads(made, p)) == 2
    assert len(loads(made, q)) == 1


@pytest.mark.parametrize(("lanes", "hint", "count"), [(8, True, 1), (8, False, 3), (1, True, 3)])
def test_vectors_of_own_arrays_are_loaded_once(lanes, hint, count):
    p, out = memory("p", 8, scope="local"), memory("out", 8, scope="local")
    flag, a, b, c = ex.var("flag", F32), *[ex.var(name, F32, lanes) for name in "abc"]
    body = (Alloc(p), Alloc(out), Load(a, p, (ZERO,)), Store(out, (ZERO,), a),
            Load(flag, out, (ZERO,)),
            If(flag.lt(1.0), (Load(b, p, (ZERO,)), Store(out, (ZERO,), b))),
            Load(c, p, (ZERO,)), Store(out, (ZERO,), c))
    made = linearize(kernel([], *body).replace(meta=Meta(hints=(("noalias", hint),))))
    assert len(loads(made, p)) == count


def test_vectors_are_loaded_again_after_a_write_in_a_branch():
    p, out = memory("p", 8, scope="local"), memory("out", 8, scope="local")
    flag, a, b = ex.var("flag", F32), *[ex.var(name, F32, 8) for name in "ab"]
    body = (Alloc(p), Alloc(out), Load(a, p, (ZERO,)), Store(out, (ZERO,), a),
            Load(flag, out, (ZERO,)), If(flag.lt(1.0), (Store(p, (ZERO,), a + a),)),
            Load(b, p, (ZERO,)), Store(out, (ZERO,), b))
    made = linearize(kernel([], *body).replace(meta=Meta(hints=(("noalias", True),))))
    assert len(loads(made, p)) == 2


def test_matrices_over_other_memory_are_loaded_again():
    p = memory("p", 256, scope="local")
    view = memory("view", 256, scope="local")
    a, b = matrices(*"ab")
    body = (Alloc(p), Alloc(view, base=p), Load(a, p, (ZERO,)), Store(view, (ZERO,), a + a),
            Load(b, p, (ZERO,)), Store(view, (ZERO,), b + a))
    assert len(loads(linearize(kernel([], *body)), p)) == 2


def test_loads_do_not_cross_the_start_of_a_loop():
    a = memory("a", 4)
    body = (
        Load(x, a, (ZERO,)),
        loop(i, 3, Load(y, a, (ZERO,)), Store(a, (ZERO,), y + x)),
        Load(z, a, (ZERO,)),
        Store(a, (ex.index(1),), z),
    )
    check(kernel([a], *body))


def test_names_of_conditional_loads_are_forgotten():
    a, b = memory("a", 4), memory("b", 4)
    u = ex.var("u", F32)
    body = loop(i, 4, If((i % 2).eq(0), (Load(x, a, (i,)), Store(b, (i,), x))),
                Load(u, a, (i,)), Store(b, (i,), u + 1.0))  # fmt: skip
    check(kernel([a, b], body))


def test_messages_are_shared_and_keep_their_place():
    a = memory("a", 4)
    first, second = Assert(n.lt(9), "small"), Assert(n.lt(99), "small")
    other = Assert(n.lt(999), "large", n)
    c = memory("c", 1, dtype=I64)
    body = (Load(n, c, (ZERO,)), first, second, other)
    made = linearize(kernel([a, c], *body).replace(locations={other: Location("f.py", 9)}))
    assert made.messages == (("small", None), ("large", Location("f.py", 9)))


def test_storage_takes_the_largest_size():
    m = ex.Variable("m", 1, 100)
    a, t = memory("a", m), memory("t", m, scope="local")
    body = (Alloc(t), loop(i, m, Store(t, (i,), f32(1.0))), loop(j, m, Load(x, t, (j,)),
                                                                 Store(a, (j,), x)))  # fmt: skip
    arrays, made = check(kernel([a], *body), variables={"m": 7})
    assert arrays["a"].tolist() == [1] * 7
    storage = [s for s in linearize(made).code if isinstance(s, StorageInst)]
    assert [s.size for s in storage] == [100]


def test_variables_are_sorted_by_name():
    b, a = ex.Variable("b", 1, 9), ex.Variable("a", 1, 9)
    made = linearize(kernel([memory("m", b)], loop(i, a, Store(memory("m", b), (i,), f32(0.0)))))
    assert made.variables == (a, b)


@pytest.mark.parametrize("kind", ["vector", "unrolled"])
def test_what_vectorize_leaves_is_required(kind):
    with pytest.raises(VerifyError, match=kind):
        linearize(kernel([], For(i, ex.index(4), kind, ())))
    with pytest.raises(VerifyError, match="Reduce"):
        linearize(kernel([], reduce([(i, 4, "serial")], [total("s", x)])))


def test_unbound_name():
    with pytest.raises(VerifyError, match="unbound"):
        linearize(kernel([memory("a", 1)], Store(memory("a", 1), (ZERO,), x)))


def test_scalar_statements_pass_through(capsys):
    a, c = memory("a", 4, dtype=I64), memory("c", 1, dtype=I64, scope="local")
    count, old = var("count"), var("old")
    body = (
        Alloc(c),
        Store(c, (ZERO,), ZERO),
        While((Load(count, c, (ZERO,)),), count.lt(6), (
            Atomic(old, "add", a, (count % 4,), count),
            If(old.eq(0), (Print("fresh", (count,)),), (Store(a, (ZERO,), old),)),
            Prefetch(a, (count,)),
            Store(c, (ZERO,), count + 1),
        )),
    )  # fmt: skip
    check(kernel([a], *body), {"a": np.zeros(4, np.int64)})
    assert capsys.readouterr().out.count("fresh 1") == 3


@pytest.mark.parametrize(("stmt", "count"), [
    (lambda m: Atomic(var("old"), "add", m, (ZERO,), ZERO), 1),
    (lambda m: Atomic(var("old"), "add", m, (ZERO,), ZERO, None, "device", "acquire"), 2),
    (lambda m: Fence("device", "acquire"), 2),
], ids=["relaxed", "acquire", "fence"])  # fmt: skip
def test_what_was_read_before_an_acquire_is_read_again(stmt, count):
    data, flag, out = (memory(name, 2, dtype=I64) for name in ("data", "flag", "out"))
    body = (Load(var("a"), data, (ZERO,)), stmt(flag), Load(var("b"), data, (ZERO,)),
            Store(out, (ZERO,), var("a") + var("b")))  # fmt: skip
    made = linearize(kernel([data, flag, out], *body).replace(
        meta=Meta(hints=(("noalias", True),))))  # fmt: skip
    assert len(loads(made, data)) == count


@pytest.mark.slow
def test_long_chains():
    a = memory("a", 1)
    body, value = [Load(x, a, (ZERO,))], x
    for step in range(20_000):
        value = ex.binary(Op.ADD, value, x) if step % 2 else ex.unary(Op.NEG, value)
    body.append(Store(a, (ZERO,), value))
    made = linearize(vectorize(kernel([a], *body)))
    assert len(made.code) > 20_000


# random nests


@pytest.mark.slow
@settings(max_examples=150)
@given(nests(), st.integers(0, 1000))
def test_random_nests(k, seed):
    with np.errstate(all="ignore"):
        check(k, random_arrays(k, seed=seed))


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["serial", "parallel", "unrolled", "vector"]), min_size=3,
                max_size=3), st.permutations([0, 1, 2]))  # fmt: skip
def test_random_transposes(kinds, order):
    sizes = [2, 4, 8]
    names = [i, j, k]
    a = memory("a", *sizes)
    b = memory("b", *(sizes[o] for o in order))
    nest = (Load(x, a, tuple(names)), Store(b, tuple(names[o] for o in order), x))
    for name, n, kind in zip(names, sizes, kinds, strict=True):
        nest = (loop(name, n, *nest, kind=kind),)
    arrays, _ = check(kernel([a, b], *nest))
    want = arrays["a"].reshape(sizes).transpose(order)
    np.testing.assert_array_equal(arrays["b"].reshape(want.shape), want)


def test_stores_keep_their_order():
    a = memory("a", 4, dtype=I64)
    first = accumulator("s", ZERO, lambda s: s + 1, lambda p, q: p + q, I64)
    body = (reduce([(i, 3, "serial")], [first]), Store(a, (ZERO,), first.var),
            Store(a, (ZERO,), first.var + 1))  # fmt: skip
    arrays, made = check(kernel([a], *body))
    assert arrays["a"][0] == 4
    stores = [s for s in linearize(made).code if isinstance(s, StoreInst)]
    assert [s.memory.name for s in stores].count("a") == 2


def unlikely_kernel(condition, seldom, usual, *before):
    """A loop over 64 elements by 16 lanes: b[i] = seldom where it holds, c[i] the same plus 1."""
    a, b, c = memory("a", 64), memory("b", 64), memory("c", 64)
    value = ex.where(ex.unary(Op.UNLIKELY, condition), seldom, usual)
    body = loop(j, 4, *before, loop(k, 16, Load(x, a, (j * 16 + k,)),
                                    Store(b, (j * 16 + k,), value),
                                    Store(c, (j * 16 + k,), value + 1.0), kind="vector"))
    return kernel((a, b, c), body)


@pytest.mark.parametrize("far", [(), (3,), (0, 17, 63), range(64)], ids=["none", "1", "3", "all"])
def test_what_is_unlikely_is_computed_behind_a_test(far):
    made = linearize(vectorize(unlikely_kernel(x.gt(5.0), ex.unary(Op.SQRT, x), x * 3.0)))
    assert depth_of(made, Op.SQRT) == [2]  # once, in the branch
    assert depth_of(made, Op.MUL).count(2) == 0
    assert sum(isinstance(inst, IfBegin) for inst in made.code) == 1
    data = np.random.default_rng(5).uniform(0, 5, 64).astype(np.float32)
    data[list(far)] += 20
    b, c = np.zeros(64, np.float32), np.zeros(64, np.float32)
    run_linear(made, [data, b, c])
    want = np.where(data > 5, np.sqrt(data), data * np.float32(3))
    assert (b == want).all()
    assert (c == want + 1).all()


def test_branches_leave_loops_that_do_not_change_them():
    """The branch stands where all of it is known, its condition alone does not decide."""
    a, b = memory("a", 8), memory("b", 8, 64)
    value = ex.where(ex.unary(Op.UNLIKELY, x.gt(5.0)), ex.unary(Op.SQRT, x), x)
    inner = ex.where(ex.unary(Op.UNLIKELY, x.gt(5.0)), x / ex.cast(j, F32), x)
    body = loop(i, 8, Load(x, a, (i,)), loop(j, 64, Store(b, (i, j), value + inner)))
    made = linearize(vectorize(kernel((a, b), body)))
    assert depth_of(made, Op.SQRT) == [2]  # one loop, one branch
    assert depth_of(made, Op.DIV) == [3]


def test_the_storage_of_a_branch_has_a_name_of_its_own():
    def storage(made):
        return [i.memory.name for i in linearize(vectorize(made)).code
                if isinstance(i, StorageInst)]

    plain = unlikely_kernel(x.gt(5.0), ex.unary(Op.SQRT, x), x * 3.0)
    (name,) = storage(plain)
    assert storage(plain.replace(params=(*plain.params, memory(name, 1)))) != [name]


def test_what_is_known_already_needs_no_branch():
    made = linearize(vectorize(unlikely_kernel(x.gt(5.0), x, x * 3.0)))
    assert not any(isinstance(inst, IfBegin) for inst in made.code)


@pytest.mark.parametrize("lanes", [4, 8, 16, 64])
@pytest.mark.parametrize("place", [None, 0, 5, 63])
def test_bits_of_many_words_are_tested_together(lanes, place):
    """A mask of the upper bits: what the lower ones hold does not take the branch."""
    a, b = memory("a", 64, dtype=dt.uint64), memory("b", 64, dtype=dt.uint64)
    w = ex.var("w", dt.uint64)
    odd = ((w ^ (5 << 40)) & (0xFFFF << 40)).ne(0)
    value = ex.where(ex.unary(Op.UNLIKELY, odd), w * 3, w + 1)
    at = (j * lanes + k,)
    body = loop(j, 64 // lanes, vector(k, lanes, Load(w, a, at), Store(b, at, value)))
    made = linearize(vectorize(kernel((a, b), body)))
    assert depth_of(made, Op.MUL)[-1] == (2 if lanes < 64 else 1)  # no loop of one turn
    data = np.random.default_rng(lanes).integers(0, 1 << 40, 64).astype(np.uint64) | 5 << 40
    if place is not None:
        data[place] += 1 << 40
    got = np.zeros(64, np.uint64)
    run_linear(made, [data, got])
    assert (got == np.where(data >> 40 == 5, data + 1, data * 3)).all()


@pytest.mark.parametrize("by", [-16000, -64, 16000])
def test_masked_loads_far_outside_read_at_the_beginning(by):
    place = f"((%o * 32) + %i) + {by}"
    mask = f"-1 < ({place})" if by < 0 else f"({place}) < 16384"
    text = f"""kernel k kind=elementwise
param in0: f32[16384]
param out0: f32[16384]
{{
  for %o in 512 serial {{
    for %i in 32 vector {{
      load %v: f32 = in0[{place}] mask {mask}
      store out0[(%o * 32) + %i] = %v
    }}
  }}
}}
"""
    nest = parse_kernel(text)
    code = linearize(vectorize(nest))
    offset = next(i.offset for i in code.code if isinstance(i, LoadInst))
    made = next(i for i in code.code if isinstance(i, Compute) and i.result is offset)
    assert (made.op is Op.WHERE) == (abs(by) > 4096)
    x, out = np.arange(1, 16385, dtype=np.float32), np.zeros(16384, np.float32)
    run_linear(code, [x, out])
    places = np.arange(16384) + by
    inside = (places >= 0) & (places < 16384)
    np.testing.assert_array_equal(out, np.where(inside, x[np.clip(places, 0, 16383)], 0))
