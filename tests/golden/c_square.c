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
typedef f32x8 f32x8u __attribute__((aligned(4), may_alias));
typedef float floatx8 __attribute__((vector_size(32)));

extern void weft_parallel_for(void (*body)(void *env, i64 begin, i64 end), void *env, i64 count);

INLINE f32x8 load_f32x8(const f32 *p) {
  return *(const f32x8u *)p;
}

INLINE void store_f32x8(f32 *p, f32x8 x) {
  *(f32x8u *)p = x;
}

INLINE void stream_f32x8(f32 *p, f32x8 x) {
  if (((u64)p & 31) != 0) {
    store_f32x8(p, x);
    return;
  }
  #if __has_builtin(__builtin_nontemporal_store)
    __builtin_nontemporal_store((floatx8)x, (floatx8 *)p);
  #elif __has_builtin(__builtin_ia32_movntps256)
    __builtin_ia32_movntps256((float *)p, (floatx8)x);
  #else
    ((floatx8 *)p)[0] = (floatx8)x;
  #endif
}

struct k_par0_env { const f32 *x; f32 *y; };
static void k_par0_body(i64 begin, i64 end, const f32 *restrict x, f32 *restrict y) {
  for (i64 i_1 = begin; i_1 < end; i_1++) {  // parallel
    const i64 v_3 = i_1 * 16;
    const f32x8 x_4 = load_f32x8(x + v_3);
    const f32x8 x_5 = load_f32x8(x + (v_3 + 8));
    stream_f32x8(y + v_3, x_4 * x_4);
    stream_f32x8(y + (v_3 + 8), x_5 * x_5);
  }
#if __has_builtin(__builtin_ia32_sfence)
  __builtin_ia32_sfence();
#endif
}
static void k_par0(void *env, i64 begin, i64 end) {
  const struct k_par0_env *e = env;
  k_par0_body(begin, end, e->x, e->y);
}

static i32 k_run(const f32 *restrict x, f32 *restrict y, const i64 *vars, struct weft_status *status) {
  struct k_par0_env env_2 = { x, y };
  weft_parallel_for(k_par0, &env_2, 4);
  return 0;
}

__attribute__((visibility("default")))
i32 k(void *const *buffers, const i64 *vars, struct weft_status *status) {
  return k_run(buffers[0], buffers[1], vars, status);
}
