"""Loops that look for where an extreme stands, join conditions, or add what they store."""

import math
from typing import Any

import numpy as np
import pytest

import weft
from weft import ndrange

SIZES = (1, 2, 7, 33, 129, 1001)
DTYPES = (np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64)


@weft.compute
def highest(x: Any, place: Any, value: Any) -> None:
    for r in range(x.shape[0]):
        m = x[r, 0]
        at = 0
        s = x[r, 0] * 0
        for i in range(x.shape[1]):
            s += x[r, i]
            if x[r, i] > m:
                m = x[r, i]
                at = i
        place[r] = at
        value[r] = m


@weft.compute
def lowest(x: Any, place: Any, value: Any) -> None:
    for r in range(x.shape[0]):
        m = x[r, 0]
        at = -7
        high = x[r, 0]
        top = 1
        for i in range(1, x.shape[1]):
            if m > x[r, i]:
                at = i + 2
                m = x[r, i]
            if high < x[r, i]:
                high = x[r, i]
                top = i
        place[r] = at + 5000 * top
        value[r] = m


@weft.compute
def joined(x: Any, place: Any, value: Any) -> None:
    for r in range(x.shape[0]):
        every = True
        some = False
        hit = False
        none = True
        for i in range(x.shape[1]):
            every = every and x[r, i] < 3
            some = x[r, i] > 2 or some
            if x[r, i] == 1:
                hit = True
            if x[r, i] > 7:
                none = False
        place[r] = every + 2 * some + 4 * hit + 8 * none
        value[r] = 0


def given(dtype: Any, n: int, style: str) -> Any:
    rng = np.random.default_rng(n)
    kind = np.dtype(dtype).kind
    x = rng.integers(0 if kind == "u" else -3, 9, (3, n)).astype(dtype)
    if style == "nan":
        x[rng.random(x.shape) < 0.3] = np.nan
    elif style == "zeros":
        x[:] = np.where(rng.random(x.shape) < 0.5, 0.0, -0.0)
    elif style == "infinite":
        x[0], x[1], x[2] = -np.inf, np.inf, np.nan
        x[2, n // 2] = -np.inf
    return x


@pytest.mark.grid
@pytest.mark.parametrize("function", [highest, lowest, joined], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("dtype", "style"), [
    *((d, "plain") for d in DTYPES),
    *((d, s) for d in DTYPES[:2] for s in ("nan", "zeros", "infinite")),
], ids=lambda v: v if isinstance(v, str) else v.__name__)  # fmt: skip
def test_as_python_does(function: Any, dtype: Any, style: str) -> None:
    """To the bit: the first of equals, no NaN, the sign of a zero."""
    for n in SIZES:
        x = given(dtype, n, style)
        for start in (0, 1):  # a row that is aligned, and one that is not
            view = x[:, start:]
            if not view.shape[1]:
                continue
            ours = np.zeros(3, np.int64), np.zeros(3, dtype)
            wanted = np.zeros(3, np.int64), np.zeros(3, dtype)
            function(view, *ours)
            with np.errstate(all="ignore"):
                function.__weft_function__(view, *wanted)
            np.testing.assert_array_equal(ours[0], wanted[0])
            assert ours[1].tobytes() == wanted[1].tobytes()
    inner = [loop for loop in function.explain(view, *ours).loops if loop.name == "i"]
    assert all(loop.reduction and "vector" in loop.kinds for loop in inner), inner


@weft.compute
def last(x: Any, place: Any) -> None:
    m = x[0]
    at = down = steps = 0
    for i in range(x.size):
        if x[i] >= m:
            m = x[i]
            at = i
    high = x[0]
    for i in range(x.size - 1, -1, -1):
        if x[i] > high:
            high = x[i]
            down = i
    low = x[0]
    for i in range(x.size):
        if x[i] < low:
            low = x[i]
            steps += 1
    place[0] = at
    place[1] = down
    place[2] = steps


def test_other_ways_to_look_keep_their_order() -> None:
    """The last of equals, loops that run down, and what is no place."""
    for n in SIZES:
        x = np.random.default_rng(n).integers(0, 4, n).astype(np.float32)
        ours, wanted = np.zeros(3, np.int64), np.zeros(3, np.int64)
        last(x, ours)
        last.__weft_function__(x, wanted)
        np.testing.assert_array_equal(ours, wanted)
    assert all(loop.carried for loop in last.explain(x, ours).loops)


def sorted_until(x: Any, p: Any, out: Any) -> None:
    ok = True
    for i in range(p.size):
        ok = ok and x[p[i]] > 0
    out[0] = ok


def test_what_a_condition_guards_is_not_read() -> None:
    """An index that is wrong behind what makes it right: checked, and left alone unchecked."""
    x = np.array([1.0, -1.0, 1.0])
    p = np.array([0, 1, 1 << 40])  # nobody reads x there
    for function in (weft.compute(sorted_until), weft.compute(unchecked=True)(sorted_until)):
        out = np.ones(1, np.int64)
        function(x, p, out)
        assert out[0] == 0


@weft.compute
def softmax(x: Any, out: Any) -> None:
    for i in ndrange(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        s = 0.0
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - m)
            s += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= s


@weft.compute
def onto_one(x: Any, out: Any) -> None:
    s = 0.0
    for j in range(x.size):
        out[0] = x[j] * 2
        s += out[0]
    out[1] = s


@weft.compute
def twice(x: Any, out: Any) -> None:
    s = 0.0
    for j in range(x.size - 1):
        out[j] = x[j] * 2
        s += out[j]
        out[j + 1] = x[j] * 3
        s += out[j + 1] * out[j]
    out[x.size - 1] = s


def test_sums_of_what_is_stored() -> None:
    """Stored in one loop, added in another, each as vectors; where elements are one, in order."""
    for n in SIZES:
        x = np.random.default_rng(n).standard_normal((5, n)).astype(np.float32)
        out = np.zeros_like(x)
        softmax(x, out)
        e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=2e-5)
        for function in (onto_one, twice):
            whole = np.arange(n + 1.0)
            ours, wanted = np.zeros(n + 2), np.zeros(n + 2)
            function(whole, ours)
            function.__weft_function__(whole, wanted)
            np.testing.assert_allclose(ours, wanted, rtol=1e-13)
    loops = softmax.explain(x, out).loops
    assert all("vector" in loop.kinds for loop in loops if loop.name == "j"), loops


