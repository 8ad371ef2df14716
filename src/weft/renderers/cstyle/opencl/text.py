"""Fixed text of kernels in OpenCL C: types, and the failure record."""

from __future__ import annotations

from typing import Final

__all__ = ["FAIL", "PRELUDE", "PRINTED", "RESERVED"]

PRINTED: Final = 1 << 16  # words of 64 bits that a launch can print

PRELUDE: Final = """\
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#ifdef cl_khr_int64_extended_atomics
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable
#endif
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#define INLINE static inline __attribute__((always_inline, unused, overloadable))
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef float f32;
#ifdef cl_khr_fp64
typedef double f64;
#endif
typedef u16 f16, bf16;     // narrow floats are carried as their bits
typedef u8 f8e4m3, f8e5m2;

struct weft_status {  // the first failure of a launch; code 0 is none
  i32 code, kernel_number, statement, pad;
  i64 index, bound;
};"""

# What writes the failure of a kernel: only the first one, whoever comes first.
FAIL: Final = """\
static __attribute__((noinline, unused)) void weft_fail(
    __global struct weft_status *status, i32 code, i32 statement, i64 index, i64 bound) {
  if (atomic_cmpxchg((volatile __global int *)&status->code, 0, code) == 0) {
    status->statement = statement;
    status->index = index;
    status->bound = bound;
  }
}"""

# Words and macros of the language, and functions of it that kernels call.
RESERVED: Final = frozenset((
    "kernel", "global", "local", "constant", "private", "generic", "half", "uchar", "ushort",
    "uint", "ulong", "size_t", "ptrdiff_t", "event_t", "image2d_t", "sampler_t", "read_only",
    "write_only", "read_write", "uniform", "pipe", "vec_step", "printf", "sqrt", "floor", "ceil",
    "trunc", "rint", "fabs", "copysign", "fmod", "fma", "clz", "popcount", "mul_hi", "nan",
    "get_group_id", "get_num_groups", "atomic_cmpxchg", "status", "scratch", "heap", "INFINITY",
    "NAN", "as_float", "as_int", "barrier", "min", "max", "abs", "select", "isnan", "log", "exp",
    "sin", "cos", "tan", "pow", "step", "sign", "mix", "clamp", "dot", "cross", "length",
    "MAXFLOAT", "HUGE_VAL", "HUGE_VALF", "FP_FAST_FMA", "FP_FAST_FMAF", "NULL", "CHAR_BIT",
    *(f"{t}_{end}" for t in ("CHAR", "SCHAR", "SHRT", "INT", "LONG", "UCHAR", "USHRT", "UINT",
                             "ULONG") for end in ("MIN", "MAX")),
    *(f"{t}_{end}" for t in ("FLT", "DBL", "HALF")
      for end in ("MIN", "MAX", "EPSILON", "DIG", "MANT_DIG", "RADIX", "MAX_EXP", "MIN_EXP")),
    *(f"M_{name}{end}" for end in ("", "_F")
      for name in ("E", "PI", "LOG2E", "LOG10E", "LN2", "LN10", "PI_2", "PI_4", "1_PI", "2_PI",
                   "2_SQRTPI", "SQRT2", "SQRT1_2")),
    *(f"{t}{n}" for t in ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong",
                          "float", "double", "half") for n in (2, 3, 4, 8, 16)),
))  # fmt: skip
