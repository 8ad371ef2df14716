"""``iter`` and ``next`` in kernels: items one after the other, whoever takes them."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda
from weft.errors import KernelError, LaunchError

pytestmark = pytest.mark.usefixtures("compiled")


def check(kernel: Any, *args: Any, expected: Any) -> None:
    """Run one thread of a kernel, compiled and under the sanitiser, on copies of its arguments."""
    for run in (kernel[1, 1], weft.sanitize(kernel, 1, 1)):
        copies = [a.copy() for a in args]
        report = run(*copies)
        assert report is None or not report.findings
        np.testing.assert_array_equal(copies[-1], expected)


def run_python(kernel: Any, *args: Any) -> Any:
    """Return what Python itself makes of the last argument."""
    copies = [a.copy() for a in args]
    kernel(*copies)
    return copies[-1]


def by_hand(x, out):
    it = iter(x)
    out[0] = next(it)
    out[1] = next(it) * 10
    again = it
    out[2] = next(again)
    out[3] = next(it)


def in_a_loop(x, out):
    it = iter(x)
    for k in range(3):
        out[k] = next(it) * 2
    for rest in it:
        out[3] += rest
        if rest > 5:
            break
    for rest in it:
        out[4] += 100 * rest
    for rest in it:
        out[5] += rest


def of_other_things(x, out):
    numbers = iter((3, 4.5, 6))
    out[0] = next(numbers) + next(numbers)
    steps = iter(range(2, 20, 3))
    out[1] = next(steps) + 100 * next(steps)
    out[2] = sum(steps)
    for k, value in enumerate(iter(x)):
        out[3] += k * value
    rows = iter(x.reshape(2, -1))
    out[4] = next(rows)[1] * next(rows)[0]
    places = iter(np.ndindex(2, 3))
    first, second = next(places), next(places)
    out[5] = first[1] + 10 * second[1]
    flat = iter(x.flat)
    out[6] = next(flat) - next(flat)


def of_side_by_side(x, out):
    numbered = enumerate(x)
    k, value = next(numbered)
    out[0] = k + value
    for k, value in numbered:
        out[1] += k * value
    both = zip(x, x[2:], strict=False)
    a, b = next(both)
    out[2] = a - b
    for a, b in both:
        out[3] += a * b


def in_the_body_of_its_loop(x, out):
    it = iter(x)
    for v in it:
        out[0] = 2 * out[0] + v * next(it)
    it = iter(x)
    for v in it:
        for w in it:
            out[1] = 2 * out[1] + w
            if w > 4:
                break
        out[2] += v
    it = iter(x)
    for k, v in enumerate(it):
        if k % 2 == 0:
            continue
        out[3] += k * v + next(it)
        if k == 5:
            break
    steps = iter(range(20))
    for k in steps:
        if k % 3 == 0 and k < 18:
            out[4] = 2 * out[4] + next(steps)
            continue
        out[5] = 2 * out[5] + k


def held_by_a_name(x, out):
    numbered = enumerate(x)
    for k, v in numbered:
        out[0] += v
        if k == 3:
            break
    for k, v in numbered:
        out[1] += k * v
    both = zip(x, range(5), strict=False)
    for v, k in both:
        for w, j in both:
            out[2] = 2 * out[2] + w * j
            if j == 2:
                break
        out[3] = 2 * out[3] + v * k
    for v, _ in both:
        out[4] = v
    rows = enumerate((1, 2.5, 3))
    for k, v in rows:
        out[5] += k * v
    weights = zip((2, 7, 1), x, strict=False)
    for w, v in weights:
        out[6] += w * v
        if w == 7:
            break
    for w, v in weights:
        out[7] += w * v
    for _ in weights:
        out[6] = -1


def beside_tuples(x, out):
    for v, w in zip((1, 2, 3), x, strict=False):
        out[0] = 2 * out[0] + v * w
        x[1], x[2] = 10 * v, 100 * v
    for k, (v, w) in enumerate(zip((1, 2, 3), (4, 5.5), strict=False)):
        out[1] += k * v * w
    for v, k in zip((1, 2, 3), range(2), strict=False):
        out[2] += v * k + 1
    for k, (v, w) in enumerate(zip(x, (1, 2, 3), strict=False)):
        if k == 2:
            break
        out[3] += v * w


def several(x, out):
    it, steps = iter(x), iter(range(1, 9))
    for v, k in zip(it, steps, strict=False):
        out[0] = 2 * out[0] + v * k
        if k == 3:
            break
    for k, v in zip(steps, it, strict=False):  # takes a step more than items
        out[1] = 2 * out[1] + v * k
    for k in steps:
        out[2] += k
    it = iter(x)
    for v, w in zip(it, it, strict=False):
        out[3] = 2 * out[3] + v - 3 * w
        if v > w:
            out[4] += 1
            break
    out[4] += 10 * sum(it)
    it = iter(x)
    both = zip(it, (1, 2.5, 3), strict=False)
    v, w = next(both)
    out[5] = v * w + 10 * next(it)
    for v, w in both:
        out[6] = 2 * out[6] + v * w
    for v in it:
        out[7] = 2 * out[7] + v


def pairs_of(both):
    total = 0.0
    for v, w in both:
        total = 2 * total + v * w
        if total > 4:
            break
    return total


def handed_on(x, out):
    both = zip(x, range(1, 30), strict=False)
    out[0] = pairs_of(both)
    out[1] = pairs_of(both)
    out[2] = walked_twice(zip(x, x[2:], strict=False))
    it = iter(x)
    numbered = enumerate(zip(it, range(1, 9), strict=False), 3)
    k, (v, w) = next(numbered)
    out[3] = k + v * w
    for k, (v, w) in numbered:
        out[4] = 2 * out[4] + k + v * w
        if k == 5:
            continue
        for z in it:
            out[5] += z
            if z < 6:
                break
    else:
        out[6] = sum(it)


def walked_twice(both):
    total = 0.0
    for v, w in both:
        total += v - w
        if v < w:
            break
    for v, _ in both:
        total = total * 2 + v
    return total


@pytest.mark.grid
@pytest.mark.parametrize("function", [by_hand, in_a_loop, of_side_by_side, held_by_a_name,
                                      in_the_body_of_its_loop, beside_tuples, several, handed_on])
@pytest.mark.parametrize("seed", range(3))
def test_items_one_after_the_other(function: Any, seed: int) -> None:
    x = np.random.default_rng(seed).integers(1, 9, 12).astype(np.float64)
    expected = run_python(function, x, np.zeros(8))
    for kernel in (weft.kernel(function), cuda.jit(function)):
        check(kernel, x, np.zeros(8), expected=expected)


def test_iterators_of_many_things() -> None:
    x = np.random.default_rng(3).integers(1, 9, 12).astype(np.float64)
    expected = run_python(of_other_things, x, np.zeros(8))
    for kernel in (weft.kernel(of_other_things), cuda.jit(of_other_things)):
        check(kernel, x, np.zeros(8), expected=expected)


@weft.func
def taken(it, count):
    total = 0
    for _ in range(count):
        total += next(it)
    return total


@weft.kernel
def by_functions(x, out):
    i = gpu.grid(1)
    if i < x.shape[0]:
        it = iter(x[i])
        out[i, 0] = taken(it, i % 3)
        if i % 2:
            next(it)
        out[i, 1] = taken(it, 2)
        out[i, 2] = sum(it)


def test_functions_go_on_where_others_stopped() -> None:
    x = np.random.default_rng(4).integers(0, 9, (40, 8))
    expected = np.zeros((40, 3), np.int64)
    for i in range(40):
        it = iter(x[i].tolist())
        expected[i, 0] = sum(next(it) for _ in range(i % 3))
        if i % 2:
            next(it)
        expected[i, 1] = next(it) + next(it)
        expected[i, 2] = sum(it)
    for run in (by_functions[2, 32], weft.sanitize(by_functions, 2, 32)):
        out = np.zeros((40, 3), np.int64)
        run(x, out)
        np.testing.assert_array_equal(out, expected)


def test_the_end_stops_the_kernel() -> None:
    @weft.kernel
    def beyond(x, out):
        it = iter(x)
        for _ in range(4):
            out[0] += next(it)

    with pytest.raises(LaunchError, match="end") as caught:
        beyond[1, 1](np.ones(3), np.zeros(1))
    assert isinstance(caught.value, StopIteration)
    beyond[1, 1](np.ones(4), np.zeros(1))


@pytest.mark.parametrize("length", [0, 1, 2])
def test_what_ends_before_a_tuple_stops_the_kernel(length: int) -> None:
    @weft.kernel
    def short(x, n, out):
        for v, k in zip((1, 2, 3), range(n), strict=False):
            out[0] += v * k
        for v, w in zip(x, (1, 2, 3), strict=False):
            out[0] += v * w

    with pytest.raises(LaunchError, match="a tuple and of what is shorter"):
        short[1, 1](np.ones(4), length, np.zeros(1))
    with pytest.raises(LaunchError, match="a tuple and of what is shorter"):
        short[1, 1](np.ones(length), 4, np.zeros(1))
    out = np.zeros(1)
    short[1, 1](np.ones(4), 4, out)
    assert out[0] == 14


def test_what_is_no_iterator_is_an_error() -> None:
    @weft.kernel
    def wrong(x, out):
        out[0] = next(x)
        out[1] = next(iter("abc"))

    with pytest.raises(KernelError, match="2 errors"):
        wrong[1, 1](np.ones(4), np.zeros(1))
