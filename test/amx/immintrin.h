// Emulates AMX on processors without it. With -Itest/amx before all other folders, this file is included in place of
// the compiler's <immintrin.h>, and replaces its intrinsics for tiles by functions. Sources stay unchanged.
//
// The functions follow the pseudocode of Intel's manual (volume 2: LDTILECFG, TILELOADD, TILESTORED, TDPBF16PS...),
// every rounding included. Faults of the processor (a tile without a shape, shapes that do not fit) end the program
// with a message. Each thread has tiles of its own, which begin without a shape (test_amx.c).
//
// Not emulated: asking Linux for permission; gcc's wrong beliefs about the memory that tile instructions read
// (tile_amx.h); palettes other than 1; start_row; matmuls of other types. The order of summation is the manual's.
//
// Needs AVX-512 itself. About a hundred GFLOP/s a core, so that whole models can be trained in tests.
#pragma once
#include_next <immintrin.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AMX_TILES = 8, AMX_ROWS = 16, AMX_ROW_BYTES = 64, AMX_LANES = AMX_ROW_BYTES / 4 };

// The memory that LDTILECFG reads.
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} AmxConfig;

// Bytes beyond the tile's shape are zero on the processor and anything here; no instruction shows them.
typedef struct {
    uint8_t byte[AMX_ROWS][AMX_ROW_BYTES];
} AmxTile;

typedef struct {
    AmxTile tile[AMX_TILES] __attribute__((aligned(64)));
    AmxConfig config; // palette 0: tiles have no shape
} AmxState;

static __thread AmxState amx;

__attribute__((noreturn, format(printf, 1, 2))) static inline void amx_fault(const char* format, ...) {
    va_list args;
    va_start(args, format);
    fputs("AMX: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    abort();
}

static inline AmxTile* amx_tile(int t, const char* what) {
    if (t < 0 || t >= AMX_TILES) { amx_fault("%s: there is no tile %d", what, t); }
    if (amx.config.palette == 0) { amx_fault("%s: this thread has not configured its tiles", what); }
    if (amx.config.rows[t] == 0) { amx_fault("%s: tile %d has no shape", what, t); }
    return &amx.tile[t];
}

static inline void amx_release(void) { memset(&amx, 0, sizeof amx); }

static inline void amx_configure(const void* memory) {
    static const uint8_t zeros[16] = {0};
    AmxConfig c;
    memcpy(&c, memory, sizeof c);
    amx_release();
    if (c.palette == 0) { return; }
    if (c.palette != 1) { amx_fault("ldtilecfg: palette %d", c.palette); }
    if (c.start_row != 0) { amx_fault("ldtilecfg: start_row %d is not emulated", c.start_row); }
    if (memcmp(c.reserved, zeros, sizeof c.reserved)) { amx_fault("ldtilecfg: reserved bytes are not zero"); }
    for (int t = 0; t < 16; t++) {
        const int rows = c.rows[t], bytes = c.row_bytes[t];
        if (t >= AMX_TILES && (rows || bytes)) { amx_fault("ldtilecfg: a shape for tile %d, which does not exist", t); }
        if (rows > AMX_ROWS || bytes > AMX_ROW_BYTES || (rows == 0) != (bytes == 0)) {
            amx_fault("ldtilecfg: tile %d of %d rows, %d bytes each", t, rows, bytes);
        }
    }
    amx.config = c;
}

static inline void amx_zero(int t) { memset(amx_tile(t, "tilezero"), 0, sizeof(AmxTile)); }

static inline void amx_load(int t, const void* base, long stride) {
    AmxTile* tile = amx_tile(t, "tileloadd");
    for (int r = 0; r < amx.config.rows[t]; r++) {
        memcpy(tile->byte[r], (const char*)base + r * stride, amx.config.row_bytes[t]);
    }
}

static inline void amx_store(int t, void* base, long stride) {
    const AmxTile* tile = amx_tile(t, "tilestored");
    for (int r = 0; r < amx.config.rows[t]; r++) {
        memcpy((char*)base + r * stride, tile->byte[r], amx.config.row_bytes[t]);
    }
}

// Pairs of bf16 as floats: the first of each, and the second.
typedef struct {
    float first[AMX_ROWS][AMX_LANES], second[AMX_ROWS][AMX_LANES];
} AmxPairs;

static inline void amx_pairs(AmxPairs* pairs, const AmxTile* tile) {
    for (int r = 0; r < AMX_ROWS; r++) {
        const __m512i x = _mm512_loadu_si512(tile->byte[r]);
        _mm512_storeu_si512(pairs->first[r], _mm512_slli_epi32(x, 16));
        _mm512_storeu_si512(pairs->second[r], _mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u)));
    }
}

