"""``match`` in kernels, against Python."""

import enum

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError


class Kind(enum.IntEnum):
    """What the patterns name."""

    NEAR = 3
    FAR = 4


def chosen(value, other):
    """Return what the cases say of a value."""
    match value:
        case 0 | 10:
            found = other
        case -1:
            found = -other
        case Kind.NEAR | Kind.FAR as kind:
            found = kind * 100
        case big if big > 20 and big % 2:
            found = big + 0.5
        case 7 if other > 2:
            found = 7000
        case rest:
            found = rest - 1000
    return found


@weft.kernel
def choose(x, y, out):
    i = gpu.grid(1)
    if i < x.size:
        out[i] = chosen(x[i], y[i])


def nested(x, n):
    """Return the sum over turns, some of which are left or passed over."""
    total = 0
    for k in range(n):
        match x[k]:
            case 1:
                continue
            case 2:
                match k % 3:
                    case 0:
                        break
                    case 1:
                        total += 50
            case _:
                total += x[k]
        total += 1
    else:
        total -= 7
    return total


@weft.kernel
def walk(x, out):
    i = gpu.grid(1)
    if i < x.shape[0]:
        out[i] = nested(x[i], x.shape[1])


@weft.kernel
def early(x, out, mode):
    i = gpu.grid(1)
    if i >= x.size:
        return
    match mode:
        case None:
            out[i] = -1
        case 1:
            out[i] = x[i]
            return
        case 2.5:
            out[i] = 2 * x[i]
    out[i] += 1


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8])
def test_values_captures_guards(dtype):
    x = np.array([0, 10, -1, 3, 4, 7, 7, 21, 22, 23, 99, -5, 100], dtype)
    y = np.arange(13.0) / 2
    out = np.zeros(13)
    again = np.zeros(13)
    choose[2, 8](x, y, out)
    weft.interpret(choose, 2, 8)(x, y, again)
    assert list(again) == list(out)
    assert list(out) == [chosen(int(a), b) for a, b in zip(x, y, strict=True)]


@pytest.mark.parametrize("n", [1, 2, 7, 13])
def test_loops_and_cases_in_each_other(n):
    x = np.random.default_rng(n).integers(0, 4, (11, n))
    out = np.zeros(11, np.int64)
    again = np.zeros(11, np.int64)
    walk[1, 16](x, out)
    weft.interpret(walk, 1, 16)(x, again)
    assert list(again) == list(out)
    assert list(out) == [nested(row, n) for row in x]


@pytest.mark.parametrize(("mode", "wanted"), [(None, 0), (1, 5), (2.5, 11), (3, 1)])
def test_returns_and_none(mode, wanted):
    out = np.zeros(3)
    early[1, 4](np.full(3, 5.0), out, mode)
    assert list(out) == [wanted] * 3


def tupled(a, b, n):
    """Return what patterns of tuples say, in one another, with stars, captures and guards."""
    triple = (a % 3, (b % 2, n))
    match (a % 2, b // 4):
        case (0, 0):
            found = 1
        case (1, y) if y > 2:
            found = 10 * y
        case (0 | 1 as first, second):
            found = first - second
        case _:
            found = 5
    match triple:
        case (x,):
            found += x
        case (0, (1, m)) | (1, (0, m)):
            found += 1000 * m
        case [2, *rest]:
            found += 100 * len(rest)
        case (*_, (_, m)):
            found += 10000 * m
    match n:
        case (_, _):
            found = 0
        case [*_]:
            found = 0
    match (a, b, n, 3):
        case (first, *_, 2):
            found = -first
        case (_, *middle, last):
            found += middle[0] * last
    return found


@weft.kernel
def match_tuples(x, y, out):
    i = gpu.grid(1)
    if i < x.size:
        out[i] = tupled(x[i], y[i], i)


def test_tuples():
    x, y = (np.random.default_rng(k).integers(0, 17, 53) for k in range(2))
    out, again = np.zeros(53, np.int64), np.zeros(53, np.int64)
    match_tuples[1, 64](x, y, out)
    weft.interpret(match_tuples, 1, 64)(x, y, again)
    assert list(out) == list(again)
    given = zip(x.tolist(), y.tolist(), range(53), strict=True)
    assert list(out) == [tupled(a, b, i) for a, b, i in given]


@pytest.mark.parametrize("pattern", ["{'a': b}", "Kind(value=b)", "(0, b) | (b, 1)"])
def test_patterns_that_look_inside(pattern):
    space = {"weft": weft, "Kind": Kind}
    text = (f"@weft.kernel\ndef pairs(x):\n    match (x[0], x[1]):\n        case {pattern}:\n"
            "            x[0] = b\n")
    exec(text, space)
    with pytest.raises(KernelError, match="match with such patterns is not supported"):
        space["pairs"][1, 1](np.zeros(2))


def test_an_error_in_a_case_is_where_it_stands():
    @weft.kernel
    def wrong(x):
        match x[0]:
            case 1:
                x[0] = [1] @ x[0]
            case other if other.field:
                x[0] = 2

    with pytest.raises(KernelError) as caught:
        wrong[1, 1](np.zeros(2))
    first = wrong.__weft_function__.__code__.co_firstlineno
    assert [p.line for p in caught.value.problems] == [first + 4, first + 5]


def kept(value, limit):
    """Return what names of patterns hold after guards that do not hold."""
    x = y = z = -1
    match value:
        case x if x > limit:
            found = 1
        case 1 | 2 | 3 as y if y > 2 and y > limit:
            found = 2
        case 1 | 2 as z:
            found = 3
        case _:
            found = 4
    return found + 10 * x + 1000 * y + 100000 * z


@pytest.mark.parametrize("native", [True, False])
def test_names_stay_set_where_guards_fail(native):
    @weft.kernel
    def keep(x, out):
        i = gpu.grid(1)
        out[i] = kept(x[i], 4)

    x = np.arange(-2, 7)
    out = np.zeros(9, np.int64)
    (keep[1, 9] if native else weft.interpret(keep, 1, 9))(x, out)
    np.testing.assert_array_equal(out, [kept(int(v), 4) for v in x])
