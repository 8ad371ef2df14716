"""Writes in place to tensors over arrays of NumPy, in any order, against NumPy."""

import numpy as np
import pytest

import weft

pytestmark = pytest.mark.usefixtures("compiled")


def test_a_value_read_before_a_write_is_the_old_one():
    x, y = np.array([1.0], np.float32), np.array([10.0], np.float32)
    a, b = weft.from_numpy(x), weft.from_numpy(y)
    b.sub_(a)
    a.add_(b)
    b.mul_(0.5)
    assert (a.item(), b.item()) == (10.0, 4.5)
    assert (x[0], y[0]) == (10.0, 4.5)


def test_a_realized_value_reaches_the_memory():
    x = np.zeros(5, np.float32)
    a, value = weft.from_numpy(x), weft.arange(5).float().realize()
    a.copy_(value)
    a.realize()
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_chains_of_writes_without_a_look_between(rng):
    for _ in range(60):
        count = int(rng.integers(2, 5))
        expected = [rng.integers(1, 5, 3).astype(np.float32) for _ in range(count)]
        memory = [e.copy() for e in expected]
        tensors = [weft.from_numpy(m) for m in memory]
        steps = []
        for _ in range(rng.integers(2, 9)):
            i, j, op = (int(n) for n in (*rng.integers(0, count, 2), rng.integers(0, 5)))
            steps.append((op, i, j))
            t, u, e, f = tensors[i], tensors[j], expected[i], expected[j]
            if op == 0:
                t.sub_(u)
                e -= f
            elif op == 1:
                t.add_(u)
                e += f
            elif op == 2:
                t.mul_(0.5)
                e *= np.float32(0.5)
            elif op == 3:
                t[1:] = u[:-1]
                e[1:] = f[:-1].copy()
            else:
                t.copy_(u + t)
                e += f
        for t, m, e in zip(tensors, memory, expected, strict=True):
            np.testing.assert_array_equal(t.numpy(), e, err_msg=str(steps))
            np.testing.assert_array_equal(m, e, err_msg=str(steps))
