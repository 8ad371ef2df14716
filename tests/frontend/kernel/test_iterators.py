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


@pytest.mark.parametrize("function", [by_hand, in_a_loop, of_side_by_side])
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


def test_what_is_no_iterator_is_an_error() -> None:
    @weft.kernel
    def wrong(x, out):
        out[0] = next(x)
        it = iter(x)
        for a, b in zip(it, it, strict=False):
            out[0] += a - b

        out[1] = next(iter("abc"))

    with pytest.raises(KernelError, match="3 errors"):
        wrong[1, 1](np.ones(4), np.zeros(1))
