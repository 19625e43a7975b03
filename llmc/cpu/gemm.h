// The fast fp32 matrix product behind matmul.h: c (M,N) = or += a (M,K) @ b (K,N), any strides of a and b.
//
// The plan is Goto & van de Geijn's ("Anatomy of high-performance matrix multiplication", 2008). The innermost kernel
// keeps a tile of c, MR x NR, in vector registers and adds K rank-one products to it, each of which reads MR + NR
// numbers for MR * NR multiply-adds. To feed it at full speed, a and b are copied ("packed") into the order in which
// the kernel reads them: b in panels of NR columns, one of which stays in the L1 cache while a block of a streams past
// it from L2. Each element of c is summed over k in one order, whatever the number of threads.
#pragma once
#include "device.h"
#include "../ops.h"

#if defined(__AVX512F__)
enum { LANES = 16, MR = 12 }; // 24 accumulators in 32 registers
#elif defined(__AVX__)
enum { LANES = 8, MR = 6 }; // 12 accumulators in 16 registers
#else
enum { LANES = 4, MR = 6 };
#endif
enum {
    NR = 2 * LANES,
    KC = 256,      // depth of a block: a panel of b, KC x NR floats, fits the L1 cache
    MC = 8 * MR,   // rows of a block of a, MC x KC floats: fits the L2 cache
    PACKED = KC * 1024 // floats of b packed at a time: 1024 columns of a block, or more if it is less deep
};
typedef float Vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

typedef enum { GEMM_SET, GEMM_ADD } GemmMode;

// c (MR,NR) = start (NR), or c where that is NULL, + a @ b over k steps; a is packed MR to a step, b NR to a step.
static inline __attribute__((always_inline)) void gemm_tile(float* c, size_t ldc, const float* start, const float* a,
                                                            const float* b, int k) {
    Vec acc[MR][2];
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        const float* from = start ? start : c + (size_t)i * ldc;
        acc[i][0] = *(const Vec*)from;
        acc[i][1] = *(const Vec*)(from + LANES);
    }
    for (; k > 0; k--, a += MR, b += NR) {
        const Vec b0 = *(const Vec*)b, b1 = *(const Vec*)(b + LANES);
        #pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            acc[i][0] += a[i] * b0;
            acc[i][1] += a[i] * b1;
        }
    }
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        *(Vec*)(c + (size_t)i * ldc) = acc[i][0];
        *(Vec*)(c + (size_t)i * ldc + LANES) = acc[i][1];
    }
}

// Copies x (rows,k), element (i, j) at x[i*row + j*col], k-major: `width` rows to a step, zeros beyond `rows`.
static inline void gemm_pack(float* packed, const float* x, size_t row, size_t col, int rows, int width, int k) {
    for (int i = 0; i < width; i++) {
        if (i >= rows) {
            for (int j = 0; j < k; j++) { packed[(size_t)j * width + i] = 0; }
        } else if (row != 1) {
            for (int j = 0; j < k; j++) { packed[(size_t)j * width + i] = x[i * row + j * col]; }
        }
    }
    if (row == 1) { // neighbours in memory go to neighbours
        for (int j = 0; j < k; j++) {
            for (int i = 0; i < rows; i++) { packed[(size_t)j * width + i] = x[i + j * col]; }
        }
    }
}

// One block: c (rows,cols) += a packed @ b packed, tile by tile. Where `set`, c is not added to: it begins with bias,
// or with zeros if that is NULL. Tiles that stick out go through a buffer.
static inline void gemm_block(float* c, size_t ldc, bool set, const float* bias, const float* a, const float* b,
                              int rows, int cols, int k) {
    float edge[MR * NR], start[NR];
    for (int j = 0; j < cols; j += NR) {
        const int width = cols - j < NR ? cols - j : NR;
        for (int s = 0; s < NR; s++) { start[s] = set && bias && s < width ? bias[j + s] : 0.0f; }
        for (int i = 0; i < rows; i += MR) {
            const float *pa = a + (size_t)i * k, *pb = b + (size_t)j * k;
            float* tile = c + (size_t)i * ldc + j;
            if (i + MR <= rows && width == NR) {
                gemm_tile(tile, ldc, set ? start : NULL, pa, pb, k);
                continue;
            }
            gemm_tile(edge, NR, start, pa, pb, k);
            for (int r = 0; r < MR && i + r < rows; r++) {
                for (int s = 0; s < width; s++) {
                    tile[(size_t)r * ldc + s] = edge[r * NR + s] + (set ? 0.0f : tile[(size_t)r * ldc + s]);
                }
            }
        }
    }
}

// a: element (i, k) at a[i*a_row + k*a_col]; b: element (k, j) at b[k*b_row + j*b_col]; c is dense (M,N).
// GEMM_SET begins with bias (N), or zeros if it is NULL; GEMM_ADD with what c holds.
static inline void gemm(float* c, GemmMode mode, const float* bias, const float* a, size_t a_row, size_t a_col,
                        const float* b, size_t b_row, size_t b_col, int M, int N, int K) {
    static float packed_b[PACKED] __attribute__((aligned(64))); // shared by the threads of the one product that runs
    const int nc = (int)(PACKED / min_size(KC, (size_t)K) / NR * NR);
    // as many blocks of rows as share out evenly
    const int blocks = (int)round_up(ceil_div((size_t)M, MC), (size_t)cpu.threads);
    const int mc = (int)min_size(MC, round_up(ceil_div((size_t)M, (size_t)blocks), MR));
    #pragma omp parallel
    {
        float packed_a[MC * KC] __attribute__((aligned(64)));
        for (int j = 0; j < N; j += nc) {
            const int cols = N - j < nc ? N - j : nc;
            for (int k = 0; k < K; k += KC) {
                const int depth = K - k < KC ? K - k : KC;
                #pragma omp for
                for (int p = 0; p < cols; p += NR) {
                    gemm_pack(packed_b + (size_t)p * depth, b + (j + p) * b_col + k * b_row, b_col, b_row,
                              cols - p < NR ? cols - p : NR, NR, depth);
                }
                #pragma omp for schedule(dynamic)
                for (int i = 0; i < M; i += mc) {
                    const int rows = M - i < mc ? M - i : mc;
                    for (int p = 0; p < rows; p += MR) {
                        gemm_pack(packed_a + (size_t)p * depth, a + (i + p) * a_row + k * a_col, a_row, a_col,
                                  rows - p < MR ? rows - p : MR, MR, depth);
                    }
                    gemm_block(c + (size_t)i * N + j, (size_t)N, mode == GEMM_SET && k == 0, bias ? bias + j : NULL,
                               packed_a, packed_b, rows, cols, depth);
                }
            }
        }
    }
}
