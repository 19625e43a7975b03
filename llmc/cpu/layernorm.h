// Layer normalization (Ba et al. 2016): norm * weight + bias, and the residual addition before it.
//
// With norm = (inp - mean) * rstd and dnorm = dout * weight, backward is for each row of C:
//   dinp += rstd * (dnorm - mean(dnorm) - norm * mean(dnorm * norm))
// The gradients of weight and bias are sums over rows.
#pragma once
#include "device.h"

static const float LAYERNORM_EPS = 1e-5f;
enum { LAYERNORM_BLOCKS = 256 }; // maximum number of blocks of rows in backward; chosen, not measured

// ---------------------------------------------------------------------------------------------------------------------
// forward: a row stays in the L1 cache during its three loops

static inline void layernorm_row(Stored* out, float* mean, float* rstd, const float* x, const Stored* weight,
                                 const Stored* bias, int C) {
    float sum = 0, squares = 0;
    #pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++) { sum += x[c]; }
    const float m = sum / (float)C;
    #pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++) { squares += (x[c] - m) * (x[c] - m); }
    const float r = 1.0f / sqrtf(squares / (float)C + LAYERNORM_EPS);
    #pragma omp simd
    for (int c = 0; c < C; c++) { out[c] = to_stored((x[c] - m) * r * to_float(weight[c]) + to_float(bias[c])); }
    *mean = m;
    *rstd = r;
}

static inline void residual_row(float* residual, const float* inp1, const Stored* inp2, int C) {
    #pragma omp simd
    for (int c = 0; c < C; c++) { residual[c] = inp1[c] + to_float(inp2[c]); }
}

static inline void layernorm_forward(Stored* out, float* mean, float* rstd, const float* inp, const Stored* weight,
                                     const Stored* bias, int N, int C) {
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        layernorm_row(out + (size_t)n * C, mean + n, rstd + n, inp + (size_t)n * C, weight, bias, C);
    }
}

static inline void residual_layernorm_forward(float* residual, Stored* out, float* mean, float* rstd,
                                              const float* inp1, const Stored* inp2, const Stored* weight,
                                              const Stored* bias, int N, int C) {
    const bool in_one_pass = cpu.kernels == KERNELS_PLAIN || cpu.fused;
    #pragma omp parallel for
    for (int n = 0; n < N; n++) {
        const size_t row = (size_t)n * C;
        residual_row(residual + row, inp1 + row, inp2 + row, C);
        if (in_one_pass) { layernorm_row(out + row, mean + n, rstd + n, residual + row, weight, bias, C); }
    }
    if (!in_one_pass) { layernorm_forward(out, mean, rstd, residual, weight, bias, N, C); }
}

// ---------------------------------------------------------------------------------------------------------------------
// backward

// One row: adds to dinp, dweight and dbias.
static inline void layernorm_backward_row(float* dinp, Stored* dinp_stored, float* dweight, float* dbias,
                                          const Stored* dout, const float* inp, const Stored* weight, float mean,
                                          float rstd, int C) {
    float dnorm_mean = 0, dnorm_norm_mean = 0;
    #pragma omp simd reduction(+ : dnorm_mean, dnorm_norm_mean)
    for (int c = 0; c < C; c++) {
        const float d = to_float(dout[c]), norm = (inp[c] - mean) * rstd, dnorm = d * to_float(weight[c]);
        dnorm_mean += dnorm;
        dnorm_norm_mean += dnorm * norm;
        dweight[c] += d * norm;
        dbias[c] += d;
    }
    dnorm_mean /= (float)C;
    dnorm_norm_mean /= (float)C;
    #pragma omp simd
    for (int c = 0; c < C; c++) {
        const float norm = (inp[c] - mean) * rstd, dnorm = to_float(dout[c]) * to_float(weight[c]);
        dinp[c] += rstd * (dnorm - dnorm_mean - norm * dnorm_norm_mean);
        dinp_stored[c] = to_stored(dinp[c]);
    }
}

// Plain: row after row, by one thread.
static inline void layernorm_backward_plain(float* dinp, Stored* dinp_stored, float* dweight, float* dbias,
                                            const Stored* dout, const float* inp, const Stored* weight,
                                            const float* mean, const float* rstd, int N, int C) {
    for (int n = 0; n < N; n++) {
        const size_t row = (size_t)n * C;
        layernorm_backward_row(dinp + row, dinp_stored + row, dweight, dbias, dout + row, inp + row, weight, mean[n],
                               rstd[n], C);
    }
}

// Fast: rows in blocks, whose partial sums (blocks,2,C) are added up in order. The blocks do not depend on the number
// of threads.
static inline void layernorm_backward(float* dinp, Stored* dinp_stored, float* dweight, float* dbias,
                                      const Stored* dout, const float* inp, const Stored* weight, const float* mean,
                                      const float* rstd, int N, int C) {
    enum { LEAST_ROWS = 16, COLUMNS = 64 }; // rows of a block at least; columns that a thread adds up at a time
    if (cpu.kernels == KERNELS_PLAIN) {
        layernorm_backward_plain(dinp, dinp_stored, dweight, dbias, dout, inp, weight, mean, rstd, N, C);
        return;
    }
    const int rows = (int)max_size(LEAST_ROWS, ceil_div((size_t)N, LAYERNORM_BLOCKS)), blocks = (N + rows - 1) / rows;
    float* sums = thread_scratch((size_t)blocks * 2 * C * sizeof *sums);
    #pragma omp parallel
    {
        #pragma omp for
        for (int b = 0; b < blocks; b++) {
            float *dw = sums + (size_t)b * 2 * C, *db = dw + C;
            memset(dw, 0, (size_t)2 * C * sizeof *dw);
            for (int n = b * rows; n < N && n < (b + 1) * rows; n++) {
                const size_t row = (size_t)n * C;
                layernorm_backward_row(dinp + row, dinp_stored + row, dw, db, dout + row, inp + row, weight, mean[n],
                                       rstd[n], C);
            }
        }
        #pragma omp for
        for (int begin = 0; begin < C; begin += COLUMNS) {
            const int end = (int)min_size((size_t)C, (size_t)begin + COLUMNS);
            for (int b = 0; b < blocks; b++) {
                const float *dw = sums + (size_t)b * 2 * C, *db = dw + C;
                #pragma omp simd
                for (int c = begin; c < end; c++) {
                    dweight[c] += dw[c];
                    dbias[c] += db[c];
                }
            }
        }
    }
}
