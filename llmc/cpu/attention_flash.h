// Flash attention (Dao et al. 2022): causal attention in blocks of queries and keys, with the matmuls of tile.h. Only
// one block's scores exist at a time, in the caches. Tiles that the causal mask or the documents hide entirely are
// skipped. This header has the forward pass, and helpers that attention_flash_backward.h uses too:
//
//   for each block of queries, over the blocks of keys up to the diagonal:
//     s^T = k q^T,  p = exp(scale (s - max so far)),  out = factor out + p v
//   where factor = exp(scale (max before this block - max so far))
//
// Scores are computed transposed, one column per query, so that maxima and sums over keys are vector operations.
// Probabilities are rounded to Stored before p v, and out is divided by the sum of the rounded ones: its weights of v
// then sum to 1. Divided by the sum of p itself it would be off by up to 2^-9 in bf16, with one sign where many p round
// in the same direction, and so would backward's delta (Qiu & Yao 2025, "Why low-precision transformer training
// fails"). The log-sum-exp is that of p itself, from which backward computes p again.
//
// A task of one thread is a whole head or, with few heads per thread, a range of its queries or keys. The order of
// summation does not depend on this choice.
#pragma once
#include "device.h"
#include "math.h"
#include "tile.h"
#include <assert.h>

// p of a block (144 KiB in fp32) fits into an L2 cache beside its operands. Blocks two or four times as large were as
// fast.
enum {
    FLASH_QUERIES = 192,
    FLASH_KEYS = 192,
    FLASH_ROW = FLASH_KEYS + 64 / sizeof(Stored) // between rows of p and ds: an odd number of lines uses all of L1
};
static_assert(FLASH_QUERIES % MR == 0 && FLASH_QUERIES % NR == 0 && FLASH_QUERIES % KR == 0 &&
                  FLASH_KEYS % FLASH_QUERIES == 0,
              "blocks are made of whole tiles, and blocks of keys of whole blocks of queries");

// One head of one sequence: position t is at q + t * stride, k + t * stride and v + t * stride. starts and ends are
// those of its documents (Backend.document_bounds), or NULL.
typedef struct {
    const Stored *q, *k, *v;
    const int *starts, *ends;
    size_t stride;
    int HS;
    float scale;
} FlashHead;

// Returns the first key that query q and those behind it see, counted from k0 and rounded down to a multiple of `unit`;
// 0 if it lies before k0.
static inline int flash_first_key(const FlashHead* h, int q, int k0, int unit) {
    return h->starts ? max_int(0, h->starts[q] - k0) / unit * unit : 0;
}

// Keys of a block, counted from its first one, of which `first` is a multiple of KR.
typedef struct {
    int first, count;
} FlashKeys;

// Returns the keys that the MR queries from q on see, of those from k0 on; no other query of theirs sees more.
static inline FlashKeys flash_seen_keys(const FlashHead* h, int q, int k0, int keys) {
    const int end = min_int(keys, q + MR - k0), first = min_int(end, flash_first_key(h, q, k0, KR));
    const FlashKeys seen = {first, end - first};
    return seen;
}

// ---------------------------------------------------------------------------------------------------------------------
// packed operands: the panel whose first row or column is i begins at i * flash_depth(k)

static inline size_t flash_depth(int k) { return round_up((size_t)k, KR); }

// Packs x (rows,k) as a left operand; row and col as in pack_a.
static inline void flash_pack_a(Packed* packed, const Stored* x, size_t row, size_t col, int rows, int k) {
    for (int i = 0; i < rows; i += MR) {
        pack_a(packed + (size_t)i * flash_depth(k), x + (size_t)i * row, row, col, min_int(MR, rows - i), k);
    }
}

// Packs x (k,cols) as a right operand; row and col as in pack_b.
static inline void flash_pack_b(Packed* packed, const Stored* x, size_t row, size_t col, int k, int cols) {
    for (int j = 0; j < cols; j += NR) {
        pack_b(packed + (size_t)j * flash_depth(k), x + (size_t)j * col, row, col, k, min_int(NR, cols - j));
    }
}

