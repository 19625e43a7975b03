// GELU in its tanh form (Hendrycks & Gimpel 2016, as in GPT-2): gelu(x) = x/2 (1 + tanh(k (x + 0.044715 x^3))), k = sqrt(2/pi).
// Its gradient here is the exact derivative of this form.
#pragma once
#include "device.h"
#include "math.h"
#include "../ops.h"

static const float GELU_K = 0.7978845608028654f, GELU_CUBIC = 0.044715f;

static inline float gelu_from_tanh(float x, float t) { return 0.5f * x * (1.0f + t); }
static inline float gelu_derivative_from_tanh(float x, float t) {
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * GELU_K * (1.0f + 3.0f * GELU_CUBIC * x * x);
}
static inline float gelu_argument(float x) { return GELU_K * (x + GELU_CUBIC * x * x * x); }

OP void gelu_forward(floatX* out, const floatX* inp, size_t n) {
    if (cpu.kernels == KERNELS_PLAIN) {
        #pragma omp parallel for
        for (size_t i = 0; i < n; i++) {
            const float x = to_float(inp[i]);
            out[i] = to_floatX(gelu_from_tanh(x, tanhf(gelu_argument(x))));
        }
        return;
    }
    #pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) {
        const float x = to_float(inp[i]);
        out[i] = to_floatX(gelu_from_tanh(x, tanh_fast(gelu_argument(x))));
    }
}

// dinp *= gelu'(inp): dinp holds the gradient of gelu(inp) and gets that of inp.
static inline void gelu_backward_inplace(floatX* dinp, const floatX* inp, size_t n) {
    if (cpu.kernels == KERNELS_PLAIN) {
        #pragma omp parallel for
        for (size_t i = 0; i < n; i++) {
            const float x = to_float(inp[i]), t = tanhf(gelu_argument(x));
            dinp[i] = to_floatX(to_float(dinp[i]) * gelu_derivative_from_tanh(x, t));
        }
        return;
    }
    #pragma omp parallel for simd
    for (size_t i = 0; i < n; i++) {
        const float x = to_float(inp[i]), t = tanh_fast(gelu_argument(x));
        dinp[i] = to_floatX(to_float(dinp[i]) * gelu_derivative_from_tanh(x, t));
    }
}
