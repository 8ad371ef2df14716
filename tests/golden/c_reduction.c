// k (elementwise): x: f32, y: f32

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
};

typedef f32 f32x8 __attribute__((vector_size(32)));
typedef i32 i32x8 __attribute__((vector_size(32)));
typedef float floatx8 __attribute__((vector_size(32)));
typedef int intx8 __attribute__((vector_size(32)));
typedef f32 f32x4 __attribute__((vector_size(16)));
typedef f32 f32x2 __attribute__((vector_size(8)));

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
}

INLINE f32x8 splat_f32x8(f32 x) {
  return (f32x8){ x, x, x, x, x, x, x, x };
}

INLINE f32x8 load_masked_f32x8(const f32 *p, i32x8 m) {
  return (f32x8)__builtin_ia32_maskloadps256((const floatx8 *)p, (intx8)m);
}

INLINE i32x8 first_i32x8(i64 count) {
  const i64 least = count < 0 ? 0 : count > 8 ? 8 : count;
  return (i32x8)((i32x8){ 0, 1, 2, 3, 4, 5, 6, 7 } < (i32)least);
}

INLINE f32x4 lower_f32x8(f32x8 a) {
#if __has_builtin(__builtin_shufflevector) && !defined(WEFT_NO_SHUFFLES)
  return __builtin_shufflevector(a, a, 0, 1, 2, 3);
#else
  return (f32x4){ a[0], a[1], a[2], a[3] };
#endif
}

INLINE f32x4 upper_f32x8(f32x8 a) {
#if __has_builtin(__builtin_shufflevector) && !defined(WEFT_NO_SHUFFLES)
  return __builtin_shufflevector(a, a, 4, 5, 6, 7);
#else
  return (f32x4){ a[4], a[5], a[6], a[7] };
#endif
}

INLINE f32x2 lower_f32x4(f32x4 a) {
#if __has_builtin(__builtin_shufflevector) && !defined(WEFT_NO_SHUFFLES)
  return __builtin_shufflevector(a, a, 0, 1);
#else
  return (f32x2){ a[0], a[1] };
#endif
}

INLINE f32x2 upper_f32x4(f32x4 a) {
#if __has_builtin(__builtin_shufflevector) && !defined(WEFT_NO_SHUFFLES)
  return __builtin_shufflevector(a, a, 2, 3);
#else
  return (f32x2){ a[2], a[3] };
#endif
}

static i32 k_run(const f32 *restrict x, f32 *restrict y, const i64 *vars, struct weft_status *status) {
  f32x8 acc;
  acc = splat_f32x8(0.0f);
  for (i64 i_3 = 0; i_3 < 3; i_3++) {
    const i64 v_5 = i_3 * 8;
    const f32x8 x_9 = load_masked_f32x8(x + v_5, first_i32x8(20 - v_5));
    const f32x8 acc_12 = acc;
    acc = acc_12 + x_9;
  }
  const f32x8 acc_15 = acc;
  const f32x4 v_18 = lower_f32x8(acc_15) + upper_f32x8(acc_15);
  const f32x2 v_21 = lower_f32x4(v_18) + upper_f32x4(v_18);
  const f32 v_24 = v_21[0] + v_21[1];
  if (__builtin_expect(!(v_24 == v_24), 0)) return weft_fail(status, 1, 0, 0, 0);
  y[0] = v_24;
  return 0;
}

__attribute__((visibility("default")))
i32 k(void *const *buffers, const i64 *vars, struct weft_status *status) {
  return k_run(buffers[0], buffers[1], vars, status);
}
