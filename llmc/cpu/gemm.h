// The fast matmul behind matmul.h: c (M,N) = a (M,K) @ b (K,N), with an epilogue that receives each finished row of c.
//
// Built from the tiles of tile.h, blocked for the caches: operands that are read again soonest lie in the fastest cache
// (Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", 2008; dev/cpu.md compares two orders of
// loops):
//
//   L1   a panel of a, MR x DEPTH: stays while all panels of b's block are multiplied with it
//   L2   a block of b, DEPTH x COLUMNS: its panels are read in turn, again for each panel of a
//   L2 or L3   unfinished tiles of c, in float, ROWS x COLUMNS
//
// Each thread computes a rectangle of c in its own scratch memory, and no thread waits for another. The order in which
// an element of c is summed over k does not depend on the number of threads.
#pragma once
#include "tile.h"
#include <assert.h>

// Element (i, j) of a matrix is at x[i*row + j*col]; one of row and col is 1.
typedef struct {
    const Stored* x;
    size_t row, col;
} Matrix;

// An array (M,N) that `finish` reads, to be prefetched; at == NULL: none.
typedef struct {
    const void* at;
    size_t element; // bytes
} GemmReads;

// The epilogue: takes `cols` sums of a row, from column `col` on, and the Gemm's `result`. Each element of c is passed
// to it once.
typedef void (*GemmFinish)(const void* result, size_t row, size_t col, const float* sums, int cols);

typedef struct {
    Matrix a, b;
    const Packed* packed_b; // all of b in panels of depth K; NULL: b is packed block by block
    int M, N, K;
    GemmFinish finish;
    const void* result; // argument of `finish`
    GemmReads reads;
} Gemm;

enum {
    DEPTH = 384,             // measured: dev/cpu.md for fp32, tile_amx.h for AMX
    COLUMNS = 384,           // a multiple of every NR; a block of b takes 576 KiB of L2 in fp32; chosen, not measured
    GROUP = 96,              // rows of a packed together: the least multiple of every MR
    ROWS = C_GROUPS * GROUP, // of a block of c; b is packed again for each (tile.h)
    PACK_STEP = 32           // rows of a or b packed at a time where they lie along k, so that memory is read in order
};
static_assert(GROUP % MR == 0 && ROWS % MR == 0 && COLUMNS % NR == 0 && DEPTH % PACK_STEP == 0 && PACK_STEP % KR == 0,
              "blocks are made of whole tiles");

// Returns the depth of the blocks that K is cut into: at most DEPTH, a multiple of PACK_STEP and so of any KR.
static inline int gemm_depth(int K) {
    return (int)round_up(ceil_div((size_t)K, ceil_div((size_t)K, DEPTH)), PACK_STEP);
}

typedef struct {
    int begin, end;
} Range;

// Returns piece `i` of 0 .. n-1 cut into `pieces` of about equal size, which begin at multiples of `unit`.
static inline Range range_piece(int n, int unit, int pieces, int i) {
    const size_t units = ceil_div((size_t)n, (size_t)unit);
    const size_t begin = units * (size_t)i / (size_t)pieces * (size_t)unit;
    const size_t end = units * (size_t)(i + 1) / (size_t)pieces * (size_t)unit;
    const Range r = {(int)min_size(begin, (size_t)n), (int)min_size(end, (size_t)n)};
    return r;
}

// Packs rows [i, i + rows) of a, k steps from k0 on, into panels of panel_size(MR, k).
static inline void gemm_pack_a(Packed* packed, Matrix a, int i, int rows, int k0, int k) {
    const int step = a.col == 1 ? k : PACK_STEP;
    for (int s = 0; s < k; s += step) {
        for (int p = 0; p < rows; p += MR) {
            pack_a(packed + (size_t)(p / MR) * panel_size(MR, k) + (size_t)s * MR,
                   a.x + (size_t)(i + p) * a.row + (size_t)(k0 + s) * a.col, a.row, a.col, min_int(MR, rows - p),
                   min_int(step, k - s));
        }
    }
}

// Packs columns [j, j + cols) of b, k steps from k0 on, into panels of panel_size(NR, k).
static inline void gemm_pack_b(Packed* packed, Matrix b, int j, int cols, int k0, int k) {
    const int step = b.row == 1 ? k : PACK_STEP;
    for (int s = 0; s < k; s += step) {
        for (int p = 0; p < cols; p += NR) {
            pack_b(packed + (size_t)(p / NR) * panel_size(NR, k) + (size_t)s * NR,
                   b.x + (size_t)(k0 + s) * b.row + (size_t)(j + p) * b.col, b.row, b.col, min_int(step, k - s),
                   min_int(NR, cols - p));
        }
    }
}

