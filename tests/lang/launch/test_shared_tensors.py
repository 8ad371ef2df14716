"""Tensors that share memory as arguments of one launch, or of one call."""

import itertools
from typing import Any

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import ShapeError

pytestmark = pytest.mark.usefixtures("compiled")


@weft.kernel
def either(x: Any, y: Any) -> None:
    i = gpu.grid(1)
    if i < min(x.size, y.size):
        if i % 2 == 0:
            x[i] = 1 + i
        else:
            y[i] = -i


@weft.compute
def twice(x: Any, y: Any) -> None:
    for i in range(min(x.size, y.size)):
        y[i] = x[i] * 2 + i


VIEWS = {
    "whole": lambda x: x,
    "all": lambda x: x[:],
    "front": lambda x: x[:9],
    "back": lambda x: x[3:],
    "odd": lambda x: x[1::2],
    "even": lambda x: x[::2],
    "turned": lambda x: x[::-1],
    "shape": lambda x: x.reshape(3, 4).reshape(-1),
    "column": lambda x: x.reshape(3, 4)[:, 1],
}


@pytest.mark.grid
@pytest.mark.parametrize(("first", "second"), list(itertools.product(VIEWS, VIEWS)))
def test_loops_over_views(first: str, second: str) -> None:
    """A compute function does to overlapping views what its Python does to those of NumPy."""
    x, expected = weft.arange(12, dtype=weft.float64), np.arange(12.0)
    twice(VIEWS[first](x), VIEWS[second](x))
    twice.__weft_function__(VIEWS[first](expected), VIEWS[second](expected))
    assert x.numpy().tolist() == expected.tolist()


@pytest.mark.parametrize("view", VIEWS)
def test_kernel_that_writes_one_view_by_two_names(view: str) -> None:
    """Nothing is lost of what a kernel writes by two names, the first time and later."""
    for _ in range(3):
        x, expected = weft.zeros(12), np.zeros(12, np.float32)
        part = VIEWS[view](x)
        either[1, 16](part, part)
        expected_part = VIEWS[view](expected)
        for i in range(len(expected_part)):
            expected_part[i] = -i if i % 2 else 1 + i
        assert x.numpy().tolist() == expected.tolist()
        assert part.numpy().tolist() == expected_part.tolist()


@pytest.mark.parametrize(("first", "second"), list(itertools.product(
    ("whole", "all", "front", "back", "shape"), repeat=2)))
def test_kernel_that_writes_views_without_gaps(first: str, second: str) -> None:
    """Views without gaps lie in one memory."""
    x, expected = weft.zeros(12), np.zeros(12, np.float32)
    p, q = VIEWS[first](expected), VIEWS[second](expected)
    for i in range(0, min(p.size, q.size), 2):
        p[i] = 1 + i
    before = expected.copy()
    for i in range(1, min(p.size, q.size), 2):
        if q[i] != 0:
            return  # two threads write one element
        q[i] = -i
    either[1, 16](VIEWS[first](x), VIEWS[second](x))
    assert x.numpy().tolist() == expected.tolist()
    assert not np.array_equal(before, expected)


def test_old_values_stay() -> None:
    """What was computed from a tensor before knows its old value."""
    x = weft.ones(12)
    held, later = x.numpy(), x + 1
    either[1, 16](x[:9], x[3:])
    assert held.tolist() == [1.0] * 12
    assert later.numpy().tolist() == [2.0] * 12
    assert x.numpy()[0] == 1
    assert x.numpy()[4] == -1


def test_expanded_view_is_refused() -> None:
    """Elements that are one place in memory cannot be written each for itself."""
    x = weft.ones(1)
    with pytest.raises(ShapeError, match="expanded"):
        twice(x, x.expand(4))
