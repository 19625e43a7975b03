// exp and tanh that the compiler turns into vector code: no branches, no tables, no calls. Relative error at most 2e-7
// for exp; absolute error at most 3e-7 for tanh (test_cpu.c goes over all their range).
#pragma once
#include "../base.h"

// exp(x) = 2^n exp(r), n the integer nearest to x / ln 2, so that |r| <= ln 2 / 2, where a polynomial will do. Below -87
// the result is what exp(-87) is, 1e-38, which is as good as zero wherever it is used; above 88 it is exp(88).
static inline float exp_fast(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const float n = shifted - 12582912.0f;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; // ln 2 in two parts, the first exact in few bits
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; // 2^n as a float
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

static inline float tanh_fast(float x) { return 1.0f - 2.0f / (exp_fast(2.0f * x) + 1.0f); }
