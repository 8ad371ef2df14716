"""Functions of complex numbers where a part is infinite, nan, a signed zero, huge or tiny."""

import cmath
import itertools
import math

import numpy as np
import pytest

import weft
from weft import gpu

PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -3.5, math.pi, 25.0, -700.0, 1e300, -1e300, 1e-300, 5e-324,
         math.inf, -math.inf)  # fmt: skip
NAMES = ("exp", "log", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos",
         "atan", "asinh", "acosh", "atanh")  # fmt: skip
NUMBERS = np.array([
    *(complex(a, b) for a, b in itertools.product(PARTS, PARTS)),
    *(z for a in (math.inf, -math.inf) for z in (complex(a, math.nan), complex(math.nan, a)))])


def is_like(found, wanted):
    """Whether two floats are the same: nan, or infinities and zeros of one sign, or close."""
    if math.isnan(found) or math.isnan(wanted):
        return math.isnan(found) and math.isnan(wanted)
    if wanted == 0 or math.isinf(wanted):
        return found == wanted and math.copysign(1, found) == math.copysign(1, wanted)
    return abs(found - wanted) <= 4e-15 * abs(wanted)


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
def test_special_numbers(name):
    function = getattr(cmath, name)

    @weft.kernel
    def apply(x, out):
        i = gpu.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    out = np.zeros_like(NUMBERS)
    apply[-(-NUMBERS.size // 64), 64](NUMBERS, out)
    compared = 0
    for z, found in zip(NUMBERS.tolist(), out.tolist(), strict=True):
        try:
            wanted = function(z)
        except (ValueError, OverflowError):  # Python raises what C99 gives a value for
            continue
        compared += 1
        close = cmath.isfinite(wanted) and abs(found - wanted) <= 4e-15 * abs(wanted)
        assert close or (is_like(found.real, wanted.real) and is_like(found.imag, wanted.imag)), (
            f"{name}({z}) is {wanted}, found {found}")
    assert compared > 100


def test_both_parts_of_tangents():
    @weft.kernel
    def apply(x, out, other):
        i = gpu.grid(1)
        out[i], other[i] = cmath.tanh(x[i]), cmath.tan(complex(x[i].imag, x[i].real))

    given = [complex(x, y) for x in (1.0, -5.5, 17.5, 19.9, 20.1) for y in (0.1, 2.0, -1e17)]
    given += [complex(x, y) for x in (math.inf, -math.inf) for y in (1e308, -1e308, 3.0)]
    out, other = np.zeros(len(given), complex), np.zeros(len(given), complex)
    apply[1, len(given)](np.array(given), out, other)
    for z, found, turned in zip(given, out.tolist(), other.tolist(), strict=True):
        wanted = cmath.tanh(z)
        for near in (found, complex(turned.imag, turned.real)):
            assert is_like(near.real, wanted.real), z
            assert is_like(near.imag, wanted.imag), z


def test_polar_coordinates():
    parts = (0.0, -0.0, 1.0, -2.5, math.pi, math.inf, -math.inf, math.nan)
    given = np.array(list(itertools.product(parts, parts)))

    @weft.kernel
    def apply(x, out):
        i = gpu.grid(1)
        if i < x.shape[0]:
            out[i] = cmath.rect(x[i, 0], x[i, 1])

    out = np.zeros(len(given), complex)
    apply[1, 64](given, out)
    for (r, phi), found in zip(given.tolist(), out.tolist(), strict=True):
        if math.isinf(phi) and r != 0:  # Python raises what C99 gives a value for
            continue
        wanted = cmath.rect(r, phi)
        assert is_like(found.real, wanted.real), (r, phi)
        assert is_like(found.imag, wanted.imag), (r, phi)


def test_logarithms_to_a_base():
    @weft.kernel
    def apply(x, base, out):
        i = gpu.grid(1)
        if i < x.size:
            out[i, 0] = cmath.log(x[i], 3.0)
            out[i, 1] = cmath.log(x[i], base)

    x = np.array([1 + 2j, -5, 0.25 - 0.5j, 1e200j])
    out = np.zeros((4, 2), complex)
    apply[1, 4](x, 2 - 1j, out)
    np.testing.assert_allclose(out[:, 0], [cmath.log(z, 3.0) for z in x], rtol=1e-14)
    np.testing.assert_allclose(out[:, 1], [cmath.log(z, 2 - 1j) for z in x], rtol=1e-14)
