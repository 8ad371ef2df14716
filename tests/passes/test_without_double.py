"""float32 functions for targets without float64: the same bounds, and not one float64."""

import math

import numpy as np
import pytest

from passes.expr_eval import evaluate
from passes.references import BINARY, UNARY
from passes.test_legalize import all_rows
from passes.test_transcendental_single import SPECIAL, widened, worst
from passes.ulps import every_exponent
from ulp_bounds import WITHOUT
from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.expr import var
from weft.ir.op import Op
from weft.passes.legalize import Legalizer, is_legal
from weft.passes.transcendental import WITHOUT_DOUBLE
from weft.target import SIMT, Target, native_operations

TARGET = Target("narrow", "narrow", style=SIMT, vector_bytes=4,
                operations=native_operations((dt.float32,)))
EMULATED = TARGET.replace(operations=native_operations(), emulated=frozenset({"f64"}))
ANGLES = [Op.SIN, Op.COS, Op.TAN]


def call(op, *arrays):
    """Evaluate an operation on float32 as the target without float64 has it."""
    names = tuple(var(f"x{i}", dt.float32) for i in range(len(arrays)))
    made = Legalizer(TARGET).one(ex.make(op, dt.float32, names))
    return evaluate(made, dict(zip(names, arrays, strict=True)))


def uses_double(e):
    return any(part.dtype is dt.float64 for part in ex.toposort([e]))


def test_every_row_without_float64_becomes_legal():
    for e in all_rows():
        if uses_double(e):
            continue
        done = Legalizer(TARGET).one(e)
        for part in ex.toposort([done]):
            assert is_legal(part, TARGET), f"{e!r} keeps {part!r}"
            assert part.dtype is not dt.float64


def test_float64_in_words_is_not_used_for_float32():
    assert not EMULATED.computes(dt.float64)
    assert EMULATED.supports(Op.ADD, dt.float64)
    for op in WITHOUT_DOUBLE:
        names = tuple(var(f"x{i}", dt.float32) for i in range(op.arity))
        assert not uses_double(Legalizer(EMULATED).one(ex.make(op, dt.float32, names)))


@pytest.mark.grid
@pytest.mark.parametrize("op", [op for op in WITHOUT_DOUBLE if op in UNARY], ids=lambda op: op.name)
def test_over_every_exponent(op):
    x = every_exponent(np.float32, 300, seed=1)
    error, text = worst(op, call(op, x), UNARY[op](widened(x)), x)
    assert error <= WITHOUT[op], text


@pytest.mark.parametrize("op", [op for op in WITHOUT_DOUBLE if op in UNARY], ids=lambda op: op.name)
def test_where_it_bends(op):
    random = np.random.default_rng(2)
    x = np.concatenate([random.uniform(-1.5, 1.5, 40_000), random.uniform(-12, 12, 40_000),
                        random.uniform(-1e5, 1e5, 40_000)]).astype(np.float32)
    error, text = worst(op, call(op, x), UNARY[op](widened(x)), x)
    assert error <= WITHOUT[op], text


@pytest.mark.parametrize("op", ANGLES, ids=lambda op: op.name)
def test_angles_next_to_multiples_of_a_quarter_turn(op):
    quarters = (np.arange(1, 40_000) * (np.pi / 2)).astype(np.float32)
    steps = np.random.default_rng(8).integers(-40, 41, (4, 1)).astype(np.int32)
    x = np.append(quarters, (quarters.view(np.int32) + steps).view(np.float32))
    error, text = worst(op, call(op, x), UNARY[op](widened(x)), x)
    assert error <= WITHOUT[op], text


def test_powers_at_special_values():
    both = np.concatenate([SPECIAL, -SPECIAL])
    x, y = (a.ravel() for a in np.meshgrid(both, both))
    error, text = worst(Op.POW, call(Op.POW, x, y), BINARY[Op.POW](widened(x), widened(y)), x, y)
    assert error <= WITHOUT[Op.POW], text


