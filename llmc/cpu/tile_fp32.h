// The micro-kernel of tile.h in fp32, in the compiler's vector types. A tile of c stays in registers, and each step of
// k adds an outer product to it, which reads MR + NR numbers for MR * NR multiply-adds (Goto & van de Geijn, "Anatomy
// of high-performance matrix multiplication", 2008). 16-bit operands are converted to float as they are packed.
// A part of tile.h, which includes it.
#pragma once
#include "vec.h"
#include <limits.h>

// The shape of a tile: as many accumulators as the registers can hold. Elements of a are loaded for ROWS_AT_ONCE rows:
// for more of them gcc for aarch64 would take registers away from accumulators. UNROLLED steps of k, a divisor of
// AHEAD_STEPS: with AVX-512, four are 13% slower than 16; with AVX2, two are 1 to 5% slower than eight, and 16 are 5 to
// 15% slower than two; for the others gcc moves accumulators about if they are more than one. EMBEDS: two of three
// rows' elements of a are read by multiply-adds themselves. That saves 8 of 38 instructions for 24 multiply-adds, which
// counts when another thread runs on the same core; all rows, with 26 loads, are slower. Measured: dev/cpu.md
#if defined(__AVX512F__)
enum { MR = 12, VECS = 2, ROWS_AT_ONCE = MR, UNROLLED = 16, EMBEDS = true }; // 24 sums; 6 x 4 read more from L2
#elif defined(__AVX2__)
enum { MR = 6, VECS = 2, ROWS_AT_ONCE = MR, UNROLLED = 8, EMBEDS = false }; // 12 accumulators in 16 registers
#elif defined(__aarch64__)
enum { MR = 8, VECS = 3, ROWS_AT_ONCE = 2, UNROLLED = 1, EMBEDS = false }; // 24 accumulators in 32 registers
#else
enum { MR = 6, VECS = 2, ROWS_AT_ONCE = MR, UNROLLED = 1, EMBEDS = false };
#endif
enum { NR = VECS * LANES, KR = 1, DEPTH = 256, LONG_DEPTH = DEPTH, C_GROUPS = 16 };
enum { TILE_READS_COLUMNS = true }; // the innermost loop broadcasts elements of a, so they need not lie together
enum { PREFETCH = true, AHEAD_STEPS = 16 };
enum { PACKED_USES = 0, PACKED_ROWS = 0, SHARES_PACKED = false };
enum { STREAM_BYTES = INT_MAX, STORES_BY_INSTRUCTION = false };

typedef float Packed;
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

static inline void tile_begin(void) {}

static inline Four load_four(const Stored* x) {
    if (sizeof(Stored) == sizeof(float)) { return *(const Four*)x; }
#if FLOATX_IS(fp16) && defined(__F16C__)
    return _mm_cvtph_ps(_mm_loadl_epi64((const __m128i*)x));
#elif FLOATX_IS(fp16) && defined(__aarch64__)
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t*)x)));
#else
    const Four v = {to_float(x[0]), to_float(x[1]), to_float(x[2]), to_float(x[3])};
    return v;
#endif
}

// The elements of two vectors with these numbers, from 0 on in the first one.
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else // gcc before 12
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (FourNumbers){__VA_ARGS__})
typedef int32_t FourNumbers __attribute__((vector_size(16)));
#endif

// Writes the transpose of x (4,4), whose rows are `row` apart, to `packed` (4,4), whose rows are `width` apart.
static inline __attribute__((always_inline)) void pack_four_by_four(Packed* packed, int width, const Stored* x,
                                                                    size_t row) {
    const Four x0 = load_four(x), x1 = load_four(x + row), x2 = load_four(x + 2 * row), x3 = load_four(x + 3 * row);
    const Four low02 = SHUFFLED(x0, x2, 0, 4, 1, 5);
    const Four low13 = SHUFFLED(x1, x3, 0, 4, 1, 5);
    const Four high02 = SHUFFLED(x0, x2, 2, 6, 3, 7);
    const Four high13 = SHUFFLED(x1, x3, 2, 6, 3, 7);
    *(Four*)packed = SHUFFLED(low02, low13, 0, 4, 1, 5);
    *(Four*)(packed + width) = SHUFFLED(low02, low13, 2, 6, 3, 7);
    *(Four*)(packed + 2 * width) = SHUFFLED(high02, high13, 0, 4, 1, 5);
    *(Four*)(packed + 3 * width) = SHUFFLED(high02, high13, 2, 6, 3, 7);
}