// Gathers at most MR finished rows from their tiles and passes each to `finish`.
static inline void gemm_finish(const Gemm* g, const float* tiles, int i, int rows, int j, int cols) {
    float sums[COLUMNS] __attribute__((aligned(64)));
    for (int r = 0; r < rows; r++) {
        const float* row = tiles + (size_t)r * NR;
        for (int p = 0; p < cols; p += NR) { memcpy(sums + p, row + (size_t)p * MR, NR * sizeof *sums); }
        g->finish(g->result, (size_t)(i + r), (size_t)j, sums, cols);
    }
}

// Prefetches what `finish` reads of these rows. Not what it writes: with AMX that took a tenth longer. Inlined by
// force: gcc 12 takes a function that only prefetches for one without effect, and drops the call.
static inline __attribute__((always_inline)) void gemm_prefetch(const Gemm* g, int i, int rows, int j, int cols) {
    const size_t element = g->reads.element;
    for (int r = 0; r < rows; r++) {
        const char* row = (const char*)g->reads.at + ((size_t)(i + r) * (size_t)g->N + (size_t)j) * element;
        for (size_t b = 0; b < (size_t)cols * element; b += 64) { __builtin_prefetch(row + b); }
    }
}

// Returns true if tiles read a where it lies, which saves packing: a lies along k. Not if its rows are a multiple of 4
// KiB apart: then the rows of a tile share a few sets of an L1 cache, and a line is gone before its next number is
// read. (AMX reads whole lines.)
static inline bool gemm_reads_rows(const Gemm* g, int k) {
    return TILE_READS_ROWS && g->a.col == 1 && k % KR == 0 &&
           (KR * sizeof(Stored) == 64 || g->a.row * sizeof(Stored) % 4096 != 0);
}

// Prefetches into L2 the rows of a that the next panel reads where they lie: share t of `tiles`.
static inline __attribute__((always_inline)) void gemm_prefetch_rows(const Gemm* g, int i, int k0, int k, int t,
                                                                     int tiles) {
    enum { LINE = 64 / sizeof(Stored) };
    const Range share = range_piece(k, LINE, tiles, t);
    for (int r = i; r < min_int(i + MR, g->M); r++) {
        const Stored* row = g->a.x + (size_t)r * g->a.row + (size_t)k0;
        for (int s = share.begin; s < share.end; s += LINE) { __builtin_prefetch(row + s, 0, 2); }
    }
}

// Computes one panel of a block: rows of c from i on, at most MR. a is packed, or NULL if it is read where it lies.
static inline void gemm_panel(const Gemm* g, const Packed* a, const Packed* b, size_t b_panel, float* c, int i,
                              int rows, int j, int cols, int k0, int k) {
    const bool last = k0 + k == g->K;
    const TileMode mode = k0 ? TILE_ADD : TILE_SET;
    const int depth = (int)round_up((size_t)k, KR), tiles = (int)ceil_div((size_t)cols, NR);
    for (int t = 0; t < tiles; t++, c += (size_t)NR * MR, b += b_panel) {
        if (last && g->reads.at) { // with each tile a share of the rows: whole ones, which hardware prefetches too
            const Range share = range_piece(rows, 1, tiles, t);
            gemm_prefetch(g, i + share.begin, share.end - share.begin, j, cols);
        }
        if (a) {
            tile_matmul(c, NR, mode, a, b, depth);
            continue;
        }
        if (PREFETCH_ROWS) { gemm_prefetch_rows(g, i + MR, k0, k, t, tiles); }
        tile_matmul_rows(c, NR, mode, g->a.x + (size_t)i * g->a.row + (size_t)k0, g->a.row, b, depth);
    }
    if (last) { gemm_finish(g, c - (size_t)tiles * NR * MR, i, rows, j, cols); }
}

