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
// fast: the gate is the logistic function of 2u, 1 / (1 + exp(-2u)): one exp and one division, in vector code. matmul.h
// applies these to the sums of a row while they are in its thread's cache.

// Beyond -10 and 10 the gate is 0 or 1 within rounding, and 2u leaves the range of exp_in_range().
static inline float gelu_clamp(float x) { return at_most(at_least(x, -10.0f), 10.0f); }

static inline float gelu_gate(float x) {
    const float minus_2u = x * (-2.0f * GELU_K - 2.0f * GELU_K * GELU_CUBIC * x * x);
    return 1.0f / (1.0f + exp_in_range(minus_2u));
}

static inline float gelu_fast(float x) { return x * gelu_gate(gelu_clamp(x)); }

// Returns dout * gelu'(x).
static inline float gelu_backward_fast(float dout, float x) {
    const float clamped = gelu_clamp(x);
    return dout * gelu_derivative(clamped, gelu_gate(clamped));
}

static inline void gelu_row(Stored* out, const Stored* inp, size_t n) {
    #pragma omp simd
    for (size_t i = 0; i < n; i++) { out[i] = to_stored(gelu_fast(to_float(inp[i]))); }
}

// dinp *= gelu'(inp)
static inline void gelu_backward_row(Stored* dinp, const Stored* inp, size_t n) {
    #pragma omp simd
    for (size_t i = 0; i < n; i++) { dinp[i] = to_stored(gelu_backward_fast(to_float(dinp[i]), to_float(inp[i]))); }
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
