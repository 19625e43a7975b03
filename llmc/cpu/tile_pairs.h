// Packs operands for instructions that multiply pairs of bf16 (tile_bf16.h, tile_amx.h): c += a[k] * b[k] + a[k+1] *
// b[k+1]. Pairs along k therefore stay together: the unit moved is a pair, and a vector holds 16 of them (LANES).
// A part of tile.h, which includes it.
#pragma once
#include "vec.h"

typedef bf16 Packed;

// Loads the first n numbers of row i, 32 at most, padded with zeros; zeros for rows from `rows` on. Reads only these.
static inline __m512i load_row(const Stored* x, size_t stride, int i, int rows, int n) {
    const __mmask32 first = n < 2 * LANES ? (1u << n) - 1 : 0xffffffffu;
    return i < rows ? _mm512_maskz_loadu_epi16(first, x + (size_t)i * stride) : _mm512_setzero_si512();
}

// Stores the first n pairs of v.
static inline void store_pairs(Packed* packed, __m512i v, int n) {
    _mm512_mask_storeu_epi32(packed, (__mmask16)(n < LANES ? (1u << n) - 1 : 0xffffu), v);
}

// Returns the pairs (even[i], odd[i]) of two rows of 32 numbers, for the first 16 of i (half 0) or the last (half 1).
static inline __m512i interleave(__m512i even, __m512i odd, int half) {
    const __m512i i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i first = _mm512_mullo_epi32(i, _mm512_set1_epi32(0x10001)); // i in both halves of a pair
    const __m512i from = _mm512_add_epi32(first, _mm512_set1_epi32(0x200000 + half * 0x100010)); // from 32 on: of odd
    return _mm512_permutex2var_epi16(even, from, odd);
}

// Stores 12 pairs (even[i], odd[i]), a step of k in a panel of tile_bf16.h's a. Its stores need no masks.
static inline void store_twelve_pairs(Packed* packed, const Stored* even, const Stored* odd) {
    const __m128i e = _mm_loadu_si128((const __m128i*)even), o = _mm_loadu_si128((const __m128i*)odd);
    const __m128i last_e = _mm_loadl_epi64((const __m128i*)(even + 8));
    const __m128i last_o = _mm_loadl_epi64((const __m128i*)(odd + 8));
    _mm_storeu_si128((__m128i*)packed, _mm_unpacklo_epi16(e, o));
    _mm_storeu_si128((__m128i*)(packed + 8), _mm_unpackhi_epi16(e, o));
    _mm_storeu_si128((__m128i*)(packed + 16), _mm_unpacklo_epi16(last_e, last_o));
}

// Transposes 16 rows of 16 pairs: blocks of 2 x 2, then of 4 x 4 within each quarter of a vector, then quarters.
static inline __attribute__((always_inline)) void transpose_pairs(__m512i v[LANES]) {
    __m512i t[LANES];
    #pragma GCC unroll 8
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    #pragma GCC unroll 4
    for (int i = 0; i < LANES; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    #pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);     // quarters 0 and 2 of both
        t[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd); // quarters 1 and 3
        t[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    #pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        v[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
}

// packed (depth / 2, width), in pairs, = the transpose of x (rows <= width, k <= depth), padded with zeros. Element
// (i, j) of x is at x[i*row + j*col]; one of row and col is 1.
static inline __attribute__((always_inline)) void pack_pairs(Packed* packed, int width, int depth, const Stored* x,
                                                             size_t row, size_t col, int rows, int k) {
    if (row == 1) { // a row of pairs from two rows of memory
        int j = 0;
        for (; width == 12 && rows == width && j + 2 <= k; j += 2, packed += 2 * width) {
            store_twelve_pairs(packed, x + (size_t)j * col, x + (size_t)(j + 1) * col);
        }
        for (; j < depth; j += 2, packed += 2 * width) {
            const __m512i even = load_row(x, col, j, k, rows), odd = load_row(x, col, j + 1, k, rows);
            for (int i = 0; i < width; i += LANES) {
                store_pairs(packed + 2 * i, interleave(even, odd, i / LANES), width - i);
            }
        }
        return;
    }
    for (int j = 0; j < depth; j += 2 * LANES) { // pairs lie together: 16 of them from 16 rows, transposed
        for (int i = 0; i < width; i += LANES) {
            __m512i v[LANES];
            #pragma GCC unroll 16
            for (int r = 0; r < LANES; r++) { v[r] = load_row(x + j, row, i + r, rows, k - j); }
            transpose_pairs(v);
            Packed* to = packed + (size_t)j * width + 2 * i;
            #pragma GCC unroll 16
            for (int p = 0; p < LANES; p++, to += 2 * width) {
                if (j + 2 * p < depth) { store_pairs(to, v[p], width - i); }
            }
        }
    }
}
