// Layer normalization (Ba et al. 2016): norm * weight + bias, and the residual addition before it.
//
// With norm = (inp - mean) * rstd and dnorm = dout * weight, backward is for each row of C:
//   dinp += rstd * (dnorm - mean(dnorm) - norm * mean(dnorm * norm))
// The gradients of weight and bias are sums over rows.
//
// Part of residual.h, for each type of the residual stream. What a row becomes when it is stored is what is normalized:
// backward, which reads it again, then has the statistics of its own numbers.

// ---------------------------------------------------------------------------------------------------------------------
// forward: a row stays in the L1 cache during its three loops

static inline void TYPED(layernorm_row)(Stored* out, float* mean, float* rstd, const RESIDUAL* inp,
                                        const Stored* weight, const Stored* bias, int C) {
    float sum = 0, squares = 0;
    #pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++) { sum += residual_to_float(inp[c]); }
    const float m = sum / (float)C;
    #pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++) {
        const float x = residual_to_float(inp[c]);
        squares += (x - m) * (x - m);
    }
    const float r = 1.0f / sqrtf(squares / (float)C + LAYERNORM_EPS);
    #pragma omp simd
    for (int c = 0; c < C; c++) {
        out[c] = to_stored((residual_to_float(inp[c]) - m) * r * to_float(weight[c]) + to_float(bias[c]));
    }
    *mean = m;
    *rstd = r;
}

static inline void TYPED(residual_row)(RESIDUAL* residual, const RESIDUAL* inp1, const Stored* inp2, int C) {
    #pragma omp simd
    for (int c = 0; c < C; c++) {
        residual[c] = residual_from_float(residual_to_float(inp1[c]) + to_float(inp2[c]));
    }
}

static inline void TYPED(layernorm_forward)(Stored* out, float* mean, float* rstd, const Residual* inp,
                                            const Stored* weight, const Stored* bias, int N, int C) {
    #pragma omp parallel for if (N > 1)
    for (int n = 0; n < N; n++) {
        const RESIDUAL* row = (const RESIDUAL*)inp + (size_t)n * C;
        TYPED(layernorm_row)(out + (size_t)n * C, mean + n, rstd + n, row, weight, bias, C);
    }
}

static inline void TYPED(residual_layernorm_forward)(Residual* residual, Stored* out, float* mean, float* rstd,
                                                     const Residual* inp1, const Stored* inp2, const Stored* weight,
                                                     const Stored* bias, int N, int C) {
    const bool in_one_pass = cpu.kernels == KERNELS_PLAIN || cpu.fused;
    #pragma omp parallel for if (N > 1)
    for (int n = 0; n < N; n++) {
        const size_t at = (size_t)n * C;
        RESIDUAL* row = (RESIDUAL*)residual + at;
        TYPED(residual_row)(row, (const RESIDUAL*)inp1 + at, inp2 + at, C);
        if (in_one_pass) { TYPED(layernorm_row)(out + at, mean + n, rstd + n, row, weight, bias, C); }
    }
    if (!in_one_pass) { TYPED(layernorm_forward)(out, mean, rstd, residual, weight, bias, N, C); }
}

// ---------------------------------------------------------------------------------------------------------------------
// backward

// One row: adds to dinp, dweight and dbias.
static inline void TYPED(layernorm_backward_row)(RESIDUAL* dinp, Stored* dinp_stored, float* dweight, float* dbias,
                                                 const Stored* dout, const RESIDUAL* inp, const Stored* weight,
                                                 float mean, float rstd, int C) {
    float dnorm_mean = 0, dnorm_norm_mean = 0;
    #pragma omp simd reduction(+ : dnorm_mean, dnorm_norm_mean)
    for (int c = 0; c < C; c++) {
        const float d = to_float(dout[c]), norm = (residual_to_float(inp[c]) - mean) * rstd;
        const float dnorm = d * to_float(weight[c]);
        dnorm_mean += dnorm;
        dnorm_norm_mean += dnorm * norm;
        dweight[c] += d * norm;
        dbias[c] += d;
    }
    dnorm_mean /= (float)C;
    dnorm_norm_mean /= (float)C;
    #pragma omp simd
    for (int c = 0; c < C; c++) {
        const float norm = (residual_to_float(inp[c]) - mean) * rstd, dnorm = to_float(dout[c]) * to_float(weight[c]);
        const float sum = residual_to_float(dinp[c]) + rstd * (dnorm - dnorm_mean - norm * dnorm_norm_mean);
        dinp[c] = residual_from_float(sum);
        dinp_stored[c] = to_stored(sum);
    }
}

// Rows first .. end-1. dinp and inp point to row 0.
static inline void TYPED(layernorm_backward_rows)(Residual* dinp, Stored* dinp_stored, float* dweight, float* dbias,
                                                  const Stored* dout, const Residual* inp, const Stored* weight,
                                                  const float* mean, const float* rstd, int first, int end, int C) {
    for (int n = first; n < end; n++) {
        const size_t row = (size_t)n * C;
        TYPED(layernorm_backward_row)((RESIDUAL*)dinp + row, dinp_stored + row, dweight, dbias, dout + row,
                                      (const RESIDUAL*)inp + row, weight, mean[n], rstd[n], C);
    }
}

// Plain: row after row, by one thread. Fast: rows in blocks, whose partial sums (blocks,2,C) are added up in order. The
// blocks do not depend on the number of threads.
static inline void TYPED(layernorm_backward)(Residual* dinp, Stored* dinp_stored, float* dweight, float* dbias,
                                             const Stored* dout, const Residual* inp, const Stored* weight,
                                             const float* mean, const float* rstd, int N, int C) {
    enum { LEAST_ROWS = 16, SUM_COLUMNS = 64 }; // rows of a block at least; columns that a thread adds up at a time
    if (cpu.kernels == KERNELS_PLAIN) {
        TYPED(layernorm_backward_rows)(dinp, dinp_stored, dweight, dbias, dout, inp, weight, mean, rstd, 0, N, C);
        return;
    }
    const int rows = max_int(LEAST_ROWS, (int)ceil_div((size_t)N, LAYERNORM_BLOCKS));
    const int blocks = (int)ceil_div((size_t)N, (size_t)rows);
    float* sums = thread_scratch((size_t)blocks * 2 * C * sizeof *sums);
    #pragma omp parallel
    {
        #pragma omp for
        for (int b = 0; b < blocks; b++) {
            float *dw = sums + (size_t)b * 2 * C, *db = dw + C;
            const int first = b * rows, end = min_int(N, first + rows);
            memset(dw, 0, (size_t)2 * C * sizeof *dw);
            TYPED(layernorm_backward_rows)(dinp, dinp_stored, dw, db, dout, inp, weight, mean, rstd, first, end, C);
        }
        #pragma omp for
        for (int begin = 0; begin < C; begin += SUM_COLUMNS) {
            const int end = min_int(C, begin + SUM_COLUMNS);
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
