// The fast matmul behind matmul.h: c (M,N) = a (M,K) @ b (K,N), with an epilogue that receives each finished row of c.
//
// Built from the tiles of tile.h, blocked for the caches: operands that are read again soonest lie in the fastest cache
// (Goto & van de Geijn, "Anatomy of high-performance matrix multiplication", 2008; dev/cpu.md compares two orders of
// loops):
//
//   L1   a panel of a, MR x DEPTH, packed or where it lies: stays while all panels of b's block are multiplied with it
//   L2   a block of b, DEPTH x COLUMNS: its panels are read in turn, again for each panel of a
//   L2 or L3   a block of c, in float, ROWS x COLUMNS, until its sums over k are finished
//
// Each tile prefetches into L2 a share of what is packed or read next, and of what the epilogue reads and writes.
//
// Each thread computes a rectangle of c, or blocks that it claims, in its own scratch memory, and waits for no other
// before the end. The order in which an element of c is summed over k does not depend on the number of threads.
#pragma once
#include "tile.h"
#include <assert.h>

// Element (i, j) of a matrix is at x[i*row + j*col]; one of row and col is 1.
typedef struct {
    const Stored* x;
    size_t row, col;
} Matrix;

// An array (M,N) of the epilogue, to be prefetched; at == NULL: none.
typedef struct {
    const void* at;
    size_t element; // bytes
} GemmArray;

// The epilogue: takes `cols` sums of a row, from column `col` on, and the Gemm's `result`. Each element of c is passed
// to it once.
typedef void (*GemmFinish)(const void* result, size_t row, size_t col, const float* sums, int cols);

typedef struct {
    Matrix a, b;
    const Packed* packed_b; // all of b in panels of depth K; NULL: b is packed block by block
    int M, N, K;
    int column_unit; // `finish` gets columns from a multiple of it on: a multiple of NR that divides COLUMNS; 0: NR
    GemmFinish finish;
    const void* result; // argument of `finish`
    GemmArray reads, writes; // of `finish`
    float* row_sums;         // (M) += the sums over k of a, whose columns are consecutive; NULL: not wanted
} Gemm;

enum {
    COLUMNS = 384,           // a multiple of every NR; a block of b takes 384 KiB of L2 in fp32; chosen, not measured
    GROUP = 96,              // rows of a packed together: the least multiple of every MR
    ROWS = C_GROUPS * GROUP, // of a block of c; b is packed again for each (tile.h)
    DEPTH_UNIT = 32,         // depths of blocks are multiples of it
    CLAIMS = 8,              // blocks of c for each thread, from which on threads claim them; chosen, not measured
    FEW_CLAIMS = 4,          // the same where threads of equal speed get equally many
    CLAIM_COLUMNS = KR == 1 ? 6 * NR : COLUMNS, // the least width of blocks cut for it; with KR > 1 not measured
    // rows of a or b packed at a time where they lie along k, so that memory is read in order
    PACK_STEP = KR > 8 ? KR : 8
};
static_assert(GROUP % MR == 0 && ROWS % MR == 0 && COLUMNS % NR == 0 && DEPTH % DEPTH_UNIT == 0 &&
                  DEPTH_UNIT % PACK_STEP == 0 && PACK_STEP % KR == 0,
              "blocks are made of whole tiles");

static inline int gemm_column_unit(const Gemm* g) { return g->column_unit ? g->column_unit : NR; }

// Returns the depth of the blocks that K is cut into: a multiple of DEPTH_UNIT and so of any KR.
static inline int gemm_depth(int K) {
    const int most = K <= DEPTH ? DEPTH : LONG_DEPTH;
    return (int)round_up(ceil_div((size_t)K, ceil_div((size_t)K, (size_t)most)), DEPTH_UNIT);
}

typedef struct {
    int begin, end;
} Range;

