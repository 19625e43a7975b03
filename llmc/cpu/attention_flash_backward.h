// The backward pass of attention_flash.h:
//
//   for each block of keys, over the blocks of queries from the diagonal on:
//     p = exp(scale q k^T - lse),  ds = scale p (dout v^T - delta),  dv += p^T dout,  dk += ds^T q,  dq += ds k
//   with delta = the sum of dout * (out + rest) over the head's channels, for each query; rest may be NULL
#pragma once
#include "attention_flash.h"

// A part of a head's backward pass: a range of queries and a range of keys. A task that computes dq has all keys that
// its queries see; one that computes dk and dv has all queries that see its keys. q_begin and k_begin are multiples of
// FLASH_KEYS.
typedef struct {
    int q_begin, q_end, k_begin, k_end;
    bool dq, dkv; // which gradients to compute
} FlashTask;

typedef struct {
    int q_begin, queries;              // of the task
    Packed *q_left, *dout_left;        // (queries,HS), left operands
    Packed *q_right, *dout_right;      // (queries,HS), right operands
    Packed *kt_right, *vt_right;       // (HS,keys of a block)
    Packed* k_right;                   // (keys of a block,HS)
    const float* lse;                  // (queries)
    float* delta;                      // (queries)
    float *scores, *dp;                // a tile of q k^T and of dout v^T
    Stored *p, *ds;                    // (queries of a block,keys)
    Packed* panel;                     // of p or ds, a left operand
    float* dq;                         // sums (queries,HS): panels of NR columns and q_height rows (flash_store)
    float *dk, *dv;                    // sums (keys of a block,HS): panels of NR columns and FLASH_KEYS rows
    int q_height;                      // `queries`, rounded up to a multiple of MR
} FlashBackward;

// Lays out a task's memory and returns its bytes. If `memory` is NULL, only returns the bytes.
static inline size_t flash_backward_memory(FlashBackward* f, char* memory, int queries, int HS) {
    size_t used = 0;
    const size_t width = round_up((size_t)HS, NR), height = round_up((size_t)queries, MR), depth = flash_depth(queries);
    f->queries = queries;
    f->q_height = (int)height;
    f->q_left = flash_packed(memory, &used, height * flash_depth(HS));
    f->dout_left = flash_packed(memory, &used, height * flash_depth(HS));
    f->q_right = flash_packed(memory, &used, width * depth);
    f->dout_right = flash_packed(memory, &used, width * depth);
    f->kt_right = flash_packed(memory, &used, FLASH_KEYS * flash_depth(HS));
    f->vt_right = flash_packed(memory, &used, FLASH_KEYS * flash_depth(HS));
    f->k_right = flash_packed(memory, &used, width * FLASH_KEYS);
    f->delta = flash_floats(memory, &used, (size_t)queries);
    f->scores = flash_floats(memory, &used, MR * NR);
    f->dp = flash_floats(memory, &used, MR * NR);
    f->p = scratch_part(memory, &used, FLASH_QUERIES * FLASH_ROW, sizeof(Stored));
    f->ds = scratch_part(memory, &used, FLASH_QUERIES * FLASH_ROW, sizeof(Stored));
    f->panel = flash_packed(memory, &used, MR * FLASH_KEYS);
    f->dq = flash_floats(memory, &used, height * width);
    f->dk = flash_floats(memory, &used, FLASH_KEYS * width);
    f->dv = flash_floats(memory, &used, FLASH_KEYS * width);
    return used;
}

// Computes a tile of p and ds, their rows FLASH_ROW apart; 0 where query r does not see key s: s > diagonal + r, or
// k + s < starts[r]. k: the tile's first key; starts may be NULL. Not inlined: gcc would keep its constants in
// registers that accumulators of tile_matmul need.
ATTR_ONE_COPY static void flash_backward_tile(Stored* p, Stored* ds, const float* scores, const float* dp,
                                              const float* lse, const float* delta, float scale, const int* starts,
                                              int k, int diagonal, int rows) {
    for (int r = 0; r < rows; r++, p += FLASH_ROW, ds += FLASH_ROW) {
        float scratch[2][NR], *p_row = floats_for(p, scratch[0]), *ds_row = floats_for(ds, scratch[1]);
        #pragma omp simd
        for (int s = 0; s < NR; s++) {
            const float x = exp_fast(scale * scores[r * NR + s] - lse[r]);
            p_row[s] = x;
            ds_row[s] = x * (dp[r * NR + s] - delta[r]) * scale;
        }
        store_floats(p, p_row, NR);
        store_floats(ds, ds_row, NR);
        for (int s = max_int(0, diagonal + r + 1); s < NR; s++) { p[s] = ds[s] = to_stored(0); }
        for (int s = 0; starts && s < min_int(NR, starts[r] - k); s++) { p[s] = ds[s] = to_stored(0); }
    }
}

// Zeroes a tile of p and ds.
static inline void flash_zero_tile(Stored* p, Stored* ds) {
    for (int r = 0; r < MR; r++, p += FLASH_ROW, ds += FLASH_ROW) {
        memset(p, 0, NR * sizeof *p);
        memset(ds, 0, NR * sizeof *ds);
    }
}