// packed (k,width) = the transpose of x (rows,k), whose element (i, j) is at x[i*row + j*col]; zeros beyond `rows`.
// Inlined with each constant width, so that copies of consecutive elements become vector moves.
static inline __attribute__((always_inline)) void pack_panel(Packed* packed, const Stored* x, size_t row, size_t col,
                                                             int rows, int width, int k) {
    int j = 0;
    if (rows == width && row == 1) { // a column is consecutive in memory: copy
#if FLOATX_IS(fp32) && defined(__AVX512F__)
        for (; width == 12 && j < k; j++) { // one masked move in place of two
            const __m512 v = _mm512_maskz_loadu_ps(0xfff, (const float*)(x + (size_t)j * col));
            _mm512_mask_storeu_ps(packed + (size_t)j * width, 0xfff, v);
        }
#endif
        for (; j < k; j++) {
            for (int i = 0; i < width; i++) { packed[(size_t)j * width + i] = to_float(x[(size_t)j * col + i]); }
        }
    } else if (rows == width && col == 1) { // a row is consecutive: transpose 8 rows at a time: an L1 cache has 8 ways
        for (int block = 0; block < width; block += 8) {
            const int end = min_int(block + 8, width);
            for (j = 0; j + 4 <= k; j += 4) {
                for (int i = block; i < end; i += 4) {
                    const int first = i + 4 <= end ? i : end - 4; // the last four overlap those before
                    pack_four_by_four(packed + (size_t)j * width + first, width, x + (size_t)first * row + j, row);
                }
            }
        }
    }
    for (; j < k; j++) {
        for (int i = 0; i < width; i++) {
            packed[(size_t)j * width + i] = i < rows ? to_float(x[(size_t)i * row + (size_t)j * col]) : 0.0f;
        }
    }
}

static inline void pack_a(Packed* packed, const Stored* x, size_t row, size_t col, int rows, int k) {
    pack_panel(packed, x, row, col, rows, MR, k);
}

static inline void pack_b(Packed* packed, const Stored* x, size_t row, size_t col, int k, int cols) {
    pack_panel(packed, x, col, row, cols, NR, k);
}

// acc (VECS) += *x * b. embedded: multiply-adds read and spread *x themselves (AVX-512). In assembly on x86-64, where
// gcc would load once for all, and move accumulators about: with AVX2, 53 instructions for two steps of k, not 43.
static inline __attribute__((always_inline)) void multiply_add(Vec acc[VECS], const float* x, const Vec b[VECS],
                                                               bool embedded) {
    (void)embedded;
#if defined(__AVX512F__)
    const __m512 all = _mm512_set1_ps(*x);
#elif defined(__AVX2__)
    const __m256 all = _mm256_broadcast_ss(x);
#endif
    #pragma GCC unroll 4
    for (int v = 0; v < VECS; v++) {
#if defined(__AVX512F__)
        if (embedded) { __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc[v]) : "v"(b[v]), "m"(*x)); }
        else { __asm__("vfmadd231ps %2, %1, %0" : "+v"(acc[v]) : "v"(b[v]), "v"(all)); }
#elif defined(__AVX2__)
        __asm__("vfmadd231ps %2, %1, %0" : "+x"(acc[v]) : "x"(b[v]), "x"(all));
#else
        acc[v] += *x * b[v];
#endif
    }
}

// One step of k. Row i of a is at a + i*row, or with EMBEDS, unless row is 1, at rows[i] + s.
static inline __attribute__((always_inline)) void tile_step(Vec acc[MR][VECS], const float* a, size_t row,
                                                            const float* const rows[MR], int s, const Packed* b) {
    Vec of_b[VECS];
    #pragma GCC unroll 4
    for (int v = 0; v < VECS; v++) { of_b[v] = *(const Vec*)(b + v * LANES); }
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        const float* x = EMBEDS && row != 1 ? rows[i] + s : a + i * row;
        multiply_add(acc[i], x, of_b, EMBEDS && i % 3 != 2);
        if ((i + 1) % ROWS_AT_ONCE == 0) { __asm__ volatile(""); } // keeps gcc from loading further ahead
    }
}

