// The fast matmul of few rows, as in generation: dot products with the rows of a weight, which is read once, in order,
// and not packed. Reading it is the limit: arithmetic must only keep up with memory. So DOT_ROWS rows of the weight are
// multiplied at a time, by up to DOT_INPUTS rows of the input, each pair with a sum of its own: independent chains of
// additions, and each number that was loaded is used several times.
//
// A dot product has one order of additions, whatever other rows there are: an output does not depend on the number of
// rows. attention.h uses the same kernel for the scores of a query.
#pragma once
#include "vec.h"

enum { DOT_ROWS = 4, DOT_INPUTS = 4 }; // 16 sums: half of AVX-512's registers, all of AVX2's

// Returns x (n) as floats: itself, or a copy in `scratch`.
static inline const float* dot_floats(float* scratch, const Stored* x, size_t n) {
    if (sizeof(Stored) == sizeof(float)) { return (const float*)x; }
    #pragma omp simd
    for (size_t i = 0; i < n; i++) { scratch[i] = to_float(x[i]); }
    return scratch;
}

// Rows of the input at most. 16 tokens take less time than memory needs for the weights.
enum { FEW_ROWS = 16 };

// The third argument of __builtin_prefetch(). Into L1 fewer lines are on their way at a time: weights in bf16 are then
// read at 11 GB/s by a core of an EPYC (Zen 4), instead of 23.
enum { PREFETCH_TO_L2 = 2 };

// Multiply-adds from which on threads share an operation: fewer take less time than starting it in all threads. Chosen.
static const size_t DOT_SHARED = 1 << 16;

// sum (inputs,rows) += LANES columns of x (inputs) times those of w (rows). Inlined with constant `inputs` and `rows`,
// as dot_tile.
static inline __attribute__((always_inline)) void dot_step(Vec sum[DOT_INPUTS][DOT_ROWS], const float* x,
                                                           size_t ldx, const Stored* w, size_t ldw, int inputs,
                                                           int rows) {
    #pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        const Vec row = vec_load(w + (size_t)r * ldw);
        #pragma GCC unroll 4
        for (int m = 0; m < inputs; m++) { sum[m][r] += row * *(const Vec*)(x + (size_t)m * ldx); }
    }
}

// out (inputs,rows) = x (inputs,n) @ w (rows,n)^T. Rows of out are ldo apart, of x ldx, of w ldw.
static inline __attribute__((always_inline)) void dot_tile(float* out, size_t ldo, const float* x, size_t ldx,
                                                           const Stored* w, size_t ldw, int inputs, int rows, int n) {
    Vec sum[DOT_INPUTS][DOT_ROWS] = {{{0}}};
    int i = 0;
    for (; i + LINE <= n; i += LINE) {
        #pragma GCC unroll 4
        for (int r = 0; r < rows; r++) { // of the next tile: the processor's own prefetching stops at each page
            __builtin_prefetch(w + (size_t)(r + DOT_ROWS) * ldw + i, 0, PREFETCH_TO_L2);
        }
        #pragma GCC unroll 4
        for (int k = i; k < i + LINE; k += LANES) { dot_step(sum, x + k, ldx, w + k, ldw, inputs, rows); }
    }
    for (; i + LANES <= n; i += LANES) { dot_step(sum, x + i, ldx, w + i, ldw, inputs, rows); }
    #pragma GCC unroll 4
    for (int m = 0; m < inputs; m++) {
        #pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            float total = vec_sum(sum[m][r]);
            for (int j = i; j < n; j++) { total += x[(size_t)m * ldx + j] * to_float(w[(size_t)r * ldw + j]); }
            out[(size_t)m * ldo + r] = total;
        }
    }
}

// The same for any `inputs`, and up to DOT_ROWS rows.
static inline void dot_products(float* out, size_t ldo, const float* x, size_t ldx, const Stored* w, size_t ldw,
                                int inputs, int rows, int n) {
    int m = 0;
    for (; rows == DOT_ROWS && m + DOT_INPUTS <= inputs; m += DOT_INPUTS) {
        dot_tile(out, ldo, x, ldx, w, ldw, DOT_INPUTS, DOT_ROWS, n);
        out += DOT_INPUTS * ldo, x += DOT_INPUTS * ldx;
    }
    for (; m < inputs; m++, out += ldo, x += ldx) {
        if (rows == DOT_ROWS) {
            dot_tile(out, ldo, x, ldx, w, ldw, 1, DOT_ROWS, n);
            continue;
        }
        for (int r = 0; r < rows; r++) { dot_tile(out + r, ldo, x, ldx, w + (size_t)r * ldw, ldw, 1, 1, n); }
    }
}

// out (N,OC) = inp (N,C) @ weight (OC,C)^T + bias (OC), for up to FEW_ROWS rows. bias may be NULL.
static inline void matmul_few_rows(Stored* out, const Stored* inp, const Stored* weight, const Stored* bias, int N,
                                   int C, int OC) {
    const size_t n = (size_t)N * C;
    const float* x = dot_floats(thread_scratch(n * sizeof(float)), inp, n);
    #pragma omp parallel for if (n * OC >= DOT_SHARED)
    for (int o = 0; o < OC; o += DOT_ROWS) {
        float sums[FEW_ROWS * DOT_ROWS];
        const int rows = min_int(DOT_ROWS, OC - o);
        dot_products(sums, DOT_ROWS, x, (size_t)C, weight + (size_t)o * C, (size_t)C, N, rows, C);
        for (int m = 0; m < N; m++) {
            for (int r = 0; r < rows; r++) {
                const float sum = sums[m * DOT_ROWS + r];
                out[(size_t)m * OC + o + r] = to_stored(bias ? sum + to_float(bias[o + r]) : sum);
            }
        }
    }
}