@pytest.mark.parametrize("near", [False, True])
def test_powers_at_random(near):
    random = np.random.default_rng(3)
    x = random.permutation(every_exponent(np.float32, 100, seed=4))
    x = random.uniform(0.5, 2, len(x)).astype(np.float32) if near else x
    y = random.permutation(every_exponent(np.float32, 100, seed=5))
    with np.errstate(all="ignore"):
        y[::2] = random.uniform(-150, 130, len(y[::2])) / np.log2(np.abs(x[::2].astype(float)))
    error, text = worst(Op.POW, call(Op.POW, x, y), BINARY[Op.POW](widened(x), widened(y)), x, y)
    assert error <= WITHOUT[Op.POW], text


def quotients():
    both = np.concatenate([SPECIAL, -SPECIAL])
    x, y = (a.ravel() for a in np.meshgrid(both, both))
    random = np.random.default_rng(6)
    a = random.permutation(every_exponent(np.float32, 40, seed=7))
    b = random.permutation(every_exponent(np.float32, 40, seed=8))
    n = random.integers(-3000, 3000, 40_000).astype(np.float32)
    m = random.integers(1, 300, 40_000).astype(np.float32) / np.float32(8)
    u = random.uniform(2.0**24, 2.0**27, 40_000).astype(np.float32)
    v = random.uniform(0.9, 1.1, 40_000).astype(np.float32)
    return np.concatenate([x, a, n, -n, u, -u]), np.concatenate([y, b, m, m, v, v])


def test_floors_of_quotients_are_those_of_float64():
    """The same as by float64 wherever that is exact: below 2**50, and at special values."""
    x, y = quotients()
    names = var("x", dt.float32), var("y", dt.float32)
    with np.errstate(all="ignore"):
        wide = np.floor(widened(x) / widened(y))
        rest = np.fmod(widened(x), widened(y))
        back = (widened(x) - rest) / widened(y)
        wide = np.where((rest != 0) & ((rest < 0) != (y < 0)), np.rint(back) - 1, np.rint(back))
        wide = np.where(y == 0, widened(x) / widened(y), wide).astype(np.float32)
    made = Legalizer(TARGET).one(ex.make(Op.FLOORDIV, dt.float32, names))
    ours = {**dict(zip(names, (x, y), strict=True))}
    got = evaluate(made, ours)
    counts = (np.abs(wide) < 2.0**50) | ~np.isfinite(wide)
    same = (got == wide) | (np.isnan(got) & np.isnan(wide))
    bad = counts & ~same
    assert not bad.any(), [(float(x[i]), float(y[i]), got[i], wide[i])
                           for i in np.flatnonzero(bad)[:5]]
    with np.errstate(all="ignore"):
        zero = (got == 0) & (wide == 0) & np.isfinite(x / np.where(y == 0, 1, y))
        assert (np.signbit(got) == np.signbit(x / y))[zero].all()


@pytest.mark.parametrize("source", [dt.int32, dt.uint32, dt.int64, dt.uint64],
                         ids=lambda d: d.name)
def test_integers_are_rounded_to_narrow_floats_once(source):
    random = np.random.default_rng(9)
    info = np.iinfo(source.numpy)
    size = np.exp2(random.uniform(0, 64, 50_000))
    ties = (random.integers(128, 256, 5000).astype(object) * 2 + 1) << random.integers(0, 54, 5000)
    whole = [int(v) for v in size] + [int(t) + d for t in ties for d in (-1, 0, 1)]
    kept = np.array([v for v in whole if v <= info.max] + [info.max, info.min, 0], source.numpy)
    x = var("x", source)
    made = Legalizer(TARGET).one(ex.cast(x, dt.bfloat16))
    odd = made.args[0]
    got = evaluate(odd, {x: kept}).astype(dt.bfloat16.numpy).astype(float)
    for value, found in zip(kept.tolist(), got.tolist(), strict=True):
        unit = 2 ** max(abs(value).bit_length() - 8, 0)
        whole_units, rest = divmod(abs(value), unit)
        up = 2 * rest > unit or (2 * rest == unit and whole_units & 1)
        assert found == math.copysign((whole_units + up) * unit, value)


def test_an_error_names_the_type_that_is_missing():
    x = var("x", dt.float64)
    with pytest.raises(UnsupportedError, match=r"float64, which narrow lacks"):
        Legalizer(TARGET).one(x + 1.0)