// Moves rows of a on by `steps` elements. Each stays in a register: an instruction that reads and multiplies counts as
// two if its address has an index (Intel).
static inline __attribute__((always_inline)) void rows_advance(const float* rows[MR], int steps) {
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        rows[i] += steps;
        __asm__("" : "+r"(rows[i])); // keeps gcc from deriving one from another
    }
}

// Element (i, s) of a is at a[i*row + s*col]. Prefetches c before the long loop.
static inline __attribute__((always_inline)) void tile_multiply(float* c, size_t ldc, TileMode mode, const float* a,
                                                                size_t row, size_t col, const Packed* b, int k,
                                                                Ahead* ahead) {
    Vec acc[MR][VECS];
    const float* rows[MR];
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        rows[i] = a + i * row;
        #pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            acc[i][v] = (Vec){0};
            __builtin_prefetch(c + (size_t)i * ldc + v * LANES, 1);
        }
    }
    int s = 0;
    if (ahead && k < AHEAD_STEPS) { ahead_prefetch(ahead); }
    for (; (ahead || EMBEDS) && s + AHEAD_STEPS <= k; s += AHEAD_STEPS) {
        if (ahead) { ahead_prefetch(ahead); }
        for (int i = 0; i < AHEAD_STEPS; i += UNROLLED) { // in one loop, gcc spills some forms with AVX2
            #pragma GCC unroll UNROLLED
            for (int u = 0; u < UNROLLED; u++, a += col, b += NR) { tile_step(acc, a, row, rows, i + u, b); }
        }
        if (EMBEDS && row != 1) { rows_advance(rows, AHEAD_STEPS); }
    }
    #pragma GCC unroll 2
    for (int i = 0; s + i < k; i++, a += col, b += NR) { tile_step(acc, a, row, rows, i, b); }
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        #pragma GCC unroll 4
        for (int v = 0; v < VECS; v++) {
            Vec* to = (Vec*)(c + (size_t)i * ldc + v * LANES);
            if (mode == TILE_ADD) { acc[i][v] += *to; }
            *to = acc[i][v];
        }
    }
}

// sums (MR) += the sums over k of a, whose step s is at a + s * col. Four sums of each row, since an addition takes
// four cycles.
static inline void tile_sum_rows(float* sums, const Packed* a, size_t col, int k) {
    float part[4][MR] = {{0}};
    int s = 0;
    for (; s + 4 <= k; s += 4, a += 4 * col) {
        #pragma GCC unroll 4
        for (int p = 0; p < 4; p++) {
            #pragma omp simd
            for (int i = 0; i < MR; i++) { part[p][i] += a[p * col + i]; }
        }
    }
    for (; s < k; s++, a += col) {
        for (int i = 0; i < MR; i++) { part[0][i] += a[i]; }
    }
    for (int i = 0; i < MR; i++) { sums[i] += (part[0][i] + part[1][i]) + (part[2][i] + part[3][i]); }
}

static inline float tile_peak(long rounds, double* flops) {
    enum { CHAINS = VECS * MR };
    Vec acc[CHAINS], first;
    const Vec little = (Vec){0} + 0x1p-20f; // acc += acc * little: one instruction everywhere
    for (int i = 0; i < LANES; i++) { first[i] = (float)i; }
    #pragma GCC unroll 24
    for (int i = 0; i < CHAINS; i++) { acc[i] = first + (float)i; } // all different, or gcc would compute only one
    for (long r = 0; r < rounds; r++) {
        #pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) { acc[i] += acc[i] * little; }
    }
    #pragma GCC unroll 24
    for (int i = 1; i < CHAINS; i++) { acc[0] += acc[i]; }
    *flops = (double)rounds * CHAINS * LANES * 2;
    float sum = 0;
    for (int i = 0; i < LANES; i++) { sum += acc[0][i]; }
    return sum;
}
