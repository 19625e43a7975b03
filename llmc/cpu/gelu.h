// GELU in its tanh form (Hendrycks & Gimpel 2016, as in GPT-2): gelu(x) = x/2 (1 + tanh(u)), u = k (x + 0.044715 x^3),
// k = sqrt(2/pi). Backward uses the exact derivative of this form.
#pragma once
#include "device.h"
#include "math.h"

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

// x (LINE) = 1 / x
static inline __attribute__((always_inline)) void reciprocals(float x[LINE]) {
#ifdef __AVX512F__ // 14 bits, which a step of Newton's method doubles; a division takes as long as GELU's other work
    for (int i = 0; i < LINE; i += 16) {
        const __m512 d = _mm512_loadu_ps(x + i), r = _mm512_rcp14_ps(d);
        _mm512_storeu_ps(x + i, _mm512_mul_ps(r, _mm512_fnmadd_ps(d, r, _mm512_set1_ps(2.0f))));
    }
#else
    #pragma omp simd
    for (int i = 0; i < LINE; i++) { x[i] = 1.0f / x[i]; }
#endif
}

// Beyond -10 and 10 the gate is 0 or 1 within rounding, and 2u leaves the range of exp_in_range().
static inline float gelu_clamp(float x) { return at_most(at_least(x, -10.0f), 10.0f); }

// Sets gates (LINE) for x.
static inline __attribute__((always_inline)) void gelu_gates(float gates[LINE], const float x[LINE]) {
    #pragma omp simd
    for (int i = 0; i < LINE; i++) {
        const float c = gelu_clamp(x[i]), minus_2u = c * (-2.0f * GELU_K - 2.0f * GELU_K * GELU_CUBIC * c * c);
        gates[i] = 1.0f + exp_in_range(minus_2u);
    }
    reciprocals(gates);
}

// y (LINE) = gelu(x)
static inline __attribute__((always_inline)) void gelu_line(float y[LINE], const float x[LINE]) {
    gelu_gates(y, x);
    #pragma omp simd
    for (int i = 0; i < LINE; i++) { y[i] *= x[i]; }
}

// y (LINE) = dout * gelu'(x)
static inline __attribute__((always_inline)) void gelu_backward_line(float y[LINE], const float dout[LINE],
                                                                     const float x[LINE]) {
    gelu_gates(y, x);
    #pragma omp simd
    for (int i = 0; i < LINE; i++) { y[i] = dout[i] * gelu_derivative(gelu_clamp(x[i]), y[i]); }
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
