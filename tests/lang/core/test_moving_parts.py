"""Names that hold parts of one array which move: in loops, branches, choices and results."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError

pytestmark = pytest.mark.usefixtures("compiled")


def check(kernel: Any, threads: int, *args: Any, expected: Any) -> None:
    """Run a kernel, compiled and under the sanitiser, on copies of its arguments."""
    for run in (kernel[1, threads], weft.sanitize(kernel, 1, threads)):
        copies = [np.array(a) if isinstance(a, np.ndarray) else a for a in args]
        report = run(*copies)
        assert report is None or not report.findings
        np.testing.assert_allclose(copies[-1], expected, rtol=1e-13)


@weft.kernel
def rows(a, out):
    i = gpu.grid(1)
    row = a[0]
    s = 0.0
    for j in range(a.shape[0]):
        s += row[i]
        row = a[j]
    out[i] = s + row[i]


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("order", "CF")
def test_rows_in_turn(count: int, order: str) -> None:
    """Each turn reads the row that the one before it set."""
    a = np.asarray(np.random.default_rng(count).random((count, 5)), order=order)  # type: ignore
    check(rows, 5, a, np.zeros(5), expected=a[0] + a[:-1].sum(0) + a[-1])


@weft.kernel
def shrinking(a, out):
    i = gpu.grid(1)
    rest = a[i]
    s = 0.0
    while len(rest) > 1:
        if i % 2:
            rest = rest[1:]
            s += 1
        else:
            rest = rest[::2]
        s = s * 2 + rest[len(rest) - 1] + len(rest)
    out[i] = s


def test_sizes_and_steps_that_change() -> None:
    """A slice of a slice: where it begins, how long it is and how far its items are apart."""
    a = np.arange(28.0).reshape(4, 7)
    expected = []
    for i, rest in enumerate(a):
        s = 0.0
        while len(rest) > 1:
            rest = rest[1:] if i % 2 else rest[::2]
            s = (s + i % 2) * 2 + rest[-1] + len(rest)
        expected.append(s)
    check(shrinking, 4, a, np.zeros(4), expected=expected)


@weft.func
def largest(a, n):
    best = a[0]
    for j in range(n):
        if a[j, 0] > best[0]:
            best = a[j]
    return best


@weft.func
def either(a, n):
    if n > 1:
        return a[n]
    return a[n + 2, 1:]


@weft.kernel
def results(a, out):
    i = gpu.grid(1)
    row = a[i + 1] if a[i, 0] > 0.5 else a[i]
    out[i] = largest(a, i + 1)[1] + 10 * either(a, i)[0] + 100 * row[2]


def test_results_of_functions_and_choices() -> None:
    """Whichever of them a thread means."""
    a = np.random.default_rng(0).random((6, 3))
    expected = [a[max(range(i + 1), key=lambda j: a[j, 0])][1] + 100 * a[i + (a[i, 0] > 0.5)][2]
                + 10 * (a[i, 0] if i > 1 else a[i + 2, 1]) for i in range(5)]
    check(results, 5, a, np.zeros(5), expected=expected)


@weft.kernel
def written(z, out):
    i = gpu.grid(1)
    local = gpu.local.array((3, 2), weft.int32)
    cell = local[0]
    for j in range(3):
        cell = local[j]
        cell[0], cell[1] = j, 0
    for j in range(3):
        for k in range(2):
            cell = local[(i + j + k) % 3]
            cell[1] += 1 + j
    w = z[i]
    for j in range(2):
        out[i] += w[j]
        w = z[(i + 2) % 4]
    out[i] += local[i % 3, 1] * 100 + cell[0]


def test_parts_of_local_memory_and_of_complex_arrays() -> None:
    """They are written through, in loops within loops, too."""
    z = (np.arange(8) + 1j).reshape(4, 2)
    expected = np.zeros(4, complex)
    for i in range(4):
        local = [[0, 0], [1, 0], [2, 0]]
        for j in range(3):
            for k in range(2):
                local[(i + j + k) % 3][1] += 1 + j
        expected[i] = z[i, 0] + z[(i + 2) % 4, 1] + local[i % 3][1] * 100 + (i + 3) % 3
    check(written, 4, z, np.zeros(4, complex), expected=expected)


def test_bounds_of_a_part_are_those_of_that_turn() -> None:
    """An index behind the row is found, though the array goes on."""

    @weft.kernel
    def behind(a, out):
        row = a[0, :2]
        for j in range(2):
            out[j] = row[1]
            row = a[j, : 2 - j]
        out[0] = row[1]

    findings = weft.sanitize(behind, 1, 1)(np.zeros((2, 4)), np.zeros(2)).findings
    assert [f.kind for f in findings] == ["out-of-bounds"]


def test_parts_of_several_arrays_do_not_meet() -> None:
    """They would need to be told apart on every access."""

    @weft.kernel
    def unlike(a, b, out):
        row = a[0]
        for j in range(2):
            out[j] = row[0]
            row = b[j]

    with pytest.raises(KernelError, match="row changes from one array to another"):
        unlike[1, 1](np.zeros((2, 2)), np.zeros((2, 2)), np.zeros(2))
