"""float64 in WGSL, which has no such type: its bits as two words, computed with in integers.

Every operation rounds once, as IEEE 754 has it. It takes some hundred instructions, so this is for
what few values need: reductions of arguments, quotients that have to be exact, clocks and sums.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DOUBLES"]

DOUBLES: Final = """
fn weft_is_nan64(a: vec2<u32>) -> bool {
  return ((a.y & 0x7fffffffu) | select(0u, 1u, a.x != 0u)) > 0x7ff00000u;
}
fn weft_is_zero64(a: vec2<u32>) -> bool {
  return (a.x | (a.y & 0x7fffffffu)) == 0u;
}
fn weft_field64(a: vec2<u32>) -> i32 {
  return bitcast<i32>((a.y >> 20u) & 0x7ffu);
}
fn weft_digits64(a: vec2<u32>) -> vec2<u32> {
  let hidden = select(0u, 0x100000u, weft_field64(a) != 0i);
  return vec2<u32>(a.x, (a.y & 0xfffffu) | hidden);
}
fn weft_normal64(a: vec2<u32>) -> vec3<u32> {
  let digits = weft_digits64(a);
  let zeros = max(weft_zeros64(digits), 11u) - 11u;
  let place = max(weft_field64(a), 1i) - bitcast<i32>(zeros);
  return vec3<u32>(weft_left64(digits, zeros & 63u), bitcast<u32>(place));
}
fn weft_pack64(sign: u32, number: vec2<u32>, exponent: i32) -> vec2<u32> {
  let zeros = weft_zeros64(number);
  let digits = weft_left64(number, zeros & 63u);
  let leading = exponent + 1086i - bitcast<i32>(zeros);
  let lost = bitcast<u32>(clamp(1i - leading, 0i, 63i));
  let kept = weft_jam64(digits, lost);
  let whole = weft_right64(kept, 11u);
  let rest = kept.x & 0x7ffu;
  let up = (rest + (whole.x & 1u) + 0x3ffu) >> 11u;
  let base = vec2<u32>(0u, bitcast<u32>(max(leading, 1i) - 1i) << 20u);
  let code = weft_add64(weft_add64(base, whole), vec2<u32>(up, 0u));
  let found = select(code, vec2<u32>(0u, 0x7ff00000u), leading >= 2047i);
  let none = (number.x | number.y) == 0u;
  return select(found, vec2<u32>(0u, 0u), none) | vec2<u32>(0u, sign);
}
fn weft_add_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (weft_is_nan64(a)) { return a; }
  if (weft_is_nan64(b)) { return b; }
  let one = vec2<u32>(a.x, a.y & 0x7fffffffu);
  let two = vec2<u32>(b.x, b.y & 0x7fffffffu);
  let less = weft_lt_u64(one, two);
  let p = select(a, b, less);
  let q = select(b, a, less);
  let sign = p.y & 0x80000000u;
  let same = ((a.y ^ b.y) & 0x80000000u) == 0u;
  if (weft_field64(p) == 2047i) {
    if ((weft_field64(q) == 2047i) && !same) { return vec2<u32>(0u, 0x7ff80000u); }
    return p;
  }
  let place = max(weft_field64(p), 1i);
  let distance = bitcast<u32>(min(place - max(weft_field64(q), 1i), 63i));
  let large = weft_left64(weft_digits64(p), 10u);
  let small = weft_jam64(weft_left64(weft_digits64(q), 10u), distance);
  let total = select(weft_sub64(large, small), weft_add64(large, small), same);
  let none = (total.x | total.y) == 0u;
  return weft_pack64(select(sign, a.y & b.y & 0x80000000u, none), total, place - 1085i);
}
fn weft_neg_f64(a: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x, a.y ^ 0x80000000u);
}
fn weft_abs_f64(a: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x, a.y & 0x7fffffffu);
}
fn weft_copysign_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return vec2<u32>(a.x, (a.y & 0x7fffffffu) | (b.y & 0x80000000u));
}
fn weft_sub_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (weft_is_nan64(b)) { return b; }
  return weft_add_f64(a, weft_neg_f64(b));
}
fn weft_square128(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
  let low = weft_product(a.x, b.x);
  let one = weft_add64(weft_product(a.y, b.x), vec2<u32>(low.y, 0u));
  let two = weft_add64(weft_product(a.x, b.y), vec2<u32>(one.x, 0u));
  let high = weft_add64(weft_product(a.y, b.y), vec2<u32>(one.y, 0u));
  return vec4<u32>(low.x, two.x, weft_add64(high, vec2<u32>(two.y, 0u)));
}
fn weft_left128(a: vec4<u32>, n: u32) -> vec4<u32> {
  let k = n & 63u;
  let b = select(a, vec4<u32>(0u, 0u, a.x, a.y), n >= 64u);
  let high = weft_left64(b.zw, k) | weft_right64(weft_right64(b.xy, 1u), 63u - k);
  return vec4<u32>(weft_left64(b.xy, k), high);
}
fn weft_right128(a: vec4<u32>, n: u32) -> vec4<u32> {
  let k = n & 63u;
  let b = select(a, vec4<u32>(a.z, a.w, 0u, 0u), n >= 64u);
  let low = weft_right64(b.xy, k) | weft_left64(weft_left64(b.zw, 1u), 63u - k);
  return vec4<u32>(low, weft_right64(b.zw, k));
}
fn weft_jam128(a: vec4<u32>, n: u32) -> vec4<u32> {
  let moved = weft_right128(a, n);
  let back = weft_left128(moved, n);
  return moved | vec4<u32>(select(0u, 1u, any(back != a)), 0u, 0u, 0u);
}
fn weft_add128(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let low = weft_add64(a.xy, b.xy);
  let carry = select(0u, 1u, weft_lt_u64(low, a.xy));
  return vec4<u32>(low, weft_add64(weft_add64(a.zw, b.zw), vec2<u32>(carry, 0u)));
}
fn weft_sub128(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
  let borrow = select(0u, 1u, weft_lt_u64(a.xy, b.xy));
  let high = weft_sub64(weft_sub64(a.zw, b.zw), vec2<u32>(borrow, 0u));
  return vec4<u32>(weft_sub64(a.xy, b.xy), high);
}
fn weft_lt128(a: vec4<u32>, b: vec4<u32>) -> bool {
  let same = weft_eq64(a.zw, b.zw);
  return weft_lt_u64(a.zw, b.zw) || (same && weft_lt_u64(a.xy, b.xy));
}
fn weft_pack128(sign: u32, number: vec4<u32>, exponent: i32) -> vec2<u32> {
  let empty = (number.z | number.w) == 0u;
  let zeros = select(weft_zeros64(number.zw), 64u + weft_zeros64(number.xy), empty);
  let moved = weft_left128(number, zeros & 127u);
  let digits = vec2<u32>(moved.z | select(0u, 1u, (moved.x | moved.y) != 0u), moved.w);
  return weft_pack64(sign, digits, exponent + 64i - bitcast<i32>(zeros));
}
fn weft_mul_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sign = (a.y ^ b.y) & 0x80000000u;
  if (weft_is_nan64(a)) { return a; }
  if (weft_is_nan64(b)) { return b; }
  if ((weft_field64(a) == 2047i) || (weft_field64(b) == 2047i)) {
    if (weft_is_zero64(a) || weft_is_zero64(b)) { return vec2<u32>(0u, 0x7ff80000u); }
    return vec2<u32>(0u, sign | 0x7ff00000u);
  }
  let p = weft_normal64(a);
  let q = weft_normal64(b);
  let product = weft_square128(p.xy, q.xy);
  return weft_pack128(sign, product, bitcast<i32>(p.z) + bitcast<i32>(q.z) - 2150i);
}
fn weft_mad_f64(a: vec2<u32>, b: vec2<u32>, c: vec2<u32>) -> vec2<u32> {
  let sign = (a.y ^ b.y) & 0x80000000u;
  if ((weft_field64(a) == 2047i) || (weft_field64(b) == 2047i)) {
    return weft_add_f64(weft_mul_f64(a, b), c);
  }
  if (weft_field64(c) == 2047i) { return c; }
  let other = c.y & 0x80000000u;
  let p = weft_normal64(a);
  let q = weft_normal64(b);
  let r = weft_normal64(c);
  let product = weft_left128(weft_square128(p.xy, q.xy), 20u);
  let unit = bitcast<i32>(p.z) + bitcast<i32>(q.z) - 1095i;
  let empty = all(product == vec4<u32>(0u));
  let distance = select(bitcast<i32>(r.z) - unit, 200i, empty);
  let small = distance > 72i;
  let given = vec4<u32>(r.xy, 0u, 0u);
  let addend = weft_left128(given, bitcast<u32>(clamp(distance, 0i, 72i)));
  let lost = bitcast<u32>(clamp(select(-distance, distance - 72i, small), 0i, 127i));
  let jammed = weft_jam128(select(addend, product, small), lost);
  let one = select(product, jammed, small);
  let two = select(jammed, addend, small);
  let less = weft_lt128(one, two);
  let same = sign == other;
  let difference = weft_sub128(select(one, two, less), select(two, one, less));
  let total = select(difference, weft_add128(one, two), same);
  let none = all(total == vec4<u32>(0u));
  let signed = select(select(sign, other, less), sign & other, none);
  let place = select(unit, bitcast<i32>(r.z) - 72i, small);
  return weft_pack128(signed, total, place - 1075i);
}
fn weft_div_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sign = (a.y ^ b.y) & 0x80000000u;
  if (weft_is_nan64(a)) { return a; }
  if (weft_is_nan64(b)) { return b; }
  if (weft_field64(a) == 2047i) {
    return vec2<u32>(0u, select(sign | 0x7ff00000u, 0x7ff80000u, weft_field64(b) == 2047i));
  }
  if (weft_field64(b) == 2047i) { return vec2<u32>(0u, sign); }
  if (weft_is_zero64(b)) {
    return vec2<u32>(0u, select(sign | 0x7ff00000u, 0x7ff80000u, weft_is_zero64(a)));
  }
  let p = weft_normal64(a);
  let q = weft_normal64(b);
  var rest = p.xy;
  var quotient = vec2<u32>(0u, 0u);
  for (var k = 0u; k < 58u; k += 1u) {
    quotient = weft_left64(quotient, 1u);
    if (!weft_lt_u64(rest, q.xy)) {
      rest = weft_sub64(rest, q.xy);
      quotient.x |= 1u;
    }
    rest = weft_left64(rest, 1u);
  }
  quotient.x |= select(0u, 1u, (rest.x | rest.y) != 0u);
  return weft_pack64(sign, quotient, bitcast<i32>(p.z) - bitcast<i32>(q.z) - 57i);
}
fn weft_sqrt_f64(a: vec2<u32>) -> vec2<u32> {
  if (weft_is_nan64(a) || weft_is_zero64(a)) { return a; }
  if (a.y >= 0x80000000u) { return vec2<u32>(0u, 0x7ff80000u); }
  if (weft_field64(a) == 2047i) { return a; }
  let p = weft_normal64(a);
  let place = bitcast<i32>(p.z) - 1075i;
  let odd = (place & 1i) != 0i;
  var digits = weft_left64(p.xy, select(10u, 11u, odd));
  var rest = vec2<u32>(0u, 0u);
  var root = vec2<u32>(0u, 0u);
  for (var k = 0u; k < 57u; k += 1u) {
    rest = weft_left64(rest, 2u);
    rest.x |= digits.y >> 30u;
    digits = weft_left64(digits, 2u);
    let next = weft_left64(root, 2u) | vec2<u32>(1u, 0u);
    root = weft_left64(root, 1u);
    if (!weft_lt_u64(rest, next)) {
      rest = weft_sub64(rest, next);
      root.x |= 1u;
    }
  }
  root.x |= select(0u, 1u, (rest.x | rest.y) != 0u);
  let even = place - select(0i, 1i, odd);
  return weft_pack64(0u, root, even / 2i - 30i);
}
fn weft_fmod_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let sign = a.y & 0x80000000u;
  if (weft_is_nan64(a)) { return a; }
  if (weft_is_nan64(b)) { return b; }
  if ((weft_field64(a) == 2047i) || weft_is_zero64(b)) { return vec2<u32>(0u, 0x7ff80000u); }
  if (weft_lt_u64(weft_abs_f64(a), weft_abs_f64(b))) { return a; }
  let p = weft_normal64(a);
  let q = weft_normal64(b);
  var rest = p.xy;
  var left = bitcast<i32>(p.z) - bitcast<i32>(q.z);
  loop {
    if (!weft_lt_u64(rest, q.xy)) { rest = weft_sub64(rest, q.xy); }
    if (left <= 0i) { break; }
    rest = weft_left64(rest, 1u);
    left -= 1i;
  }
  return weft_pack64(sign, rest, bitcast<i32>(q.z) - 1075i);
}
fn weft_order64(a: vec2<u32>) -> vec2<u32> {
  let sign = 0u - (a.y >> 31u);
  return vec2<u32>(a.x ^ sign, a.y ^ (sign >> 1u));
}
fn weft_lt_f64(a: vec2<u32>, b: vec2<u32>) -> bool {
  let numbers = !weft_is_nan64(a) && !weft_is_nan64(b);
  let zeros = weft_is_zero64(a) && weft_is_zero64(b);
  return numbers && !zeros && weft_lt_i64(weft_order64(a), weft_order64(b));
}
fn weft_le_f64(a: vec2<u32>, b: vec2<u32>) -> bool {
  let numbers = !weft_is_nan64(a) && !weft_is_nan64(b);
  let zeros = weft_is_zero64(a) && weft_is_zero64(b);
  return numbers && (zeros || !weft_lt_i64(weft_order64(b), weft_order64(a)));
}
fn weft_eq_f64(a: vec2<u32>, b: vec2<u32>) -> bool {
  let zeros = weft_is_zero64(a) && weft_is_zero64(b);
  return !weft_is_nan64(a) && !weft_is_nan64(b) && (zeros || weft_eq64(a, b));
}
fn weft_min_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (weft_is_nan64(a)) { return a; }
  if (weft_is_nan64(b)) { return b; }
  return select(b, a, weft_lt_i64(weft_order64(a), weft_order64(b)));
}
fn weft_max_f64(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  if (weft_is_nan64(a)) { return a; }
  if (weft_is_nan64(b)) { return b; }
  return select(a, b, weft_lt_i64(weft_order64(a), weft_order64(b)));
}
fn weft_trunc_f64(a: vec2<u32>) -> vec2<u32> {
  let field = weft_field64(a);
  if (field >= 1075i) { return a; }
  if (field < 1023i) { return vec2<u32>(0u, a.y & 0x80000000u); }
  let shift = bitcast<u32>(1075i - field);
  return weft_left64(weft_right64(a, shift), shift);
}
fn weft_floor_f64(a: vec2<u32>) -> vec2<u32> {
  let whole = weft_trunc_f64(a);
  if (((a.y >> 31u) != 0u) && !weft_eq64(whole, a) && !weft_is_nan64(a)) {
    return weft_add_f64(whole, vec2<u32>(0u, 0xbff00000u));
  }
  return whole;
}
fn weft_ceil_f64(a: vec2<u32>) -> vec2<u32> {
  let whole = weft_trunc_f64(a);
  if (((a.y >> 31u) == 0u) && !weft_eq64(whole, a) && !weft_is_nan64(a)) {
    return weft_add_f64(whole, vec2<u32>(0u, 0x3ff00000u));
  }
  return whole;
}
fn weft_round_f64(a: vec2<u32>) -> vec2<u32> {
  let field = weft_field64(a);
  let sign = a.y & 0x80000000u;
  if (field >= 1075i) { return a; }
  let half = weft_eq64(weft_abs_f64(a), vec2<u32>(0u, 0x3fe00000u));
  if ((field < 1022i) || half) { return vec2<u32>(0u, sign); }
  if (field < 1023i) { return vec2<u32>(0u, sign | 0x3ff00000u); }
  let shift = bitcast<u32>(1075i - field);
  let odd = weft_right64(a, shift).x & 1u;
  let add = weft_sub64(weft_left64(vec2<u32>(1u, 0u), shift - 1u), vec2<u32>(1u - odd, 0u));
  return weft_left64(weft_right64(weft_add64(a, add), shift), shift);
}
fn weft_f64_of_f32(x: f32) -> vec2<u32> {
  let a = bitcast<u32>(x) | weft_zero();
  let m = a & 0x7fffffffu;
  let sign = a & 0x80000000u;
  if (m >= 0x7f800000u) {
    return vec2<u32>(m << 29u, sign | 0x7ff00000u | ((m & 0x7fffffu) >> 3u));
  }
  let p = weft_digits(m);
  let digits = select(bitcast<u32>(p.x), 0u, m == 0u);
  return weft_pack64(sign, vec2<u32>(digits, 0u), p.y);
}
fn weft_f32_of_f64(a: vec2<u32>) -> f32 {
  let sign = a.y & 0x80000000u;
  if (weft_is_nan64(a)) { return weft_float(sign | 0x7fc00000u); }
  if (weft_field64(a) == 2047i) { return weft_float(sign | 0x7f800000u); }
  let place = max(weft_field64(a), 1i);
  return weft_pack(sign, weft_digits64(a), place - 1075i);
}
fn weft_f64_of_u64(a: vec2<u32>) -> vec2<u32> {
  return weft_pack64(0u, a, 0i);
}
fn weft_f64_of_i64(a: vec2<u32>) -> vec2<u32> {
  return weft_pack64(a.y & 0x80000000u, weft_abs_i64(a), 0i);
}
fn weft_f64_of_u32(a: u32) -> vec2<u32> {
  return weft_pack64(0u, vec2<u32>(a, 0u), 0i);
}
fn weft_f64_of_i32(a: i32) -> vec2<u32> {
  return weft_pack64(bitcast<u32>(a) & 0x80000000u, vec2<u32>(weft_magnitude(a), 0u), 0i);
}
fn weft_whole64(a: vec2<u32>) -> vec2<u32> {
  let field = weft_field64(a);
  if (field < 1023i) { return vec2<u32>(0u, 0u); }
  if (field >= 1087i) { return vec2<u32>(0xffffffffu, 0xffffffffu); }
  let digits = weft_digits64(a);
  if (field < 1075i) { return weft_right64(digits, bitcast<u32>(1075i - field)); }
  return weft_left64(digits, bitcast<u32>(field - 1075i));
}
fn weft_u64_of_f64(a: vec2<u32>) -> vec2<u32> {
  if (weft_is_nan64(a) || ((a.y >> 31u) != 0u)) { return vec2<u32>(0u, 0u); }
  return weft_whole64(a);
}
fn weft_i64_of_f64(a: vec2<u32>) -> vec2<u32> {
  if (weft_is_nan64(a)) { return vec2<u32>(0u, 0u); }
  let negative = (a.y >> 31u) != 0u;
  let limit = select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative);
  if (weft_field64(a) >= 1086i) { return limit; }
  let found = weft_whole64(a);
  return select(found, weft_neg64(found), negative);
}
fn weft_limited64(a: vec2<u32>, least: i32, most: i32) -> i32 {
  let found = weft_i64_of_f64(a);
  let low = weft_i64_of_i32(least);
  let high = weft_i64_of_i32(most);
  return bitcast<i32>(weft_max_i64(weft_min_i64(found, high), low).x);
}
fn weft_u32_of_f64(a: vec2<u32>) -> u32 {
  let found = weft_u64_of_f64(a);
  return select(found.x, 0xffffffffu, found.y != 0u);
}
"""
