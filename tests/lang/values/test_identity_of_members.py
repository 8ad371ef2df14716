"""Members of enumerations that are numbers, given as arguments: `is` asks which member it is."""

import enum
import itertools

import numpy as np
import pytest

import weft
from weft import gpu
from weft.compat import cuda


class Level(enum.IntEnum):
    """Members that are integers; the last one is another name."""

    LOW = 1
    HIGH = 2
    FIRST = 1


class Side(enum.IntEnum):
    """Members with the same values as the other ones."""

    LEFT = 1
    RIGHT = 2


class Rate(float, enum.Enum):
    """Members that are floats."""

    SLOW = 1.0
    FAST = 2.0


GIVEN = [Level.LOW, Level.HIGH, Side.LEFT, Side.RIGHT, Rate.SLOW, Rate.FAST]


def asked(x, a, b):
    """Return what is asked of two members: in Python, and in a kernel."""
    found = 1 if a is b else 0
    found += 2 if a is not b else 0
    found += 4 if a == b else 0
    found += 8 if a is Level.FIRST else 0
    found += 16 if Side.RIGHT is b else 0
    found += 32 if a < b else 0
    found += 64 * (a + 3 * b) + x * a
    return found


def tell(x, a, b, out):
    i = gpu.grid(1)
    if i < x.size:
        out[i] = asked(x[i], a, b)


@pytest.mark.parametrize("make", [
    lambda: weft.kernel(tell)[1, 8], lambda: cuda.jit(tell)[1, 8],
    lambda: weft.interpret(weft.kernel(tell), 1, 8),
], ids=["weft", "numba", "interpreter"])  # fmt: skip
def test_members_as_in_python(make):
    run, x = make(), np.arange(8.0)
    for a, b in itertools.product(GIVEN, repeat=2):
        out = np.zeros(8)
        run(x, a, b, out)
        assert out.tolist() == [asked(v, a, b) for v in x], (a, b)


def test_members_inside_of_tuples():
    @weft.kernel
    def pick(pair, out):
        out[0] = 1 if pair[0] is pair[1] else 2

    out = np.zeros(1)
    for a, b in itertools.product([Level.LOW, Side.LEFT, Level.HIGH], repeat=2):
        pick[1, 1]((a, b), out)
        assert out[0] == (1 if a is b else 2)


def test_members_as_annotated_numbers():
    """Where a number is declared, a member is that number."""
    @weft.kernel
    def scaled(x: weft.float64[:], level: int):
        x[gpu.grid(1)] *= level

    x = np.ones(2)
    scaled[1, 2](x, Level.HIGH)
    assert x.tolist() == [2.0, 2.0]
