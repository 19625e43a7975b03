// The backward pass of attention_flash.h:
//
//   for each block of keys, over the blocks of queries from the diagonal on:
//     p^T = exp(scale k q^T - lse),  ds^T = scale p^T (v dout^T - delta),  dv += p^T dout,  dk += ds^T q,  dq += ds k
//   with delta = the sum of dout * (out + rest) over the head's channels, for each query; rest may be NULL
#pragma once
#include "attention_flash.h"

// A part of a head's backward pass: a range of queries and a range of keys. A task that computes dq has all keys that
// its queries see; one that computes dk and dv has all queries that see its keys. q_begin and k_begin are multiples of
// FLASH_KEY_BLOCK.
typedef struct {
    int q_begin, q_end, k_begin, k_end;
    bool dq, dkv; // which gradients to compute
} FlashTask;

typedef struct {
    int q_begin, queries;              // of the task
    Packed *q, *dout;                  // (queries,HS), right operands
    Packed *qt, *dout_t;               // (HS,queries), right operands
    Packed *k_left, *v_left;           // (keys of a block,HS), left operands
    Packed* k;                         // (keys of a block,HS), a right operand
    float *lse, *delta;                // (queries), padded with zeros to a multiple of NR: p is 1 there, times zeros
    float *scores, *dp;                // a tile of k q^T and of v dout^T
    Packed *p, *ds;                    // (keys of a block,queries of a block), their rows FLASH_ROW apart
    Packed* panel;                     // of ds^T, a left operand
    float* dq;                         // sums (queries,HS): panels of NR columns and q_height rows (flash_store)
    float *dk, *dv;                    // sums (keys of a block,HS): panels of NR columns and FLASH_KEY_BLOCK rows
    int q_height;                      // `queries`, rounded up to a multiple of MR
} FlashBackward;

// Lays out a task's memory and returns its bytes. If `memory` is NULL, only returns the bytes.
static inline size_t flash_backward_memory(FlashBackward* f, char* memory, int queries, int HS) {
    size_t used = 0;
    const size_t width = round_up((size_t)HS, NR), height = round_up((size_t)queries, MR);
    f->queries = queries;
    f->q_height = (int)height;
    f->q = flash_packed(memory, &used, flash_right_size(queries, HS));
    f->dout = flash_packed(memory, &used, flash_right_size(queries, HS));
    f->qt = flash_packed(memory, &used, flash_right_size(HS, queries));
    f->dout_t = flash_packed(memory, &used, flash_right_size(HS, queries));
    f->k_left = flash_packed(memory, &used, flash_left_size(FLASH_KEY_BLOCK, HS));
    f->v_left = flash_packed(memory, &used, flash_left_size(FLASH_KEY_BLOCK, HS));
    f->k = flash_packed(memory, &used, flash_right_size(FLASH_KEY_BLOCK, HS));
    f->lse = flash_floats(memory, &used, round_up((size_t)queries, NR));
    f->delta = flash_floats(memory, &used, round_up((size_t)queries, NR));
    f->scores = flash_floats(memory, &used, MR * NR);
    f->dp = flash_floats(memory, &used, MR * NR);
    f->p = flash_packed(memory, &used, FLASH_KEY_BLOCK * FLASH_ROW);
    f->ds = flash_packed(memory, &used, FLASH_KEY_BLOCK * FLASH_ROW);
    f->panel = flash_packed(memory, &used, MR * FLASH_KEY_BLOCK);
    f->dq = flash_floats(memory, &used, height * width);
    f->dk = flash_floats(memory, &used, FLASH_KEY_BLOCK * width);
    f->dv = flash_floats(memory, &used, FLASH_KEY_BLOCK * width);
    return used;
}

// Zeroes columns begin .. end-1 of a row of p and ds.
static inline void flash_zero(Packed* p, Packed* ds, int begin, int end) {
    memset(p + begin, 0, (size_t)(end - begin) * sizeof *p);
    memset(ds + begin, 0, (size_t)(end - begin) * sizeof *ds);
}

// Computes a tile of p and ds: rows of keys from k on, of which `keys` exist, and columns of queries from q on, to
// which lse and delta belong; 0 where a query does not see a key.
static inline void flash_backward_tile(Packed* p, Packed* ds, const float* scores, const float* dp, const float* lse,
                                       const float* delta, const FlashHead* h, int k, int q, int keys) {
    for (int r = 0; r < MR; r++, p += FLASH_ROW, ds += FLASH_ROW, scores += NR, dp += NR) {
        Vec x[NR / LANES], d[NR / LANES];
        #pragma GCC unroll 4
        for (int v = 0; v < NR / LANES; v++) {
            const int t = v * LANES;
            x[v] = vec_exp(h->scale * *(const Vec*)(scores + t) - *(const Vec*)(lse + t));
            d[v] = x[v] * (*(const Vec*)(dp + t) - *(const Vec*)(delta + t)) * h->scale;
        }
        flash_round(p, x);
        flash_round(ds, d);
        const int before = min_int(NR, k + r - q); // queries that come before this key
        const int end = h->ends && r < keys ? max_int(0, h->ends[k + r] - q) : NR; // of its document
        if (before > 0) { flash_zero(p, ds, 0, before); }
        if (end < NR) { flash_zero(p, ds, end, NR); }
    }
}

