"""Every form of index, read and written, drawn and held against PyTorch and NumPy.

Where the two differ (an integer beside sequences counts as one of them in NumPy, and as a slice in
PyTorch) it is PyTorch that is followed.
"""

import random

import numpy as np
import pytest

import weft
from capabilities import module
from weft.errors import WeftError

torch = module("torch")
pytestmark = pytest.mark.requires("torch")

SEEDS = range(4)
INDICES = 60  # of each seed
SHAPES = ((5,), (3, 4), (2, 3, 4), (3, 1, 2), (), (0, 3), (2, 0, 3))


def _part(draw, n, size):
    """Return an item for an axis of a size, and how many axes it takes."""
    kind = draw.choice(("int", "slice", "list", "tuple", "array", "tensor", "range", "mask", "none",
                        "bool", "0-d", "0-d bool", "empty", "slice", "int"))  # fmt: skip
    pick = lambda: draw.randrange(-size, size) if size else 0  # noqa: E731
    many = [pick() for _ in range(n)] if size else []
    if kind == "slice":
        start, stop = (draw.choice((None, draw.randrange(-size - 2, size + 3))) for _ in "ab")
        return slice(start, stop, draw.choice((None, None, 1, 2, 3))), 1
    values = {
        "int": pick, "list": lambda: many, "tuple": lambda: tuple(many),
        "array": lambda: np.array(many, draw.choice((np.int64, np.int32))),
        "tensor": lambda: ("tensor", np.array(many, np.int64)),
        "range": lambda: range(size)[:n], "none": lambda: None, "bool": lambda: draw.random() < 0.5,
        "mask": lambda: [draw.random() < 0.5 for _ in range(size)],
        "0-d": lambda: draw.choice((np.int64(pick()), ("tensor", np.array(pick())))),
        "0-d bool": lambda: ("tensor", np.array(draw.random() < 0.5)), "empty": lambda: [],
    }  # fmt: skip
    takes = 0 if kind in ("none", "bool", "0-d bool") else 1
    return values[kind](), takes


def _drawn(draw, shape):
    """Return an index for an array of a shape."""
    if draw.random() < 0.12:
        lead = draw.randrange(len(shape) + 1)
        mask = np.array([draw.random() < 0.5 for _ in range(int(np.prod(shape[:lead])))], bool)
        return ("tensor", mask.reshape(shape[:lead]))
    n, items, axis = draw.choice((1, 2, 2)), [], 0
    many = draw.random() < 0.5
    while axis < len(shape) and len(items) < 5 and draw.random() < 0.8:
        item, takes = _part(draw, n, shape[axis])
        if not many and isinstance(item, list | tuple | range | np.ndarray):
            continue
        items.append(item)
        axis += takes
    if draw.random() < 0.2:
        items.insert(draw.randrange(len(items) + 1), Ellipsis)
    return items[0] if len(items) == 1 and not isinstance(items[0], tuple) else tuple(items)


def _made(index, tensor):
    """Return an index with tensors of a library in it."""
    if isinstance(index, tuple):
        if len(index) == 2 and isinstance(index[0], str):
            return tensor(index[1])
        return tuple(_made(i, tensor) for i in index)
    return index


def _numpy_differs(index):
    """Whether NumPy takes integers as sequences beside others, or bools as such."""
    items = index if isinstance(index, tuple) and not (index and isinstance(index[0], str)) else (
        index,)  # fmt: skip
    kinds = ["one" if isinstance(i, bool | int | np.integer) or (
        isinstance(i, tuple) and len(i) == 2 and isinstance(i[0], str) and i[1].ndim == 0)
        else "many" if isinstance(i, list | tuple | range | np.ndarray) else "" for i in items]
    return "one" in kinds and ("many" in kinds or any(isinstance(i, bool) for i in items))


def _attempt(use):
    try:
        return use()
    except (WeftError, IndexError, RuntimeError, TypeError, ValueError) as error:
        return error


def _same(found, expected, label):
    if isinstance(expected, Exception):
        assert isinstance(found, WeftError), f"{label}: {found}, expected {expected}"
        return
    assert not isinstance(found, Exception), f"{label}: {found}"
    assert tuple(found.shape) == tuple(expected.shape), f"{label}: {found.shape} {expected.shape}"
    assert found.tolist() == expected.tolist(), label


def _write(x, index, value):
    x[index] = value
    return x


def _check(draw):
    shape = draw.choice(SHAPES)
    index = _drawn(draw, shape)
    base = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    mine, theirs = (_made(index, make) for make in (weft.tensor, torch.tensor))
    expected = _attempt(lambda: torch.tensor(base)[theirs])
    found = _attempt(lambda: weft.tensor(base)[mine])
    label = f"{shape} {index}"
    _same(found, expected, label)
    values = [7]
    if not isinstance(expected, Exception):
        if not _numpy_differs(index):
            _same(found, base[_made(index, np.asarray)], f"{label}, NumPy")
        values.append(-np.arange(expected.numel(), dtype=np.int32).reshape(expected.shape) - 1)
    for value in values:
        one = torch.tensor(value) if isinstance(value, np.ndarray) else value
        expected = _attempt(lambda one=one: _write(torch.tensor(base), theirs, one))
        found = _attempt(lambda value=value: _write(weft.tensor(base), mine, value))
        _same(found, expected, f"{label} = {value}")


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_indices(seed):
    draw = random.Random(seed)
    for _ in range(INDICES):
        _check(draw)
