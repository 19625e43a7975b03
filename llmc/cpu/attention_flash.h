// Flash attention (Dao et al. 2022): causal attention in blocks of queries and keys, with the matmuls of tile.h. Only
// one block's scores exist at a time, in the caches. Tiles that the causal mask or the documents hide entirely are
// skipped. This header has the forward pass, and helpers that attention_flash_backward.h uses too:
//
//   for each block of queries, over the blocks of keys up to the diagonal:
//     s = q k^T,  p = exp(scale (s - max so far)),  out = factor out + p v
//   where factor = exp(scale (max before this block - max so far))
//
// Probabilities are rounded to Stored before p v, and out is divided by the sum of the rounded ones: its weights of v
// then sum to 1. Divided by the sum of p itself it would be off by up to 2^-9 in bf16, with one sign where many p round
// in the same direction, and so would backward's delta (Qiu & Yao 2025, "Why low-precision transformer training
// fails"). The log-sum-exp is of p before rounding: backward computes p again from it.
//
// A task of one thread is a whole head or, with few heads per thread, a range of its queries or keys. The order of
// summation does not depend on this choice.
#pragma once
#include "device.h"
#include "tile.h"
#include "vec.h"
#include <assert.h>

// p of a block (156 KiB in float) fits into an L2 cache beside its operands. Blocks two or four times as large were as
// fast.
enum {
    FLASH_QUERY_BLOCK = 192,
    FLASH_KEY_BLOCK = 192,
    FLASH_ROW = FLASH_KEY_BLOCK + 64 / sizeof(Packed) // between rows of p and ds: an odd number of lines uses all of L1
};
static_assert(FLASH_QUERY_BLOCK % MR == 0 && FLASH_QUERY_BLOCK % NR == 0 && FLASH_QUERY_BLOCK % KR == 0 &&
                  FLASH_KEY_BLOCK % FLASH_QUERY_BLOCK == 0,
              "blocks are made of whole tiles, and blocks of keys of whole blocks of queries");
static_assert(NR % KR == 0 && NR % LANES == 0, "p is written in steps of NR and LANES, and read in steps of KR");

// One head of one sequence: position t is at q + t * stride, k + t * stride and v + t * stride. starts and ends are the
// bounds of its documents (Backend.document_bounds), or NULL.
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

// Keys of a block, counted from its first one. `first` is a multiple of KR, unless there are none.
typedef struct {
    int first, count;
} FlashKeys;

// Returns the keys that the MR queries from q on see, of those from k0 on; none of them sees another.
static inline FlashKeys flash_seen_keys(const FlashHead* h, int q, int k0, int keys) {
    const int end = min_int(keys, q + MR - k0), first = min_int(end, flash_first_key(h, q, k0, KR));
    const FlashKeys seen = {first, end - first};
    return seen;
}

// ---------------------------------------------------------------------------------------------------------------------
// operands: left ones are rows, flash_depth(k) apart. Right ones are panels of NR columns; that of column i begins at
// i * flash_depth(k).

static inline size_t flash_depth(int k) { return round_up((size_t)k, KR); }

// Return the elements of an operand, padded to whole tiles.
static inline size_t flash_left_size(int rows, int k) { return round_up((size_t)rows, MR) * flash_depth(k); }
static inline size_t flash_right_size(int k, int cols) { return round_up((size_t)cols, NR) * flash_depth(k); }

// Copies x (rows,k), its rows `stride` apart, as a left operand. (In the order of pack_a it takes longer to write, and
// as long to read.)
static inline void flash_copy_a(Packed* left, const Stored* x, size_t stride, int rows, int k) {
    const size_t depth = flash_depth(k);
    for (int i = 0; i < rows; i++, left += depth, x += stride) {
        if (sizeof(Packed) == sizeof(Stored)) { memcpy(left, x, (size_t)k * sizeof *x); }
        else {
            #pragma omp simd
            for (int j = 0; j < k; j++) { ((float*)left)[j] = to_float(x[j]); }
        }
        memset(left + k, 0, (depth - (size_t)k) * sizeof *left);
    }
    memset(left, 0, (round_up((size_t)rows, MR) - (size_t)rows) * depth * sizeof *left);
}

