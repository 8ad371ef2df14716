"""Index simplification: shapes that reshapes leave, proofs by z3, random expressions."""

import random

import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from scalar_semantics import evaluate
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.bounds import loop_range
from weft.ir.op import Op
from weft.rules.index import (
    Simplifier,
    divisible,
    linear_coefficients,
    prove,
    simplify,
    simplify_all,
)

b, c, i, j, k, o, r, t = map(ex.var, "bcijkort")
m, n, p = (ex.Variable(name, 1, 1 << 10) for name in "mnp")
TOKENS = {b: (0, 11), t: (0, 511), c: (0, 63)}
ROWS = {r: (0, 12 * 512 - 1)}
SYMBOLIC = {i: (0, 1023), j: loop_range(m), k: loop_range(p)}
flat = (b * 512 + t) * 64 + c
cube = (i * m + j) * p + k


@pytest.mark.parametrize(
    ("before", "after", "env"),
    [
        ((r // 512) * 512 + r % 512, r, ROWS),
        ((r // 512) * 512 + ((r // 64) % 8) * 64 + r % 64, r, ROWS),
        (((r // 512) * 8 + (r // 64) % 8) * 64 + r % 64, r, ROWS),
        (flat // 64, b * 512 + t, TOKENS),
        (flat % 64, c, TOKENS),
        ((flat // 64) % 512, t, TOKENS),
        (flat // 64 // 512, b, TOKENS),
        (flat // 32768, b, TOKENS),
        ((i * n + j) // n, i, {i: (0, 99), j: loop_range(n)}),
        ((i * n + j) % n, j, {i: (0, 99), j: loop_range(n)}),
        (cube // (m * p), i, SYMBOLIC),
        (cube // p % m, j, SYMBOLIC),
        (cube % p, k, SYMBOLIC),
        (i - (i // 5) * 5, i % 5, {}),
        ((i % 12) // 4, (i // 4) % 3, {}),
        ((i % 12) % 4, i % 4, {}),
        ((i // 4) // 8, i // 32, {}),
        ((i * 6 + 3) // 4, (i * 3 + 1) // 2, {i: (0, 100)}),
        ((i * 4 + j) // 8, i // 2, {i: (0, 100), j: (0, 3)}),
        ((i * 4 + j) % 8, (i % 2) * 4 + j, {i: (0, 100), j: (0, 3)}),
        ((i + 8) // 4, i // 4 + 2, {i: (0, 100)}),
        ((i * 8 + j) % 4, j % 4, {i: (0, 9), j: (0, 99)}),
        ((i + j) - j, i, {}),
        (i * 3 + i, i * 4, {}),
        (ex.binary(Op.SHR, i, 3), i // 8, {}),
        (i & 7, i % 8, {}),
        (ex.minimum(i, 16), i, {i: (0, 15)}),
        (ex.maximum(i, j + 5), j + 5, {i: (0, 3), j: (0, 9)}),
        (ex.where(i.lt(0), i + 10, i), i, {i: (0, 9)}),
        (ex.cast(i.lt(12), dt.int64), ex.index(1), {i: (0, 9)}),
        ((o * 16 + i).lt(48), o.lt(3), {o: (0, 9), i: (0, 15)}),
        ((i * 2).eq(j * 2 + 1), ex.const(False, dt.bool_), {i: (0, 9), j: (0, 9)}),
        (i.le(5), i.lt(6), {i: (0, 9)}),
        (~i.lt(j), j.lt(i + 1), {i: (0, 9), j: (0, 9)}),
        ((o * 16 + i).lt(n), ex.const(True, dt.bool_), {o: loop_range(n // 16), i: (0, 15)}),
    ],
    ids=str,
)
def test_simplify(before, after, env):
    assert simplify(before, env) is simplify(after, env)
    assert len(ex.toposort([simplify(before, env)])) <= len(ex.toposort([after]))


def test_masks_of_symbolic_tiles():
    tiles = {o: loop_range((n + 15) // 16), i: (0, 15)}
    point = o * 16 + i
    assert not prove(point.lt(n), tiles)
    clipped = {o: loop_range((n + 15) // 16), i: (0, ex.minimum(ex.index(16), n - o * 16) - 1)}
    assert prove(point.lt(n), clipped)
    assert prove((n % 7).lt(7))
    assert prove((i % n).lt(n), {i: (0, 1 << 40)})


def test_a_loop_that_runs_has_an_extent():
    """Where j < z is known, z is not 0, although its range begins there."""
    z = ex.Variable("z", 0, 1 << 10)
    env = {i: (0, 99), j: loop_range(z)}
    assert simplify((i * z + j) // z, env) is i
    assert simplify((i * z + j) % z, env) is j
    assert simplify((i * z + j) // z, {i: (0, 99), j: (0, 0)}) is not i


def test_overflow_forbids_taking_divisions_apart():
    assert simplify((i * 4) // 4).op is Op.FLOORDIV
    assert simplify((i + 4) // 4).op is Op.FLOORDIV
    assert simplify((i * 4) % 4) is ex.index(0)  # true modulo 2**64
    assert simplify((i * 3) % 3).op is Op.MOD
    assert simplify(i.lt(i + 1)).op is Op.LT


def test_zero_divisors_are_kept():
    z = ex.Variable("z", 0, 10)
    kept = simplify((i // z) * z + i % z, {i: (0, 100)})
    assert kept is not i
    assert evaluate(kept, {i: 7, z: 0}) == 0


def test_sums_are_sorted_the_same_way_whatever_their_order():
    terms = [i * 512, j * 64, k, n * m * 3, ex.index(5), -(o * 7)]
    forms = set()
    rng = random.Random(5)
    for _ in range(20):
        rng.shuffle(terms)
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        forms.add(simplify(total))
    assert len(forms) == 1


def test_simplification_is_stable():
    for e in (flat // 7 % 5, cube, (i * 6 + 3) // 4 - j % 3, ex.minimum(i, n - j)):
        once = simplify(e, TOKENS)
        assert simplify(once, TOKENS) is once


def test_values_that_are_no_index_are_simplified_too():
    x = ex.var("x", dt.float32)
    masked = ex.where(i.lt(10), x * 1.0, ex.const(0.0, dt.float32))
    assert simplify(masked, {i: (0, 9)}) is x
    assert simplify(masked, {i: (0, 10)}) is ex.where(i.lt(10), x, ex.const(0.0, dt.float32))


def test_divisible():
    assert divisible(i * 16 + j * 8, 8)
    assert divisible(i * 6, 3, {i: (0, 100)})
    assert not divisible(i * 6, 3)  # may wrap around
    assert not divisible(i * 6 + 1, 3, {i: (0, 100)})
    assert divisible((i * 4) % 12, 4, {i: (0, 100)})
    assert divisible(ex.minimum(i * 8, ex.index(64)), 8, {i: (0, 100)})
    assert divisible(ex.index(0), 7)


def test_linear_coefficients():
    found = linear_coefficients(i * n + j * 4 + k * n * 2 + o // 2, [i, j, k])
    assert found is not None
    coefficients, rest = found
    assert coefficients == {i: n, j: 4, k: simplify(n * 2)}
    assert rest is o // 2
    assert linear_coefficients(i // 2 + j, [i]) is None
    assert linear_coefficients(i * j, [i, j]) is None
    assert linear_coefficients(ex.index(7), [i]) == ({}, ex.index(7))
    assert linear_coefficients(i * 8 // 8, [i], {i: (0, 9)}) == ({i: 1}, ex.index(0))


@pytest.mark.slow
def test_a_long_sum_and_a_deep_chain_are_simplified_in_time():
    total = ex.index(0)
    for number in range(3_000):
        total = total + ex.var(f"v{number}")
    assert simplify(total).op is Op.ADD
    e = i
    for _ in range(50_000):
        e = ex.maximum(e + 1, 0)
    assert simplify(e, {i: (0, 3)}) is i + 50_000


def test_many_roots_share_one_pass():
    roots = [flat // 64, flat % 64, flat]
    assert simplify_all(roots, TOKENS) == [simplify(e, TOKENS) for e in roots]
    assert Simplifier(TOKENS).prove(t.lt(512))


# --- z3: each identity that rules/division.py builds on, for all integers


def floordiv(x, d):
    """Floor division of z3 integers; z3 divides towards minus infinity for positive divisors."""
    return x / d


IDENTITIES = {
    "quotient": lambda x, y, a, d: z3.Implies(
        z3.And(a > 0, y >= 0, y < a), floordiv(x * a + y, a) == x
    ),
    "remainder": lambda x, y, a, d: z3.Implies(
        z3.And(a > 0, y >= 0, y < a), (x * a + y) % a == y
    ),
    "recombine": lambda x, y, a, d: z3.Implies(a > 0, floordiv(x, a) * a + x % a == x),
    "common_factor_div": lambda x, y, a, d: z3.Implies(
        z3.And(d == 3, a == 4, y >= 0, y < 4), floordiv(4 * x + y, 12) == floordiv(x, 3)
    ),
    "common_factor_mod": lambda x, y, a, d: z3.Implies(
        z3.And(y >= 0, y < 4), (4 * x + y) % 12 == 4 * (x % 3) + y
    ),
    "nested_div": lambda x, y, a, d: floordiv(floordiv(x, 6) + y, 4) == floordiv(x + 6 * y, 24),
    "div_of_mod": lambda x, y, a, d: floordiv(x % 24, 4) == floordiv(x, 4) % 6,
    "mod_of_mod": lambda x, y, a, d: (5 * (x % 12) + y) % 4 == (5 * x + y) % 4,
    "digits": lambda x, y, a, d: 4 * ((y + floordiv(x, 4)) % 6) + x % 4 == (4 * y + x) % 24,
    "negative_divisor": lambda x, y, a, d: z3.Implies(
        a > 0, z3.If(x % a == 0, -floordiv(x, a), -floordiv(x, a) - 1) == floordiv(-x, a)
    ),
    "coarse_less": lambda x, y, a, d: z3.Implies(
        z3.And(y >= 0, y < 16), (16 * x + y < 0) == (x < 0)
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_holds_for_all_integers(name):
    x, y, a, d = z3.Ints("x y a d")
    solver = z3.Solver()
    solver.set("timeout", 20_000)
    solver.add(z3.Not(IDENTITIES[name](x, y, a, d)))
    assert solver.check() == z3.unsat


def to_z3(e, names):
    """Translate an index expression without overflow into integers of z3."""
    done = {}
    for node in ex.toposort([e]):
        args = [done[a] for a in node.args]
        if node.op is Op.CONST:
            made = z3.BoolVal(node.attr) if node.dtype.is_bool else z3.IntVal(node.attr)
        elif node.op is Op.VAR:
            made = names.setdefault(node, z3.Int(node.attr))
        else:
            made = {
                Op.ADD: lambda a, b: a + b, Op.SUB: lambda a, b: a - b,
                Op.MUL: lambda a, b: a * b, Op.NEG: lambda a: -a,
                Op.FLOORDIV: floordiv, Op.MOD: lambda a, b: a % b,
                Op.MIN: lambda a, b: z3.If(a < b, a, b), Op.MAX: lambda a, b: z3.If(a < b, b, a),
                Op.LT: lambda a, b: a < b, Op.LE: lambda a, b: a <= b,
                Op.EQ: lambda a, b: a == b, Op.WHERE: z3.If,
            }[node.op](*args)  # fmt: skip
        done[node] = made
    return done[e]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_simplified_is_equal_for_every_point(seed):
    rng = random.Random(seed)
    env = {v: (0, rng.choice([3, 15, 99])) for v in (i, j)}
    e = random_index(rng, [i, j], 4)
    after = simplify(e, env)
    names = {}
    solver = z3.Solver()
    solver.set("timeout", 2_000)
    solver.add(to_z3(e, names) != to_z3(after, names))
    for v, name in names.items():
        solver.add(env[v][0] <= name, name <= env[v][1])
    assert solver.check() != z3.sat, (e, after, solver.model())


def random_index(rng, names, depth):
    """Return a random index expression; divisors are positive constants."""
    if depth == 0:
        return rng.choice(names)
    inner = random_index(rng, names, depth - 1)
    factor = rng.choice([1, 2, 3, 4, 6, 8, 16])
    kind = rng.randrange(9)
    if kind == 0:
        return inner // factor
    if kind == 1:
        return inner % factor
    if kind == 2:
        return inner * factor + rng.choice(names)
    if kind == 3:
        return inner + factor
    if kind == 4:
        return (inner // factor) * factor + inner % factor
    if kind == 5:
        return inner - (inner // factor) * factor
    if kind == 6:
        return inner + random_index(rng, names, depth - 1)
    other = random_index(rng, names, depth - 1)
    if kind == 7:
        return rng.choice([ex.minimum, ex.maximum])(inner, other)
    return ex.where(inner.lt(other), inner - other, other)


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_random_expressions(seed):
    """Simplified equals original on random points, with negative values, large ones and symbols."""
    rng = random.Random(seed)
    spans = [(0, 0), (0, 7), (0, 511), (-9, 9), (-(1 << 62), 1 << 62), (-(1 << 63), (1 << 63) - 1)]
    names = [i, j, k]
    env = {v: rng.choice(spans[:4] if rng.random() < 0.7 else spans) for v in names}
    size = ex.Variable("s", rng.choice([0, 1, -3]), 9)
    e = random_index(rng, [*names, size], rng.randint(1, 5))
    e = rng.choice([
        e, e.lt(random_index(rng, names, 2)), e.eq(random_index(rng, names, 2)), e // size,
        e % size, ~e.le(random_index(rng, names, 1)), e // -3, e % -4, (e << 2) + (e >> 1),
        (e // size) * size + e % size, e.ne(e * 2),
    ])  # fmt: skip
    after = simplify(e, env)
    for _ in range(25):
        point = {v: rng.randint(*env[v]) for v in names}
        point[size] = rng.randint(size.attr.min, size.attr.max)
        assert evaluate(e, point) == evaluate(after, point), (e, after, point)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_merges_and_splits_of_axes_vanish(seed):
    """Reshape index maps: merge axes, split them otherwise, and back: the plain variables."""
    rng = random.Random(seed)
    sizes = [rng.choice([1, 2, 3, 4, 5, 8, 64]) for _ in range(rng.randint(1, 4))]
    names = [ex.var(f"a{n}") for n in range(len(sizes))]
    env = {v: (0, s - 1) for v, s in zip(names, sizes, strict=True)}
    merged = ex.index(0)
    for v, s in zip(names, sizes, strict=True):
        merged = merged * s + v
    rest, digits = merged, []
    for s in reversed(sizes):
        digits.append(rest % s)
        rest = rest // s
    expected = [simplify(v, env) for v in names]
    assert simplify_all(reversed(digits), env) == expected
    r = ex.var("r")
    total = 1
    for s in sizes:
        total *= s
    rest, again, scale = r, ex.index(0), 1
    for s in reversed(sizes):
        again = again + (rest % s) * scale
        rest, scale = rest // s, scale * s
    assert simplify(again, {r: (0, total - 1)}) is simplify(r, {r: (0, total - 1)})


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_random_expressions_with_symbolic_limits(seed):
    """Loops whose extents are symbolic, tiles of them, and merged axes of symbolic sizes."""
    rng = random.Random(seed)
    rows, columns = (ex.Variable(name, rng.choice([0, 1]), 40) for name in ("rows", "columns"))
    tile = rng.choice([2, 3, 8])
    extents = {
        i: rows, j: columns, o: (columns + (tile - 1)) // tile,
        k: rng.choice([ex.index(tile), ex.minimum(ex.index(tile), columns - o * tile)]),
    }  # fmt: skip
    env = {v: loop_range(extent) for v, extent in extents.items()}
    flat = i * columns + j
    point = o * tile + k
    e = rng.choice([
        flat // columns, flat % columns, flat // (columns * 2), flat.lt(rows * columns),
        point.lt(columns), (i * columns + point) // columns, (i * columns + point) % columns,
        ex.minimum(point, columns - 1), (j * rows + i) // rows, (j * rows + i) % rows * columns,
        ex.where(point.lt(columns), point, ex.index(0)), (flat * tile + k) // tile,
        random_index(rng, [flat, point, rows], 2), (flat // tile) * tile + flat % tile,
        (flat - j) // columns, (rows * columns - flat - 1).ge(0), flat // (rows + columns),
    ])  # fmt: skip
    after = simplify(e, env)
    for _ in range(40):
        values = {v: rng.randint(v.attr.min, 40) for v in (rows, columns)}
        for v in (i, j, o, k):
            limit = evaluate(extents[v], values)
            if limit < 1:
                break
            values[v] = rng.randrange(limit)
        else:
            assert evaluate(e, values) == evaluate(after, values), (e, after, values)


def test_environments_do_not_mix():
    assert simplify(i % 8, {i: (0, 7)}) is i
    assert simplify(i % 8, {i: (0, 8)}) is i % 8
    assert simplify(i, {i: (3, 3)}) is ex.index(3)
    env = {i: (0, 7)}
    assert simplify(i // 8, env) is ex.index(0)
    env[i] = (0, 15)
    assert simplify(i // 8, env) is i // 8
