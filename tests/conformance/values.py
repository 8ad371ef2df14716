"""Values at which compilers go wrong, and what it means that two arrays agree."""

import numpy as np

from scalar_semantics import specials
from weft.ir import dtype as dt

SIZES = (0, 1, 2, 3, 7, 13, 16, 17, 31, 64, 65, 127, 1000, 4099)


def special(d):
    """Return the special values of a type as an array."""
    extra = []
    if d.is_float:
        extra = [np.pi, -7.0, 100.0, 1.5, 0.49999997, -0.9999, 88.0, -88.0, 1e30, -1e30, 1e-40]
    elif d.is_integer:
        extra = [100]
    with np.errstate(all="ignore"):
        if d.is_float:
            return np.array([*specials(d), *extra], np.float64).astype(d.numpy)
        return np.array(sorted({v for v in [*specials(d), *extra] if d.min <= v <= d.max}), d.numpy)


def random(d, shape, rng):
    """Return random values: mostly of ordinary size, some special, some of any bits."""
    size = int(np.prod(shape))
    if d.is_bool:
        return rng.random(shape) < 0.5
    bits = rng.integers(0, 256, size * d.itemsize, dtype=np.uint8).view(d.numpy)
    if d.is_float:
        plain = (rng.standard_normal(size) * rng.choice([0.1, 1, 1, 30], size)).astype(d.numpy)
    else:
        plain = rng.integers(max(d.min, -50), 100, size).astype(d.numpy)
    which = rng.random(size)
    chosen = np.where(which < 0.7, plain, rng.choice(special(d), size))
    return np.where(which < 0.9, chosen, bits).astype(d.numpy).reshape(shape)


def calm(d, shape, rng):
    """Return finite values of moderate size: sums and products of them stay finite."""
    if d.is_bool:
        return rng.random(shape) < 0.5
    if d.is_float:
        return rng.uniform(-2, 2, shape).astype(d.numpy)
    return rng.integers(max(d.min, -9), 10, shape).astype(d.numpy)


def cross(d, arity):
    """Return columns: the full cross product of special values."""
    grids = np.meshgrid(*[special(d)] * arity, indexing="ij")
    return [g.ravel() for g in grids]


def assert_same(got, want, *operands, what=""):
    """Check equality bit for bit, all NaNs being one."""
    assert got.dtype == want.dtype, what
    assert got.shape == want.shape, what
    d = dt.as_dtype(got.dtype)
    raw = np.dtype(f"u{got.dtype.itemsize}")
    a, b = (np.asarray(v, order="C") for v in (got, want))
    differ = (a.reshape(-1).view(raw) != b.reshape(-1).view(raw)).reshape(got.shape)
    if d.is_float:
        with np.errstate(invalid="ignore"):
            differ = differ & ~(np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))
    if differ.any():
        at = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(differ)))
        at = at if got.ndim else ()
        given = [o[at] for o in operands if np.shape(o) == got.shape]
        raise AssertionError(
            f"{what}: {int(differ.sum())} of {got.size} differ, first at {at}: got {got[at]!r}, "
            f"expected {want[at]!r}, operands {given}"
        )


def ulps(got, exact, d):
    """Return the error of each result in units of the last place of type d.

    `exact` is at least a float64. Infinity counts as the next power of two past the largest
    number; a wrong special value or sign of zero is infinitely wrong.
    """
    limit = np.longdouble(2.0) ** (1 << (d.exponent - 1))
    least = 2 - (1 << (d.exponent - 1))
    with np.errstate(all="ignore"):
        got, exact = got.astype(np.longdouble), exact.astype(np.longdouble)
        wanted = np.clip(exact, -limit, limit)
        found = np.clip(got, -limit, limit)
        _, power = np.frexp(wanted)
        power = np.maximum(np.where(wanted == 0, least, power - 1), least) - d.mantissa
        error = np.abs(found - wanted) / np.ldexp(np.longdouble(1), power)
    nan = np.isnan(exact) | np.isnan(got)
    error = np.where(nan, np.where(np.isnan(exact) & np.isnan(got), 0, np.inf), error)
    wrong_sign = ~nan & (got == 0) & (np.signbit(got) != np.signbit(exact))
    infinite = np.isinf(exact) & ~nan & (got != exact)
    return np.where(wrong_sign | infinite, np.inf, error)
