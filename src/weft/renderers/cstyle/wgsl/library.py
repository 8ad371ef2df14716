"""Functions in WGSL that kernels call, each written into the text of a kernel that needs it.

Integers of 64 bits are ``vec2<u32>``, the low word first. What WGSL leaves to drivers (quotients,
roots, fused multiply-adds and conversions need not be rounded correctly) is computed in integers.
`needed` returns functions with those that they call, in an order in which they may be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

__all__ = ["needed"]

_WIDE: Final = """
fn weft_add64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = a.x + b.x;
  return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}
fn weft_sub64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}
fn weft_neg64(a: vec2<u32>) -> vec2<u32> {
  return weft_sub64(vec2<u32>(0u, 0u), a);
}
fn weft_abs_i64(a: vec2<u32>) -> vec2<u32> {
  return select(a, weft_neg64(a), (a.y >> 31u) != 0u);
}
fn weft_product(a: u32, b: u32) -> vec2<u32> {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let one = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
  let two = (a & 0xffffu) * (b >> 16u) + (one & 0xffffu);
  return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (one >> 16u) + (two >> 16u));
}
fn weft_mul64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = weft_product(a.x, b.x);
  return vec2<u32>(low.x, low.y + a.x * b.y + a.y * b.x);
}
fn weft_mulhi_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = weft_product(a.x, b.x);
  let one = weft_add64(weft_product(a.y, b.x), vec2<u32>(low.y, 0u));
  let two = weft_add64(weft_product(a.x, b.y), vec2<u32>(one.x, 0u));
  let high = weft_add64(weft_product(a.y, b.y), vec2<u32>(one.y, 0u));
  return weft_add64(high, vec2<u32>(two.y, 0u));
}
fn weft_mulhi_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  var high = weft_mulhi_u64(a, b);
  if ((a.y >> 31u) != 0u) { high = weft_sub64(high, b); }
  if ((b.y >> 31u) != 0u) { high = weft_sub64(high, a); }
  return high;
}
fn weft_mulhi_u32(a: u32, b: u32) -> u32 {
  return weft_product(a, b).y;
}
fn weft_mulhi_i32(a: i32, b: i32) -> i32 {
  let x = bitcast<u32>(a);
  let y = bitcast<u32>(b);
  let high = weft_product(x, y).y - select(0u, y, a < 0i) - select(0u, x, b < 0i);
  return bitcast<i32>(high);
}
fn weft_eq64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return (a.x == b.x) && (a.y == b.y);
}
fn weft_lt_u64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return (a.y < b.y) || ((a.y == b.y) && (a.x < b.x));
}
fn weft_lt_i64(a: vec2<u32>, b: vec2<u32>) -> bool {
  return (bitcast<i32>(a.y) < bitcast<i32>(b.y)) || ((a.y == b.y) && (a.x < b.x));
}
fn weft_min_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(b, a, weft_lt_u64(a, b));
}
fn weft_max_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, weft_lt_u64(a, b));
}
fn weft_min_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(b, a, weft_lt_i64(a, b));
}
fn weft_max_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, weft_lt_i64(a, b));
}
fn weft_left64(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n == 0u) { return a; }
  if (n >= 32u) { return vec2<u32>(0u, a.x << (n - 32u)); }
  return vec2<u32>(a.x << n, (a.y << n) | (a.x >> (32u - n)));
}
fn weft_right64(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n == 0u) { return a; }
  if (n >= 32u) { return vec2<u32>(a.y >> (n - 32u), 0u); }
  return vec2<u32>((a.x >> n) | (a.y << (32u - n)), a.y >> n);
}
fn weft_shl64(a: vec2<u32>, n: vec2<u32>) -> vec2<u32> {
  if ((n.y != 0u) || (n.x >= 64u)) { return vec2<u32>(0u, 0u); }
  return weft_left64(a, n.x);
}
fn weft_shr_u64(a: vec2<u32>, n: vec2<u32>) -> vec2<u32> {
  if ((n.y != 0u) || (n.x >= 64u)) { return vec2<u32>(0u, 0u); }
  return weft_right64(a, n.x);
}
fn weft_shr_i64(a: vec2<u32>, n: vec2<u32>) -> vec2<u32> {
  let sign = vec2<u32>(0u - (a.y >> 31u));
  if ((n.y != 0u) || (n.x >= 64u)) { return sign; }
  return weft_right64(a ^ sign, n.x) ^ sign;
}
fn weft_zeros64(a: vec2<u32>) -> u32 {
  return select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
}
fn weft_jam64(a: vec2<u32>, n: u32) -> vec2<u32> {
  if (n >= 64u) { return vec2<u32>(select(0u, 1u, (a.x | a.y) != 0u), 0u); }
  let moved = weft_right64(a, n);
  let lost = !weft_eq64(weft_left64(moved, n), a);
  return vec2<u32>(moved.x | select(0u, 1u, lost), moved.y);
}
fn weft_divide64(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  if ((a.y | b.y) == 0u) {
    if (b.x == 0u) { return vec4<u32>(0u, 0u, 0u, 0u); }
    return vec4<u32>(a.x / b.x, 0u, a.x % b.x, 0u);
  }
  if ((b.x | b.y) == 0u) { return vec4<u32>(0u, 0u, 0u, 0u); }
  var quotient = vec2<u32>(0u, 0u);
  var rest = vec2<u32>(0u, 0u);
  for (var k = 0u; k < 64u; k += 1u) {
    let carry = rest.y >> 31u;
    let bit = weft_right64(a, 63u - k).x & 1u;
    rest = weft_left64(rest, 1u);
    rest.x |= bit;
    quotient = weft_left64(quotient, 1u);
    if ((carry != 0u) || !weft_lt_u64(rest, b)) {
      rest = weft_sub64(rest, b);
      quotient.x |= 1u;
    }
  }
  return vec4<u32>(quotient, rest);
}
fn weft_floordiv_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return weft_divide64(a, b).xy;
}
fn weft_mod_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return weft_divide64(a, b).zw;
}
fn weft_fmod_u64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return weft_divide64(a, b).zw;
}
fn weft_floordiv_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let found = weft_divide64(weft_abs_i64(a), weft_abs_i64(b));
  let differ = ((a.y ^ b.y) >> 31u) != 0u;
  if (!differ) { return found.xy; }
  let exact = (found.z | found.w) == 0u;
  return weft_sub64(weft_neg64(found.xy), vec2<u32>(select(1u, 0u, exact), 0u));
}
fn weft_mod_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let rest = weft_divide64(weft_abs_i64(a), weft_abs_i64(b)).zw;
  if ((rest.x | rest.y) == 0u) { return rest; }
  let signed = select(rest, weft_neg64(rest), (a.y >> 31u) != 0u);
  return select(signed, weft_add64(signed, b), ((a.y ^ b.y) >> 31u) != 0u);
}
fn weft_fmod_i64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let rest = weft_divide64(weft_abs_i64(a), weft_abs_i64(b)).zw;
  return select(rest, weft_neg64(rest), (a.y >> 31u) != 0u);
}
fn weft_floordiv_u32(a: u32, b: u32) -> u32 {
  return select(a / max(b, 1u), 0u, b == 0u);
}
fn weft_mod_u32(a: u32, b: u32) -> u32 {
  return select(a % max(b, 1u), 0u, b == 0u);
}
fn weft_fmod_u32(a: u32, b: u32) -> u32 {
  return weft_mod_u32(a, b);
}
fn weft_magnitude(a: i32) -> u32 {
  return select(bitcast<u32>(a), 0u - bitcast<u32>(a), a < 0i);
}
fn weft_floordiv_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  let x = weft_magnitude(a);
  let y = weft_magnitude(b);
  let q = x / y;
  if ((a < 0i) == (b < 0i)) { return bitcast<i32>(q); }
  return bitcast<i32>(0u - q - select(0u, 1u, q * y != x));
}
fn weft_fmod_i32(a: i32, b: i32) -> i32 {
  if (b == 0i) { return 0i; }
  let rest = weft_magnitude(a) % weft_magnitude(b);
  return bitcast<i32>(select(rest, 0u - rest, a < 0i));
}
fn weft_mod_i32(a: i32, b: i32) -> i32 {
  let rest = weft_fmod_i32(a, b);
  return select(rest, rest + b, (rest != 0i) && ((rest < 0i) != (b < 0i)));
}
fn weft_shl_u32(a: u32, n: u32) -> u32 {
  return select(0u, a << (n & 31u), n < 32u);
}
fn weft_shr_u32(a: u32, n: u32) -> u32 {
  return select(0u, a >> (n & 31u), n < 32u);
}
fn weft_shl_i32(a: i32, n: i32) -> i32 {
  let count = bitcast<u32>(n);
  return select(0i, a << (count & 31u), count < 32u);
}
fn weft_shr_i32(a: i32, n: i32) -> i32 {
  return a >> min(bitcast<u32>(n), 31u);
}
fn weft_i64_of_i32(a: i32) -> vec2<u32> {
  return vec2<u32>(bitcast<u32>(a), 0u - (bitcast<u32>(a) >> 31u));
}
"""

_FLOATS: Final = """
fn weft_keep(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) | weft.zero);
}
fn weft_float(bits: u32) -> f32 {
  return bitcast<f32>(bits | weft.zero);
}
fn weft_is_nan(x: f32) -> bool {
  return ((bitcast<u32>(x) | weft.zero) & 0x7fffffffu) > 0x7f800000u;
}
fn weft_order(x: f32) -> i32 {
  let bits = bitcast<i32>(bitcast<u32>(x) | weft.zero);
  return bits ^ bitcast<i32>(bitcast<u32>(bits >> 31u) >> 1u);
}
fn weft_min_f32(x: f32, y: f32) -> f32 {
  if (weft_is_nan(x)) { return x; }
  if (weft_is_nan(y)) { return y; }
  return bitcast<f32>(select(bitcast<u32>(y), bitcast<u32>(x), weft_order(x) < weft_order(y)));
}
fn weft_max_f32(x: f32, y: f32) -> f32 {
  if (weft_is_nan(x)) { return x; }
  if (weft_is_nan(y)) { return y; }
  return bitcast<f32>(select(bitcast<u32>(x), bitcast<u32>(y), weft_order(x) < weft_order(y)));
}
fn weft_lt_f32(x: f32, y: f32) -> bool {
  if (weft_is_nan(x) || weft_is_nan(y)) { return false; }
  let both = (bitcast<u32>(x) | bitcast<u32>(y)) & 0x7fffffffu;
  return (weft_order(x) < weft_order(y)) && (both != 0u);
}
fn weft_le_f32(x: f32, y: f32) -> bool {
  if (weft_is_nan(x) || weft_is_nan(y)) { return false; }
  let both = (bitcast<u32>(x) | bitcast<u32>(y)) & 0x7fffffffu;
  return (weft_order(x) <= weft_order(y)) || (both == 0u);
}
fn weft_eq_f32(x: f32, y: f32) -> bool {
  if (weft_is_nan(x) || weft_is_nan(y)) { return false; }
  let a = bitcast<u32>(x) | weft.zero;
  let b = bitcast<u32>(y);
  return (a == b) || (((a | b) & 0x7fffffffu) == 0u);
}
fn weft_pack(sign: u32, number: vec2<u32>, exponent: i32) -> f32 {
  if ((number.x | number.y) == 0u) { return bitcast<f32>(sign); }
  let zeros = weft_zeros64(number);
  let moved = weft_left64(number, zeros);
  var biased = exponent + 190i - bitcast<i32>(zeros);
  var digits = moved.y | select(0u, 1u, moved.x != 0u);
  if (biased >= 255i) { return weft_float(sign | 0x7f800000u); }
  if (biased <= 0i) {
    digits = weft_jam64(vec2<u32>(digits, 0u), bitcast<u32>(1i - biased)).x;
    biased = 1i;
  }
  let whole = digits >> 8u;
  let rest = digits & 0xffu;
  let up = (rest > 0x80u) || ((rest == 0x80u) && ((whole & 1u) != 0u));
  let code = (bitcast<u32>(biased - 1i) << 23u) + whole + select(0u, 1u, up);
  return weft_float(sign | code);
}
fn weft_digits(bits: u32) -> vec2<i32> {
  let field = bitcast<i32>((bits >> 23u) & 0xffu);
  let fraction = bits & 0x7fffffu;
  if (field != 0i) { return vec2<i32>(bitcast<i32>(fraction | 0x800000u), field - 150i); }
  let zeros = countLeadingZeros(fraction) - 8u;
  return vec2<i32>(bitcast<i32>(fraction << (zeros & 31u)), -149i - bitcast<i32>(zeros));
}
fn weft_exact_mad(x: f32, y: f32, z: f32) -> f32 {
  let a = bitcast<u32>(x) | weft.zero;
  let b = bitcast<u32>(y) | weft.zero;
  let c = bitcast<u32>(z) | weft.zero;
  let special = ((a & 0x7f800000u) == 0x7f800000u) || ((b & 0x7f800000u) == 0x7f800000u);
  if (special) {
    if ((c & 0x7f800000u) == 0x7f800000u) { return weft_keep(x * y) + z; }
    return weft_keep(x * y);
  }
  if ((c & 0x7f800000u) == 0x7f800000u) { return z; }
  let sign = (a ^ b) & 0x80000000u;
  let other = c & 0x80000000u;
  if (((a & 0x7fffffffu) == 0u) || ((b & 0x7fffffffu) == 0u)) {
    if ((c & 0x7fffffffu) != 0u) { return z; }
    return weft_float(sign & other);
  }
  let p = weft_digits(a);
  let q = weft_digits(b);
  var product = weft_left64(weft_product(bitcast<u32>(p.x), bitcast<u32>(q.x)), 14u);
  var exponent = p.y + q.y - 14i;
  if ((c & 0x7fffffffu) == 0u) { return weft_pack(sign, product, exponent); }
  let r = weft_digits(c);
  var addend = vec2<u32>(bitcast<u32>(r.x), 0u);
  let distance = r.y - exponent;
  if (distance > 38i) {
    addend = weft_left64(addend, 38u);
    product = weft_jam64(product, bitcast<u32>(distance - 38i));
    exponent = r.y - 38i;
  } else if (distance >= 0i) {
    addend = weft_left64(addend, bitcast<u32>(distance));
  } else {
    addend = weft_jam64(addend, bitcast<u32>(-distance));
  }
  if (sign == other) { return weft_pack(sign, weft_add64(product, addend), exponent); }
  if (weft_eq64(product, addend)) { return weft_float(0u); }
  if (weft_lt_u64(product, addend)) {
    return weft_pack(other, weft_sub64(addend, product), exponent);
  }
  return weft_pack(sign, weft_sub64(product, addend), exponent);
}
fn weft_mad(x: f32, y: f32, z: f32) -> f32 {
  if (weft_fused) { return weft_keep(fma(x, y, z)); }
  return weft_exact_mad(x, y, z);
}
fn weft_div_f32(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) | weft.zero;
  let b = bitcast<u32>(y) | weft.zero;
  let sign = (a ^ b) & 0x80000000u;
  let m = a & 0x7fffffffu;
  let n = b & 0x7fffffffu;
  if (m > 0x7f800000u) { return x; }
  if (n > 0x7f800000u) { return y; }
  if (m == 0x7f800000u) { return weft_float(select(sign | m, 0x7fc00000u, n == m)); }
  if (n == 0x7f800000u) { return weft_float(sign); }
  if (n == 0u) { return weft_float(select(sign | 0x7f800000u, 0x7fc00000u, m == 0u)); }
  if (m == 0u) { return weft_float(sign); }
  let p = weft_digits(m);
  let q = weft_digits(n);
  let divisor = bitcast<u32>(q.x);
  var rest = bitcast<u32>(p.x);
  var quotient = rest / divisor;
  rest = (rest % divisor) << 8u;
  for (var k = 0u; k < 3u; k += 1u) {
    quotient = (quotient << 8u) | (rest / divisor);
    rest = (rest % divisor) << 8u;
  }
  quotient = (quotient << 3u) | ((rest >> 5u) / divisor);
  rest = (rest >> 5u) % divisor;
  let found = vec2<u32>((quotient << 1u) | select(0u, 1u, rest != 0u), 0u);
  return weft_pack(sign, found, p.y - q.y - 28i);
}
fn weft_sqrt_f32(x: f32) -> f32 {
  let a = bitcast<u32>(x) | weft.zero;
  let m = a & 0x7fffffffu;
  if ((m > 0x7f800000u) || (m == 0u)) { return weft_float(a); }
  if (a > 0x80000000u) { return weft_float(0x7fc00000u); }
  if (m == 0x7f800000u) { return weft_float(a); }
  let p = weft_digits(a);
  var digits = bitcast<u32>(p.x);
  var exponent = p.y;
  if ((exponent & 1i) != 0i) {
    digits = digits << 1u;
    exponent -= 1i;
  }
  let square = weft_left64(vec2<u32>(digits, 0u), 28u);
  var root = u32(sqrt(f32(digits)) * 16384.0f);
  let reached = weft_product(root, root);
  let above = weft_lt_u64(square, reached);
  let gap = select(weft_sub64(square, reached), weft_sub64(reached, square), above);
  let change = u32((f32(gap.y) * 4294967296.0f + f32(gap.x)) / (2.0f * f32(root)));
  root = select(root + change, root - change, above);
  for (var k = 0u; k < 4u; k += 1u) {
    if (weft_lt_u64(square, weft_product(root, root))) { root -= 1u; }
  }
  for (var k = 0u; k < 4u; k += 1u) {
    if (!weft_lt_u64(square, weft_product(root + 1u, root + 1u))) { root += 1u; }
  }
  let rest = select(0u, 1u, !weft_eq64(weft_product(root, root), square));
  return weft_pack(0u, vec2<u32>((root << 1u) | rest, 0u), exponent / 2i - 15i);
}
fn weft_round_f32(x: f32) -> f32 {
  let a = bitcast<u32>(x) | weft.zero;
  let m = a & 0x7fffffffu;
  if (m >= 0x4b000000u) { return x; }
  let sign = a & 0x80000000u;
  if (m <= 0x3f000000u) { return weft_float(sign); }
  if (m < 0x3f800000u) { return weft_float(sign | 0x3f800000u); }
  let shift = 150u - (m >> 23u);
  let half = (1u << shift) >> 1u;
  let odd = (m >> shift) & 1u;
  let near = ((m + half - 1u + odd) >> shift) << shift;
  return weft_float(sign | near);
}
fn weft_trunc_f32(x: f32) -> f32 {
  let a = bitcast<u32>(x) | weft.zero;
  let m = a & 0x7fffffffu;
  if (m >= 0x4b000000u) { return x; }
  if (m < 0x3f800000u) { return weft_float(a & 0x80000000u); }
  let shift = 150u - (m >> 23u);
  return weft_float((a >> shift) << shift);
}
fn weft_floor_f32(x: f32) -> f32 {
  let whole = weft_trunc_f32(x);
  if ((bitcast<u32>(x) >= 0x80000000u) && (bitcast<u32>(whole) != bitcast<u32>(x))) {
    return whole - 1.0f;
  }
  return whole;
}
fn weft_ceil_f32(x: f32) -> f32 {
  let whole = weft_trunc_f32(x);
  if ((bitcast<u32>(x) < 0x80000000u) && (bitcast<u32>(whole) != bitcast<u32>(x))) {
    return whole + 1.0f;
  }
  return whole;
}
fn weft_fmod_f32(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) | weft.zero;
  let b = bitcast<u32>(y) | weft.zero;
  let sign = a & 0x80000000u;
  let m = a & 0x7fffffffu;
  let n = b & 0x7fffffffu;
  if (m > 0x7f800000u) { return x; }
  if (n > 0x7f800000u) { return y; }
  if ((m == 0x7f800000u) || (n == 0u)) { return weft_float(0x7fc00000u); }
  if (m < n) { return weft_float(a); }
  let p = weft_digits(m);
  let q = weft_digits(n);
  let divisor = bitcast<u32>(q.x);
  var rest = bitcast<u32>(p.x) % divisor;
  var left = p.y - q.y;
  while (left > 0i) {
    let step = min(left, 8i);
    rest = (rest << bitcast<u32>(step)) % divisor;
    left -= step;
  }
  return weft_pack(sign, vec2<u32>(rest, 0u), q.y);
}
fn weft_f32_of_u64(a: vec2<u32>) -> f32 {
  return weft_pack(0u, a, 0i);
}
fn weft_f32_of_i64(a: vec2<u32>) -> f32 {
  return weft_pack(a.y & 0x80000000u, weft_abs_i64(a), 0i);
}
fn weft_f32_of_u32(a: u32) -> f32 {
  return weft_pack(0u, vec2<u32>(a, 0u), 0i);
}
fn weft_f32_of_i32(a: i32) -> f32 {
  return weft_pack(bitcast<u32>(a) & 0x80000000u, vec2<u32>(weft_magnitude(a), 0u), 0i);
}
fn weft_whole(bits: u32) -> vec2<u32> {
  let field = (bits >> 23u) & 0xffu;
  if (field < 127u) { return vec2<u32>(0u, 0u); }
  if (field >= 191u) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  let digits = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
  if (field < 150u) { return weft_right64(digits, 150u - field); }
  return weft_left64(digits, field - 150u);
}
fn weft_u64_of_f32(x: f32) -> vec2<u32> {
  let a = bitcast<u32>(x) | weft.zero;
  if ((a >= 0x80000000u) || (a > 0x7f800000u)) { return vec2<u32>(0u, 0u); }
  return weft_whole(a);
}
fn weft_i64_of_f32(x: f32) -> vec2<u32> {
  let a = bitcast<u32>(x) | weft.zero;
  let m = a & 0x7fffffffu;
  let negative = a >= 0x80000000u;
  if (m > 0x7f800000u) { return vec2<u32>(0u, 0u); }
  if (m >= 0x5f000000u) {
    return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative);
  }
  let found = weft_whole(a);
  return select(found, weft_neg64(found), negative);
}
fn weft_limited(x: f32, least: i32, most: i32) -> i32 {
  let a = bitcast<u32>(x) | weft.zero;
  let m = a & 0x7fffffffu;
  let negative = a >= 0x80000000u;
  if (m > 0x7f800000u) { return 0i; }
  if (m >= 0x4f000000u) { return select(most, least, negative); }
  let found = bitcast<i32>(weft_whole(a).x);
  return clamp(select(found, -found, negative), least, most);
}
fn weft_u32_of_f32(x: f32) -> u32 {
  let a = bitcast<u32>(x) | weft.zero;
  if ((a >= 0x80000000u) || (a > 0x7f800000u)) { return 0u; }
  let found = weft_whole(a);
  return select(found.x, 0xffffffffu, found.y != 0u);
}
"""

_NARROW: Final = """
fn weft_widen(bits: u32, width: u32, mantissa: u32, bias: i32, top: u32) -> f32 {
  let half = 1u << (width - 1u);
  let magnitude = bits & (half - 1u);
  let sign = select(0u, 0x80000000u, (bits & half) != 0u);
  if (magnitude >= top) {
    let extra = select(0u, 0x400000u, (top & 1u) != 0u);
    return weft_float(sign | extra | 0x7f800000u | (magnitude << (23u - mantissa)));
  }
  if ((magnitude >> mantissa) == 0u) {
    return weft_pack(sign, vec2<u32>(magnitude, 0u), 1i - bias - bitcast<i32>(mantissa));
  }
  return weft_float(sign | ((magnitude << (23u - mantissa)) + (bitcast<u32>(127i - bias) << 23u)));
}
fn weft_shorten(x: f32, width: u32, mantissa: u32, bias: i32, top: u32, nan: u32) -> u32 {
  let a = bitcast<u32>(x) | weft.zero;
  let sign = (a >> 31u) << (width - 1u);
  let m = a & 0x7fffffffu;
  if (m > 0x7f800000u) { return sign | nan; }
  if (m == 0x7f800000u) { return sign | top; }
  if (m == 0u) { return sign; }
  let p = weft_digits(m);
  let digits = bitcast<u32>(p.x);
  let biased = p.y + 23i + bias;
  let more = select(0u, bitcast<u32>(1i - biased), biased < 1i);
  let shift = min(23u - mantissa + more, 30u);
  let whole = digits >> shift;
  let rest = digits - (whole << shift);
  let half = (1u << shift) >> 1u;
  let up = (shift != 0u) && ((rest > half) || ((rest == half) && ((whole & 1u) != 0u)));
  let code = (bitcast<u32>(max(biased, 1i) - 1i) << mantissa) + whole + select(0u, 1u, up);
  return sign | min(code, top);
}
fn weft_f32_of_f16(x: u32) -> f32 {
  return weft_widen(x, 16u, 10u, 15i, 0x7c00u);
}
fn weft_f16_of_f32(x: f32) -> u32 {
  return weft_shorten(x, 16u, 10u, 15i, 0x7c00u, 0x7e00u);
}
fn weft_f32_of_bf16(x: u32) -> f32 {
  return weft_float(x << 16u);
}
fn weft_bf16_of_f32(x: f32) -> u32 {
  return weft_shorten(x, 16u, 7u, 127i, 0x7f80u, 0x7fc0u);
}
fn weft_f32_of_f8e4m3(x: u32) -> f32 {
  return weft_widen(x, 8u, 3u, 7i, 0x7fu);
}
fn weft_f8e4m3_of_f32(x: f32) -> u32 {
  return weft_shorten(x, 8u, 3u, 7i, 0x7fu, 0x7fu);
}
fn weft_f32_of_f8e5m2(x: u32) -> f32 {
  return weft_widen(x, 8u, 2u, 15i, 0x7cu);
}
fn weft_f8e5m2_of_f32(x: f32) -> u32 {
  return weft_shorten(x, 8u, 2u, 15i, 0x7cu, 0x7eu);
}
"""

_NAME: Final = re.compile(r"\bweft_\w+")


@cache
def _functions() -> dict[str, str]:
    """Return the functions by name."""
    parts = (_WIDE + _FLOATS + _NARROW).split("\nfn ")[1:]
    return {part.partition("(")[0]: f"fn {part.strip()}" for part in parts}


@cache
def _calls(name: str) -> tuple[str, ...]:
    """Return the other functions that a function calls."""
    found = dict.fromkeys(_NAME.findall(_functions()[name]))
    return tuple(n for n in found if n in _functions() and n != name)


def needed(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names and texts of functions and of all that they call, those first."""
    seen: set[str] = set()
    pending = list(names)[::-1]
    while pending:
        name = pending[-1]
        before = [] if name in seen else [n for n in _calls(name) if n not in seen]
        if before:
            pending += before
            continue
        pending.pop()
        if name not in seen:
            seen.add(name)
            yield name, _functions()[name]
