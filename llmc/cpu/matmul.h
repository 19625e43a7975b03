// The linear layers: out = inp @ weight^T + bias, with weights stored (out, in), as in PyTorch. First the plain loops;
// then, for --kernels fast, the blocked matmul of gemm.h, which applies bias and GELU to each row as it is finished,
// and for few rows that of few_rows.h.
#pragma once
#include "device.h"
#include "epilogue.h"
#include "few_rows.h"
#include "packed.h"
#include "weight_gradient.h"

static inline float dot_row(const Stored* x, const Stored* y, int n) {
    float sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int i = 0; i < n; i++) { sum += to_float(x[i]) * to_float(y[i]); }
    return sum;
}

static inline void matmul_forward_plain(Stored* out, const Stored* inp, const Stored* weight, const Stored* bias, int N,
                                        int C, int OC) {
    #pragma omp parallel for
    for (int o = 0; o < OC; o++) { // a row of the weight is read once, for all rows of inp
        for (int n = 0; n < N; n++) {
            const float sum = dot_row(inp + (size_t)n * C, weight + (size_t)o * C, C);
            out[(size_t)n * OC + o] = to_stored(bias ? sum + to_float(bias[o]) : sum);
        }
    }
}

// dinp (N,C) = dout (N,OC) @ weight (OC,C)
static inline void matmul_backward_inp_plain(Stored* dinp, const Stored* dout, const Stored* weight, int N, int C,
                                             int OC) {
    enum { BLOCK = 64 };
    #pragma omp parallel for collapse(2)
    for (int n = 0; n < N; n++) {
        for (int begin = 0; begin < C; begin += BLOCK) {
            const int width = begin + BLOCK < C ? BLOCK : C - begin;
            float sum[BLOCK] = {0};
            for (int o = 0; o < OC; o++) {
                const float d = to_float(dout[(size_t)n * OC + o]);
                for (int c = 0; c < width; c++) { sum[c] += d * to_float(weight[(size_t)o * C + begin + c]); }
            }
            for (int c = 0; c < width; c++) { dinp[(size_t)n * C + begin + c] = to_stored(sum[c]); }
        }
    }
}

// dweight (OC,C) = or += dout (N,OC)^T @ inp (N,C)
static inline void matmul_backward_weight_plain(float* dweight, const Stored* dout, const Stored* inp, GradMode mode,
                                                int N, int C, int OC) {
    #pragma omp parallel for
    for (int o = 0; o < OC; o++) {
        for (int c = 0; mode == GRADS_SET && c < C; c++) { dweight[(size_t)o * C + c] = 0; }
        for (int n = 0; n < N; n++) {
            const float d = to_float(dout[(size_t)n * OC + o]);
            for (int c = 0; c < C; c++) { dweight[(size_t)o * C + c] += d * to_float(inp[(size_t)n * C + c]); }
        }
    }
}