// A left operand: MR rows, k deep, packed or where it lies (panel NULL).
typedef struct {
    const Packed* panel;
    const Stored* x;
    size_t row, col;
} FlashLeft;

// Returns x (MR,k), whose element (i, j) is at x[i*row + j*col], as a left operand. It is packed into `panel` unless
// tiles read it where it lies.
static inline FlashLeft flash_left(Packed* panel, const Stored* x, size_t row, size_t col, int k) {
    const bool in_place = k % KR == 0 && (row == 1 ? TILE_READS_COLUMNS : TILE_READS_ROWS);
    const FlashLeft left = {in_place ? NULL : panel, x, row, col};
    if (!in_place) { pack_a(panel, x, row, col, MR, k); }
    return left;
}

// c (MR,NR) = or += left (MR,k) @ right (k,NR)
static inline void flash_tile(float* c, TileMode mode, const FlashLeft* left, const Packed* right, int k) {
    const int depth = (int)flash_depth(k);
    if (left->panel) { tile_matmul(c, NR, mode, left->panel, right, depth, NULL); }
    else { tile_matmul_unpacked(c, NR, mode, left->x, left->row, left->col, right, depth, NULL); }
}

// ---------------------------------------------------------------------------------------------------------------------
// sums (rows,HS) in float: panels of NR columns and `height` rows, so that each tile is contiguous

// Multiplies row t by factor[t].
static inline void flash_scale(float* sums, int height, const float* factor, int rows, int HS) {
    for (int i = 0; i < HS; i += NR, sums += (size_t)height * NR) {
        for (int t = 0; t < rows; t++) {
            #pragma omp simd
            for (int j = 0; j < NR; j++) { sums[t * NR + j] *= factor[t]; }
        }
    }
}