// Computes p and ds of a block. Tiles that the causal mask hides entirely keep old values: the matmuls below do not
// read them, since their panels begin at multiples of MR, as tiles do. Panels may begin within tiles that documents
// hide entirely: these become zeros. Rows beyond the last query and columns beyond the last key
// keep old values too: they yield sums that are never read.
ATTR_ONE_COPY static void flash_backward_scores(FlashBackward* f, const FlashHead* h, int q0, int queries, int k0,
                                                int keys) {
    const size_t depth = flash_depth(h->HS);
    for (int s = 0; s < keys; s += NR) {
        for (int t = 0; t < queries; t += MR) {
            const int row = q0 - f->q_begin + t, rows = min_int(MR, queries - t), diagonal = q0 + t - (k0 + s);
            Stored *p = f->p + (size_t)t * FLASH_ROW + s, *ds = f->ds + (size_t)t * FLASH_ROW + s;
            if (diagonal + rows <= 0) { continue; } // even the last row does not see the first key
            if (flash_first_key(h, q0 + t, k0 + s, 1) >= NR) { // even the first row does not see the last key
                flash_zero_tile(p, ds);
                continue;
            }
            tile_matmul(f->scores, NR, TILE_SET, f->q_left + row * depth, f->kt_right + s * depth, (int)depth, NULL);
            tile_matmul(f->dp, NR, TILE_SET, f->dout_left + row * depth, f->vt_right + s * depth, (int)depth, NULL);
            flash_backward_tile(p, ds, f->scores, f->dp, f->lse + row, f->delta + row, h->scale,
                                h->starts ? h->starts + q0 + t : NULL, k0 + s, diagonal, rows);
        }
    }
}

// sums (keys,HS) += x (queries,keys)^T @ right (queries,HS), x being p or ds. Skips queries before a panel's keys, and
// those behind the documents of these.
static inline void flash_backward_keys(FlashBackward* f, const FlashHead* h, float* sums, const Stored* x,
                                       const Packed* right, int q0, int queries, int k0, int keys) {
    const int HS = h->HS;
    const size_t depth = flash_depth(f->queries);
    for (int s = 0; s < keys; s += MR) {
        const int first = max_int(0, k0 + s - q0) / KR * KR, last_key = k0 + min_int(s + MR, keys) - 1;
        const int end = h->ends ? min_int(queries, h->ends[last_key] - q0) : queries;
        if (first >= end) { continue; }
        const Stored* column = x + (size_t)first * FLASH_ROW + s;
        const FlashLeft left = flash_left(f->panel, column, 1, FLASH_ROW, end - first);
        for (int i = 0; i < HS; i += NR) {
            flash_tile(sums + (size_t)i * FLASH_KEYS + (size_t)s * NR, TILE_ADD, &left,
                       right + i * depth + (size_t)(q0 - f->q_begin + first) * NR, end - first);
        }
    }
}

// dq (queries,HS) += ds (queries,keys) @ k (keys,HS). Skips keys behind a panel's queries, and those before the
// documents of these.
static inline void flash_backward_queries(FlashBackward* f, const FlashHead* h, int q0, int queries, int k0, int keys) {
    const int HS = h->HS;
    const size_t depth = flash_depth(keys);
    for (int t = 0; t < queries; t += MR) {
        const FlashKeys seen = flash_seen_keys(h, q0 + t, k0, keys);
        const int row = q0 - f->q_begin + t;
        if (seen.count == 0) { continue; }
        const Stored* ds = f->ds + (size_t)t * FLASH_ROW + seen.first;
        const FlashLeft left = flash_left(f->panel, ds, FLASH_ROW, 1, seen.count);
        for (int i = 0; i < HS; i += NR) {
            flash_tile(f->dq + (size_t)i * f->q_height + (size_t)row * NR, TILE_ADD, &left,
                       f->k_right + i * depth + (size_t)seen.first * NR, seen.count);
        }
    }
}

// Lays out a task's memory, packs its queries, computes their delta, and zeroes the sums of dq.
ATTR_ONE_COPY static void flash_backward_begin(FlashBackward* f, const Stored* dout, const Stored* out,
                                               const Stored* rest, const float* lse, const FlashHead* h,
                                               const FlashTask* task, int C) {
    const int HS = h->HS, queries = task->q_end - task->q_begin;
    const size_t used = flash_backward_memory(f, NULL, queries, HS);
    flash_backward_memory(f, thread_scratch(used), queries, HS);
    const Stored* q = h->q + (size_t)task->q_begin * h->stride;
    const size_t begin = (size_t)task->q_begin * C;
    dout += begin;
    out += begin;
    rest = stored_or_null(rest, begin);
    f->q_begin = task->q_begin;
    f->lse = lse + task->q_begin;
    for (int t = 0; t < queries; t++) {
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int i = 0; i < HS; i++) { sum += to_float(dout[(size_t)t * C + i]) * to_float(out[(size_t)t * C + i]); }
        #pragma omp simd reduction(+ : sum)
        for (int i = 0; i < (rest ? HS : 0); i++) {
            sum += to_float(dout[(size_t)t * C + i]) * to_float(rest[(size_t)t * C + i]);
        }
        f->delta[t] = sum;
    }
    flash_pack_a(f->q_left, q, h->stride, 1, queries, HS);
    flash_pack_a(f->dout_left, dout, (size_t)C, 1, queries, HS);
    if (task->dkv) {
        flash_pack_b(f->q_right, q, h->stride, 1, queries, HS);
        flash_pack_b(f->dout_right, dout, (size_t)C, 1, queries, HS);
    }
    memset(f->dq, 0, f->q_height * round_up((size_t)HS, NR) * sizeof *f->dq);
}