// Computes the block of c at (i, j), at most ROWS x COLUMNS.
static inline void gemm_block(const Gemm* g, Packed* pa, Packed* pb, float* tiles, int i, int rows, int j, int cols) {
    const int depth = gemm_depth(g->K);
    for (int k0 = 0; k0 < g->K; k0 += depth) {
        const int k = min_int(depth, g->K - k0);
        const Packed* b = pb;
        size_t b_panel = panel_size(NR, k);
        if (g->packed_b) {
            b_panel = panel_size(NR, g->K);
            b = g->packed_b + (size_t)(j / NR) * b_panel + (size_t)k0 * NR;
        } else {
            gemm_pack_b(pb, g->b, j, cols, k0, k);
        }
        const bool reads_rows = gemm_reads_rows(g, k);
        for (int p = 0; p < rows; p += MR) {
            Packed* a = pa + (size_t)(p % GROUP / MR) * panel_size(MR, k);
            if (reads_rows && p + MR <= rows) { a = NULL; }
            else if (reads_rows) { gemm_pack_a(a, g->a, i + p, rows - p, k0, k); } // the last, which is not full
            else if (p % GROUP == 0) { gemm_pack_a(pa, g->a, i + p, min_int(GROUP, rows - p), k0, k); }
            gemm_panel(g, a, b, b_panel, tiles + (size_t)p * COLUMNS, i + p, min_int(MR, rows - p), j, cols, k0, k);
        }
    }
}

// Scratch of each thread: a group of panels of a, a block of b, a block of c.
static inline size_t gemm_scratch_bytes(void) {
    return (panel_size(GROUP, DEPTH) + panel_size(COLUMNS, DEPTH)) * sizeof(Packed) + sizeof(float) * ROWS * COLUMNS;
}

// Computes a rectangle of c in one thread.
static inline void gemm_rectangle(const Gemm* g, Range rows, Range cols) {
    const size_t pa = panel_size(GROUP, DEPTH), pb = panel_size(COLUMNS, DEPTH);
    Packed* packed = thread_scratch(gemm_scratch_bytes());
    float* tiles = (float*)(packed + pa + pb);
    tile_begin();
    const int most = g->packed_b ? min_int(ROWS, 4 * GROUP) : ROWS; // nothing is packed for each block: c in L2
    const int row_blocks = (int)ceil_div((size_t)(rows.end - rows.begin), (size_t)most);
    const int col_blocks = (int)ceil_div((size_t)(cols.end - cols.begin), COLUMNS);
    for (int y = 0; y < col_blocks; y++) { // blocks of about equal size
        const Range c = range_piece(cols.end - cols.begin, NR, col_blocks, y);
        for (int x = 0; x < row_blocks; x++) {
            const Range r = range_piece(rows.end - rows.begin, MR, row_blocks, x);
            gemm_block(g, packed, packed + pa, tiles, rows.begin + r.begin, r.end - r.begin, cols.begin + c.begin,
                       c.end - c.begin);
        }
    }
}

// Returns the number of pieces that rows are cut into; columns are cut into threads / pieces. Minimizes the work of the
// slowest thread, in units of a tile's work. Packing a panel counts as PACK of a tile (estimated); a is packed again
// for each block of columns.
static inline int gemm_row_pieces(const Gemm* g, int threads) {
    const float PACK = 0.5f, PACK_B = g->packed_b ? 0.0f : PACK;
    const size_t rows = ceil_div((size_t)g->M, MR), cols = ceil_div((size_t)g->N, NR);
    int best = 1;
    float least = INFINITY;
    for (int pieces = 1; pieces <= threads; pieces++) {
        const size_t r = ceil_div(rows, (size_t)pieces), c = ceil_div(cols, (size_t)(threads / pieces));
        const float work = (float)(r * c) + PACK * (float)(r * ceil_div(c, COLUMNS / NR)) + PACK_B * (float)c;
        if (work < least) {
            least = work;
            best = pieces;
        }
    }
    return best;
}

// Computes c and passes it to g->finish, in all threads; returns when it is done.
static inline void gemm(const Gemm* g) {
    const int row_pieces = gemm_row_pieces(g, cpu.threads), col_pieces = cpu.threads / row_pieces;
    #pragma omp parallel for
    for (int piece = 0; piece < row_pieces * col_pieces; piece++) {
        const Range rows = range_piece(g->M, MR, row_pieces, piece % row_pieces);
        const Range cols = range_piece(g->N, NR, col_pieces, piece / row_pieces);
        if (rows.begin < rows.end && cols.begin < cols.end) { gemm_rectangle(g, rows, cols); }
    }
}
