// GELU in its tanh form (Hendrycks & Gimpel 2016, as in GPT-2): gelu(x) = x/2 (1 + tanh(u)), u = k (x + 0.044715 x^3),
// k = sqrt(2/pi). Backward uses the exact derivative of this form.
#pragma once
#include "vec.h"

static const float GELU_K = 0.7978845608028654f, GELU_CUBIC = 0.044715f;

static inline float gelu_argument(float x) { return GELU_K * x * (1.0f + GELU_CUBIC * x * x); }

// Returns gelu'(x). With gate = (1 + tanh(u)) / 2, gelu(x) = x gate and d gate / d 2u = gate (1 - gate).
static inline float gelu_derivative(float x, float gate) {
    const float slope = 2.0f * GELU_K + 6.0f * GELU_K * GELU_CUBIC * x * x; // d 2u / dx
    return gate + x * slope * gate * (1.0f - gate);
}

// ---------------------------------------------------------------------------------------------------------------------
// plain

static inline void gelu_row_plain(Stored* out, const Stored* inp, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float x = to_float(inp[i]);
        out[i] = to_stored(0.5f * x * (1.0f + tanhf(gelu_argument(x))));
    }
}

static inline void gelu_backward_row_plain(Stored* dinp, const Stored* inp, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float x = to_float(inp[i]), gate = 0.5f * (1.0f + tanhf(gelu_argument(x)));
        dinp[i] = to_stored(to_float(dinp[i]) * gelu_derivative(x, gate));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// fast: the gate is the logistic function of 2u, 1 / (1 + exp(-2u)): one exp and one reciprocal, in vector code.
// epilogue.h applies these functions to the sums of a row while they are in its thread's cache.

// Beyond -10 and 10 the gate is 0 or 1 within rounding, and 2u leaves the range of exp_in_range(). NaN stays NaN.
static inline float gelu_clamp(float x) { return at_most(at_least(x, -10.0f), 10.0f); }

#ifdef __AVX512F__
static inline Vec gelu_clamp_vec(Vec x) {
    // the second operand is the result if one is NaN
    return (Vec)_mm512_min_ps(_mm512_set1_ps(10.0f), _mm512_max_ps(_mm512_set1_ps(-10.0f), (__m512)x));
}

// Returns the gates of clamped x: 1 / (1 + 2^t), t = -2u log2(e). 2^t is 2^n 2^r, where n is the integer nearest to t,
// so that |r| <= 1/2, and 2^r is a minimax polynomial that begins with 1. Its relative error is 1e-7; for results in
// bf16, which are off by up to 2^-9 anyway, one of 2.9e-6 is enough. The reciprocal has 14 bits, which a step of
// Newton's method doubles. (A division takes as long as all else.)
static inline Vec gelu_gates_vec(Vec c) {
    const float linear = -2.0f * GELU_K * LOG2_E, shift = EXP_SHIFT;
    const Vec t = c * (c * c * (linear * GELU_CUBIC) + linear), n = (t + shift) - shift, r = t - n;
    Vec p = r * 9.5810471e-3f + 5.5905972e-2f;
    if (!FLOATX_IS(bf16)) { p = (r * 1.3254603e-3f + 9.6719991e-3f) * r + 5.5507794e-2f; }
    p = p * r + (FLOATX_IS(bf16) ? 2.4024145e-1f : 2.4022232e-1f);
    p = p * r + (FLOATX_IS(bf16) ? 6.9312435e-1f : 6.9314694e-1f);
    p = p * r + 1.0f;
    const Vec d = (Vec)_mm512_scalef_ps((__m512)p, (__m512)n) + 1.0f;
    const Vec gate = (Vec)_mm512_rcp14_ps((__m512)d);
    return gate * (2.0f - d * gate);
}
#endif

// Sets gates (LINE) for x.
static inline __attribute__((always_inline)) void gelu_gates(float gates[LINE], const float x[LINE]) {
    #pragma omp simd
    for (int i = 0; i < LINE; i++) {
        const float c = gelu_clamp(x[i]), minus_2u = c * (-2.0f * GELU_K - 2.0f * GELU_K * GELU_CUBIC * c * c);
        gates[i] = 1.0f / (1.0f + exp_in_range(minus_2u));
    }
}

// y (LINE) = gelu(x)
static inline __attribute__((always_inline)) void gelu_line(float y[LINE], const float x[LINE]) {
#ifdef __AVX512F__
    for (int i = 0; i < LINE; i += LANES) {
        const Vec v = *(const Vec*)(x + i);
        *(Vec*)(y + i) = v * gelu_gates_vec(gelu_clamp_vec(v));
    }
#else
    gelu_gates(y, x);
    #pragma omp simd
    for (int i = 0; i < LINE; i++) { y[i] *= x[i]; }
#endif
}

// y (LINE) = dout * gelu'(x)
static inline __attribute__((always_inline)) void gelu_backward_line(float y[LINE], const float dout[LINE],
                                                                     const float x[LINE]) {
#ifdef __AVX512F__
    for (int i = 0; i < LINE; i += LANES) {
        const Vec c = gelu_clamp_vec(*(const Vec*)(x + i)), gate = gelu_gates_vec(c);
        const Vec slope = c * c * (6.0f * GELU_K * GELU_CUBIC) + 2.0f * GELU_K;
        *(Vec*)(y + i) = *(const Vec*)(dout + i) * (c * slope * gate * (1.0f - gate) + gate);
    }
#else
    gelu_gates(y, x);
    #pragma omp simd
    for (int i = 0; i < LINE; i++) { y[i] = dout[i] * gelu_derivative(gelu_clamp(x[i]), y[i]); }
#endif
}

// Returns x (n), n at most LINE, and zeros behind: where it lies, or in `floats`.
static inline __attribute__((always_inline)) const float* line_floats(float floats[LINE], const Stored* x, int n) {
    if (FLOATX_IS(fp32) && n == LINE) { return (const float*)x; }
    for (int i = n; i < LINE; i++) { floats[i] = 0; }
    #pragma omp simd
    for (int i = 0; i < n; i++) { floats[i] = to_float(x[i]); }
    return floats;
}

// n elements, at most LINE
static inline __attribute__((always_inline)) void gelu_some(Stored* out, const Stored* inp, int n) {
    float x[LINE], y[LINE];
    gelu_line(y, line_floats(x, inp, n));
    for (int i = 0; i < n; i++) { out[i] = to_stored(y[i]); }
}
static inline __attribute__((always_inline)) void gelu_backward_some(Stored* dinp, const Stored* inp, int n) {
    float x[LINE], dout[LINE], y[LINE];
    gelu_backward_line(y, line_floats(dout, dinp, n), line_floats(x, inp, n));
    for (int i = 0; i < n; i++) { dinp[i] = to_stored(y[i]); }
}

static inline void gelu_row(Stored* out, const Stored* inp, size_t n) {
    size_t i = 0;
    for (; i + LINE <= n; i += LINE) { gelu_some(out + i, inp + i, LINE); }
    if (i < n) { gelu_some(out + i, inp + i, (int)(n % LINE)); }
}

// dinp *= gelu'(inp)
static inline void gelu_backward_row(Stored* dinp, const Stored* inp, size_t n) {
    size_t i = 0;
    for (; i + LINE <= n; i += LINE) { gelu_backward_some(dinp + i, inp + i, LINE); }
    if (i < n) { gelu_backward_some(dinp + i, inp + i, (int)(n % LINE)); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the operations

enum { GELU_PIECE = 4096 }; // elements that a thread takes at a time; chosen, not measured

static inline void gelu_forward(Stored* out, const Stored* inp, size_t n) {
    #pragma omp parallel for if (n > GELU_PIECE)
    for (size_t i = 0; i < n; i += GELU_PIECE) {
        const size_t piece = min_size(GELU_PIECE, n - i);
        if (cpu.kernels == KERNELS_PLAIN) { gelu_row_plain(out + i, inp + i, piece); }
        else { gelu_row(out + i, inp + i, piece); }
    }
}

static inline void gelu_backward_inplace(Stored* dinp, const Stored* inp, size_t n) {
    #pragma omp parallel for
    for (size_t i = 0; i < n; i += GELU_PIECE) {
        const size_t piece = min_size(GELU_PIECE, n - i);
        if (cpu.kernels == KERNELS_PLAIN) { gelu_backward_row_plain(dinp + i, inp + i, piece); }
        else { gelu_backward_row(dinp + i, inp + i, piece); }
    }
}
