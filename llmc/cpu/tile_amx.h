// The micro-kernel of tile.h in bf16 with AMX: eight registers of 16 rows of 64 bytes, and an instruction that adds the
// matmul of (16,32) and (32,16) bf16 to (16,16) floats (Intel's manual, volume 1, chapter 18). The tile of c is two by
// two registers, so 32 steps of k take two loads of a, two of b and four matmuls. Four loads from the L2 cache would
// take twice as long as the matmuls. So a panel of a stays in L1, and panels of b are loaded with a hint not to keep
// them there. Measured for single tiles on two cores: 3.3 to 4.0 TFLOP/s at a depth of 384 (24 KB of a), 2.4 to 3.4 at
// 768, 6.8 from registers alone. In a matmul 768 steps of k in one block are faster all the same, since c then is not
// loaded again (dev/cpu.md).
#pragma once
#include "tile_pairs.h"
#include <limits.h>

enum { MR = 32, NR = 32, KR = 32, DEPTH = 768, LONG_DEPTH = 640, C_GROUPS = 4 };
enum { TILE_READS_COLUMNS = false }; // pairs along k lie apart there
enum { PREFETCH = false, AHEAD_STEPS = INT_MAX };
enum { PACKED_USES = 1, PACKED_ROWS = INT_MAX, SHARES_PACKED = true };
enum { STREAM_BYTES = 2 << 20, STORES_BY_INSTRUCTION = true };

// Sets the shape of this thread's registers. processor.h asks the system for permission to use them.
static inline void tile_begin(void) {
    // static const: gcc 12 believes that _tile_loadconfig reads 8 bytes, and would leave a variable half written.
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

// For every 32 steps of k the panel holds two registers of 16 rows of 16 pairs, in the order in which they are loaded.
static inline void pack_a(Packed* packed, const Stored* x, size_t row, size_t col, int rows, int k) {
    for (int j = 0; j < k; j += KR) {
        for (int half = 0; half < 2; half++, packed += LANES * KR) {
            __m512i v[LANES];
            if (col == 1) {
                #pragma GCC unroll 16
                for (int r = 0; r < LANES; r++) { v[r] = load_row(x + j, row, LANES * half + r, rows, k - j); }
            } else {
                #pragma GCC unroll 16
                for (int r = 0; r < LANES; r++) {
                    const int even = j + 2 * r, odd = even + 1;
                    v[r] = interleave(load_row(x, col, even, k, rows), load_row(x, col, odd, k, rows), half);
                }
                transpose_pairs(v);
            }
            #pragma GCC unroll 16
            for (int r = 0; r < LANES; r++) { _mm512_storeu_si512(packed + r * KR, v[r]); }
        }
    }
}

// Rows of the panel have 32 pairs: the left and the right half of 16 rows are a register each.
static inline void pack_b(Packed* packed, const Stored* x, size_t row, size_t col, int k, int cols) {
    pack_pairs(packed, NR, (int)round_up((size_t)k, KR), x, col, row, cols, k);
}

// c (MR,NR) = or += a @ b. Rows of a are `row` elements apart, and 32 steps of k `step` elements. Registers 0 to 3 are
// the quarters of c, 4 and 5 a, 6 and 7 b. ldc should be small, NR at best: rows that are kilobytes apart share few
// sets of the L1 cache, which costs 10 to 25%.
static inline __attribute__((always_inline)) void tile_multiply(float* c, size_t ldc, TileMode mode, const void* a,
                                                                size_t row, size_t step, const Packed* b, int k,
                                                                Ahead* ahead) {
    if (ahead) { ahead_prefetch(ahead); }
    float *c1 = c + LANES, *c2 = c + LANES * ldc, *c3 = c2 + LANES;
    const char *upper = a, *lower = upper + LANES * row * sizeof(Packed);
    // bytes from row to row
    const size_t c_row = ldc * sizeof(float), a_row = row * sizeof(Packed), b_row = 2 * NR * sizeof(Packed);
    __asm__ volatile("" : : : "memory"); // finishes earlier stores: gcc does not know that _tile_loadd reads memory
    if (mode == TILE_ADD) {
        _tile_loadd(0, c, c_row);
        _tile_loadd(1, c1, c_row);
        _tile_loadd(2, c2, c_row);
        _tile_loadd(3, c3, c_row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; k > 0; k -= KR, upper += step * sizeof(Packed), lower += step * sizeof(Packed), b += NR * KR) {
        _tile_loadd(4, upper, a_row);
        _tile_stream_loadd(6, b, b_row);
        _tile_stream_loadd(7, b + 2 * LANES, b_row);
        _tile_loadd(5, lower, a_row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, c_row);
    _tile_stored(1, c1, c_row);
    _tile_stored(2, c2, c_row);
    _tile_stored(3, c3, c_row);
}

// sums (MR) += the sums over k of a packed panel: the first column of its product with ones.
static inline void tile_sum_rows(float* sums, const Packed* a, size_t step, int k) {
    float c[MR * LANES] __attribute__((aligned(64)));
    __m512i ones[LANES];
    for (int i = 0; i < LANES; i++) { ones[i] = _mm512_set1_epi16(0x3f80); }
    __asm__ volatile("" : : "r"(ones) : "memory"); // as in tile_multiply
    _tile_zero(0);
    _tile_zero(2);
    _tile_loadd(6, ones, 2 * KR);
    for (; k > 0; k -= KR, a += step) {
        _tile_loadd(4, a, 2 * KR);
        _tile_loadd(5, a + LANES * KR, 2 * KR);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(2, 5, 6);
    }
    _tile_stored(0, c, LANES * sizeof *c);
    _tile_stored(2, c + LANES * LANES, LANES * sizeof *c);
    for (int i = 0; i < MR; i++) { sums[i] += c[i * LANES]; }
}

// Multiplies zeros; in registers alone they take as long as other numbers.
static inline float tile_peak(long rounds, double* flops) {
    float sums[LANES * LANES] __attribute__((aligned(64)));
    tile_begin(); // sets all registers to zero
    for (long r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, LANES * sizeof(float));
    *flops = (double)rounds * 4 * LANES * LANES * KR * 2;
    return sums[0];
}
