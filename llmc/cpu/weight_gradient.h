// Gradients of a linear layer's weight and bias with AMX: dweight (OC,C) = or += dout (N,OC)^T @ inp (N,C), and dbias
// (OC) += the column sums of dout.
//
// gemm.h would pack inp again for each block of c, and dout for each block of columns, which takes longer than AMX's
// tiles. Here all threads pack both once, WEIGHT_ROWS rows at a time, and share them. The depth of a product is then so
// small that one pass finishes a tile of sums, which goes to dweight at once. A block of inp, WEIGHT_COLUMNS columns in
// 768 KiB, stays in L2.
//
// Elements are summed over N in the same order for any number of threads.
#pragma once
#include "epilogue.h"
#include "gemm.h"

enum {
    WEIGHT_ROWS = 512,     // of dout and inp
    WEIGHT_COLUMNS = 768,  // of inp
    WEIGHT_SLICE = 3072,   // columns of dout, packed in 3 MiB
    WEIGHT_AHEAD = 16      // panels that packing prefetches ahead
};
static_assert(WEIGHT_ROWS % KR == 0 && WEIGHT_COLUMNS % NR == 0 && WEIGHT_SLICE % MR == 0, "whole tiles");

// A part of a layer whose operands are packed at a time: `rows` rows of inp, all its columns, and of dout, columns
// [first, first + count). dout and inp point to its first row.
typedef struct {
    const Stored *dout, *inp;
    int rows, first, count, C, OC;
    Packed *a, *b; // dout^T (count,rows) and inp (rows,C), in panels WEIGHT_ROWS deep
    GradMode mode;
    bool past_caches; // stores dweight so; not if other parts add to it
} WeightPart;

static inline int panels_of(int columns, int width) { return (int)ceil_div((size_t)columns, (size_t)width); }

// Returns the bytes of packed operands, of all threads together.
static inline size_t weight_scratch_bytes(int C, int OC) {
    const int a = panels_of(min_int(OC, WEIGHT_SLICE), MR) * MR, b = panels_of(C, NR) * NR;
    return (size_t)(a + b) * WEIGHT_ROWS * sizeof(Packed);
}

// Packs `rows` rows, at most KR, of x (rows,columns), whose rows are `stride` apart: KR steps of each panel. Rows are
// read from left to right in turn, so that each line of memory is read once.
static inline void weight_pack(Packed* packed, const Stored* x, size_t stride, int rows, int columns, bool is_left) {
    const int width = is_left ? MR : NR;
    for (int j = 0; j < columns; j += width, packed += (size_t)width * WEIGHT_ROWS) {
        const int here = min_int(width, columns - j);
        if (j + (WEIGHT_AHEAD + 1) * width <= columns) {
            for (int r = 0; r < rows; r++) {
                __builtin_prefetch(x + (size_t)r * stride + j + WEIGHT_AHEAD * width);
            }
        }
        if (is_left) { pack_a(packed, x + j, 1, stride, here, rows); }
        else { pack_b(packed, x + j, stride, 1, rows, here); }
    }
}

// dweight (rows,cols), its rows `stride` apart, += a tile of sums.
static inline void weight_add(float* dweight, size_t stride, const float* sums, int rows, int cols) {
    for (int r = 0; r < rows; r++, dweight += stride, sums += NR) {
        #pragma omp simd
        for (int j = 0; j < cols; j++) { dweight[j] += sums[j]; }
    }
}

// The same, but sets dweight.
static inline void weight_set(float* dweight, size_t stride, const float* sums, int rows, int cols, bool past_caches) {
    for (int r = 0; r < rows; r++, dweight += stride, sums += NR) {
        set_weight_gradient(dweight, sums, cols, past_caches);
    }
}

