// GELU in its tanh form (Hendrycks & Gimpel 2016, as in GPT-2): gelu(x) = x/2 (1 + tanh(k (x + 0.044715 x^3))), k = sqrt(2/pi).
// Its gradient here is the exact derivative of this form.
#pragma once
#include "device.h"
#include "../ops.h"

static const float GELU_K = 0.7978845608028654f, GELU_CUBIC = 0.044715f;

static inline float gelu(float x) { return 0.5f * x * (1.0f + tanhf(GELU_K * (x + GELU_CUBIC * x * x * x))); }

static inline float gelu_derivative(float x) {
    const float t = tanhf(GELU_K * (x + GELU_CUBIC * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * GELU_K * (1.0f + 3.0f * GELU_CUBIC * x * x);
}

OP void gelu_forward(floatX* out, const floatX* inp, size_t n) {
    #pragma omp parallel for
    for (size_t i = 0; i < n; i++) { out[i] = to_floatX(gelu(to_float(inp[i]))); }
}

// dinp *= gelu'(inp): dinp holds the gradient of gelu(inp) and gets that of inp.
static inline void gelu_backward_inplace(floatX* dinp, const floatX* inp, size_t n) {
    #pragma omp parallel for
    for (size_t i = 0; i < n; i++) { dinp[i] = to_floatX(to_float(dinp[i]) * gelu_derivative(to_float(inp[i]))); }
}
