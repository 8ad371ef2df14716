"""float32 and narrower floats in WGSL, in the arithmetic of integers where drivers round freely."""

from __future__ import annotations

from typing import Final

__all__ = ["SINGLES"]

SINGLES: Final = """
fn weft_keep(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) + weft_zero());  // done twice, | and ^ are folded
}
fn weft_float(bits: u32) -> f32 {
  return bitcast<f32>(bits | weft_zero());
}
fn weft_is_nan(x: f32) -> bool {
  return ((bitcast<u32>(x) | weft_zero()) & 0x7fffffffu) > 0x7f800000u;
}
fn weft_order(x: f32) -> i32 {
  let bits = bitcast<i32>(bitcast<u32>(x) | weft_zero());
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
  let a = bitcast<u32>(x) | weft_zero();
  let b = bitcast<u32>(y);
  return (a == b) || (((a | b) & 0x7fffffffu) == 0u);
}
fn weft_pack(sign: u32, number: vec2<u32>, exponent: i32) -> f32 {
  let zeros = weft_zeros64(number);
  let moved = weft_left64(number, zeros);
  let leading = exponent + 190i - bitcast<i32>(zeros);
  let lost = bitcast<u32>(clamp(1i - leading, 0i, 31i));
  let digits = moved.y | select(0u, 1u, moved.x != 0u);
  let kept = digits >> lost;
  let rest = (kept & 0xffu) | select(0u, 1u, (kept << lost) != digits);
  let whole = kept >> 8u;
  let up = (rest + (whole & 1u) + 0x7fu) >> 8u;
  let code = (bitcast<u32>(max(leading, 1i) - 1i) << 23u) + whole + up;
  let found = select(code, 0x7f800000u, leading >= 255i);
  return weft_float(sign | select(found, 0u, (number.x | number.y) == 0u));
}
fn weft_digits(bits: u32) -> vec2<i32> {
  let field = bitcast<i32>((bits >> 23u) & 0xffu);
  let fraction = bits & 0x7fffffu;
  if (field != 0i) { return vec2<i32>(bitcast<i32>(fraction | 0x800000u), field - 150i); }
  let zeros = countLeadingZeros(fraction) - 8u;
  return vec2<i32>(bitcast<i32>(fraction << (zeros & 31u)), -149i - bitcast<i32>(zeros));
}
fn weft_exact_mad(x: f32, y: f32, z: f32) -> f32 {
  let bits = vec3<u32>(bitcast<u32>(x), bitcast<u32>(y), bitcast<u32>(z)) | vec3<u32>(weft_zero());
  let field = (bits >> vec3<u32>(23u)) & vec3<u32>(0xffu);
  let hidden = select(vec3<u32>(0u), vec3<u32>(0x800000u), field != vec3<u32>(0u));
  let digits = (bits & vec3<u32>(0x7fffffu)) | hidden;
  let places = bitcast<vec3<i32>>(max(field, vec3<u32>(1u)));
  let sign = (bits.x ^ bits.y) & 0x80000000u;
  let other = bits.z & 0x80000000u;
  let product = weft_left64(weft_product(digits.x, digits.y), 14u);
  let empty = (product.x | product.y) == 0u;
  let distance = select(places.z - places.x - places.y + 164i, 64i, empty);
  let addend = weft_left64(vec2<u32>(digits.z, 0u), bitcast<u32>(clamp(distance, 0i, 38i)));
  let small = distance > 38i;
  let lost = bitcast<u32>(clamp(select(-distance, distance - 38i, small), 0i, 63i));
  let jammed = weft_jam64(select(addend, product, small), lost);
  let one = select(product, jammed, small);
  let two = select(jammed, addend, small);
  let less = weft_lt_u64(one, two);
  let same = sign == other;
  let difference = weft_sub64(select(one, two, less), select(two, one, less));
  let total = select(difference, weft_add64(one, two), same);
  let none = (total.x | total.y) == 0u;
  let signed = select(select(sign, other, less), sign & other, none);
  let exponent = select(places.x + places.y - 314i, places.z - 188i, small);
  let found = weft_pack(signed, total, exponent);
  let special = max(field.x, field.y) == 255u;
  let open = select(found, select(z, weft_keep(x * y) + z, special), special || (field.z == 255u));
  return open;
}
fn weft_mad(x: f32, y: f32, z: f32) -> f32 {
  if (weft_fused) { return weft_keep(fma(x, y, z)); }
  return weft_exact_mad(x, y, z);
}
fn weft_div_f32(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) | weft_zero();
  let b = bitcast<u32>(y) | weft_zero();
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
  let a = bitcast<u32>(x) | weft_zero();
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
  let a = bitcast<u32>(x) | weft_zero();
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
  let a = bitcast<u32>(x) | weft_zero();
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
  let a = bitcast<u32>(x) | weft_zero();
  let b = bitcast<u32>(y) | weft_zero();
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
  let a = bitcast<u32>(x) | weft_zero();
  if ((a >= 0x80000000u) || (a > 0x7f800000u)) { return vec2<u32>(0u, 0u); }
  return weft_whole(a);
}
fn weft_i64_of_f32(x: f32) -> vec2<u32> {
  let a = bitcast<u32>(x) | weft_zero();
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
  let a = bitcast<u32>(x) | weft_zero();
  let m = a & 0x7fffffffu;
  let negative = a >= 0x80000000u;
  if (m > 0x7f800000u) { return 0i; }
  if (m >= 0x4f000000u) { return select(most, least, negative); }
  let found = bitcast<i32>(weft_whole(a).x);
  return clamp(select(found, -found, negative), least, most);
}
fn weft_u32_of_f32(x: f32) -> u32 {
  let a = bitcast<u32>(x) | weft_zero();
  if ((a >= 0x80000000u) || (a > 0x7f800000u)) { return 0u; }
  let found = weft_whole(a);
  return select(found.x, 0xffffffffu, found.y != 0u);
}
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
  let a = bitcast<u32>(x) | weft_zero();
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
