// exp that the compiler turns into vector code: no branches, no tables, no calls. Its relative error is at most 2e-7
// (test/cpu/test_cpu.c).
#pragma once
#include "../base/base.h"

// Returns a if the condition holds, else b, by masking bits. For `condition ? a : b` gcc makes two copies of the code
// that follows, one of them for a constant, and vector code runs both copies.
static inline float choose(bool condition, float a, float b) {
    const uint32_t mask = -(uint32_t)condition;
    return float_of_bits((bits_of_float(a) & mask) | (bits_of_float(b) & ~mask));
}

// NaN stays NaN in both.
static inline float at_least(float x, float least) { return choose(x < least, least, x); }
static inline float at_most(float x, float most) { return choose(x > most, most, x); }

// exp(x) = 2^n exp(r), where n is the integer nearest to x / ln 2, so that |r| <= ln 2 / 2 (range reduction: Cody &
// Waite 1980). exp(r) is the minimax polynomial of degree 5 that begins with 1 + r; its relative error is at most
// 1.05e-7.
static const float EXP_R2 = 4.9999230e-1f, EXP_R3 = 1.6667115e-1f, EXP_R4 = 4.1890334e-2f, EXP_R5 = 8.3125028e-3f;
static const float LOG2_E = 1.44269504f;
static const float LN2 = 0.693147181f;
static const float LN2_UPPER = 0.693359375f, LN2_LOWER = -2.12194440e-4f; // n times the first is exact
static const float EXP_SHIFT = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer, in the low bits

// exp(x) for x from -87.5 to 88; NaN stays NaN.
static inline float exp_in_range(float x) {
    const float shift = EXP_SHIFT + 127.0f; // 127: the bias of an exponent
    const float shifted = x * LOG2_E + shift, n = shifted - shift;
    const float r = (x - n * LN2_UPPER) - n * LN2_LOWER;
    float p = EXP_R5;
    p = p * r + EXP_R4;
    p = p * r + EXP_R3;
    p = p * r + EXP_R2;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * float_of_bits(bits_of_float(shifted) << 23); // 2^n
}

// exp(x) for any x up to 88; 0 below -87.
static inline float exp_fast(float x) { return choose(x < -87.0f, 0.0f, exp_in_range(x)); }
