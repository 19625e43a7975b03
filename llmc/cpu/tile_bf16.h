// The micro-kernel of tile.h in bf16 with AVX512_BF16, which multiplies pairs of bf16 and sums in float. Its speed
// differs much between processors: on a Xeon (Emerald Rapids) it is half of tile_fp32.h's, so backends.c chooses
// between them by timing.
#pragma once
#include "tile_pairs.h"

enum { MR = 12, NR = 32, KR = 2, DEPTH = 384, C_GROUPS = 8, PREFETCH = true }; // 24 accumulators in 32 registers
enum { PACKED_USES = 2, PACKED_ROWS = 512 };

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

// Pair s of row i of a is at a[i*row + s*col].
static inline __attribute__((always_inline)) void tile_multiply(float* c, size_t ldc, TileMode mode, const Packed* a,
                                                                size_t row, size_t col, const Packed* b, int k) {
    __m512 acc[MR][2];
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) { acc[i][0] = acc[i][1] = _mm512_setzero_ps(); }
    for (; k > 0; k -= 2, a += col, b += 2 * NR) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 2 * LANES);
        #pragma GCC unroll 12
        for (int i = 0; i < MR; i++) {
            const __m512bh ai = broadcast_pair(a + i * row);
            acc[i][0] = _mm512_dpbf16_ps(acc[i][0], ai, b0);
            acc[i][1] = _mm512_dpbf16_ps(acc[i][1], ai, b1);
        }
    }
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

#define TILE_READS_ROWS true // not columns: pairs along k lie apart there

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