// out (rows,HS), its rows `stride` apart, = sums. rest, laid out as out, may be NULL.
static inline void flash_store(Stored* out, Stored* rest, size_t stride, const float* sums, int height, int rows,
                               int HS) {
    for (int t = 0; t < rows; t++) {
        for (int i = 0; i < HS; i += NR) {
            const float* part = sums + (size_t)i * height + (size_t)t * NR;
            for (int j = 0; j < min_int(NR, HS - i); j++) {
                const size_t at = (size_t)t * stride + i + j;
                store_with_rest(out + at, stored_or_null(rest, at), part[j]);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// memory of one thread

static inline Packed* flash_packed(char* memory, size_t* used, size_t count) {
    return scratch_part(memory, used, count, sizeof(Packed));
}
static inline float* flash_floats(char* memory, size_t* used, size_t count) {
    return scratch_part(memory, used, count, sizeof(float));
}

// ---------------------------------------------------------------------------------------------------------------------
// forward

typedef struct {
    int keys;         // of the head, up to the last query of the task
    Packed *k, *v;    // (keys,HS): k a left operand, v a right one
    Packed* q;        // (HS,queries of a block), a right operand
    float* scores;    // (keys of a block,NR), for NR queries
    Stored* p;        // (keys of a block,queries)
    Packed* p_packed; // p^T, a left operand, panels FLASH_KEYS deep
    float* out;       // sums (queries,HS): panels of FLASH_QUERIES rows
    float *max, *sum; // (queries): the maximum score so far, and the sum of exp(scale * (score - max)) so far
    float* rounded;   // (queries): the same sum, of the rounded p; in fp32, `sum`
    float* factor;    // (queries): scales earlier sums to a new maximum; in the end 1 / rounded
} FlashForward;

// Lays out a task's memory and returns its bytes. If `memory` is NULL, only returns the bytes.
static inline size_t flash_forward_memory(FlashForward* f, char* memory, int keys, int HS) {
    size_t used = 0;
    const size_t width = round_up((size_t)HS, NR);
    f->keys = keys;
    f->k = flash_packed(memory, &used, round_up((size_t)keys, MR) * flash_depth(HS));
    f->v = flash_packed(memory, &used, width * flash_depth(keys));
    f->q = flash_packed(memory, &used, FLASH_QUERIES * flash_depth(HS));
    f->scores = flash_floats(memory, &used, FLASH_KEYS * NR);
    f->p = scratch_part(memory, &used, FLASH_KEYS * FLASH_ROW, sizeof(Stored));
    f->p_packed = flash_packed(memory, &used, FLASH_QUERIES * FLASH_KEYS);
    f->out = flash_floats(memory, &used, FLASH_QUERIES * width);
    f->max = flash_floats(memory, &used, FLASH_QUERIES);
    f->sum = flash_floats(memory, &used, FLASH_QUERIES);
    f->rounded = FLOATX_IS(fp32) ? f->sum : flash_floats(memory, &used, FLASH_QUERIES);
    f->factor = flash_floats(memory, &used, FLASH_QUERIES);
    return used;
}

// Adds `keys` keys to the online softmax (Milakov & Gimelshein 2018) of NR queries. Query t sees key s if hidden[t] <=
// s <= diagonal + t; hidden NULL: all zeros. Sets p (keys,NR), its rows FLASH_ROW apart, to exp(scale * (scores -
// max)) where t sees s, and to 0 elsewhere. Updates max and both sums, and sets factor. The mask has loops of its own:
// the others need no conditions.
static inline void flash_softmax(Stored* p, float* max, float* sum, float* rounded, float* factor, float* scores,
                                 float scale, const int* hidden, int diagonal, int keys) {
    float top[NR], total[NR], rounded_total[NR];
    const int first_unseen = max_int(0, diagonal + 1);
    for (int t = 0; hidden && t < NR; t++) {
        for (int s = 0; s < min_int(keys, hidden[t]); s++) { scores[s * NR + t] = -INFINITY; }
    }
    for (int s = first_unseen; s < keys; s++) {
        for (int t = 0; t < min_int(NR, s - diagonal); t++) { scores[s * NR + t] = -INFINITY; }
    }
    for (int t = 0; t < NR; t++) { top[t] = max[t]; }
    for (int s = 0; s < keys; s++) {
        const float* row = scores + s * NR;
        #pragma omp simd
        for (int t = 0; t < NR; t++) { top[t] = row[t] > top[t] ? row[t] : top[t]; }
    }
    for (int t = 0; hidden && t < NR; t++) { // finite, also for a query that has seen no key yet
        top[t] = at_least(top[t], -FLT_MAX);
    }
    for (int t = 0; t < NR; t++) {
        factor[t] = exp_fast(scale * (max[t] - top[t]));
        total[t] = sum[t] * factor[t];
        rounded_total[t] = rounded[t] * factor[t];
        max[t] = top[t];
        top[t] *= scale;
    }
    for (int s = 0; s < keys; s++) {
        Stored* row = p + (size_t)s * FLASH_ROW;
        float scratch[NR], *exps = floats_for(row, scratch);
        #pragma omp simd
        for (int t = 0; t < NR; t++) {
            exps[t] = exp_fast(scale * scores[s * NR + t] - top[t]);
            total[t] += exps[t];
        }
        store_floats(row, exps, NR);
        #pragma omp simd
        for (int t = 0; t < NR; t++) {
            if (!FLOATX_IS(fp32)) { rounded_total[t] += to_float(row[t]); }
        }
    }
    for (int t = 0; t < NR; t++) {
        if (!FLOATX_IS(fp32)) { rounded[t] = rounded_total[t]; }
        sum[t] = total[t];
    }
    for (int s = first_unseen; s < keys; s++) { // exp_fast(-INFINITY) is 1e-38, not 0, and v may be huge
        for (int t = 0; t < min_int(NR, s - diagonal); t++) { p[(size_t)s * FLASH_ROW + t] = to_stored(0); }
    }
    for (int t = 0; hidden && t < NR; t++) {
        for (int s = 0; s < min_int(keys, hidden[t]); s++) { p[(size_t)s * FLASH_ROW + t] = to_stored(0); }
    }
}

// Zeroes rows begin .. end-1 of p, for NR queries.
static inline void flash_zero_rows(Stored* p, int begin, int end) {
    for (int s = begin; s < end; s++) { memset(p + (size_t)s * FLASH_ROW, 0, NR * sizeof *p); }
}

// Computes p for the block of queries from q0 on and the block of keys from k0 on.
static inline void flash_forward_scores(FlashForward* f, const FlashHead* h, int q0, int queries, int k0, int keys) {
    const size_t depth = flash_depth(h->HS);
    for (int t = 0; t < queries; t += NR) {
        const int seen = min_int(keys, q0 + t + NR - k0); // by the last of these NR queries
        const int first = min_int(seen, flash_first_key(h, q0 + t, k0, MR));
        int hidden[NR];
        for (int s = first; s < seen; s += MR) {
            tile_matmul(f->scores + (size_t)s * NR, NR, TILE_SET, f->k + (size_t)(k0 + s) * depth,
                        f->q + (size_t)t * depth, (int)depth, NULL);
        }
        for (int i = 0; h->starts && i < NR; i++) {
            hidden[i] = t + i < queries ? h->starts[q0 + t + i] - k0 - first : 0;
        }
        flash_softmax(f->p + (size_t)first * FLASH_ROW + t, f->max + t, f->sum + t, f->rounded + t,
                      f->factor + t, f->scores + (size_t)first * NR, h->scale, h->starts ? hidden : NULL,
                      q0 + t - k0 - first, seen - first);
        // for panels that reach into the NR queries before or behind
        flash_zero_rows(f->p + t, flash_first_key(h, q0 + t / MR * MR, k0, KR), first);
        flash_zero_rows(f->p + t, seen, min_int(keys, seen + MR));
    }
}

// Adds the block of keys from k0 on to the outputs of the block of queries from q0 on, or sets these, in the first
// block.
static inline void flash_forward_block(FlashForward* f, const FlashHead* h, int q0, int queries, int k0, int keys,
                                       bool is_first) {
    const int HS = h->HS;
    flash_forward_scores(f, h, q0, queries, k0, keys);
    FlashLeft left[FLASH_QUERIES / MR];
    for (int t = 0; t < queries; t += MR) { // columns of p beyond the last query yield sums that are never read
        const FlashKeys seen = flash_seen_keys(h, q0 + t, k0, keys);
        left[t / MR] = flash_left(f->p_packed + (size_t)t * FLASH_KEYS, f->p + (size_t)seen.first * FLASH_ROW + t, 1,
                                  FLASH_ROW, seen.count);
    }
    if (!is_first) { flash_scale(f->out, FLASH_QUERIES, f->factor, queries, HS); }
    for (int i = 0; i < HS; i += NR) { // a panel of v, in an L1 cache, times all of p
        const Packed* v = f->v + (size_t)i * flash_depth(f->keys) + (size_t)k0 * NR;
        for (int t = 0; t < queries; t += MR) {
            const FlashKeys seen = flash_seen_keys(h, q0 + t, k0, keys);
            flash_tile(f->out + (size_t)i * FLASH_QUERIES + (size_t)t * NR, is_first ? TILE_SET : TILE_ADD,
                       &left[t / MR], v + (size_t)seen.first * NR, seen.count);
        }
    }
}

// Computes out and lse for the queries [begin, end) of a head; begin is a multiple of FLASH_QUERIES. out and lse are
// those of position 0; rows of out are C apart. rest: as out, or NULL.
static inline void flash_forward_task(Stored* out, Stored* rest, float* lse, const FlashHead* h, int begin, int end,
                                      int C) {
    FlashForward f;
    const int HS = h->HS;
    flash_forward_memory(&f, thread_scratch(flash_forward_memory(&f, NULL, end, HS)), end, HS);
    flash_pack_a(f.k, h->k, h->stride, 1, end, HS);
    flash_pack_b(f.v, h->v, h->stride, 1, end, HS);
    for (int q0 = begin; q0 < end; q0 += FLASH_QUERIES) {
        const int queries = min_int(FLASH_QUERIES, end - q0);
        flash_pack_b(f.q, h->q + (size_t)q0 * h->stride, 1, h->stride, HS, queries);
        for (int t = 0; t < FLASH_QUERIES; t++) {
            f.max[t] = -INFINITY;
            f.sum[t] = f.rounded[t] = 0;
        }
        const int first = flash_first_key(h, q0, 0, FLASH_KEYS);
        for (int k0 = first; k0 < q0 + queries; k0 += FLASH_KEYS) {
            flash_forward_block(&f, h, q0, queries, k0, min_int(FLASH_KEYS, q0 + queries - k0), k0 == first);
        }
        for (int t = 0; t < queries; t++) {
            lse[q0 + t] = h->scale * f.max[t] + logf(f.sum[t]);
            f.factor[t] = 1.0f / f.rounded[t];
        }
        flash_scale(f.out, FLASH_QUERIES, f.factor, queries, HS);
        const size_t at = (size_t)q0 * C;
        flash_store(out + at, stored_or_null(rest, at), C, f.out, FLASH_QUERIES, queries, HS);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// heads and threads

// Returns head number `head`, of B * NH, in qkv (B,T,3,NH,HS). starts and ends (B,T) may be NULL.
static inline FlashHead flash_head(const Stored* qkv, const int* starts, const int* ends, int head, int T, int C,
                                   int NH) {
    const int HS = C / NH;
    const size_t sequence = (size_t)(head / NH) * T;
    const Stored* q = qkv + sequence * 3 * C + (size_t)(head % NH) * HS;
    const FlashHead h = {.q = q,
                         .k = q + C,
                         .v = q + 2 * C,
                         .starts = starts ? starts + sequence : NULL,
                         .ends = ends ? ends + sequence : NULL,
                         .stride = (size_t)3 * C,
                         .HS = HS,
                         .scale = 1.0f / sqrtf((float)HS)};
    return h;
}

// Returns the index at which a head's part of out (B,T,C) begins.
static inline size_t flash_out(int head, int T, int C, int NH) {
    return (size_t)(head / NH) * T * C + (size_t)(head % NH) * (size_t)(C / NH);
}

// Returns the positions of a task if heads are cut into about four tasks for each thread (four: chosen, not measured).
static inline int flash_range(int heads, int T) {
    const size_t pieces = ceil_div((size_t)4 * (size_t)cpu.threads, (size_t)heads);
    return (int)round_up(ceil_div((size_t)T, pieces), FLASH_KEYS);
}

static inline void flash_forward(Stored* out, Stored* rest, float* lse, const Stored* qkv, const int* starts, int B,
                                 int T, int C, int NH) {
    const int heads = B * NH, range = flash_range(heads, T), ranges = (int)ceil_div((size_t)T, (size_t)range);
    #pragma omp parallel
    {
        tile_begin();
        #pragma omp for schedule(dynamic) nowait
        for (int n = 0; n < heads * ranges; n++) {
            const int head = n % heads, begin = (ranges - 1 - n / heads) * range; // the longest first
            const FlashHead h = flash_head(qkv, starts, NULL, head, T, C, NH);
            const size_t at = flash_out(head, T, C, NH);
            flash_forward_task(out + at, stored_or_null(rest, at), lse + (size_t)head * T, &h, begin,
                               min_int(T, begin + range), C);
        }
    }
}
