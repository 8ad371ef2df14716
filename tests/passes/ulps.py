"""Distance between computed and exact results, in units of the last place of the format."""

import numpy as np


def errors(got, exact):
    """Return the error of each result in ulps; infinite where a special value is wrong.

    `exact` is float64. Past the largest finite number, infinity and the largest number are
    both within one ulp, as far as rounding to nearest allows; the sign of zero must agree.
    """
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        binade = (exact.view(np.int64) & (0x7FF << 52)).view(np.float64)
        unit = np.maximum(binade, float(info.smallest_normal)) * float(info.eps)
        error = np.abs(got.astype(np.float64) - exact) / unit
    unusual = ~(error < 1e6) | (got == 0)
    if unusual.any():
        error[unusual] = _at_special_values(got[unusual], exact[unusual], error[unusual], info)
    return error


def _at_special_values(got, exact, error, info):
    agree = np.signbit(got) == np.signbit(exact)
    overflow = (np.abs(exact) >= float(info.max)) & np.isinf(got) & agree
    error = np.where(overflow | (np.isnan(exact) & np.isnan(got)), 0, error)
    wrong = np.isnan(error) | ((got == 0) & ~agree & ~np.isnan(exact))
    return np.where(wrong, np.inf, error)


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
