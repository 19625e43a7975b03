// Vectors of floats, as many as a register of this object's level of instructions holds.
#pragma once
#include "device.h"
#include "math.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float Vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

// Loads elements as floats. (Of __builtin_convertvector() gcc 12 makes two halves.)
static inline Vec vec_load(const Stored* x) {
#if FLOATX_IS(fp32)
    return *(const Vec*)x;
#elif FLOATX_IS(bf16) && defined(__AVX512F__)
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)x)), 16);
#elif FLOATX_IS(bf16) && defined(__AVX2__)
    return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)x)), 16);
#elif FLOATX_IS(fp16) && defined(__AVX512F__)
    return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)x));
#elif FLOATX_IS(fp16) && defined(__AVX2__)
    return (Vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)x));
#elif FLOATX_IS(fp16) && defined(__aarch64__)
    return (Vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t*)x)));
#else
    Vec v;
    for (int i = 0; i < LANES; i++) { v[i] = to_float(x[i]); }
    return v;
#endif
}

// Returns a where mask is -1, b where it is 0.
static inline Vec vec_choose(IntVec mask, Vec a, Vec b) { return (Vec)(((IntVec)a & mask) | ((IntVec)b & ~mask)); }

// Returns the larger of each two numbers; b where one is NaN.
static inline Vec vec_larger(Vec a, Vec b) {
#ifdef __AVX512F__
    return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return vec_choose(a > b, a, b);
#endif
}

static inline float vec_sum(Vec v) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)v);
#else
    #pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2) {
        #pragma GCC unroll 8
        for (int i = 0; i < half; i++) { v[i] += v[i + half]; }
    }
    return v[0];
#endif
}

// Returns the largest number.
static inline float vec_max(Vec v) {
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)v);
#else
    #pragma GCC unroll 4
    for (int half = LANES / 2; half > 0; half /= 2) {
        #pragma GCC unroll 8
        for (int i = 0; i < half; i++) { v[i] = v[i] > v[i + half] ? v[i] : v[i + half]; }
    }
    return v[0];
#endif
}

// exp(x) of each number, for x up to 88; results below 1e-38 become 0. The relative error is at most 2e-7, with AVX-512
// 4e-7: it subtracts n ln 2 at once, and has an instruction that multiplies by 2^n.
static inline Vec vec_exp(Vec x) {
#ifdef __AVX512F__
    const float shift = EXP_SHIFT;
    // exp(-104) is less than half of the smallest float; in this order of operands NaN stays NaN
    x = (Vec)_mm512_max_ps(_mm512_set1_ps(-104.0f), (__m512)x);
    const Vec n = (x * LOG2_E + shift) - shift;
    const Vec r = (Vec)_mm512_fnmadd_ps((__m512)n, _mm512_set1_ps(LN2), (__m512)x); // does not round the product
#else
    const float shift = EXP_SHIFT + 127.0f;
    const Vec shifted = x * LOG2_E + shift, n = shifted - shift;
    const Vec r = (x - n * LN2_UPPER) - n * LN2_LOWER;
#endif
    Vec p = r * EXP_R5 + EXP_R4;
    p = p * r + EXP_R3;
    p = p * r + EXP_R2;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
#ifdef __AVX512F__
    return (Vec)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    return vec_choose(x < -87.0f, (Vec){0}, p * (Vec)((IntVec)shifted << 23));
#endif
}
