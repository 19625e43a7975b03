// GELU in its tanh form (Hendrycks & Gimpel 2016): gelu(x) = x/2 (1 + tanh(k (x + 0.044715 x^3))), k = sqrt(2/pi). The
// gradient is the exact derivative of this form. These kernels run where GELU is not fused into a matmul (matmul.cuh).
#pragma once
#include "vector.cuh"

static constexpr float GELU_K = 0.7978845608028654f, GELU_CUBIC = 0.044715f;

static __device__ inline float gelu_tanh(float x) { return tanhf(GELU_K * (x + GELU_CUBIC * x * x * x)); }
static __device__ inline float gelu(float x) { return 0.5f * x * (1.0f + gelu_tanh(x)); }
static __device__ inline float gelu_derivative(float x) {
    const float t = gelu_tanh(x);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * GELU_K * (1.0f + 3.0f * GELU_CUBIC * x * x);
}

template <int WIDTH> static __global__ void gelu_forward_kernel(floatX* out, const floatX* inp, size_t n) {
    const size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (i >= n) { return; }
    float x[WIDTH];
    load_rest(x, inp + i, n - i);
    for (int k = 0; k < WIDTH; k++) { x[k] = gelu(x[k]); }
    store_rest(out + i, x, n - i);
}

template <int WIDTH> static __global__ void gelu_backward_inplace_kernel(floatX* d, const floatX* pre, size_t n) {
    const size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    if (i >= n) { return; }
    float x[WIDTH], dx[WIDTH];
    load_rest(x, pre + i, n - i);
    load_rest(dx, d + i, n - i);
    for (int k = 0; k < WIDTH; k++) { dx[k] *= gelu_derivative(x[k]); }
    store_rest(d + i, dx, n - i);
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

static inline void gelu_forward(floatX* out, const floatX* inp, size_t n) {
    constexpr int WIDE = FLOATX_WIDTH;
    const bool wide = is_wide<WIDE>(0, out, inp);
    const auto kernel = wide ? gelu_forward_kernel<WIDE> : gelu_forward_kernel<1>;
    const unsigned blocks = blocks_for(n, THREADS_IN_BLOCK * (wide ? WIDE : 1));
    kernel<<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(out, inp, n);
    cuda_launched("gelu_forward");
}

// d (n) *= gelu'(pre): turns the gradient of gelu(pre) into the gradient of pre.
static inline void gelu_backward_inplace(floatX* d, const floatX* pre, size_t n) {
    constexpr int WIDE = FLOATX_WIDTH;
    const bool wide = is_wide<WIDE>(0, d, pre);
    const auto kernel = wide ? gelu_backward_inplace_kernel<WIDE> : gelu_backward_inplace_kernel<1>;
    const unsigned blocks = blocks_for(n, THREADS_IN_BLOCK * (wide ? WIDE : 1));
    kernel<<<blocks, THREADS_IN_BLOCK, 0, gpu.stream>>>(d, pre, n);
    cuda_launched("gelu_backward_inplace");
}