// Returns piece `i` of a range cut into `pieces` of about equal size, which begin at multiples of `unit` from its
// beginning.
static inline Range range_piece(Range all, int unit, int pieces, int i) {
    const size_t n = (size_t)(all.end - all.begin), units = ceil_div(n, (size_t)unit);
    const size_t begin = units * (size_t)i / (size_t)pieces * (size_t)unit;
    const size_t end = units * (size_t)(i + 1) / (size_t)pieces * (size_t)unit;
    const Range r = {all.begin + (int)min_size(begin, n), all.begin + (int)min_size(end, n)};
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

// Returns rows `i` of m at steps `k` of k. Element (i, k) is at m.x[i*m.row + k*m.col].
static inline Region region_of_matrix(Matrix m, Range i, Range k) {
    const bool along_k = m.col == 1;
    const int rows = i.end - i.begin, depth = k.end - k.begin;
    const Region x = {.at = (const char*)(m.x + (size_t)i.begin * m.row + (size_t)k.begin * m.col),
                      .stride = (along_k ? m.row : m.col) * sizeof(Stored),
                      .pieces = along_k ? rows : depth,
                      .bytes = (along_k ? depth : rows) * (int)sizeof(Stored)};
    return x;
}

// Returns rows `i` of an array of the epilogue, columns from j on.
static inline Region region_of_array(const Gemm* g, GemmArray array, Range i, int j, int cols) {
    const size_t stride = (size_t)g->N * array.element;
    const Region none = {0};
    if (!array.at) { return none; }
    const Region x = {.at = (const char*)array.at + (size_t)i.begin * stride + (size_t)j * array.element,
                      .stride = stride,
                      .pieces = i.end - i.begin,
                      .bytes = cols * (int)array.element};
    return x;
}

// Returns true if `count` numbers, `stride` apart, crowd into fewer ways of an L1 cache: its lines are gone before the
// rest of each is read.
static inline bool crowds_l1(size_t stride, int count) {
    enum { WAY = 4096 }; // bytes: in common caches
    return stride * sizeof(Stored) % WAY == 0 && count > cpu.choices.l1_ways;
}

// Returns true if tiles read a where it lies, which saves packing. (AMX reads whole lines, which may crowd.)
static inline bool gemm_reads_in_place(const Gemm* g, int k) {
    if (sizeof(Stored) != sizeof(Packed)) { return false; }
    if (g->a.row == 1) { return TILE_READS_COLUMNS && cpu.choices.reads_columns && !crowds_l1(g->a.col, k); }
    return k % KR == 0 && (KR * sizeof(Stored) == 64 || !crowds_l1(g->a.row, MR));
}

// Returns what will be read of a after the panel from row i on: the next panel, or that of the next group, which is
// packed. Not rows that are packed: hardware prefetches these.
static inline Region gemm_next_a(const Gemm* g, int i, Range k, bool in_place) {
    const bool columns = g->a.row == 1;
    const int first = i + (in_place ? MR : GROUP);
    const Range rows = {columns ? first + MR - 1 : first, first + MR}; // of columns the last: panels share lines
    const Region none = {0};
    if (!PREFETCH || rows.end > g->M || !(in_place || columns)) { return none; }
    return region_of_matrix(g->a, rows, k);
}

// A part of a rectangle of c: the sums over `k`.
typedef struct {
    Range rows, cols, k;
} Block;

// Returns piece `i` of `pieces` of what is packed for a block's b.
static inline Region gemm_next_b(const Gemm* g, const Block* block, int pieces, int i) {
    const Matrix transposed = {g->b.x, g->b.col, g->b.row};
    const Region none = {0};
    if (!PREFETCH || g->packed_b) { return none; }
    if (g->b.row == 1) { return region_of_matrix(transposed, range_piece(block->cols, 1, pieces, i), block->k); }
    return region_of_matrix(transposed, block->cols, range_piece(block->k, 1, pieces, i));
}

// Adds the sums over k of `rows` rows of a to row_sums. a is packed, or NULL if it is read where it lies.
static inline void gemm_sum_rows(const Gemm* g, const Packed* a, int i, int rows, Range k) {
    const Packed* in_place = (const Packed*)(g->a.x + (size_t)i + (size_t)k.begin * g->a.col);
    const int depth = (int)round_up((size_t)(k.end - k.begin), KR);
    float sums[MR] = {0};
    tile_sum_rows(sums, a ? a : in_place, a ? MR * KR : g->a.col, depth);
    for (int r = 0; r < rows; r++) { g->row_sums[i + r] += sums[r]; }
}

// Computes one panel of a block: rows of c from i on, at most MR. a is packed, or NULL if it is read where it lies.
// Meanwhile it prefetches what the epilogue needs, and next_a and next_b.
static inline void gemm_panel(const Gemm* g, const Packed* a, const Packed* b, size_t b_panel, float* c, int i,
                              const Block* block, Region next_a, Region next_b) {
    const Range k = block->k;
    const int rows = min_int(MR, block->rows.end - i), j = block->cols.begin, cols = block->cols.end - j;
    const bool last = k.end == g->K;
    const TileMode mode = k.begin ? TILE_ADD : TILE_SET;
    const int depth = (int)round_up((size_t)(k.end - k.begin), KR), tiles = (int)ceil_div((size_t)cols, NR);
    const Range panel = {i, last ? i + rows : i};
    Ahead ahead = {.lines = 0};
    ahead_add(&ahead, region_of_array(g, g->reads, panel, j, cols));
    ahead_add(&ahead, region_of_array(g, g->writes, panel, j, cols));
    ahead_add(&ahead, next_a);
    ahead_add(&ahead, next_b);
    ahead_begin(&ahead, tiles * max_int(1, depth / AHEAD_STEPS));
    for (int t = 0; t < tiles; t++, b += b_panel) {
        if (a) {
            tile_matmul(c + t * NR, COLUMNS, mode, a, b, depth, &ahead);
        } else {
            const Stored* x = g->a.x + (size_t)i * g->a.row + (size_t)k.begin * g->a.col;
            tile_matmul_unpacked(c + t * NR, COLUMNS, mode, (const Packed*)x, g->a.row, g->a.col, b, depth, &ahead);
        }
    }
    if (g->row_sums && j == 0) { // of the threads that share these rows, only one has the first column
        gemm_sum_rows(g, a, i, rows, k);
    }
    for (int r = 0; last && r < rows; r++) {
        g->finish(g->result, (size_t)(i + r), (size_t)j, c + (size_t)r * COLUMNS, cols);
    }
}

// Computes a block. `next` is the one after it, which may be empty.
static inline void gemm_block(const Gemm* g, Packed* pa, Packed* pb, float* c, const Block* block, const Block* next) {
    const Range k = block->k, rows = block->rows, cols = block->cols;
    const int depth = k.end - k.begin;
    const Packed* b = pb;
    size_t b_panel = panel_size(NR, depth);
    if (g->packed_b) {
        b_panel = panel_size(NR, g->K);
        b = g->packed_b + (size_t)(cols.begin / NR) * b_panel + (size_t)k.begin * NR;
    } else {
        gemm_pack_b(pb, g->b, cols.begin, cols.end - cols.begin, k.begin, depth);
    }
    const bool in_place = gemm_reads_in_place(g, depth);
    const size_t row = depth == g->K ? 0 : COLUMNS; // of c; if each is finished at once, the next take its place
    const int panels = (int)ceil_div((size_t)(rows.end - rows.begin), MR);
    for (int i = rows.begin; i < rows.end; i += MR) {
        const int p = i - rows.begin, left = rows.end - i;
        Packed* a = pa + (size_t)(p % GROUP / MR) * panel_size(MR, depth);
        const Region next_a = gemm_next_a(g, i, k, in_place), next_b = gemm_next_b(g, next, panels, p / MR);
        if (in_place && left >= MR) { a = NULL; }
        else if (in_place) { gemm_pack_a(a, g->a, i, left, k.begin, depth); } // the last panel, which is not full
        else if (p % GROUP == 0) { gemm_pack_a(pa, g->a, i, min_int(GROUP, left), k.begin, depth); }
        gemm_panel(g, a, b, b_panel, c + (size_t)p * row, i, block, next_a, next_b);
    }
}

// Scratch of each thread: a group of panels of a, a block of b, a block of c.
static inline size_t gemm_scratch_bytes(void) {
    return (panel_size(GROUP, DEPTH) + panel_size(COLUMNS, DEPTH)) * sizeof(Packed) + sizeof(float) * ROWS * COLUMNS;
}

// A rectangle of c, cut into blocks of about equal size.
typedef struct {
    Range rows, cols;
    int row_blocks, col_blocks, depth;
} Blocks;

// Cuts a rectangle into as few blocks as hold it.
static inline Blocks gemm_blocks(const Gemm* g, Range rows, Range cols) {
    const int most = g->packed_b ? min_int(ROWS, 4 * GROUP) : ROWS; // nothing is packed for each block: c in L2
    const Blocks all = {.rows = rows,
                        .cols = cols,
                        .row_blocks = (int)ceil_div((size_t)(rows.end - rows.begin), (size_t)most),
                        .col_blocks = (int)ceil_div((size_t)(cols.end - cols.begin), COLUMNS),
                        .depth = gemm_depth(g->K)};
    return all;
}

// Makes blocks narrower, so that threads can claim them, where that packs nothing more often: a is read where it lies.
static inline Blocks gemm_narrowed(const Gemm* g, Blocks all) {
    if (!gemm_reads_in_place(g, all.depth)) { return all; }
    const int wanted = (int)ceil_div((size_t)(CLAIMS * cpu.threads), (size_t)all.row_blocks);
    const int most = g->N / max_int(CLAIM_COLUMNS, gemm_column_unit(g));
    all.col_blocks = max_int(all.col_blocks, min_int(wanted, most));
    return all;
}

// Returns true if threads claim blocks.
static inline bool gemm_claims(const Blocks* all) {
    const int blocks = all->row_blocks * all->col_blocks;
    return blocks >= CLAIMS * cpu.threads || (blocks >= FEW_CLAIMS * cpu.threads && blocks % cpu.threads == 0);
}

// Returns block n: the steps of k follow one another, then the rows of the same columns. Behind the last one: an empty
// block.
static inline Block gemm_block_at(const Gemm* g, const Blocks* all, int n) {
    const int depths = (int)ceil_div((size_t)g->K, (size_t)all->depth), k = n % depths * all->depth;
    const int row_block = n / depths % all->row_blocks, col_block = n / depths / all->row_blocks;
    Block block = {{0, 0}, {0, 0}, {0, 0}};
    if (col_block < all->col_blocks) {
        block.rows = range_piece(all->rows, MR, all->row_blocks, row_block);
        block.cols = range_piece(all->cols, gemm_column_unit(g), all->col_blocks, col_block);
        block.k = (Range){k, min_int(g->K, k + all->depth)};
    }
    return block;
}

// Computes blocks in one thread: all of them, or those that it claims. *claimed counts the blocks of c that were
// claimed, each with all steps of k; NULL: all. The next one is claimed when the last steps of the one before begin, so
// that it is prefetched.
static inline void gemm_compute(const Gemm* g, const Blocks* all, int* claimed) {
    const size_t pa = panel_size(GROUP, DEPTH), pb = panel_size(COLUMNS, DEPTH);
    const int depths = (int)ceil_div((size_t)g->K, (size_t)all->depth);
    Packed* packed = thread_scratch(gemm_scratch_bytes());
    float* c = (float*)(packed + pa + pb);
    tile_begin();
    int n = claimed ? __atomic_fetch_add(claimed, 1, __ATOMIC_RELAXED) * depths : 0;
    Block block = gemm_block_at(g, all, n);
    while (block.rows.end) {
        n++;
        if (claimed && n % depths == 0) { n = __atomic_fetch_add(claimed, 1, __ATOMIC_RELAXED) * depths; }
        const Block next = gemm_block_at(g, all, n);
        gemm_block(g, packed, packed + pa, c, &block, &next);
        block = next;
    }
    past_caches_end(); // `finish` may have stored so
}

// Computes a rectangle of c in one thread.
static inline void gemm_rectangle(const Gemm* g, Range rows, Range cols) {
    const Blocks all = gemm_blocks(g, rows, cols);
    gemm_compute(g, &all, NULL);
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

// Computes c and passes it to g->finish, in all threads; returns when it is done. Threads claim blocks if there are
// many: on shared machines and on processors with cores of two kinds one thread is faster than another. Few blocks
// would be packed too often if they were smaller: c is cut into equal rectangles.
static inline void gemm(const Gemm* g) {
    const Range all_rows = {0, g->M}, all_cols = {0, g->N};
    const Blocks all = gemm_narrowed(g, gemm_blocks(g, all_rows, all_cols));
    const bool claims = gemm_claims(&all);
    const int row_pieces = gemm_row_pieces(g, cpu.threads), col_pieces = cpu.threads / row_pieces;
    int claimed = 0, arrived = 0;
    #pragma omp parallel
    {
        if (claims) {
            gemm_compute(g, &all, &claimed);
        } else {
            #pragma omp for nowait
            for (int piece = 0; piece < row_pieces * col_pieces; piece++) {
                const Range rows = range_piece(all_rows, MR, row_pieces, piece % row_pieces);
                const Range cols = range_piece(all_cols, gemm_column_unit(g), col_pieces, piece / row_pieces);
                if (rows.begin < rows.end && cols.begin < cols.end) { gemm_rectangle(g, rows, cols); }
            }
        }
        wait_awake(&arrived);
    }
}