// Computes p and ds of a block. Tiles that the causal mask hides entirely keep old values: the matmuls below do not
// read them, since their panels begin at multiples of MR, as tiles do. Panels may begin within tiles that documents
// hide entirely: these become zeros. Rows beyond the last key get any values: they yield sums that are never read.
static inline void flash_backward_scores(FlashBackward* f, const FlashHead* h, int q0, int queries, int k0, int keys) {
    const size_t depth = flash_depth(h->HS);
    for (int t = 0; t < queries; t += NR) {
        const size_t column = (size_t)(q0 - f->q_begin + t);
        for (int s = 0; s < keys && k0 + s < q0 + t + NR; s += MR) { // as long as the last query sees the first key
            Packed *p = f->p + (size_t)s * FLASH_ROW + t, *ds = f->ds + (size_t)s * FLASH_ROW + t;
            if (h->starts && h->starts[q0 + t] >= k0 + s + MR) { // no query sees the last key
                for (int r = 0; r < MR; r++) { flash_zero(p + r * FLASH_ROW, ds + r * FLASH_ROW, 0, NR); }
                continue;
            }
            flash_scores(f->scores, f->k_left + s * depth, f->qt + column * depth, depth);
            flash_scores(f->dp, f->v_left + s * depth, f->dout_t + column * depth, depth);
            flash_backward_tile(p, ds, f->scores, f->dp, f->lse + column, f->delta + column, h, k0 + s, q0 + t,
                                keys - s);
        }
    }
}

// sums (keys,HS) += x (keys,queries) @ right (queries,HS), x being p or ds. Skips queries before a panel's keys, and
// those behind the documents of these.
static inline void flash_backward_keys(FlashBackward* f, const FlashHead* h, float* sums, const Packed* x,
                                       const Packed* right, int q0, int queries, int k0, int keys) {
    const int HS = h->HS;
    const size_t depth = flash_depth(f->queries);
    for (int s = 0; s < keys; s += MR) {
        const int first = max_int(0, k0 + s - q0) / KR * KR, last_key = k0 + min_int(s + MR, keys) - 1;
        const int end = h->ends ? min_int(queries, h->ends[last_key] - q0) : queries;
        if (first >= end) { continue; }
        for (int i = 0; i < HS; i += NR) {
            flash_sums(sums + (size_t)i * FLASH_KEY_BLOCK + (size_t)s * NR, TILE_ADD, x + (size_t)s * FLASH_ROW + first,
                       right + i * depth + (size_t)(q0 - f->q_begin + first) * NR, end - first);
        }
    }
}

// sums (MR,NR) += ds (k,MR)^T @ right (k,NR). ds lies in columns if tiles read these, else it is packed.
ATTR_ONE_COPY static void flash_sums_of_columns(float* sums, const Packed* ds, const Packed* right, int k) {
    const int depth = (int)flash_depth(k);
    if (TILE_READS_COLUMNS) { tile_multiply(sums, NR, TILE_ADD, ds, 1, FLASH_ROW, right, depth, NULL); }
    else { tile_matmul(sums, NR, TILE_ADD, ds, right, depth, NULL); }
}

// dq (queries,HS) += ds (keys,queries)^T @ k (keys,HS). Skips keys behind a panel's queries, and those before the
// documents of these.
static inline void flash_backward_queries(FlashBackward* f, const FlashHead* h, int q0, int queries, int k0, int keys) {
    const int HS = h->HS;
    const size_t depth = flash_depth(keys);
    for (int t = 0; t < queries; t += MR) {
        const FlashKeys seen = flash_seen_keys(h, q0 + t, k0, keys);
        if (seen.count == 0) { continue; }
        const Packed* ds = f->ds + (size_t)seen.first * FLASH_ROW + t;
        if (!TILE_READS_COLUMNS) {
            pack_a(f->panel, (const Stored*)ds, 1, FLASH_ROW, MR, seen.count);
            ds = f->panel;
        }
        for (int i = 0; i < HS; i += NR) {
            flash_sums_of_columns(f->dq + (size_t)i * f->q_height + (size_t)(q0 - f->q_begin + t) * NR, ds,
                                  f->k + i * depth + (size_t)seen.first * NR, seen.count);
        }
    }
}

