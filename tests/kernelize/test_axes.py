"""Axes of memories: flat indices that hold a row and a column come apart again."""

import numpy as np
import pytest

import weft
from weft.ir import dtype as dt
from weft.ir import expr as ex
from weft.ir.stmt import For, Kernel, Load, Memory, Store
from weft.ir.traverse import walk
from weft.kernelize.common.tidy import tidy


def copied(size, result, position):
    """Return a kernel that copies x[position(i, j)] over i of 6 and j of 8."""
    x = Memory("x", dt.float32, (ex.index(size),))
    y = Memory("y", dt.float32, tuple(ex.index(s) for s in result))
    i, j, value = ex.var("i"), ex.var("j"), ex.var("v", dt.float32)
    body = (Load(value, x, (position(i, j),)), Store(y, (i, j), value))
    inner = For(j, ex.index(result[1]), "serial", body)
    return Kernel("copy", (x, y), (For(i, ex.index(result[0]), "serial", (inner,)),))


def shape_of_x(kernel):
    load = next(s for s in walk(kernel.body) if isinstance(s, Load))
    assert len(load.index) == len(load.memory.shape)
    return tuple(d.attr for d in load.memory.shape)


@pytest.mark.parametrize(
    ("size", "result", "position", "expected"),
    [
        (80, (6, 8), lambda i, j: i * 10 + j, (8, 10)),
        (80, (6, 8), lambda i, j: i * 10 + j + 2, (8, 10)),  # 2 + 7 is still one digit
        (80, (6, 8), lambda i, j: i * 10 + j + 3, (80,)),  # but 3 + 7 carries
        (80, (6, 8), lambda i, j: j * 10 + i, (8, 10)),
        (81, (6, 8), lambda i, j: i * 10 + j, (81,)),  # rows do not fill it
        (48, (6, 8), lambda i, j: i * 5 + j, (48,)),  # windows that overlap
        (240, (6, 8), lambda i, j: i // 2 * 80 + j * 10 + i % 2 * 5, (3, 8, 10)),
    ],
)
def test_flat_indices_come_apart(size, result, position, expected):
    assert shape_of_x(tidy(copied(size, result, position))) == expected


def test_product_of_a_reshaped_argument_under_jit():
    rng = np.random.default_rng()
    x = rng.integers(-4, 5, (2, 64, 768)).astype(np.float32)
    w = rng.integers(-4, 5, (768, 768)).astype(np.float32)
    found = weft.jit(lambda a, b: a.reshape(128, 768) @ b)(weft.tensor(x), weft.tensor(w))
    np.testing.assert_array_equal(found.numpy(), x.reshape(128, 768) @ w)
