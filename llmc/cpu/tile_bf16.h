// The micro-kernel of tile.h in bf16 with AVX512_BF16, which multiplies pairs of bf16 and sums in float. Its speed
// differs much between processors: on a Xeon (Emerald Rapids) it is half of tile_fp32.h's, so backends.c chooses
// between them by timing.
#pragma once
#include "tile_pairs.h"
#include <limits.h>

enum { MR = 12, NR = 32, KR = 2, DEPTH = 384, LONG_DEPTH = DEPTH, C_GROUPS = 8 }; // 24 accumulators in 32 registers
enum { TILE_READS_COLUMNS = false }; // pairs along k lie apart there
enum { PREFETCH = true, AHEAD_STEPS = 64 };
enum { PACKED_USES = 2, PACKED_ROWS = 512, SHARES_PACKED = false };
enum { STREAM_BYTES = INT_MAX, STORES_BY_INSTRUCTION = false };

static inline void tile_begin(void) {}

static inline void pack_a(Packed* packed, const Stored* x, size_t row, size_t col, int rows, int k) {
    pack_pairs(packed, MR, (int)round_up((size_t)k, KR), x, row, col, rows, k);
}

static inline void pack_b(Packed* packed, const Stored* x, size_t row, size_t col, int k, int cols) {
    pack_pairs(packed, NR, (int)round_up((size_t)k, KR), x, col, row, cols, k);
}

// Returns 16 copies of the pair at p.
static inline __m512bh broadcast_pair(const Packed* p) {
    typedef int Pair __attribute__((may_alias, aligned(2)));
    return (__m512bh)_mm512_set1_epi32(*(const Pair*)p);
}

// Two steps of k.
static inline __attribute__((always_inline)) void tile_step(__m512 acc[MR][2], const Packed* a, size_t row,
                                                            const Packed* b) {
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 2 * LANES);
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        const __m512bh ai = broadcast_pair(a + i * row);
        acc[i][0] = _mm512_dpbf16_ps(acc[i][0], ai, b0);
        acc[i][1] = _mm512_dpbf16_ps(acc[i][1], ai, b1);
    }
}

// Pair s of row i of a is at a[i*row + s*col].
static inline __attribute__((always_inline)) void tile_multiply(float* c, size_t ldc, TileMode mode, const Packed* a,
                                                                size_t row, size_t col, const Packed* b, int k,
                                                                Ahead* ahead) {
    __m512 acc[MR][2];
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) { acc[i][0] = acc[i][1] = _mm512_setzero_ps(); }
    if (ahead && k < AHEAD_STEPS) { ahead_prefetch(ahead); }
    for (; ahead && k >= AHEAD_STEPS; k -= AHEAD_STEPS) {
        ahead_prefetch(ahead);
        #pragma GCC unroll 8
        for (int s = 0; s < AHEAD_STEPS; s += 2, a += col, b += 2 * NR) { tile_step(acc, a, row, b); }
    }
    for (; k > 0; k -= 2, a += col, b += 2 * NR) { tile_step(acc, a, row, b); }
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) {
        float* to = c + (size_t)i * ldc;
        if (mode == TILE_ADD) {
            acc[i][0] = _mm512_add_ps(acc[i][0], _mm512_loadu_ps(to));
            acc[i][1] = _mm512_add_ps(acc[i][1], _mm512_loadu_ps(to + LANES));
        }
        _mm512_storeu_ps(to, acc[i][0]);
        _mm512_storeu_ps(to + LANES, acc[i][1]);
    }
}

// sums (MR) += the sums over k of a packed panel: its product with ones. Four sums of each row, since an instruction
// takes longer than its turn.
static inline void tile_sum_rows(float* sums, const Packed* a, size_t col, int k) {
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    const __mmask16 rows = (1u << MR) - 1;
    __m512 part[4] = {{0}};
    #pragma GCC unroll 4
    for (int s = 0; s < k; s += 2, a += col) {
        const __m512bh pairs = (__m512bh)_mm512_maskz_loadu_epi32(rows, a);
        part[s / 2 % 4] = _mm512_dpbf16_ps(part[s / 2 % 4], pairs, ones);
    }
    const __m512 sum = _mm512_add_ps(_mm512_add_ps(part[0], part[1]), _mm512_add_ps(part[2], part[3]));
    _mm512_mask_storeu_ps(sums, rows, _mm512_add_ps(_mm512_maskz_loadu_ps(rows, sums), sum));
}

static inline float tile_peak(long rounds, double* flops) {
    enum { CHAINS = 2 * MR };
    __m512 acc[CHAINS];
    const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80), b = a; // ones
    #pragma GCC unroll 24
    for (int i = 0; i < CHAINS; i++) { acc[i] = _mm512_set1_ps((float)i); } // all different, or gcc computes only one
    for (long r = 0; r < rounds; r++) {
        #pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++) { acc[i] = _mm512_dpbf16_ps(acc[i], a, b); }
    }
    #pragma GCC unroll 24
    for (int i = 1; i < CHAINS; i++) { acc[0] = _mm512_add_ps(acc[0], acc[i]); }
    *flops = (double)rounds * CHAINS * LANES * 4;
    return _mm512_reduce_add_ps(acc[0]);
}
