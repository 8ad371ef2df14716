"""Distance between computed and exact results, in units of the last place of the format."""

import numpy as np


def errors(got, exact):
    """Return the error of each result in ulps; infinite where a special value is wrong.

    `exact` is of a wider type. Past the largest finite number, infinity and the largest number are
    both within one ulp, as far as rounding to nearest allows; the sign of zero must agree.
    """
    info = np.finfo(got.dtype)
    wide = exact.dtype.type
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(exact)
        unit = np.ldexp(wide(1), np.maximum(exponent - 1, info.minexp) - info.nmant)
        error = np.abs(got.astype(exact.dtype) - exact) / unit
        overflow = np.abs(exact) >= wide(info.max)
        same = np.isinf(got) & (np.signbit(got) == np.signbit(exact))
    error = np.where(overflow & same, 0, error)
    error = np.where(np.isnan(exact) & np.isnan(got), 0, error)
    error = np.where(np.isnan(error), np.inf, error)
    wrong_zero = (got == 0) & (np.signbit(got) != np.signbit(exact))
    return np.where(wrong_zero & ~np.isnan(exact), np.inf, error).astype(np.float64)


def every_exponent(dtype, mantissas, seed):
    """Return values of both signs with every exponent (subnormals, infinity and NaN included).

    Each exponent gets the smallest, the largest and `mantissas` random mantissas.
    """
    info = np.finfo(dtype)
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    exponents = np.arange(1 << info.iexp, dtype=unsigned) << unsigned.type(info.nmant)
    random = np.random.default_rng(seed)
    bits = random.integers(0, 1 << info.nmant, (len(exponents), mantissas + 2), dtype=unsigned)
    bits[:, 0], bits[:, 1] = 0, (1 << info.nmant) - 1
    patterns = (exponents[:, None] | bits).ravel()
    sign = unsigned.type(1 << (info.bits - 1))
    return np.concatenate([patterns, patterns | sign]).view(dtype)