// Multiplies panel `m` of a by the panels [begin, end) of b, and sets dweight to the tiles or adds them.
static inline void weight_multiply(float* dweight, const WeightPart* p, int m, int begin, int end) {
    const size_t C = (size_t)p->C;
    const int depth = (int)round_up((size_t)p->rows, KR), rows = min_int(MR, p->count - m * MR);
    float* row = dweight + (size_t)(p->first + m * MR) * C;
    float sums[MR * NR] __attribute__((aligned(64)));
    for (int n = begin; n < end; n++) {
        tile_matmul(sums, NR, TILE_SET, p->a + (size_t)m * MR * WEIGHT_ROWS, p->b + (size_t)n * NR * WEIGHT_ROWS,
                    depth, NULL);
        const int cols = min_int(NR, p->C - n * NR);
        if (p->mode == GRADS_SET) { weight_set(row + n * NR, C, sums, rows, cols, p->past_caches); }
        else if (cols == NR) { weight_add(row + n * NR, C, sums, rows, NR); } // vectors of constant number
        else { weight_add(row + n * NR, C, sums, rows, cols); }
    }
}

// Sets dweight to a part's product or adds it, and adds its sums to dbias, unless that is NULL. Packs inp only if its
// part is new.
static inline void weight_part(float* dweight, float* dbias, const WeightPart* p) {
    const int panels_a = panels_of(p->count, MR), panels_b = panels_of(p->C, NR);
    const int depth = (int)round_up((size_t)p->rows, KR);
    // blocks that fit L2, and two pieces of work for each thread if there are as many
    const int least = (int)ceil_div((size_t)p->C, WEIGHT_COLUMNS), shares = 2 * cpu.threads;
    const int blocks = min_int(panels_b, max_int(least, (int)ceil_div((size_t)shares, (size_t)panels_a)));
    int packed = 0, arrived = 0;
    #pragma omp parallel
    {
        tile_begin();
        #pragma omp for schedule(static) nowait
        for (int k = 0; k < p->rows; k += KR) {
            const int rows = min_int(KR, p->rows - k);
            const Stored *dout = p->dout + (size_t)k * (size_t)p->OC, *inp = p->inp + (size_t)k * (size_t)p->C;
            weight_pack(p->a + (size_t)k * MR, dout + p->first, (size_t)p->OC, rows, p->count, true);
            if (p->first == 0) { weight_pack(p->b + (size_t)k * NR, inp, (size_t)p->C, rows, p->C, false); }
        }
        wait_awake(&packed);
        #pragma omp for schedule(static) nowait
        for (int i = 0; i < blocks * panels_a; i++) { // neighbours: panels of a for the same block of b
            const int block = i / panels_a, m = i % panels_a;
            weight_multiply(dweight, p, m, panels_b * block / blocks, panels_b * (block + 1) / blocks);
            if (!dbias || block > 0) { continue; }
            float sums[MR] = {0};
            tile_sum_rows(sums, p->a + (size_t)m * MR * WEIGHT_ROWS, MR * KR, depth);
            for (int r = 0; r < min_int(MR, p->count - m * MR); r++) { dbias[p->first + m * MR + r] += sums[r]; }
        }
        past_caches_end(); // weight_set() may have stored so
        wait_awake(&arrived);
    }
}

// dbias may be NULL.
static inline void weight_gradient(float* dweight, float* dbias, const Stored* dout, const Stored* inp, GradMode mode,
                                   int N, int C, int OC) {
    Packed* b = weight_scratch(weight_scratch_bytes(C, OC));
    Packed* a = b + (size_t)panels_of(C, NR) * NR * WEIGHT_ROWS;
    for (int n = 0; n < N; n += WEIGHT_ROWS, mode = GRADS_ADD) {
        for (int first = 0; first < OC; first += WEIGHT_SLICE) {
            const WeightPart part = {.dout = dout + (size_t)n * (size_t)OC, .inp = inp + (size_t)n * (size_t)C,
                                     .rows = min_int(WEIGHT_ROWS, N - n), .first = first,
                                     .count = min_int(WEIGHT_SLICE, OC - first), .C = C, .OC = OC, .a = a, .b = b,
                                     .mode = mode,
                                     .past_caches = N <= WEIGHT_ROWS && is_gradient_streamed(mode, C, OC)};
            weight_part(dweight, dbias, &part);
        }
    }
}
