"""Sums in arrays of a thread that a program never sets: they begin at 0, as they do on GPUs."""

import numpy as np
import pytest

import weft
from weft.compat import cuda, float32


@cuda.jit
def tile(a, b, out):
    """Add products to registers as a tiled matmul does, which are not set before."""
    i, j = cuda.grid(2)
    sums = cuda.local.array((2, 3), float32)
    for k in range(a.shape[1]):
        for m in range(2):
            for n in range(3):
                sums[m, n] += a[2 * i + m, k] * b[k, 3 * j + n]
    for m in range(2):
        for n in range(3):
            out[2 * i + m, 3 * j + n] = sums[m, n]


@cuda.jit
def counts(x, out):
    """Count in a loop, whose array is another one in each turn; and with complex numbers."""
    i = cuda.grid(1)
    for row in range(x.shape[1]):
        seen = cuda.local.array(4, np.int32)
        for k in range(x.shape[2]):
            seen[x[i, row, k]] += 1
        for k in range(4):
            out[i, row, k] = seen[k]
    z = cuda.local.array(1, np.complex64)
    z[0] += 3 + 4j
    out[i, 0, 0] += int(abs(z[0]))


PAIR = np.dtype([("total", np.float32), ("count", np.int64)])


@cuda.jit
def parts(x, out):
    """Sum in fields of records, and in elements of rows."""
    i = cuda.grid(1)
    found = cuda.local.array(3, PAIR)
    rows = cuda.local.array((2, 3), float32)
    for k in range(x.shape[1]):
        found[k % 3].total += x[i, k]
        found[k % 3]["count"] += 1
        rows[k % 2][k % 3] += x[i, k]
    for k in range(3):
        out[i, k] = found[k].total
        out[i, 3 + k] = found[k].count
        out[i, 6 + k] = rows[0, k] + rows[1, k]


@cuda.jit
def totals(x, out):
    """Add without an augmented assignment."""
    i = cuda.grid(1)
    sums = cuda.local.array((3, 1), float32)
    for k in range(x.shape[1]):
        sums[k % 3, 0] = sums[k % 3, 0] + x[i, k]
    for k in range(3):
        out[i, k] = sums[k, 0]


@pytest.mark.parametrize("seed", range(2))
def test_sums_spelled_out_begin_at_zero(seed: int) -> None:
    x = np.random.default_rng(seed).integers(-99, 99, (37, 12)).astype(np.float32)
    for _ in range(2):
        out = np.full((37, 3), np.nan, np.float32)
        totals[1, 37](x, out)
        np.testing.assert_array_equal(out, x.reshape(37, 4, 3).sum(1))


@pytest.mark.parametrize("seed", range(2))
def test_sums_begin_at_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(-9, 9, (16, 5)).astype(np.float32)
    b = rng.integers(-9, 9, (5, 24)).astype(np.float32)
    for _ in range(2):  # the second finds what the first left on the stack
        out = np.full((16, 24), np.nan, np.float32)
        tile[(1, 2), (8, 4)](a, b, out)
        np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("seed", range(2))
def test_each_turn_has_an_array_of_its_own(seed: int) -> None:
    x = np.random.default_rng(seed).integers(0, 4, (33, 3, 7))
    out = np.zeros((33, 3, 4), np.int64)
    counts[1, 33](x, out)
    expected = (x[..., None] == np.arange(4)).sum(2)
    expected[:, 0, 0] += 5
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("seed", range(2))
def test_parts_of_elements_begin_at_zero(seed: int) -> None:
    x = np.random.default_rng(seed).integers(-9, 9, (20, 11)).astype(np.float32)
    sums = np.stack([x[:, k::3].sum(1) for k in range(3)], 1)
    for _ in range(2):
        out = np.full((20, 9), np.nan, np.float32)
        parts[1, 20](x, out)
        np.testing.assert_array_equal(out[:, :3], sums)
        np.testing.assert_array_equal(out[:, 3:6], np.tile([4, 4, 3], (20, 1)))
        np.testing.assert_array_equal(out[:, 6:], sums)


def test_the_sanitiser_names_them() -> None:
    report = weft.sanitize(tile, 1, 1)(*(np.ones((6, 6), np.float32) for _ in range(3)))
    assert {f.kind for f in report.findings} == {"uninitialised"}