@weft.compute
def looks_at_its_place(x: Any, place: Any, value: Any) -> None:
    m = x[0]
    at = 0
    s = x[0]
    for i in range(x.size):
        s += x[at]
        if x[i] > m:
            m = x[i]
            at = i
    place[0] = at
    value[0] = m
    value[1] = s


@weft.compute
def under_another_condition(x: Any, place: Any, value: Any) -> None:
    m = x[0]
    at = -1
    for i in range(x.size):
        if x[x.size - 1 - i] > 0:
            m = max(m, x[i])
            at = i
    place[0] = at
    value[0] = m


@pytest.mark.grid
@pytest.mark.parametrize("function", [looks_at_its_place, under_another_condition],
                         ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64], ids=lambda d: d.__name__)
def test_what_is_no_place_of_an_extreme(function: Any, dtype: Any) -> None:
    """A turn that reads where the last one was found, and a place that another condition sets."""
    for n in SIZES:
        x = given(dtype, n, "plain")[0]
        ours = np.zeros(1, np.int64), np.zeros(2, dtype)
        wanted = np.zeros(1, np.int64), np.zeros(2, dtype)
        function(x, *ours)
        function.__weft_function__(x, *wanted)
        np.testing.assert_array_equal(ours[0], wanted[0])
        np.testing.assert_array_equal(ours[1], wanted[1])


@weft.compute
def far(x: Any, place: Any) -> None:
    m = x[0]
    at = 0
    for i in range(x.size):
        if x[i] > m:
            m = x[i]
            at = i + 9223372036854775805
    place[0] = at


def test_places_that_wrap() -> None:
    """The first of equals, though the places of the others are lower."""
    place = np.zeros(1, np.int64)
    far(np.array([0.0, 5.0, 5.0, 5.0, 5.0]), place)
    assert place[0] == 2**63 - 2
