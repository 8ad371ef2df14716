"""Operators between structs: what their classes say in Python is what kernels do."""

import dataclasses
import math
import typing

import numpy as np
import pytest

import weft
from weft import gpu
from weft.errors import KernelError


@dataclasses.dataclass(frozen=True)
class Vector:
    x: float
    y: float

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __mul__(self, factor):
        return Vector(self.x * factor, self.y * factor)

    __rmul__ = __mul__

    def __neg__(self):
        return Vector(-self.x, -self.y)

    def __matmul__(self, other):
        return self.x * other.x + self.y * other.y


@dataclasses.dataclass(order=True)
class Ranked:
    rank: int
    value: float
    seen: int = dataclasses.field(compare=False, default=0)


@dataclasses.dataclass
class Body:
    at: Vector
    mass: float


class Number(typing.NamedTuple):
    real: float
    imag: float

    def __add__(self, other):
        return Number(self.real + other.real, self.imag + other.imag)

    def __eq__(self, other):
        return self.real == other.real

    def __ne__(self, other):
        return not (self.real == other.real)


ORIGIN = Vector(1.0, 2.0)


def moves(i, v, body):
    w = v + Vector(1.0, 2.0) * 2.0
    w += 3.0 * Vector(1.0, float(i))
    w = ORIGIN + w + ORIGIN
    return w.x, w.y, (-w) @ v, body.at.__matmul__(w) * body.mass, (w + w).__matmul__(w)


def orders(i):
    a, b, c = Ranked(i, 1.0, i), Ranked(2, float(i), 7), Number(float(i), 2.0)
    return (a < b, a == b, a != b, a >= b, a <= b, (i, 1, 2) < (2, i), (i, 2) <= (2, i, 0),
            (i, i) > (1, 2), (i, 1) >= (1, 1), c == Number(1.0, 5.0), c != Number(1.0, 2.0),
            (c + c).real, not a, Vector(1.0, i) == Vector(1.0, 2.0), a == ORIGIN, a != ORIGIN)


@weft.kernel
def moved(out, v, body):
    i = gpu.grid(1)
    for k, value in enumerate(moves(i, v, body)):
        out[i, k] = value


@weft.kernel
def ordered(out):
    i = gpu.grid(1)
    for k, value in enumerate(orders(i)):
        out[i, k] = value


@pytest.mark.parametrize("native", [True, False])
def test_operators_are_methods(native):
    v = Vector(0.5, 0.25)
    body, out = Body(v, 3.0), np.zeros((5, 5))
    run = moved[1, 5] if native else weft.interpret(moved, 1, 5)
    run(out, v, body)
    np.testing.assert_array_equal(out, [moves(i, v, body) for i in range(5)])


@pytest.mark.parametrize("native", [True, False])
def test_comparisons(native):
    out = np.zeros((5, 16))
    (ordered[1, 5] if native else weft.interpret(ordered, 1, 5))(out)
    np.testing.assert_array_equal(out, [orders(i) for i in range(5)])


def test_a_dataclass_without_operators_is_no_tuple():
    @weft.kernel
    def added(out, body):
        both = body + body
        out[0] = both[0]

    @weft.kernel
    def less(out, body):
        out[0] = body < body

    for kernel in (added, less):
        with pytest.raises(KernelError, match="unsupported operands"):
            kernel[1, 1](np.zeros(1), Body(ORIGIN, 1.0))


class Plain(typing.NamedTuple):
    x: float
    y: float


class Length(Plain):
    """A tuple that orders itself by ``<`` alone; what else is asked, tuples answer."""

    def __lt__(self, other):
        return self.x * self.x + self.y * self.y < other.x * other.x + other.y * other.y

    def __radd__(self, other):
        return other.x + 100.0 * self.x

    def __bool__(self):
        return self.x != 2.0

    def __len__(self):
        return 5

    def __getitem__(self, k):
        return self.x * k

    def __contains__(self, value):
        return value == self.y

    def __abs__(self):
        return math.hypot(self.x, self.y)

    def __float__(self):
        return self.y


@dataclasses.dataclass(frozen=True)
class Named:
    """Equal by its name alone."""

    name: int
    value: float

    def __eq__(self, other):
        return self.name == other.name

    def __hash__(self):
        return self.name

    def __add__(self, other):
        if isinstance(other, Named):
            return self.value + other.value
        return NotImplemented

    def __radd__(self, other):
        return self.value - other

    def __sub__(self, other):
        return NotImplemented

    def __rsub__(self, other):
        return -1.0


class Offset(typing.NamedTuple):
    by: float

    def __radd__(self, other):
        return other.value + self.by * 1000.0

    def __len__(self):
        return int(self.by)


def said(i):
    a, b, p = Length(float(i), 5.0), Length(5.0, 1.0), Plain(1.0, float(i))
    n, m = Named(i, 1.0), Named(2, float(i))
    return (a < b, a > b, a < a, a <= b, p < b, p > b, b < p, p + a, 1.0 if a else 2.0, not a,
            len(a), a[i], 5.0 in a, 4.0 in a, i not in a, abs(a), float(a), a.x if a and i else 0.5,
            n == m, n != m, n + m, i + n, n + Offset(float(i)), 2 if Offset(1.0) and i else 3,
            7 if Offset(float(i)) else 8, i - n,
            isinstance(a, Plain), isinstance(p, Length), isinstance(a, (int, tuple)),
            isinstance(a.x, float), isinstance(i, float), isinstance(n, tuple))


@weft.kernel
def sayings(out):
    i = gpu.grid(1)
    for k, value in enumerate(said(i)):
        out[i, k] = value


@pytest.mark.parametrize("native", [True, False])
def test_structs_say_what_they_are(native):
    wanted = np.array([said(i) for i in range(6)], float)
    out = np.zeros(wanted.shape)
    (sayings[1, 6] if native else weft.interpret(sayings, 1, 6))(out)
    np.testing.assert_array_equal(out, wanted)


def test_two_of_a_class_are_asked_once():
    @weft.kernel
    def taken(out, n):
        out[0] = n - n

    with pytest.raises(KernelError, match="unsupported operands for -"):
        taken[1, 1](np.zeros(1), Named(1, 2.0))