// Runs a task: sets its part of dq, of dk and dv, or of all three. Pointers are to position 0 of the head. Rows of dq
// are h->stride apart, those of dout and out C; dk and dv are C and 2C elements behind dq.
static inline void flash_backward_task(Stored* dq, const Stored* dout, const Stored* out, const Stored* rest,
                                       const float* lse, const FlashHead* h, const FlashTask* task, int C) {
    FlashBackward f;
    const int HS = h->HS;
    const size_t stride = h->stride, bytes = FLASH_KEYS * round_up((size_t)HS, NR) * sizeof(float);
    flash_backward_begin(&f, dout, out, rest, lse, h, task, C);
    const int k_begin = max_int(task->k_begin, flash_first_key(h, task->q_begin, 0, FLASH_KEYS));
    for (int k0 = k_begin; k0 < task->k_end; k0 += FLASH_KEYS) {
        const int keys = min_int(FLASH_KEYS, task->k_end - k0);
        const Stored *k = h->k + k0 * stride, *v = h->v + k0 * stride;
        flash_pack_b(f.kt_right, k, 1, stride, HS, keys);
        flash_pack_b(f.vt_right, v, 1, stride, HS, keys);
        if (task->dq) { flash_pack_b(f.k_right, k, stride, 1, keys, HS); }
        memset(f.dk, 0, bytes);
        memset(f.dv, 0, bytes);
        const int q_end = h->ends ? min_int(task->q_end, h->ends[k0 + keys - 1]) : task->q_end;
        for (int q0 = max_int(task->q_begin, k0); q0 < q_end; q0 += FLASH_QUERIES) {
            const int queries = min_int(FLASH_QUERIES, task->q_end - q0);
            flash_backward_scores(&f, h, q0, queries, k0, keys);
            if (task->dkv) {
                flash_backward_keys(&f, h, f.dv, f.p, f.dout_right, q0, queries, k0, keys);
                flash_backward_keys(&f, h, f.dk, f.ds, f.q_right, q0, queries, k0, keys);
            }
            if (task->dq) { flash_backward_queries(&f, h, q0, queries, k0, keys); }
        }
        if (task->dkv) {
            flash_store(dq + k0 * stride + C, NULL, stride, f.dk, FLASH_KEYS, keys, HS);
            flash_store(dq + k0 * stride + 2 * C, NULL, stride, f.dv, FLASH_KEYS, keys, HS);
        }
    }
    if (task->dq) { flash_store(dq + task->q_begin * stride, NULL, stride, f.dq, f.q_height, f.queries, HS); }
}

static inline void flash_backward(Stored* dqkv, const Stored* dout, const Stored* out, const Stored* rest,
                                  const float* lse, const Stored* qkv, const int* starts, const int* ends, int B,
                                  int T, int C, int NH) {
    const int heads = B * NH, threads = cpu.threads, rounds = (int)ceil_div((size_t)heads, (size_t)threads);
    // Heads cut into ranges occupy all threads, but take seven matmuls instead of five, about 3/2 of the time: scores
    // and dp are computed once for dq and again for dk and dv. In units of the time of one whole head, whole heads take
    // `rounds`, cut ones 3/2 * heads / threads. The shorter is taken.
    const bool whole = 3 * heads >= 2 * threads * rounds;
    const int range = whole ? T : flash_range(heads, T), ranges = (int)ceil_div((size_t)T, (size_t)range);
    #pragma omp parallel
    {
        tile_begin();
        #pragma omp for schedule(dynamic) nowait
        for (int n = 0; n < heads * ranges * (whole ? 1 : 2); n++) {
            const int head = n % heads, begin = n / heads % ranges * range, end = min_int(T, begin + range);
            const FlashTask all = {.q_end = T, .k_end = T, .dq = true, .dkv = true};
            const FlashTask of_keys = {.q_begin = begin, .q_end = T, .k_begin = begin, .k_end = end, .dkv = true};
            const FlashTask of_queries = {.q_begin = begin, .q_end = end, .k_end = end, .dq = true};
            const FlashTask* task = whole ? &all : n < heads * ranges ? &of_keys : &of_queries;
            const FlashHead h = flash_head(qkv, starts, ends, head, T, C, NH);
            const size_t at = flash_out(head, T, C, NH);
            flash_backward_task(dqkv + (h.q - qkv), dout + at, out + at, stored_or_null(rest, at),
                                lse + (size_t)head * T, &h, task, C);
        }
    }
}
