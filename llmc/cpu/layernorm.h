// Layer normalization (Ba et al. 2016), and the residual addition that stands before it.
//
// Backward, with norm = (inp - mean) * rstd and dnorm = dout * weight, for each row of C:
//   dinp += rstd * (dnorm - mean(dnorm) - norm * mean(dnorm * norm))
// The gradients of weight and bias are sums over rows; threads split the columns, so that the order of a sum is fixed.
#pragma once
#include "device.h"
#include "../ops.h"

static const float LAYERNORM_EPS = 1e-5f;
enum { COLUMN_BLOCK = 64 }; // columns that one thread sums at a time

static inline void layernorm_row(floatX* out, float* mean, float* rstd, const float* x, const floatX* weight,
                                 const floatX* bias, int C) {
    float sum = 0, squares = 0;
    #pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++) { sum += x[c]; }
    const float m = sum / (float)C;
    #pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++) { squares += (x[c] - m) * (x[c] - m); }
    const float r = 1.0f / sqrtf(squares / (float)C + LAYERNORM_EPS);
    for (int c = 0; c < C; c++) { out[c] = to_floatX((x[c] - m) * r * to_float(weight[c]) + to_float(bias[c])); }
    *mean = m;
    *rstd = r;
}

OP void layernorm_forward(floatX* out, float* mean, float* rstd, const float* inp, const floatX* weight,
                          const floatX* bias, int N, int C) {
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        layernorm_row(out + (size_t)n * C, mean + n, rstd + n, inp + (size_t)n * C, weight, bias, C);
    }
}

OP void residual_layernorm_forward(float* residual, floatX* out, float* mean, float* rstd, const float* inp1,
                                   const floatX* inp2, const floatX* weight, const floatX* bias, int N, int C) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const size_t row = (size_t)n * C;
        for (int c = 0; c < C; c++) { residual[row + c] = inp1[row + c] + to_float(inp2[row + c]); }
        layernorm_row(out + row, mean + n, rstd + n, residual + row, weight, bias, C);
    }
}

OP void layernorm_backward(float* dinp, floatX* dinp_x, float* dweight, float* dbias, const floatX* dout,
                           const float* inp, const floatX* weight, const float* mean, const float* rstd, int N, int C) {
#pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const size_t row = (size_t)n * C;
        float dnorm_mean = 0, dnorm_norm_mean = 0;
        #pragma omp simd reduction(+ : dnorm_mean, dnorm_norm_mean)
        for (int c = 0; c < C; c++) {
            float dnorm = to_float(dout[row + c]) * to_float(weight[c]);
            dnorm_mean += dnorm;
            dnorm_norm_mean += dnorm * (inp[row + c] - mean[n]) * rstd[n];
        }
        dnorm_mean /= (float)C;
        dnorm_norm_mean /= (float)C;
        for (int c = 0; c < C; c++) {
            float norm = (inp[row + c] - mean[n]) * rstd[n];
            float dnorm = to_float(dout[row + c]) * to_float(weight[c]);
            dinp[row + c] += rstd[n] * (dnorm - dnorm_mean - norm * dnorm_norm_mean);
            dinp_x[row + c] = to_floatX(dinp[row + c]);
        }
    }
    #pragma omp parallel for
    for (int begin = 0; begin < C; begin += COLUMN_BLOCK) {
        const int end = begin + COLUMN_BLOCK < C ? begin + COLUMN_BLOCK : C;
        for (int n = 0; n < N; n++) {
            for (int c = begin; c < end; c++) {
                float d = to_float(dout[(size_t)n * C + c]);
                dweight[c] += d * (inp[(size_t)n * C + c] - mean[n]) * rstd[n];
                dbias[c] += d;
            }
        }
    }
}
