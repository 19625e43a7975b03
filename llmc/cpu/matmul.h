// The linear layers. Weights lie (out, in), as in PyTorch: out = inp @ weight^T + bias.
// First the loops that say what is computed; --kernels fast takes gemm.h's blocked product instead.
#pragma once
#include "device.h"
#include "gelu.h"
#include "gemm.h"
#include "layernorm.h"
#include "../ops.h"

// gemm() wants floats, and enough rows to pay for packing the weight.
static inline bool matmul_is_blocked(int N) {
    return cpu.kernels == KERNELS_FAST && sizeof(floatX) == sizeof(float) && N >= 8;
}

static inline float dot_row(const floatX* x, const floatX* y, int n) {
    float sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) { sum += to_float(x[i]) * to_float(y[i]); }
    return sum;
}

OP void matmul_forward(floatX* out, const floatX* inp, const floatX* weight, const floatX* bias, int N, int C, int OC) {
    if (matmul_is_blocked(N)) {
        gemm((float*)out, GEMM_SET, (const float*)bias, (const float*)inp, C, 1, (const float*)weight, 1, C, N, OC, C);
        return;
    }
    #pragma omp parallel for
    for (int o = 0; o < OC; o++) { // a row of the weight is read once, for all rows of inp
        for (int n = 0; n < N; n++) {
            float sum = dot_row(inp + (size_t)n * C, weight + (size_t)o * C, C);
            out[(size_t)n * OC + o] = to_floatX(bias ? sum + to_float(bias[o]) : sum);
        }
    }
}

// dinp (N,C) = dout (N,OC) @ weight (OC,C)
static inline void matmul_backward_inp(floatX* dinp, const floatX* dout, const floatX* weight, int N, int C, int OC) {
    if (matmul_is_blocked(N)) {
        gemm((float*)dinp, GEMM_SET, NULL, (const float*)dout, OC, 1, (const float*)weight, C, 1, N, C, OC);
        return;
    }
    const int block = COLUMN_BLOCK;
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < N; n++) {
        for (int begin = 0; begin < C; begin += block) {
            const int width = begin + block < C ? block : C - begin;
            float sum[COLUMN_BLOCK] = {0};
            for (int o = 0; o < OC; o++) {
                const float d = to_float(dout[(size_t)n * OC + o]);
                for (int c = 0; c < width; c++) { sum[c] += d * to_float(weight[(size_t)o * C + begin + c]); }
            }
            for (int c = 0; c < width; c++) { dinp[(size_t)n * C + begin + c] = to_floatX(sum[c]); }
        }
    }
}

// dweight (OC,C) += dout (N,OC)^T @ inp (N,C)
static inline void matmul_backward_weight(float* dweight, const floatX* dout, const floatX* inp, int N, int C, int OC) {
    if (matmul_is_blocked(N)) {
        gemm(dweight, GEMM_ADD, NULL, (const float*)dout, 1, OC, (const float*)inp, C, 1, OC, C, N);
        return;
    }
    #pragma omp parallel for
    for (int o = 0; o < OC; o++) {
        for (int n = 0; n < N; n++) {
            const float d = to_float(dout[(size_t)n * OC + o]);
            for (int c = 0; c < C; c++) { dweight[(size_t)o * C + c] += d * to_float(inp[(size_t)n * C + c]); }
        }
    }
}

// dbias (OC) += the column sums of dout (N,OC)
static inline void matmul_backward_bias(float* dbias, const floatX* dout, int N, int OC) {
    #pragma omp parallel for
    for (int begin = 0; begin < OC; begin += COLUMN_BLOCK) {
        const int end = begin + COLUMN_BLOCK < OC ? begin + COLUMN_BLOCK : OC;
        for (int n = 0; n < N; n++) {
            for (int o = begin; o < end; o++) { dbias[o] += to_float(dout[(size_t)n * OC + o]); }
        }
    }
}

OP void matmul_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                        const floatX* weight, int N, int C, int OC) {
    matmul_backward_inp(dinp, dout, weight, N, C, OC);
    matmul_backward_weight(dweight, dout, inp, N, C, OC);
    matmul_backward_bias(dbias, dout, N, OC);
}

OP void matmul_gelu_forward(floatX* out, floatX* pre, const floatX* inp, const floatX* weight, const floatX* bias, int N,
                            int C, int OC) {
    matmul_forward(pre, inp, weight, bias, N, C, OC);
    gelu_forward(out, pre, (size_t)N * OC);
}

OP void matmul_gelu_backward(floatX* dinp, float* dweight, float* dbias, const floatX* dout, const floatX* inp,
                             const floatX* pre, const floatX* weight, int N, int C, int OC) {
    matmul_backward(dinp, dweight, dbias, dout, inp, weight, N, C, OC);
    gelu_backward_inplace(dinp, pre, (size_t)N * C);
}