// Returns the sum of dout * (out + rest) over a head's channels.
static inline float flash_delta(const Stored* dout, const Stored* out, const Stored* rest, int HS) {
    Vec sum = {0};
    int i = 0;
    for (; i + LANES <= HS; i += LANES) {
        Vec o = vec_load(out + i);
        if (rest) { o += vec_load(rest + i); }
        sum += vec_load(dout + i) * o;
    }
    float delta = vec_sum(sum);
    for (; i < HS; i++) { delta += to_float(dout[i]) * (to_float(out[i]) + (rest ? to_float(rest[i]) : 0.0f)); }
    return delta;
}

// Lays out a task's memory, packs its queries, computes their delta, and zeroes the sums of dq.
static inline void flash_backward_begin(FlashBackward* f, const Stored* dout, const Stored* out, const Stored* rest,
                                        const float* lse, const FlashHead* h, const FlashTask* task, int C) {
    const int HS = h->HS, queries = task->q_end - task->q_begin;
    const size_t used = flash_backward_memory(f, NULL, queries, HS);
    flash_backward_memory(f, thread_scratch(used), queries, HS);
    const Stored* q = h->q + (size_t)task->q_begin * h->stride;
    const size_t begin = (size_t)task->q_begin * C;
    dout += begin;
    out += begin;
    rest = stored_or_null(rest, begin);
    f->q_begin = task->q_begin;
    for (int t = 0; t < (int)round_up((size_t)queries, NR); t++) {
        const size_t at = (size_t)t * C;
        f->lse[t] = t < queries ? lse[task->q_begin + t] : 0;
        f->delta[t] = t < queries ? flash_delta(dout + at, out + at, stored_or_null(rest, at), HS) : 0;
    }
    flash_pack_b(f->qt, q, 1, h->stride, HS, queries);
    flash_pack_b(f->dout_t, dout, 1, (size_t)C, HS, queries);
    if (task->dkv) {
        flash_pack_b(f->q, q, h->stride, 1, queries, HS);
        flash_pack_b(f->dout, dout, (size_t)C, 1, queries, HS);
    }
    memset(f->dq, 0, f->q_height * round_up((size_t)HS, NR) * sizeof *f->dq);
}

// Runs a task: sets its part of dq, of dk and dv, or of all three. Pointers are to position 0 of the head. Rows of dq
// are h->stride apart, those of dout and out C; dk and dv are C and 2C elements behind dq.
static inline void flash_backward_task(Stored* dq, const Stored* dout, const Stored* out, const Stored* rest,
                                       const float* lse, const FlashHead* h, const FlashTask* task, int C,
                                       bool past_caches) {
    FlashBackward f;
    const int HS = h->HS;
    const size_t stride = h->stride, bytes = FLASH_KEY_BLOCK * round_up((size_t)HS, NR) * sizeof(float);
    flash_backward_begin(&f, dout, out, rest, lse, h, task, C);
    const int k_begin = max_int(task->k_begin, flash_first_key(h, task->q_begin, 0, FLASH_KEY_BLOCK));
    for (int k0 = k_begin; k0 < task->k_end; k0 += FLASH_KEY_BLOCK) {
        const int keys = min_int(FLASH_KEY_BLOCK, task->k_end - k0);
        const Stored *k = h->k + k0 * stride, *v = h->v + k0 * stride;
        flash_copy_a(f.k_left, k, stride, keys, HS);
        flash_copy_a(f.v_left, v, stride, keys, HS);
        if (task->dq) { flash_pack_b(f.k, k, stride, 1, keys, HS); }
        memset(f.dk, 0, bytes);
        memset(f.dv, 0, bytes);
        const int q_end = h->ends ? min_int(task->q_end, h->ends[k0 + keys - 1]) : task->q_end;
        for (int q0 = max_int(task->q_begin, k0); q0 < q_end; q0 += FLASH_QUERY_BLOCK) {
            const int queries = min_int(FLASH_QUERY_BLOCK, task->q_end - q0);
            flash_backward_scores(&f, h, q0, queries, k0, keys);
            if (task->dkv) {
                flash_backward_keys(&f, h, f.dv, f.p, f.dout, q0, queries, k0, keys);
                flash_backward_keys(&f, h, f.dk, f.ds, f.q, q0, queries, k0, keys);
            }
            if (task->dq) { flash_backward_queries(&f, h, q0, queries, k0, keys); }
        }
        if (task->dkv) {
            flash_store(dq + k0 * stride + C, NULL, stride, f.dk, FLASH_KEY_BLOCK, keys, HS, past_caches);
            flash_store(dq + k0 * stride + 2 * C, NULL, stride, f.dv, FLASH_KEY_BLOCK, keys, HS, past_caches);
        }
    }
    if (task->dq) {
        flash_store(dq + task->q_begin * stride, NULL, stride, f.dq, f.q_height, f.queries, HS, past_caches);
    }
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
    const bool past_caches = is_streamed((size_t)B * T * 3 * C);
    int arrived = 0;
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
                                lse + (size_t)head * T, &h, task, C, past_caches);
        }
        past_caches_end();
        wait_awake(&arrived);
    }
}
