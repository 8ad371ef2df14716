"""Launches on views: of memory that has another owner, and several of one tensor."""

from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import LaunchError
from weft.ir.node import toposort

pytestmark = pytest.mark.usefixtures("compiled")


@weft.compute
def chained(src, dst):
    for i in range(dst.shape[0]):
        dst[i] = src[i] * 2 + 1


@weft.kernel
def doubled(src, dst):
    i = gpu.grid(1)
    if i < dst.size:
        dst[i] = src[i] * 2 + 1


@weft.compute
def both(a, b):
    for i in range(a.shape[0]):
        a[i] += 1
        b[i] += 10


@weft.kernel
def both_threads(a, b):
    i = gpu.grid(1)
    if i < a.size:
        a[i] += 1
        b[i] += 10


def run(function: Any, *args: Any) -> None:
    (function if function in (chained, both) else function[1, 32])(*args)


def in_order(n: int, src: slice, dst: slice) -> np.ndarray[Any, Any]:
    """Return what Python's loop leaves in ``arange(n)``."""
    a = np.arange(float(n))
    source, target = a[src], a[dst]
    for i in range(len(target)):
        target[i] = source[i] * 2 + 1
    return a


SLICES = [(slice(0, 8), slice(1, 9)), (slice(1, 9), slice(0, 8)),
          (slice(0, 16, 2), slice(1, 16, 2)),
          (slice(0, 8), slice(8, 16)), (slice(0, 14, 2), slice(2, 16, 2)),
          (slice(0, 5), slice(1, 11, 2)), (slice(2, 12, 2), slice(3, 8))]  # fmt: skip


@pytest.mark.parametrize(("src", "dst"), SLICES)
@pytest.mark.parametrize("given", ["tensor, array", "array, tensor", "tensors", "arrays"])
def test_loops_see_each_others_names(src: slice, dst: slice, given: str) -> None:
    for _ in range(3):
        a = np.arange(16.0)
        t = weft.from_numpy(a)
        first = t if given.startswith("tensor") else a
        second = t if given.endswith(("tensor", "tensors")) else a
        chained(first[src], second[dst])
        np.testing.assert_array_equal(a, in_order(16, src, dst))
        np.testing.assert_array_equal(t.numpy(), a)


@pytest.mark.parametrize("dst", [slice(0, 8), slice(3, 9), slice(1, 16, 2), slice(None, None, 3)])
@pytest.mark.parametrize("function", [chained, doubled])
def test_views_write_to_the_memory_at_once(function: Any, dst: slice) -> None:
    a = np.arange(16.0)
    t = weft.from_numpy(a)
    before = t + 0  # still to be read
    source = np.arange(100.0, 100.0 + len(a[dst]))
    run(function, source, t[dst])
    expected = np.arange(16.0)
    expected[dst] = source * 2 + 1
    np.testing.assert_array_equal(a, expected)
    np.testing.assert_array_equal(before.numpy(), np.arange(16.0))
    np.testing.assert_array_equal(t.numpy(), expected)


@pytest.mark.parametrize("function", [chained, doubled])
def test_views_are_read_where_they_lie(function: Any) -> None:
    a = np.arange(16.0)
    view = weft.from_numpy(a)[4:12]
    out = np.zeros(8)
    for k in range(3):
        a += 1  # as the owner of the memory may
        run(function, view, out)
        np.testing.assert_array_equal(out, 2 * (np.arange(4.0, 12.0) + k + 1) + 1)


@pytest.mark.parametrize(("one", "other"), [(slice(0, 16, 2), slice(4, 20, 2)),
                                            (slice(0, 16, 2), slice(0, 8)),
                                            (slice(0, 24, 3), slice(0, 16, 2))])
def test_gapped_views_that_overlap(one: slice, other: slice) -> None:
    expected = np.arange(32.0)
    for i, (p, q) in enumerate(zip(range(32)[one], range(32)[other], strict=True)):
        assert i < 8
        expected[p] += 1
        expected[q] += 10
    t = weft.tensor(np.arange(32.0))
    both(t[one], t[other])
    np.testing.assert_array_equal(t.numpy(), expected)
    t = weft.tensor(np.arange(32.0))
    with pytest.raises(LaunchError, match="views of one tensor that overlap"):
        both_threads[1, 32](t[one], t[other])
    np.testing.assert_array_equal(t.numpy(), np.arange(32.0))


def test_gapped_views_beside_each_other() -> None:
    for function in (both, both_threads):
        t = weft.tensor(np.arange(16.0).reshape(8, 2))
        run(function, t[:, 0], t[:, 1])
        expected = np.arange(16.0).reshape(8, 2) + np.array([1, 10])
        np.testing.assert_array_equal(t.numpy(), expected)
        run(function, t[:, 1], t[:, 1])  # one view, twice
        np.testing.assert_array_equal(t.numpy(), expected + np.array([0, 11]))


def test_fused_launches_on_views() -> None:
    a = np.arange(16.0)
    t = weft.from_numpy(a)
    with weft.fuse():
        doubled[1, 32](t[:8], a[8:])
        doubled[1, 32](a[8:], t[:8])
    np.testing.assert_array_equal(a[8:], np.arange(8.0) * 2 + 1)
    np.testing.assert_array_equal(a[:8], np.arange(8.0) * 4 + 3)


@pytest.mark.parametrize("part", [slice(2, 6), slice(1, 7, 2)])
@pytest.mark.parametrize("between", [None, "add", "launch"])
@pytest.mark.parametrize("function", [chained, doubled])
def test_launches_on_views_take_no_longer_the_more_there_are(function, between, part):
    base, other = weft.zeros(40), np.zeros(40, np.float32)
    view = base[part]
    sizes = []
    for _ in range(12):
        run(function, view, view)
        other[part] = other[part] * 2 + 1
        if between == "add":
            base.add_(1)
            other += 1
        elif between == "launch":
            run(function, base[3:5], base[3:5])
            other[3:5] = other[3:5] * 2 + 1
        sizes.append(len(toposort([base._value()])))
    assert sizes[-1] == sizes[0]
    assert np.array_equal(base.numpy(), other)