// Packs x (k,cols) as a right operand; row and col as in pack_b.
static inline void flash_pack_b(Packed* packed, const Stored* x, size_t row, size_t col, int k, int cols) {
    for (int j = 0; j < cols; j += NR) {
        pack_b(packed + (size_t)j * flash_depth(k), x + (size_t)j * col, row, col, k, min_int(NR, cols - j));
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// probabilities: left operands, read where they lie

// p (NR) = x, rounded to Stored
static inline __attribute__((always_inline)) void flash_round(Packed* p, const Vec x[NR / LANES]) {
#if FLOATX_IS(bf16) && defined(__AVX512BF16__)
    static_assert(NR == 2 * LANES, "one instruction rounds two vectors");
    _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh((__m512)x[1], (__m512)x[0]));
#else
    #pragma GCC unroll 4
    for (int v = 0; v < NR / LANES; v++) {
        float* to = p + v * LANES;
        Stored rounded[LANES];
        store_floats(rounded, (const float*)&x[v], LANES);
        *(Vec*)to = vec_load(rounded);
    }
#endif
}

// Adds the NR elements of p to total, each to any of its lanes.
static inline __attribute__((always_inline)) Vec flash_add(Vec total, const Packed* p) {
#if FLOATX_IS(bf16) && defined(__AVX512BF16__)
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    return (Vec)_mm512_dpbf16_ps((__m512)total, (__m512bh)_mm512_loadu_si512(p), ones);
#else
    #pragma GCC unroll 4
    for (int v = 0; v < NR; v += LANES) { total += *(const Vec*)(p + v); }
    return total;
#endif
}

// ---------------------------------------------------------------------------------------------------------------------
// matmuls of one tile. Not inlined: code around them would take registers from the tile.

// scores (MR,NR) = left (MR,HS) @ right (HS,NR), `depth` = flash_depth(HS)
ATTR_ONE_COPY static void flash_scores(float* scores, const Packed* left, const Packed* right, size_t depth) {
    tile_multiply(scores, NR, TILE_SET, left, depth, KR, right, (int)depth, NULL);
}

// sums (MR,NR) = or += p (MR,k) @ right (k,NR); p is read up to the next multiple of KR.
ATTR_ONE_COPY static void flash_sums(float* sums, TileMode mode, const Packed* p, const Packed* right, int k) {
    tile_multiply(sums, NR, mode, p, FLASH_ROW, KR, right, (int)flash_depth(k), NULL);
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

// out (rows,HS), its rows `stride` apart, = sums. rest, laid out as out, may be NULL. past_caches: whole lines are
// stored past the caches, unless there is a rest.
static inline void flash_store(Stored* out, Stored* rest, size_t stride, const float* sums, int height, int rows,
                               int HS, bool past_caches) {
    for (int t = 0; t < rows; t++) {
        for (int i = 0; i < HS; i += NR) {
            const float* part = sums + (size_t)i * height + (size_t)t * NR;
            const size_t at = (size_t)t * stride + i;
            const int n = min_int(NR, HS - i);
            if (rest) {
                for (int j = 0; j < n; j++) { store_with_rest(out + at + j, rest + at + j, part[j]); }
            } else if (past_caches && is_whole_lines(out + at, (size_t)n * sizeof *out)) {
                store_past_caches(out + at, part, n);
            } else {
                store_floats(out + at, part, (size_t)n);
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
    Packed *kt, *v;   // (HS,keys) and (keys,HS), right operands
    Packed* q;        // (queries of a block,HS), a left operand
    float* scores;    // (MR,keys of a block), in tiles of (MR,NR)
    Packed* p;        // (queries of a block,keys), its rows FLASH_ROW apart
    float* out;       // sums (queries,HS): panels of FLASH_QUERY_BLOCK rows
    float *max, *sum; // (queries): the maximum score so far, and the sum of exp(scale * (score - max)) so far
    float* rounded;   // (queries): the same sum, of the rounded p; in fp32, `sum`
    float* factor;    // (queries): scales earlier sums to a new maximum; in the end 1 / rounded
} FlashForward;

// Lays out a task's memory and returns its bytes. If `memory` is NULL, only returns the bytes.
static inline size_t flash_forward_memory(FlashForward* f, char* memory, int keys, int HS) {
    size_t used = 0;
    f->keys = keys;
    f->kt = flash_packed(memory, &used, flash_right_size(HS, keys));
    f->v = flash_packed(memory, &used, flash_right_size(keys, HS));
    f->q = flash_packed(memory, &used, flash_left_size(FLASH_QUERY_BLOCK, HS));
    f->scores = flash_floats(memory, &used, MR * FLASH_KEY_BLOCK);
    f->p = flash_packed(memory, &used, FLASH_QUERY_BLOCK * FLASH_ROW);
    f->out = flash_floats(memory, &used, FLASH_QUERY_BLOCK * round_up((size_t)HS, NR));
    f->max = flash_floats(memory, &used, FLASH_QUERY_BLOCK);
    f->sum = flash_floats(memory, &used, FLASH_QUERY_BLOCK);
    f->rounded = FLOATX_IS(fp32) ? f->sum : flash_floats(memory, &used, FLASH_QUERY_BLOCK);
    f->factor = flash_floats(memory, &used, FLASH_QUERY_BLOCK);
    return used;
}

// Sets the scores that MR queries from q on do not see, of `keys` keys from k on, to -INFINITY. The first `queries` of
// them exist.
static inline void flash_hide(float* scores, const FlashHead* h, int q, int queries, int k, int keys) {
    for (int r = 0; r < MR; r++, scores += NR) {
        const int begin = h->starts && r < queries ? h->starts[q + r] - k : 0, end = q + r + 1 - k;
        for (int s = 0; s < min_int(keys, begin); s += NR) {
            for (int j = 0; j < min_int(NR, begin - s); j++) { scores[s * MR + j] = -INFINITY; }
        }
        for (int s = max_int(0, end) / NR * NR; s < keys; s += NR) {
            for (int j = max_int(0, end - s); j < NR; j++) { scores[s * MR + j] = -INFINITY; }
        }
    }
}

// Returns the largest of a row of scores, at least `max`. There may be no keys.
static inline float flash_max(const float* scores, float max, int keys) {
    Vec largest = (Vec){0} + max;
    for (int s = 0; s < keys; s += NR, scores += MR * NR) {
        #pragma GCC unroll 4
        for (int j = 0; j < NR; j += LANES) { largest = vec_larger(*(const Vec*)(scores + j), largest); }
    }
    return vec_max(largest);
}

// Sets a row of p to exp(scale * scores - shift). Adds it to *sum, and as it is rounded to *rounded.
static inline void flash_exponentials(Packed* p, float* sum, float* rounded, const float* scores, float scale,
                                      float shift, int keys) {
    Vec total = {0}, rounded_total = {0};
    for (int s = 0; s < keys; s += NR, scores += MR * NR, p += NR) {
        Vec x[NR / LANES];
        #pragma GCC unroll 4
        for (int v = 0; v < NR / LANES; v++) {
            x[v] = vec_exp(scale * *(const Vec*)(scores + v * LANES) - shift);
            total += x[v];
        }
        flash_round(p, x);
        if (!FLOATX_IS(fp32)) { rounded_total = flash_add(rounded_total, p); }
    }
    if (!FLOATX_IS(fp32)) { *rounded += vec_sum(rounded_total); }
    *sum += vec_sum(total);
}

// Adds `keys` keys, a multiple of NR, to the online softmax (Milakov & Gimelshein 2018) of MR queries. Sets p (MR,keys)
// to exp(scale * (scores - max)), updates max and both sums, and sets factor.
static inline void flash_softmax(Packed* p, float* max, float* sum, float* rounded, float* factor, const float* scores,
                                 float scale, int keys) {
    for (int r = 0; r < MR; r++) {
        const float before = max[r];
        max[r] = at_least(flash_max(scores + r * NR, before, keys), -FLT_MAX); // finite, also if no key was seen yet
        factor[r] = scale * (before - max[r]);
    }
    #pragma omp simd
    for (int r = 0; r < MR; r++) {
        factor[r] = exp_fast(factor[r]);
        sum[r] *= factor[r];
        if (!FLOATX_IS(fp32)) { rounded[r] *= factor[r]; }
    }
    for (int r = 0; r < MR; r++) {
        flash_exponentials(p + r * FLASH_ROW, sum + r, rounded + r, scores + r * NR, scale, scale * max[r], keys);
    }
}

// Computes p for the block of queries from q0 on and the block of keys from k0 on.
static inline void flash_forward_scores(FlashForward* f, const FlashHead* h, int q0, int queries, int k0, int keys) {
    const size_t depth = flash_depth(h->HS);
    for (int t = 0; t < queries; t += MR) {
        const int seen = (int)round_up((size_t)min_int(keys, q0 + t + MR - k0), NR); // by the last of these queries
        const int first = min_int(seen, flash_first_key(h, q0 + t, k0, NR));
        for (int s = first; s < seen; s += NR) {
            flash_scores(f->scores + (size_t)(s - first) * MR, f->q + (size_t)t * depth,
                         f->kt + (size_t)(k0 + s) * depth, depth);
        }
        flash_hide(f->scores, h, q0 + t, queries - t, k0 + first, seen - first);
        flash_softmax(f->p + (size_t)t * FLASH_ROW + first, f->max + t, f->sum + t, f->rounded + t, f->factor + t,
                      f->scores, h->scale, seen - first);
    }
}

// Adds the block of keys from k0 on to the outputs of the block of queries from q0 on, or sets these, in the first
// block.
static inline void flash_forward_block(FlashForward* f, const FlashHead* h, int q0, int queries, int k0, int keys,
                                       bool is_first) {
    const int HS = h->HS;
    flash_forward_scores(f, h, q0, queries, k0, keys);
    if (!is_first) { flash_scale(f->out, FLASH_QUERY_BLOCK, f->factor, queries, HS); }
    for (int i = 0; i < HS; i += NR) { // a panel of v, in an L1 cache, times all of p
        const Packed* v = f->v + (size_t)i * flash_depth(f->keys) + (size_t)k0 * NR;
        for (int t = 0; t < queries; t += MR) {
            const FlashKeys seen = flash_seen_keys(h, q0 + t, k0, keys);
            flash_sums(f->out + (size_t)i * FLASH_QUERY_BLOCK + (size_t)t * NR, is_first ? TILE_SET : TILE_ADD,
                       f->p + (size_t)t * FLASH_ROW + seen.first, v + (size_t)seen.first * NR, seen.count);
        }
    }
}

// Computes out and lse for the queries [begin, end) of a head; begin is a multiple of FLASH_QUERY_BLOCK. out and lse
// point to position 0; rows of out are C apart. rest: as out, or NULL. past_caches: as in flash_store().
static inline void flash_forward_task(Stored* out, Stored* rest, float* lse, const FlashHead* h, int begin, int end,
                                      int C, bool past_caches) {
    FlashForward f;
    const int HS = h->HS;
    flash_forward_memory(&f, thread_scratch(flash_forward_memory(&f, NULL, end, HS)), end, HS);
    flash_pack_b(f.kt, h->k, 1, h->stride, HS, end);
    flash_pack_b(f.v, h->v, h->stride, 1, end, HS);
    for (int q0 = begin; q0 < end; q0 += FLASH_QUERY_BLOCK) {
        const int queries = min_int(FLASH_QUERY_BLOCK, end - q0);
        flash_copy_a(f.q, h->q + (size_t)q0 * h->stride, h->stride, queries, HS);
        for (int t = 0; t < FLASH_QUERY_BLOCK; t++) {
            f.max[t] = -INFINITY;
            f.sum[t] = f.rounded[t] = 0;
        }
        const int first = flash_first_key(h, q0, 0, FLASH_KEY_BLOCK);
        for (int k0 = first; k0 < q0 + queries; k0 += FLASH_KEY_BLOCK) {
            flash_forward_block(&f, h, q0, queries, k0, min_int(FLASH_KEY_BLOCK, q0 + queries - k0), k0 == first);
        }
        for (int t = 0; t < queries; t++) {
            lse[q0 + t] = h->scale * f.max[t] + logf(f.sum[t]);
            f.factor[t] = 1.0f / f.rounded[t];
        }
        flash_scale(f.out, FLASH_QUERY_BLOCK, f.factor, queries, HS);
        const size_t at = (size_t)q0 * C;
        flash_store(out + at, stored_or_null(rest, at), C, f.out, FLASH_QUERY_BLOCK, queries, HS, past_caches);
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
    return (int)round_up(ceil_div((size_t)T, pieces), FLASH_KEY_BLOCK);
}

static inline void flash_forward(Stored* out, Stored* rest, float* lse, const Stored* qkv, const int* starts, int B,
                                 int T, int C, int NH) {
    const int heads = B * NH, range = flash_range(heads, T), ranges = (int)ceil_div((size_t)T, (size_t)range);
    const bool past_caches = is_streamed((size_t)B * T * C);
    int arrived = 0;
    #pragma omp parallel
    {
        tile_begin();
        #pragma omp for schedule(dynamic) nowait
        for (int n = 0; n < heads * ranges; n++) {
            const int head = n % heads, begin = (ranges - 1 - n / heads) * range; // the longest first
            const FlashHead h = flash_head(qkv, starts, NULL, head, T, C, NH);
            const size_t at = flash_out(head, T, C, NH);
            flash_forward_task(out + at, stored_or_null(rest, at), lse + (size_t)head * T, &h, begin,
                               min_int(T, begin + range), C, past_caches);
        }
        past_caches_end();
        wait_awake(&arrived);
    }
}
