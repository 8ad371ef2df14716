"""Fixed text of C kernels: types, the failure record, interrupts, printing."""

from __future__ import annotations

from typing import Final

from weft.renderers.base import STOPPED

__all__ = ["FAIL", "NUMBER", "PRELUDE", "STOP", "TURNS", "c_string"]

TURNS: Final = 256  # of loops that may not end, after which one asks for an interrupt

PRELUDE: Final = """\
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#define INLINE static inline __attribute__((always_inline, unused))
typedef _Bool bool;
typedef __INT8_TYPE__ i8;
typedef __INT16_TYPE__ i16;
typedef __INT32_TYPE__ i32;
typedef __INT64_TYPE__ i64;
typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;
typedef float f32;
typedef double f64;
typedef u16 f16, bf16;     // narrow floats are carried as their bits
typedef u8 f8e4m3, f8e5m2;

struct weft_status {  // the first failure of a launch; code 0 is none
  i32 code, kernel, statement, pad;
  i64 index, bound;
};"""

# What writes the failure of a kernel: only the first one, whoever comes first.
FAIL: Final = """\
static __attribute__((noinline, cold, unused)) i32 weft_fail(
    struct weft_status *status, i32 code, i32 statement, i64 index, i64 bound) {
  i32 none = 0;
  if (__atomic_compare_exchange_n(&status->code, &none, code, 0, __ATOMIC_ACQ_REL,
                                  __ATOMIC_RELAXED)) {
    status->statement = statement;
    status->index = index;
    status->bound = bound;
  }
  return code;
}"""

# The way out of a loop that an interrupt ends, see `weft.runtimes.cpu.interrupts`.
STOP: Final = f"""\
extern i64 weft_stop;                 // how many interrupts there were
extern i64 weft_turns(i64 *launch);   // whether to leave
extern void weft_turned(i64 *launch);

static __attribute__((noinline, cold, unused)) i32 weft_stopped(struct weft_status *status) {{
  return weft_fail(status, {STOPPED}, {STOPPED - 1}, 0, 0);
}}"""

# See `weft.ir.text.print_format`: more and more digits until reading them gives the number again.
NUMBER: Final = """\
extern int printf(const char *, ...);
extern int snprintf(char *, __SIZE_TYPE__, const char *, ...);
extern double strtod(const char *, char **);
extern float strtof(const char *, char **);
extern long strtol(const char *, char **, int);
extern char *strchr(const char *, int);

static __attribute__((noinline, unused)) const char *weft_number(f64 x, bool single, char *text) {
  if (x != x) return "nan";
  if (x - x != 0) return x > 0 ? "inf" : "-inf";
  int digits = 0;
  for (;; digits++) {
    snprintf(text, 64, "%.*e", digits, x);
    const f64 read = single ? (f64)strtof(text, 0) : strtod(text, 0);
    if (read == x || digits >= 16) break;
  }
  const long exponent = strtol(strchr(text, 'e') + 1, 0, 10);
  if (exponent >= -4 && exponent < 16) {
    const int places = digits - (int)exponent;
    snprintf(text, 64, "%.*f", places > 1 ? places : 1, x);
  }
  return text;
}"""


def c_string(text: str) -> str:
    """Return a string literal."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        out.append(char if 32 <= byte < 127 and char not in '"\\?' else f"\\{byte:03o}")
    return f'"{"".join(out)}"'
