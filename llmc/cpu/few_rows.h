// The fast matmul of few rows, as in generation: dot products with the rows of a weight, which is read once, in order,
// and not packed. Reading it is the limit: arithmetic must only keep up with memory. So DOT_ROWS rows of the weight are
// multiplied at a time, by up to DOT_INPUTS rows of the input, each pair with a sum of its own: independent chains of
// additions, and each number that was loaded is used several times.
//
// The kernels are in dots.h, once for weights as they are stored and once for weights in 8 bits (int8.h).
//
// A dot product has one order of additions, whatever other rows there are: an output does not depend on the number of
// rows. attention.h uses the same kernel for the scores of a query.
#pragma once
#include "device.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { DOT_LANES = 16 };
#elif defined(__AVX2__)
enum { DOT_LANES = 8 };
#else
enum { DOT_LANES = 4 };
#endif
enum { DOT_ROWS = 4, DOT_INPUTS = 4 }; // 16 sums: half of AVX-512's registers, all of AVX2's

typedef float DotVec __attribute__((vector_size(DOT_LANES * 4), aligned(4), may_alias));

// Loads DOT_LANES elements as floats. (Of __builtin_convertvector() gcc 12 makes two halves.)
static inline DotVec dot_load_Stored(const Stored* x) {
#if FLOATX_IS(fp32)
    return *(const DotVec*)x;
#elif FLOATX_IS(bf16) && defined(__AVX512F__)
    return (DotVec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)x)), 16);
#elif FLOATX_IS(bf16) && defined(__AVX2__)
    return (DotVec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)x)), 16);
#elif FLOATX_IS(fp16) && defined(__AVX512F__)
    return (DotVec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)x));
#elif FLOATX_IS(fp16) && defined(__AVX2__)
    return (DotVec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)x));
#else
    DotVec v;
    for (int i = 0; i < DOT_LANES; i++) { v[i] = to_float(x[i]); }
    return v;
#endif
}

static inline DotVec dot_load_int8_t(const int8_t* x) {
#if defined(__AVX512F__)
    return (DotVec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)x)));
#elif defined(__AVX2__)
    return (DotVec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)x)));
#else
    DotVec v;
    for (int i = 0; i < DOT_LANES; i++) { v[i] = x[i]; }
    return v;
#endif
}

static inline float dot_float_Stored(Stored x) { return to_float(x); }
static inline float dot_float_int8_t(int8_t x) { return x; }

static inline float dot_lanes(DotVec v) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)v);
#else
    #pragma GCC unroll 4
    for (int half = DOT_LANES / 2; half > 0; half /= 2) {
        #pragma GCC unroll 8
        for (int i = 0; i < half; i++) { v[i] += v[i + half]; }
    }
    return v[0];
#endif
}

// Returns x (n) as floats: itself, or a copy in `scratch`.
static inline const float* dot_floats(float* scratch, const Stored* x, size_t n) {
    if (sizeof(Stored) == sizeof(float)) { return (const float*)x; }
    #pragma omp simd
    for (size_t i = 0; i < n; i++) { scratch[i] = to_float(x[i]); }
    return scratch;
}

// Rows of the input at most. 16 tokens take less time than memory needs for the weights.
enum { FEW_ROWS = 16 };

// Multiply-adds from which on threads share an operation: fewer take less time than starting it in all threads. Chosen.
static const size_t DOT_SHARED = 1 << 16;

#define WEIGHED(function) JOIN(function, JOIN(_, WEIGHT))
#define WEIGHT Stored
#include "dots.h"
#undef WEIGHT
#define WEIGHT int8_t
#include "dots.h"
#undef WEIGHT
