"""Unrolled loops: copies with fresh names and constant indices."""

import pytest
from nests import F32, I64, check, f32, kernel, loads_of, loop, memory, stores_to, unrolled, var

from weft.ir import expr as ex
from weft.ir.op import Op
from weft.ir.stmt import Alloc, For, If, Let, Load, Memory, Store
from weft.ir.traverse import walk

i, j, k = var("i"), var("j"), var("k")
x, y = ex.var("x", F32), ex.var("y", F32)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_copies_have_constant_indices(n):
    a, b = memory("a", n), memory("b", n)
    _, made = check(kernel([a, b], unrolled(i, n, Load(x, a, (i,)), Store(b, (i,), x))))
    assert [s.index[0].attr for s in stores_to(made, b)] == list(range(n))


def test_names_are_fresh_and_the_first_copy_keeps_its_own():
    a, b = memory("a", 3), memory("b", 3)
    taken = ex.var("x.1", F32)
    nest = (
        unrolled(i, 3, Load(x, a, (i,)), Let(y, x * x), Store(b, (i,), y)),
        Load(taken, a, (ex.index(0),)),
        Store(b, (ex.index(0),), taken),
    )
    _, made = check(kernel([a, b], *nest))
    names = [s.var.attr for s in loads_of(made, a)]
    assert names[0] == "x"
    assert names.count("x.1") == 1


def test_local_memory_is_copied():
    a, b = memory("a", 3), memory("b", 3)
    tmp = memory("tmp", 1, scope="register")
    zero = ex.index(0)
    body = (
        Alloc(tmp),
        Load(x, a, (i,)),
        Store(tmp, (zero,), x + 1.0),
        Load(y, tmp, (zero,)),
        Store(b, (i,), y),
    )
    _, made = check(kernel([a, b], unrolled(i, 3, *body)))
    assert len({s.memory.name for s in walk(made.body) if isinstance(s, Alloc)}) == 3


def test_loops_inside_are_repeated():
    a, b = memory("a", 2, 4), memory("b", 2, 4)
    nest = unrolled(i, 2, loop(j, 4, Load(x, a, (i, j)), Store(b, (i, j), -x)))
    _, made = check(kernel([a, b], nest))
    assert len([s for s in walk(made.body) if isinstance(s, For)]) == 2


def test_conditions_on_the_copy_are_decided():
    b = memory("b", 4)
    body = If(i.lt(2), (Store(b, (i,), f32(1.0)),), (Store(b, (i,), f32(2.0)),))
    arrays, made = check(kernel([b], unrolled(i, 4, body)))
    assert arrays["b"].tolist() == [1, 1, 2, 2]
    assert not any(isinstance(s, If) for s in walk(made.body))


def test_symbolic_extent_stays_a_loop():
    n = ex.Variable("n", 0, 9)
    b = memory("b", n)
    k9 = kernel([b], unrolled(i, n, Store(b, (i,), f32(1.0))))
    _, made = check(k9, variables={"n": 5})
    assert [s.kind for s in walk(made.body) if isinstance(s, For)] == ["serial"]


def test_unroll_and_jam_shares_loads():
    """Copies inside a serial loop read the same element once."""
    a, b = memory("a", 4), memory("b", 4, 3)
    acc = Memory("acc", F32, (ex.index(3),), "register")
    nest = (
        Alloc(acc),
        unrolled(k, 3, Store(acc, (k,), f32(0.0))),
        loop(
            i,
            4,
            unrolled(j, 3, Load(x, a, (i,)), Load(y, acc, (j,)), Store(acc, (j,), x + y)),
        ),
    )
    u, r = var("u"), ex.var("r", F32)
    last = unrolled(u, 3, Load(r, acc, (u,)), Store(b, (ex.index(0), u), r))
    check(kernel([a, b], *nest, last))


def test_let_of_the_counter():
    b = memory("b", 6, dtype=I64)
    at = var("at")
    body = (Let(at, i * 2), unrolled(j, 2, Store(b, (at + j,), ex.binary(Op.MUL, at, j))))
    _, made = check(kernel([b], unrolled(i, 3, *body)))
    assert [s.index[0].attr for s in stores_to(made, b)] == list(range(6))


def test_copies_of_one_loop_begin_their_indices_alike():
    a, b = memory("a", 8, 4, 6), memory("b", 4, 8, 6)
    inner = loop(k, 6, unrolled(j, 4, Load(x, a, (i, j, k)), Store(b, (j, i, k), x)))
    _, made = check(kernel([a, b], loop(i, 8, inner)))
    for accesses in (loads_of(made, a), stores_to(made, b)):
        places = [s.index[0] for s in accesses]
        assert {p.args[0] for p in places[1:]} == {places[0]}
