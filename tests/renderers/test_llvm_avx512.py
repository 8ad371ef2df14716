"""What AVX-512 has instructions for: all lengths of vectors, subnormals, zeros and NaN."""

import numpy as np
import pytest

from renderers import compiled
from weft.backends import cpu
from weft.errors import DTypeError
from weft.ir import dtype as dt
from weft.ir.expr import binary, native, scalb, var
from weft.ir.interpret.interpret_code import apply
from weft.ir.lookup import lookup
from weft.ir.op import Op

POWERS = {dt.float32: [-250, -149, -140, -126, -1, 0, 1, 127, 128, 250],
          dt.float64: [-2000, -1074, -1060, -1022, -1, 0, 1, 1023, 1024, 2000]}  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("kind", [dt.float32, dt.float64])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("fraction", [0.0, 0.0625, 0.9375])
def test_scalb(kind, lanes, native, fraction):
    target = cpu.host_target()
    if native and not target.supports(Op.SCALB, kind):
        native = False  # the decomposition is what this machine runs
    if not native:
        target = target.replace(operations=target.operations - {("scalb", kind.text)})
    real = kind.numpy.type
    values = np.array([1, -1.5, 1.999, 0.75, 0.0, -0.0, np.inf, -np.inf, np.nan], real)
    x, n = (a.ravel() for a in np.meshgrid(values, np.array(POWERS[kind], real)))
    x, n = (np.resize(a, 128) for a in (x, n))
    n += real(fraction)
    a, b = var("a", kind), var("b", kind)
    (got,) = compiled.evaluate([scalb(a, b)], (a, b), (x, n), lanes=lanes, target=target)
    with np.errstate(over="ignore", under="ignore"):
        want = np.ldexp(x, np.floor(n).astype(np.int32))
    np.testing.assert_array_equal(got, want)
    zero = want == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("kind", [dt.float32, dt.float64])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
def test_extremes(kind, lanes, op):
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1], kind.numpy)
    x, y = (np.ascontiguousarray(a.ravel()) for a in np.meshgrid(values, values))
    a, b = var("a", kind), var("b", kind)
    (got,) = compiled.evaluate([binary(op, a, b)], (a, b), (x, y), lanes=lanes)
    choose, signs = (np.maximum, all) if op is Op.MAX else (np.minimum, any)
    want = choose(x, y)
    np.testing.assert_array_equal(got, want)
    for at in np.flatnonzero(want == 0):
        zeros = [v for v in (x[at], y[at]) if v == 0]
        assert np.signbit(got[at]) == signs(np.signbit(zeros))


@pytest.mark.grid
@pytest.mark.parametrize("kind", [dt.float32, dt.float64])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("op", [Op.MAXNUM, Op.MINNUM, Op.NANOF])
@pytest.mark.parametrize("instruction", [False, True])
def test_numbers_before_nan(kind, lanes, op, instruction):
    target = cpu.host_target()
    if not instruction:  # the decomposition, which is all that some machines have
        target = target.replace(operations=target.operations - {(op.name, kind.text)})
    values = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, 5e-324, 1e30],
                      kind.numpy)
    x, y = (np.resize(a.ravel(), 128) for a in np.meshgrid(values, values))
    a, b = var("a", kind), var("b", kind)
    (got,) = compiled.evaluate([native(op, a, b)], (a, b), (x, y), lanes=lanes, target=target)
    if op is Op.NANOF:
        want = np.where(np.isnan(x), x, y)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    else:
        want = (np.fmax if op is Op.MAXNUM else np.fmin)(x, y)
        pick = all if op is Op.MAXNUM else any
        for at in np.flatnonzero(want == 0):
            zeros = [v for v in (x[at], y[at]) if v == 0]
            assert np.signbit(got[at]) == pick(np.signbit(zeros))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", [71, 72])
@pytest.mark.parametrize("numbers", [16, 32])
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("instruction", [False, True])
def test_tables(seed, numbers, lanes, instruction):
    """The low bits of a word choose a number, in registers and in the interpreter."""
    target = cpu.host_target()
    if not instruction:  # the decomposition, which is all that some machines have
        target = target.replace(operations=target.operations - {("lookup", "u32")})
    rng = np.random.default_rng(seed)
    table = rng.standard_normal(numbers).astype(np.float32)
    table[:4] = [-0.0, np.inf, np.nan, 1e-45]
    index = rng.integers(0, 1 << 32, 256, dtype=np.uint32)
    i = var("i", dt.uint32)
    root = lookup(i, table.tolist())
    (got,) = compiled.evaluate([root], (i,), (index,), lanes=lanes, target=target)
    want = table[index % numbers]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    told = apply(Op.LOOKUP, dt.uint32, dt.float32, 256, root.attr, [tuple(index.tolist())])
    np.testing.assert_array_equal(np.array(told, np.float32), want)


def test_lookup_asks_for_a_table_of_one_or_two_registers():
    with pytest.raises(DTypeError, match="16 or 32"):
        lookup(var("i", dt.uint32), [0.0] * 8)
    with pytest.raises(DTypeError, match="u32"):
        lookup(var("i", dt.int32), [0.0] * 16)