// c += a @ b, four rows of c at a time. Sums the products of the first numbers of all pairs, and those of the second
// ones, rounding each step once; then adds both sums, then c. Not inlined: it must run between two writes of MXCSR.
static __attribute__((noinline)) void amx_multiply(AmxTile* c, const AmxPairs* a, const AmxPairs* b, int pairs) {
    for (int m = 0; m < AMX_ROWS; m += 4) {
        __m512 first[4], second[4];
        for (int i = 0; i < 4; i++) { first[i] = second[i] = _mm512_setzero_ps(); }
        for (int k = 0; k < pairs; k++) {
            const __m512 b_first = _mm512_loadu_ps(b->first[k]), b_second = _mm512_loadu_ps(b->second[k]);
            for (int i = 0; i < 4; i++) {
                first[i] = _mm512_fmadd_ps(_mm512_set1_ps(a->first[m + i][k]), b_first, first[i]);
                second[i] = _mm512_fmadd_ps(_mm512_set1_ps(a->second[m + i][k]), b_second, second[i]);
            }
        }
        for (int i = 0; i < 4; i++) {
            const __m512 sum = _mm512_add_ps(first[i], second[i]);
            _mm512_storeu_ps(c->byte[m + i], _mm512_add_ps(_mm512_loadu_ps(c->byte[m + i]), sum));
        }
    }
}

static inline void amx_dpbf16ps(int dst, int src1, int src2) {
    const AmxConfig* shape = &amx.config;
    AmxTile* c = amx_tile(dst, "tdpbf16ps");
    const AmxTile *a = amx_tile(src1, "tdpbf16ps"), *b = amx_tile(src2, "tdpbf16ps");
    const int rows = shape->rows[dst], bytes = shape->row_bytes[dst];
    const int a_rows = shape->rows[src1], a_bytes = shape->row_bytes[src1];
    const int b_rows = shape->rows[src2], b_bytes = shape->row_bytes[src2];
    if (dst == src1 || dst == src2 || src1 == src2) { amx_fault("tdpbf16ps: a tile twice: %d %d %d", dst, src1, src2); }
    if (bytes % 4 || a_bytes % 4 || rows != a_rows || bytes != b_bytes || a_bytes / 4 != b_rows) {
        amx_fault("tdpbf16ps: tiles of %d rows of %d bytes, %d of %d and %d of %d do not fit", rows, bytes, a_rows,
                  a_bytes, b_rows, b_bytes);
    }
    AmxPairs a_pairs, b_pairs;
    amx_pairs(&a_pairs, a);
    amx_pairs(&b_pairs, b);
    const unsigned kept = _mm_getcsr();
    _mm_setcsr(0x9fc0); // rounds to nearest even; FTZ and DAZ; no exceptions
    amx_multiply(c, &a_pairs, &b_pairs, b_rows);
    _mm_setcsr(kept);
}

#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) amx_configure(config)
#define _tile_release() amx_release()
#define _tile_zero(t) amx_zero(t)
#define _tile_loadd(t, base, stride) amx_load(t, base, (long)(stride))
#define _tile_stream_loadd(t, base, stride) amx_load(t, base, (long)(stride))
#define _tile_stored(t, base, stride) amx_store(t, base, (long)(stride))
#define _tile_dpbf16ps(c, a, b) amx_dpbf16ps(c, a, b)
