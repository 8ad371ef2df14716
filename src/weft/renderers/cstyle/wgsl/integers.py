"""Integers in WGSL: those of 64 bits as ``vec2<u32>``, the low word first, and quotients."""

from __future__ import annotations

from typing import Final

__all__ = ["INTEGERS"]

INTEGERS: Final = """
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
  let k = n & 31u;
  let high = (a.y << k) | ((a.x >> 1u) >> (31u - k));
  return select(vec2<u32>(a.x << k, high), vec2<u32>(0u, a.x << k), n >= 32u);
}
fn weft_right64(a: vec2<u32>, n: u32) -> vec2<u32> {
  let k = n & 31u;
  let low = (a.x >> k) | ((a.y << 1u) << (31u - k));
  return select(vec2<u32>(low, a.y >> k), vec2<u32>(a.y >> k, 0u), n >= 32u);
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
  let moved = weft_right64(a, min(n, 63u));
  let lost = !weft_eq64(weft_left64(moved, min(n, 63u)), a);
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