// dbias (OC) += the column sums of dout (N,OC)
static inline void matmul_backward_bias(float* dbias, const Stored* dout, int N, int OC) {
    enum { BLOCK = 256 };
    #pragma omp parallel for
    for (int begin = 0; begin < OC; begin += BLOCK) {
        const int width = begin + BLOCK < OC ? BLOCK : OC - begin;
        float sum[BLOCK] = {0};
        for (int n = 0; n < N; n++) {
            for (int o = 0; o < width; o++) { sum[o] += to_float(dout[(size_t)n * OC + begin + o]); }
        }
        for (int o = 0; o < width; o++) { dbias[begin + o] += sum[o]; }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// fast

// Backward: with few rows, packing costs more than it saves. 8: chosen, not measured.
static inline bool matmul_is_blocked(int N) { return cpu.kernels == KERNELS_FAST && N >= 8; }

// Computes a (M,K) @ b (K,N) and passes its rows to `finish` with `result`; packed_b as in Gemm.
static inline void matmul_blocked(MatmulResult result, GemmFinish finish, Matrix a, Matrix b, const Packed* packed_b,
                                  int M, int N, int K) {
    result.columns = (size_t)N;
    result.out_past_caches |= is_streamed((size_t)M * (size_t)N);
    Gemm g = {.a = a, .b = b, .packed_b = packed_b, .M = M, .N = N, .K = K, .finish = finish, .result = &result};
    if (finish == finish_gelu_backward) { g.reads = (GemmArray){result.pre, sizeof(Stored)}; }
    if (PREFETCH && !result.out_past_caches) { g.writes = (GemmArray){result.out, sizeof(Stored)}; }
    gemm(&g);
}

static inline void matmul_forward_blocked(MatmulResult result, GemmFinish finish, const Stored* inp,
                                          const Stored* weight, int N, int C, int OC) {
    const Matrix a = {inp, (size_t)C, 1}, b = {weight, 1, (size_t)C};
    matmul_blocked(result, finish, a, b, packed_weight(b, C, OC, N), N, OC, C);
}

static inline void matmul_backward_inp_blocked(MatmulResult result, GemmFinish finish, const Stored* dout,
                                               const Stored* weight, int N, int C, int OC) {
    const Matrix a = {dout, (size_t)OC, 1}, b = {weight, (size_t)C, 1};
    matmul_blocked(result, finish, a, b, packed_weight(b, OC, C, N), N, C, OC);
}

// ---------------------------------------------------------------------------------------------------------------------
// the operations

static inline void matmul_backward_inp(Stored* dinp, const Stored* dout, const Stored* weight, int N, int C, int OC) {
    const MatmulResult result = {.out = dinp};
    if (matmul_is_blocked(N)) {
        matmul_backward_inp_blocked(result, finish_store, dout, weight, N, C, OC);
    } else {
        matmul_backward_inp_plain(dinp, dout, weight, N, C, OC);
    }
}

// dbias may be NULL.
static inline void matmul_backward_weight(float* dweight, float* dbias, const Stored* dout, const Stored* inp,
                                          GradMode mode, int N, int C, int OC) {
    if (matmul_is_blocked(N) && SHARES_PACKED) {
        weight_gradient(dweight, dbias, dout, inp, mode, N, C, OC);
    } else if (matmul_is_blocked(N)) {
        const MatmulResult result = {.dweight = dweight, .dweight_past_caches = is_gradient_streamed(mode, C, OC),
                                     .columns = (size_t)C};
        const GemmArray gradient = {result.dweight_past_caches ? NULL : dweight, sizeof *dweight};
        const Gemm g = {.a = {dout, 1, (size_t)OC}, .b = {inp, (size_t)C, 1}, .M = OC, .N = C, .K = N,
                        .finish = mode == GRADS_SET ? finish_set : finish_add, .result = &result, .reads = gradient,
                        .row_sums = dbias};
        gemm(&g);
    } else {
        matmul_backward_weight_plain(dweight, dout, inp, mode, N, C, OC);
        if (dbias) { matmul_backward_bias(dbias, dout, N, OC); }
    }
}

// Forward: not for few rows, which only wait for the weights.
static inline bool matmul_forward_is_blocked(int N) { return cpu.kernels == KERNELS_FAST && N > FEW_ROWS; }

static inline bool is_past_caches(int N, int OC) { return (size_t)N * (size_t)OC * sizeof(Stored) > MORE_THAN_CACHES; }

static inline void matmul_forward(Stored* out, const Stored* inp, const Stored* weight, const Stored* bias, int N,
                                  int C, int OC) {
    if (matmul_forward_is_blocked(N)) {
        const bool are_logits = !bias && is_past_caches(N, OC);
        const MatmulResult result = {.out = out, .bias = bias, .out_past_caches = are_logits};
        matmul_forward_blocked(result, finish_store, inp, weight, N, C, OC);
    } else if (cpu.kernels == KERNELS_PLAIN) {
        matmul_forward_plain(out, inp, weight, bias, N, C, OC);
    } else {
        matmul_few_rows(out, inp, weight, bias, N, C, OC);
    }
}

static inline void matmul_backward(Stored* dinp, float* dweight, float* dbias, const Stored* dout, const Stored* inp,
                                   const Stored* weight, GradMode mode, int N, int C, int OC) {
    matmul_backward_inp(dinp, dout, weight, N, C, OC);
    matmul_backward_weight(dweight, dbias, dout, inp, mode, N, C, OC);
}

static inline void matmul_gelu_forward(Stored* out, Stored* pre, const Stored* inp, const Stored* weight,
                                       const Stored* bias, int N, int C, int OC) {
    if (cpu.fused && matmul_forward_is_blocked(N)) {
        // backward reads pre after that of all layers has passed the caches; an eighth of these: chosen
        const bool past_caches = (size_t)N * (size_t)OC * sizeof *pre > MORE_THAN_CACHES / 8;
        const MatmulResult result = {.out = out, .pre = pre, .bias = bias, .pre_past_caches = past_caches};
        matmul_forward_blocked(result, finish_gelu, inp, weight, N, C, OC);
    } else {
        matmul_forward(pre, inp, weight, bias, N, C, OC);
        gelu_forward(out, pre, (size_t)N * OC);
    }
}

static inline void matmul_gelu_backward(Stored* dinp, float* dweight, float* dbias, const Stored* dout,
                                        const Stored* inp, const Stored* pre, const Stored* weight, GradMode mode,
                                        int N, int C, int OC) {
    if (cpu.fused && matmul_is_blocked(N)) {
        const MatmulResult result = {.out = dinp, .pre = (Stored*)pre};
        matmul_backward_inp_blocked(result, finish_gelu_backward, dout, weight, N, C, OC);
    } else {
        matmul_backward_inp(dinp, dout, weight, N, C, OC);
        gelu_backward_inplace(dinp, pre, (size_t)N * C);
    }
    matmul_backward_weight(dweight, dbias, dout, inp, mode, N, C, OC);
}
