"""Conversions between bfloat16 and other numbers, held against exact arithmetic."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from weft.compat import cuda
from weft.compat.cuda import bf16

MODES = ("rn", "rz", "rd", "ru")
KINDS = ("int16", "uint16", "int32", "uint32", "int64", "uint64")
ALL = np.arange(1 << 16, dtype=np.uint16)
with np.errstate(invalid="ignore"):  # nan that signals
    REALS = (ALL.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def applied(function, x, kind):
    """Return what a function gives for each number, as the bits of what it is where it is real."""
    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = function(x[i])

    out = np.zeros(x.size, kind)
    kernel[-(-x.size // 256), 256](x, out)
    return out


def of_bits(function, kind):
    """Return what a function gives for each bfloat16."""
    @cuda.jit
    def kernel(bits, out):
        i = cuda.grid(1)
        out[i] = function(bf16.uint16_as_bfloat16(bits[i]))

    out = np.zeros(ALL.size, kind)
    kernel[256, 256](ALL, out)
    return out


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["int8", "uint8", *KINDS])
def test_to_integers(kind):
    info = np.iinfo(kind)
    for mode in ("rz",) if kind.endswith("8") and len(kind) < 6 else MODES:
        convert = getattr(bf16, f"bfloat16_to_{kind}_{mode}")
        rounding = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[mode]
        out = of_bits(convert, kind)
        of_nan = (info.min if info.min else 1 << 63) if info.bits == 64 else 0
        wanted = [of_nan if math.isnan(x) else min(max(rounding(x), info.min), info.max)
                  if math.isfinite(x) else (info.max if x > 0 else info.min)
                  for x in REALS.tolist()]
        np.testing.assert_array_equal(out, np.array(wanted, kind))


def rounded(n, mode):
    """Return an integer as the bfloat16 that it is rounded to."""
    if n == 0:
        return 0.0
    exponent = abs(n).bit_length() - 8
    unit = Fraction(2) ** exponent
    kept = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}[mode](n / unit)
    return float(kept * unit)


@pytest.mark.grid
@pytest.mark.parametrize("kind", KINDS)
def test_from_integers(kind):
    info = np.iinfo(kind)
    drawn = np.random.default_rng(5)
    whole = {info.min, info.max, 0, 1, 255, 256, 257, 258, 259, 384, 385, 32767}
    whole |= {(1 << k) + d for k in range(9, info.bits - 1) for d in (-1, 0, 1, 1 << (k - 8))}
    whole |= {int(n) >> int(s) for n, s in zip(drawn.integers(info.min, info.max, 60, kind),
                                               drawn.integers(0, info.bits - 1, 60), strict=True)}
    if info.min:
        whole |= {-n for n in whole if n <= info.max}
    x = np.array(sorted(n for n in whole if info.min <= n <= info.max), kind)
    for mode in MODES:
        found = applied(getattr(bf16, f"{kind}_to_bfloat16_{mode}"), x, np.float32)
        np.testing.assert_array_equal(found, [rounded(n, mode) for n in x.tolist()])


def test_from_floats():
    near = np.random.default_rng(6).normal(size=500).astype(np.float32)
    x = np.concatenate([near, np.float32([0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38,
                                          1e-45, -1e-45, 1.00390625, 1.01171875])])  # fmt: skip
    nearest = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    for name in ("float32_to_bfloat16", "float32_to_bfloat16_rn", "float64_to_bfloat16"):
        np.testing.assert_array_equal(applied(getattr(bf16, name), x, np.float32), nearest)
    cut = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    found = applied(bf16.float32_to_bfloat16_rz, x, np.float32)
    np.testing.assert_array_equal(found, np.where(np.isnan(x), x, cut))
    low, high = (applied(getattr(bf16, f"float32_to_bfloat16_{m}"), x, np.float32)
                 for m in ("rd", "ru"))
    real = ~np.isnan(x)
    assert (low[real] <= x[real]).all()
    assert (high[real] >= x[real]).all()
    np.testing.assert_array_equal(np.where(x > 0, low, high)[real], cut[real])
    steps = high[real].view(np.int32).astype(np.int64) - low[real].view(np.int32)
    assert set(np.abs(steps[x[real] != cut[real]])) <= {0x10000}


def test_bits_and_comparisons_with_nan():
    @cuda.jit
    def kernel(out):
        nan, one, two = bf16.bfloat16(math.nan), bf16.bfloat16(1), bf16.bfloat16(2)
        out[0] = bf16.bfloat16_as_int16(bf16.bfloat16(-1.5))
        out[1] = bf16.bfloat16_to_float32(bf16.int16_as_bfloat16(0x3FC0))
        out[2] = math.isnan(np.float32(bf16.hmax_nan(nan, one)))
        out[3] = bf16.hmin_nan(one, two)
        out[4] = bf16.hisnan(nan) and not bf16.hisnan(one)
        out[5] = bf16.hisinf(bf16.bfloat16(-math.inf)) * 10 + bf16.hisinf(one)
        out[6] = (bf16.hequ(nan, one) and bf16.hneu(nan, one) and bf16.hltu(nan, one)
                  and bf16.hleu(one, nan) and bf16.hgtu(nan, one) and bf16.hgeu(one, nan))
        out[7] = (bf16.hequ(one, two) or bf16.hneu(one, one) or bf16.hltu(two, one)
                  or bf16.hleu(two, one) or bf16.hgtu(one, two) or bf16.hgeu(one, two))

    out = np.zeros(8)
    kernel[1, 1](out)
    assert out.tolist() == [-16448, 1.5, 1, 1, 1, -10, 1, 0]


def test_names_of_cuda():
    """Each conversion has the name of CUDA's headers, too."""
    assert bf16.float2bfloat16_rd is bf16.float32_to_bfloat16_rd
    assert bf16.bfloat162ull_rn is bf16.bfloat16_to_uint64_rn
    assert bf16.double2bfloat16 is bf16.float64_to_bfloat16
    assert bf16.ushort_as_bfloat16 is bf16.uint16_as_bfloat16
    assert bf16.bfloat162char_rz is bf16.bfloat16_to_int8_rz


def test_hyperbolic_tangent():
    x = np.linspace(-4, 4, 101).astype(np.float16)

    @cuda.jit
    def kernel(x, out):
        i = cuda.grid(1)
        if i < x.size:
            out[i] = cuda.fp16.htanh(x[i])

    out = np.zeros_like(x)
    kernel[1, 128](x, out)
    np.testing.assert_allclose(out, np.tanh(x.astype(float)), rtol=2**-10)
