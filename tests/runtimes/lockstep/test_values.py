"""Operations on all threads at once against the scalar interpreter, on special values."""

import math
from typing import Any

import numpy as np
import pytest

from weft.errors import UnsupportedError
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.interpret import interpret_scalar as scalar
from weft.ir.interpret.interpret_value import round_float
from weft.ir.op import SCALAR_OPS, Op
from weft.runtimes.lockstep.values import Formula, constant, held, to_stored, vector

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 0.1, -0.1, 1e-8, 6e-8, 1e-45, 65504.0,
          65520.0, 448.0, 464.0, 1e5, -3e9, 2.0**24 + 1, 2.0**31, 2.0**63, -(2.0**63), 2.0**64,
          3e38, 1e300, -1e300, 5e-324, math.inf, -math.inf, math.nan]  # fmt: skip
INTS = [0, 1, -1, 2, -2, 3, 7, -7, 8, 31, 32, 33, 63, 64, 65, 100, 127, 128, 255, 256, 32767,
        65535, 2**24 + 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**53 + 1, 2**63 - 1, -(2**63),
        2**64 - 1]  # fmt: skip


def values(d: Any) -> list[Any]:
    """Return special values of a type."""
    if d.is_bool:
        return [False, True]
    if d.is_integer:
        return list(dict.fromkeys(dt.wrap(v, d) for v in INTS))
    return [round_float(v, d) for v in FLOATS]


def same(found: Any, wanted: list[Any], d: Any, what: str = "") -> None:
    """Compare, with NaNs alike and zeros of two signs not."""
    expected = np.array(wanted, held(d))
    assert found.dtype == held(d), what
    np.testing.assert_array_equal(found, expected, what)
    if d.is_float:
        known = ~np.isnan(expected)
        signs = np.signbit(found)[known], np.signbit(expected)[known]
        np.testing.assert_array_equal(*signs, f"signs: {what}")


def check(op: Any, kinds: list[Any], result: Any, step: int = 1) -> None:
    """Compare an op on all pairs or triples of special values, or of every `step`-th one."""
    try:
        one = scalar.function(op, kinds[-1], result)
    except UnsupportedError:
        return
    special = [values(d)[::step] for d in kinds]
    grids = np.meshgrid(*[np.arange(len(v)) for v in special], indexing="ij")
    lists = [[v[k] for k in g.reshape(-1).tolist()] for v, g in zip(special, grids, strict=True)]
    arrays = [np.array(v, held(d)) for v, d in zip(lists, kinds, strict=True)]
    with np.errstate(all="ignore"):
        found = vector(op, kinds[-1], result)(*arrays)
    what = f"{op.name} of {', '.join(d.name for d in kinds)} to {result.name}"
    same(found, [one(*row) for row in zip(*lists, strict=True)], result, what)


@pytest.mark.parametrize("d", dt.ALL, ids=lambda d: d.name)
def test_operations(d: Any) -> None:
    """Unary and binary operations of every type."""
    for op in SCALAR_OPS:
        if op.group not in ("unary", "binary") or d.kind not in op.kinds or d.is_storage_only:
            continue
        if op is Op.POW and d.is_integer and d.bits > 16:
            continue  # as long as the scalar interpreter computes it, which is what runs
        check(op, [d] * op.arity, dt.bool_ if op.result == "bool" else d)


@pytest.mark.parametrize("source", dt.ALL, ids=lambda d: d.name)
def test_conversions(source: Any) -> None:
    """Casts between all types; bits between types of one width."""
    for target in dt.ALL:
        check(Op.CAST, [source], target)
        if source.bits == target.bits and source.bits > 1:
            check(Op.BITCAST, [source], target)


@pytest.mark.parametrize("d", [dt.float16, dt.bfloat16, dt.float32, dt.float64],
                         ids=lambda d: d.name)
def test_fused(d: Any) -> None:
    """Fused multiply-add rounds once, also on the way of ties."""
    check(Op.MAD, [d, d, d], d, 3)
    check(Op.WHERE, [dt.bool_, d, d], d)


def test_ties_of_wide_values() -> None:
    """Values between two narrow floats round once, whatever they come from."""
    wide = [1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-45, 1 - 2.0**-9 - 2.0**-50]
    whole = [2**24 + 2**16 + 1, 2**40 + 2**32 + 1, -(2**40) - 2**32 - 1, 2**62 + 2**38 + 1]
    for target in (dt.float16, dt.bfloat16, dt.float32):
        for source, given in ((dt.float64, wide), (dt.int64, whole)):
            one = scalar.function(Op.CAST, source, target)
            with np.errstate(all="ignore"):
                found = vector(Op.CAST, source, target)(np.array(given, held(source)))
            same(found, [one(v) for v in given], target)


def test_narrow_floats_are_stored_as_they_are() -> None:
    """What is held as float32 goes back to its own type unchanged."""
    for d in (dt.float16, dt.bfloat16, dt.float8_e5m2, dt.float8_e4m3fn):
        given = np.array(values(d), np.float32)
        np.testing.assert_array_equal(to_stored(given, d).astype(np.float32), given)


def test_formula() -> None:
    """Parts that are used twice are computed once; variables are known."""
    x, n = ex.var("x", dt.int64), ex.Variable("n", 0, 100)
    square = (x + n) * (x + n)
    formula = Formula([square, square + 1], {"n": 3})
    first, second = formula({x: np.array([1, 2, 3])})
    assert formula.count == 3
    np.testing.assert_array_equal(first, [16, 25, 36])
    np.testing.assert_array_equal(second, [17, 26, 37])
    assert constant(2.5, dt.float32).dtype == np.float32
