"""Integer corner cases and casts give the values that `weft.ir.op` writes down.

Each is computed on data, on constants that the compiler folds, and inside a captured function.
"""

import numpy as np
import pytest

import weft

INTEGERS = [weft.int8, weft.int16, weft.int32, weft.int64, weft.uint8, weft.uint16, weft.uint32,
            weft.uint64]  # fmt: skip
SIGNED = INTEGERS[:4]
FLOATS = [weft.float16, weft.bfloat16, weft.float32, weft.float64]


def each_way(f, *arguments):
    """Return f(*arguments) from data, in a vector with a tail, from constants, and captured."""
    data = [weft.tensor([v] * 19, dtype=d) for v, d in arguments]
    constants = [weft.full((19,), v, dtype=d) for v, d in arguments]
    results = [f(*data), f(*constants), f(data[0], *constants[1:]), weft.jit(f)(*data),
               f(*[d[:1] for d in data]).expand(19)]  # fmt: skip
    values = [r.tolist() for r in results]
    assert all(v == values[0] for v in values), values
    assert len(set(values[0])) == 1, values[0]
    return values[0][0]


@pytest.mark.grid
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_division_by_zero_is_zero(dtype):
    values = (1, 0, 7, dtype.max) + ((-5, dtype.min) if dtype.kind == "i" else ())
    for value in values:
        assert each_way(lambda a, b: a // b, (value, dtype), (0, dtype)) == 0
        assert each_way(lambda a, b: weft.div(a, b, rounding_mode="trunc"),
                        (value, dtype), (0, dtype)) == 0  # fmt: skip


@pytest.mark.grid
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_remainder_of_division_by_zero(dtype):
    for value in (0, 7, dtype.max, dtype.min):
        found = each_way(lambda a, b: a % b, (value, dtype), (0, dtype))
        assert found == 0
        assert each_way(lambda a, b: a.fmod(b), (value, dtype), (0, dtype)) == found


@pytest.mark.parametrize("dtype", SIGNED, ids=lambda d: d.name)
def test_smallest_by_minus_one(dtype):
    smallest, minus = (dtype.min, dtype), (-1, dtype)
    assert each_way(lambda a, b: a // b, smallest, minus) == dtype.min
    assert each_way(lambda a, b: weft.div(a, b, rounding_mode="trunc"), smallest, minus) == (
        dtype.min
    )
    assert each_way(lambda a, b: a % b, smallest, minus) == 0
    assert each_way(lambda a: -a, smallest) == dtype.min
    assert each_way(lambda a: a.abs(), smallest) == dtype.min
    assert each_way(lambda a, b: a * b, smallest, minus) == dtype.min


@pytest.mark.grid
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_shift_past_the_width(dtype):
    for amount in (dtype.bits, dtype.bits + 1, min(127, dtype.max), dtype.max):
        for value in (1, 5, dtype.max, dtype.min):
            shift = (amount, dtype)
            assert each_way(lambda a, b: a << b, (value, dtype), shift) == 0
            assert each_way(lambda a, b: a >> b, (value, dtype), shift) == (-1 if value < 0 else 0)


@pytest.mark.parametrize("dtype", SIGNED, ids=lambda d: d.name)
def test_shift_by_a_negative_amount(dtype):
    for amount in (-1, -8, dtype.min):
        left = each_way(lambda a, b: a << b, (3, dtype), (amount, dtype))
        right = each_way(lambda a, b: a >> b, (-3, dtype), (amount, dtype))
        assert (left, right) == (0, -1)  # an amount past the width, read as unsigned


@pytest.mark.grid
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_arithmetic_wraps(dtype):
    one, top = (1, dtype), (dtype.max, dtype)
    assert each_way(lambda a, b: a + b, top, one) == dtype.min
    assert each_way(lambda a, b: a - b, (dtype.min, dtype), one) == dtype.max
    assert each_way(lambda a, b: a * b, top, (2, dtype)) == (dtype.max * 2) % 2**dtype.bits - (
        2**dtype.bits if dtype.kind == "i" else 0
    )


@pytest.mark.grid
@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_float_to_integer(source, dtype):
    assert each_way(lambda a: a.astype(dtype), (float("nan"), source)) == 0
    assert each_way(lambda a: a.astype(dtype), (float("inf"), source)) == dtype.max
    assert each_way(lambda a: a.astype(dtype), (-float("inf"), source)) == dtype.min
    assert each_way(lambda a: a.astype(dtype), (-0.0, source)) == 0
    assert each_way(lambda a: a.astype(dtype), (1.75, source)) == 1
    if dtype.kind == "i":
        assert each_way(lambda a: a.astype(dtype), (-1.75, source)) == -1
    if source.bits >= 32:
        assert each_way(lambda a: a.astype(dtype), (1e30, source)) == dtype.max
        assert each_way(lambda a: a.astype(dtype), (-1e30, source)) == dtype.min


@pytest.mark.parametrize("source", FLOATS, ids=lambda d: d.name)
def test_float_to_bool(source):
    for value, expected in [(float("nan"), True), (0.0, False), (-0.0, False), (1e-3, True)]:
        assert each_way(lambda a: a.bool(), (value, source)) is expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda d: d.name)
def test_integer_to_narrower_integer_wraps(dtype):
    for value in (2**40 + 3, -(2**40) - 3, 2**63 - 1, -(2**63)):
        found = each_way(lambda a: a.astype(dtype), (value, weft.int64))
        assert found == int(np.array([value]).astype(dtype.name)[0])


def test_float_division_and_remainder():
    for dtype in (weft.float32, weft.float64):
        assert each_way(lambda a, b: a / b, (1.0, dtype), (0.0, dtype)) == float("inf")
        assert each_way(lambda a, b: a / b, (-1.0, dtype), (0.0, dtype)) == -float("inf")
        for f in (lambda a, b: a / b, lambda a, b: a % b, lambda a, b: a // b):
            x = weft.tensor([0.0] * 9, dtype=dtype)
            assert np.isnan(f(x, x).numpy()).all()


def test_true_division_of_integers_by_zero():
    x = weft.tensor([1, 0, -1])
    result = (x / weft.tensor([0, 0, 0])).tolist()
    assert result[0] == float("inf")
    assert result[1] != result[1]
    assert result[2] == -float("inf")
