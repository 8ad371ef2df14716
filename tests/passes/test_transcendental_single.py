"""float32 transcendentals against float64, over every exponent; 16-bit floats over every value."""

import math

import numpy as np
import pytest

from passes.expr_eval import evaluate
from passes.references import BINARY, UNARY
from passes.ulps import errors, every_exponent
from ulp_bounds import SINGLE, TABLES
from weft.ir import dtype as dt
from weft.ir.expr import var
from weft.ir.op import Op
from weft.passes.transcendental import FROM_TABLES, TRANSCENDENTALS, decompose

MANTISSAS = 300

FORMS = [(op, False) for op in UNARY] + [(op, True) for op in FROM_TABLES]


def form_name(form):
    return form[0].name + " from tables" * form[1]


def call(op, *arrays, tables=False):
    """Evaluate the decomposition of `op` on arrays of one Weft dtype."""
    kind = dt.as_dtype(arrays[0].dtype.name)
    names = tuple(var(f"x{i}", kind) for i in range(len(arrays)))
    made = decompose(op, names, tables=tables)
    return evaluate(made, dict(zip(names, arrays, strict=True)))


def widened(x):
    """Return float64 copies (quietly: signalling NaNs are among the patterns)."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def worst(op, got, exact, *arrays):
    """Return the largest error and a text that names where it is."""
    error = errors(got, exact)
    at = int(np.argmax(error))
    where = ", ".join(float(a[at]).hex() for a in arrays)
    return error[at], f"{op.name}({where}) gave {got[at]!r}, exactly {exact[at]!r}"


def test_every_op_has_a_limit():
    assert SINGLE.keys() == TRANSCENDENTALS.keys()
    assert UNARY.keys() | BINARY.keys() == TRANSCENDENTALS.keys()
    assert TABLES.keys() == FROM_TABLES.keys()


@pytest.mark.grid
@pytest.mark.parametrize("form", FORMS, ids=form_name)
def test_over_every_exponent(form):
    op, tables = form
    x = every_exponent(np.float32, MANTISSAS, seed=1)
    error, text = worst(op, call(op, x, tables=tables), UNARY[op](widened(x)), x)
    assert error <= (TABLES if tables else SINGLE)[op], text


@pytest.mark.grid
@pytest.mark.parametrize("exponent", [24, 50, 77, 102, 128])
@pytest.mark.parametrize("form", [f for f in FORMS if f[0] in (Op.SIN, Op.COS, Op.TAN)],
                         ids=form_name)
def test_angles_where_the_words_of_pi_change(form, exponent):
    """Either side of the powers of two from which other bits of 1 / pi are multiplied."""
    below = np.nextafter(np.float32(2.0 ** (exponent - 1)), np.float32(0)).view(np.uint32)
    op, tables = form
    random = np.random.default_rng(exponent)
    patterns = below + random.integers(0, (1 << 24) - (1 << 23) * (exponent == 128), 40_000)
    x = np.append(patterns.astype(np.uint32), below).view(np.float32)
    error, text = worst(op, call(op, x, tables=tables), UNARY[op](widened(x)), x)
    assert error <= (TABLES if tables else SINGLE)[op], text


@pytest.mark.parametrize("form", [f for f in FORMS if f[0] in (Op.SIN, Op.COS, Op.TAN)],
                         ids=form_name)
def test_angles_next_to_multiples_of_a_quarter_turn(form):
    """Where results vanish, or almost are infinite, the remainder has to have all of its bits."""
    op, tables = form
    quarters = (np.arange(1, 20_000) * (np.pi / 2)).astype(np.float32)
    steps = np.random.default_rng(8).integers(-40, 41, (4, 1)).astype(np.int32)
    x = np.append(quarters, (quarters.view(np.int32) + steps).view(np.float32))
    error, text = worst(op, call(op, x, tables=tables), UNARY[op](widened(x)), x)
    assert error <= (TABLES if tables else SINGLE)[op], text


@pytest.mark.grid
@pytest.mark.parametrize("form", FORMS, ids=form_name)
def test_where_it_bends(form):
    """Dense around 0, 1, the ends of the range, and the places where formulas change."""
    op, tables = form
    random = np.random.default_rng(2)
    x = np.concatenate([
        random.uniform(-1.5, 1.5, 40_000), random.uniform(-12, 12, 40_000),
        random.uniform(-155, 135, 40_000), 1 + random.normal(0, 1e-3, 20_000),
        random.normal(0, 1e-3, 20_000),
    ]).astype(np.float32)  # fmt: skip
    error, text = worst(op, call(op, x, tables=tables), UNARY[op](widened(x)), x)
    assert error <= (TABLES if tables else SINGLE)[op], text


SPECIAL = np.array(
    [0.0, 2.0**-149, 2.0**-126, 0.25, 0.5, 1 - 2.0**-24, 1.0, 1 + 2.0**-23, 1.5, 2.0, 3.0, 4.0,
     5.5, 127.0, 128.0, 16777215.0, 16777216.0, 16777217.0, 33554434.0, 2.0**127, 3.4028235e38,
     math.inf, math.nan],
    dtype=np.float32,
)  # fmt: skip


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_two_operands_at_special_values(op):
    both = np.concatenate([SPECIAL, -SPECIAL])
    x, y = (a.ravel() for a in np.meshgrid(both, both))
    error, text = worst(op, call(op, x, y), BINARY[op](widened(x), widened(y)), x, y)
    assert error <= SINGLE[op], text


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_two_operands_at_random(op):
    random = np.random.default_rng(3)
    shuffled = every_exponent(np.float32, 100, seed=4)
    x, y = random.permutation(shuffled), random.permutation(shuffled)
    # Half of the pairs have results in range, whatever the size of the first.
    with np.errstate(all="ignore"):
        y[::2] = random.uniform(-150, 130, len(y[::2])) / np.log2(np.abs(x[::2].astype(float)))
    error, text = worst(op, call(op, x, y), BINARY[op](widened(x), widened(y)), x, y)
    assert error <= SINGLE[op], text


@pytest.mark.grid
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("form", FORMS, ids=form_name)
def test_sixteen_bits_over_every_value(form, name):
    """Within 0.51 ulp: computed in float32 and rounded once."""
    op, tables = form
    kind = dt.as_dtype(name).numpy
    x = np.arange(1 << 16, dtype=np.uint16).view(kind)
    got = call(op, x, tables=tables)
    wide = got.astype(np.float32)
    with np.errstate(all="ignore"):
        exact = UNARY[op](widened(x))
        nearest = exact.astype(np.float32).astype(kind).astype(np.float32)
    # Where the result is not the nearest value, it is the other neighbour of a near tie.
    other = ~((wide == nearest) | (np.isnan(wide) & np.isnan(nearest)))
    gap = np.abs(wide[other].astype(float) - nearest[other])
    error = np.abs(wide[other] - exact[other]) / gap
    assert (error <= 0.51).all(), (op.name, x[other], wide[other], exact[other])
    assert (np.signbit(wide) == np.signbit(nearest))[~np.isnan(nearest)].all()


# The root of the mean square, over arguments of all magnitudes, of a result that is rounded once is
# 0.26 to 0.29 ulp (see numerics.md): hardly anything but that rounding may count.
TYPICAL = {Op.TANH: (4, 0.275), Op.ERF: (2, 0.31), Op.EXP: (6, 0.31), Op.LOG: (6, 0.3),
           Op.SIN: (11, 0.291), Op.COS: (11, 0.291), Op.TAN: (11, 0.291), Op.ERFC: (3, 0.3),
           Op.LOG2: (6, 0.3), Op.LOG10: (6, 0.3)}


@pytest.mark.grid
@pytest.mark.parametrize("seed", [31, 32])
@pytest.mark.parametrize("form", [f for f in FORMS if f[0] in TYPICAL], ids=form_name)
def test_typical_error_is_that_of_one_rounding(form, seed):
    op, tables = form
    top, limit = TYPICAL[op]
    x = np.exp2(np.random.default_rng(seed).uniform(-15, top, 1 << 16)).astype(np.float32)
    error = errors(call(op, x, tables=tables), UNARY[op](widened(x)))
    assert np.sqrt(np.mean(error * error)) <= limit


def test_integers_and_other_ops_are_left_alone():
    x, n = var("x", dt.float32), var("n", dt.int32)
    assert decompose(Op.POW, (n, n)) is None
    assert decompose(Op.ADD, (x, x)) is None
    assert decompose(Op.SQRT, (x,)) is None


@pytest.mark.parametrize("kind", [dt.float16, dt.float32, dt.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("op", TRANSCENDENTALS, ids=lambda op: op.name)
def test_type_and_lanes_are_kept(op, kind, lanes):
    args = tuple(var(f"x{i}", kind, lanes) for i in range(op.arity))
    made = decompose(op, args)
    assert (made.dtype, made.lanes) == (kind, lanes)
