// Causal multi-head attention, softmax(q k^T / sqrt(HS)) v. Nothing of size T*T is kept: backward rebuilds each
// probability from the log-sum-exp of its row,
//   p = exp(q k / sqrt(HS) - lse),  dp = dout v,  ds = p (dp - sum(dout * out)) / sqrt(HS)
//
// Three implementations:
//   --kernels plain   one query and one key at a time, with an online softmax (Milakov & Gimelshein 2018)
//   --attention plain one query and all its keys at a time
//   --attention flash blocks of queries and keys (attention_flash.h)
//
// With documents a query attends to the keys from the beginning of its own document on (Backend.document_bounds).
#pragma once
#include "attention_flash_backward.h"
#include "device.h"
#include "few_rows.h"
#include "math.h"
#include "matmul.h"

enum { MAX_HEAD_SIZE = 256 }; // model_check() allows no more

// ---------------------------------------------------------------------------------------------------------------------
// plain

static inline float attention_score(const Stored* q, const Stored* k, int HS) {
    return dot_row(q, k, HS) / sqrtf((float)HS);
}

// Computes the attention of one query to `keys` keys. Key s and its value are at k + s * stride and v + s * stride.
// Returns the log-sum-exp of the scores. rest may be NULL, here and below.
static inline float attention_query(Stored* out, Stored* rest, const Stored* q, const Stored* k, const Stored* v,
                                    size_t stride, int keys, int HS) {
    float o[MAX_HEAD_SIZE] = {0}, max = -INFINITY, sum = 0;
    for (int s = 0; s < keys; s++) {
        const float score = attention_score(q, k + s * stride, HS), old = max;
        max = fmaxf(old, score);
        const float shrink = expf(old - max), p = expf(score - max);
        sum = sum * shrink + p;
        for (int i = 0; i < HS; i++) { o[i] = o[i] * shrink + p * to_float(v[s * stride + i]); }
    }
    for (int i = 0; i < HS; i++) { store_with_rest(out + i, stored_or_null(rest, (size_t)i), o[i] / sum); }
    return max + logf(sum);
}

// Returns the sum of dout * (out + rest) over a head's channels.
static inline float attention_delta(const Stored* dout, const Stored* out, const Stored* rest, int HS) {
    float delta = 0;
    for (int i = 0; i < HS; i++) { delta += to_float(dout[i]) * to_float(out[i]); }
    for (int i = 0; rest && i < HS; i++) { delta += to_float(dout[i]) * to_float(rest[i]); }
    return delta;
}

// Computes backward for one query: sets dq, and adds its part to dk and dv (keys,HS).
static inline void attention_backward_query(Stored* dq, float* dk, float* dv, float delta, const Stored* dout,
                                            float lse, const Stored* q, const Stored* k, const Stored* v, size_t stride,
                                            int keys, int HS) {
    const float scale = 1.0f / sqrtf((float)HS);
    float sum[MAX_HEAD_SIZE] = {0};
    for (int s = 0; s < keys; s++) {
        const Stored *ks = k + s * stride, *vs = v + s * stride;
        float *dks = dk + (size_t)s * HS, *dvs = dv + (size_t)s * HS, dp = 0;
        const float p = expf(attention_score(q, ks, HS) - lse);
        for (int i = 0; i < HS; i++) { dp += to_float(dout[i]) * to_float(vs[i]); }
        const float ds = p * (dp - delta) * scale;
        for (int i = 0; i < HS; i++) {
            sum[i] += ds * to_float(ks[i]);
            dks[i] += ds * to_float(q[i]);
            dvs[i] += p * to_float(dout[i]);
        }
    }
    for (int i = 0; i < HS; i++) { dq[i] = to_stored(sum[i]); }
}

// ---------------------------------------------------------------------------------------------------------------------
// --attention plain: the keys of a head, and in backward its values, are transposed once, so that the inner loop of
// attention_scores reads consecutive memory

// xt (HS,T) = the transpose of x (T,HS), whose rows are `stride` apart
static inline void attention_transpose(float* xt, const Stored* x, size_t stride, int T, int HS) {
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < HS; i++) { xt[(size_t)i * T + t] = to_float(x[t * stride + i]); }
    }
}

// out (keys) = scale * x (HS) @ the first `keys` columns of xt (HS,T)
static inline void attention_scores(float* out, const Stored* x, const float* xt, float scale, int keys, int T,
                                    int HS) {
    memset(out, 0, (size_t)keys * sizeof *out);
    for (int i = 0; i < HS; i++) {
        const float xi = scale * to_float(x[i]), *row = xt + (size_t)i * T;
        for (int s = 0; s < keys; s++) { out[s] += xi * row[s]; }
    }
}

// out (HS) = scale * p (keys) @ x (keys,HS), whose rows are `stride` apart
static inline void attention_weighted_sum(Stored* out, Stored* rest, const float* p, const Stored* x, size_t stride,
                                          float scale, int keys, int HS) {
    float sum[MAX_HEAD_SIZE] = {0};
    for (int s = 0; s < keys; s++) {
        for (int i = 0; i < HS; i++) { sum[i] += p[s] * to_float(x[s * stride + i]); }
    }
    for (int i = 0; i < HS; i++) { store_with_rest(out + i, stored_or_null(rest, (size_t)i), scale * sum[i]); }
}

// p (keys) = exp(p - *max), *max being the largest of them. Returns their sum.
static inline float attention_exponentials(float* p, float* max, int keys) {
    float top = -INFINITY, sum = 0;
    #pragma omp simd reduction(max : top)
    for (int s = 0; s < keys; s++) { top = p[s] > top ? p[s] : top; }
    #pragma omp simd reduction(+ : sum)
    for (int s = 0; s < keys; s++) {
        p[s] = exp_fast(p[s] - top);
        sum += p[s];
    }
    *max = top;
    return sum;
}

// attention_query with transposed keys kt (HS,T). p (keys) is scratch.
static inline float attention_query_fast(Stored* out, Stored* rest, const Stored* q, const float* kt, const Stored* v,
                                         size_t stride, float* p, int keys, int T, int HS) {
    float max;
    attention_scores(p, q, kt, 1.0f / sqrtf((float)HS), keys, T, HS);
    const float sum = attention_exponentials(p, &max, keys);
    attention_weighted_sum(out, rest, p, v, stride, 1.0f / sum, keys, HS);
    return max + logf(sum);
}

// attention_backward_query with transposed keys and values, kt and vt (HS,T). p and ds (keys) are scratch.
static inline void attention_backward_query_fast(Stored* dq, float* dk, float* dv, float delta, const Stored* dout,
                                                 float lse, const Stored* q, const Stored* k, const float* kt,
                                                 const float* vt, size_t stride, float* p, float* ds, int keys, int T,
                                                 int HS) {
    const float scale = 1.0f / sqrtf((float)HS);
    float qf[MAX_HEAD_SIZE], df[MAX_HEAD_SIZE];
    for (int i = 0; i < HS; i++) {
        qf[i] = to_float(q[i]);
        df[i] = to_float(dout[i]);
    }
    attention_scores(p, q, kt, scale, keys, T, HS);
    attention_scores(ds, dout, vt, 1.0f, keys, T, HS);
    #pragma omp simd
    for (int s = 0; s < keys; s++) {
        p[s] = exp_fast(p[s] - lse);
        ds[s] = p[s] * (ds[s] - delta) * scale;
    }
    attention_weighted_sum(dq, NULL, ds, k, stride, 1.0f, keys, HS);
    for (int s = 0; s < keys; s++) {
        float *dks = dk + (size_t)s * HS, *dvs = dv + (size_t)s * HS;
        for (int i = 0; i < HS; i++) {
            dks[i] += ds[s] * qf[i];
            dvs[i] += p[s] * df[i];
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the operations

// Computes one head without tiles. Pointers are to its first position; rows of out are C apart, of q 3C. starts may be
// NULL.
static inline void attention_forward_head(Stored* out, Stored* rest, float* lse, const Stored* q, const int* starts,
                                          int T, int C, int HS) {
    const size_t stride = (size_t)3 * C;
    const Stored *k = q + C, *v = q + 2 * C;
    if (cpu.kernels == KERNELS_PLAIN) {
        for (int t = 0; t < T; t++) {
            const int first = starts ? starts[t] : 0;
            lse[t] = attention_query(out + (size_t)t * C, stored_or_null(rest, (size_t)t * C), q + t * stride,
                                     k + first * stride, v + first * stride, stride, t + 1 - first, HS);
        }
        return;
    }
    float *kt = thread_scratch((size_t)(HS + 1) * T * sizeof *kt), *p = kt + (size_t)HS * T;
    attention_transpose(kt, k, stride, T, HS);
    for (int t = 0; t < T; t++) {
        const int first = starts ? starts[t] : 0;
        lse[t] = attention_query_fast(out + (size_t)t * C, stored_or_null(rest, (size_t)t * C), q + t * stride,
                                      kt + first, v + first * stride, stride, p, t + 1 - first, T, HS);
    }
}

static inline bool uses_flash_attention(void) { return cpu.kernels == KERNELS_FAST && cpu.flash; }

static inline void attention_forward(Stored* out, Stored* rest, float* lse, const Stored* qkv, const int* starts, int B,
                                     int T, int C, int NH) {
    const int HS = C / NH;
    if (uses_flash_attention()) {
        flash_forward(out, rest, lse, qkv, starts, B, T, C, NH);
        return;
    }
    #pragma omp parallel for collapse(2) schedule(dynamic)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            const size_t at = (size_t)b * T * C + h * HS;
            attention_forward_head(out + at, stored_or_null(rest, at), lse + ((size_t)b * NH + h) * T,
                                   qkv + (size_t)b * T * 3 * C + h * HS, starts ? starts + (size_t)b * T : NULL, T, C,
                                   HS);
        }
    }
}

// Returns the bytes of thread_scratch() that attention_backward_head() takes: dk and dv; but for the plain loops also k
// and v transposed, p and ds.
static inline size_t attention_backward_bytes(bool plain, int T, int HS) {
    const size_t n = (size_t)T * HS;
    return (plain ? 2 * n : 4 * n + 2 * (size_t)T) * sizeof(float);
}

// Sets one head's gradients; dk and dv are C and 2C elements behind dq. Pointers and rows as in attention_forward_head,
// dq as q.
static inline void attention_backward_head(Stored* dq, const Stored* dout, const Stored* out, const Stored* rest,
                                           const float* lse, const Stored* q, const int* starts, int T, int C, int HS) {
    const size_t stride = (size_t)3 * C, n = (size_t)T * HS;
    const bool plain = cpu.kernels == KERNELS_PLAIN;
    const Stored *k = q + C, *v = q + 2 * C;
    float *dk = thread_scratch(attention_backward_bytes(plain, T, HS)), *dv = dk + n;
    float *kt = dv + n, *vt = kt + n, *p = vt + n, *ds = p + T;
    memset(dk, 0, 2 * n * sizeof *dk);
    if (!plain) {
        attention_transpose(kt, k, stride, T, HS);
        attention_transpose(vt, v, stride, T, HS);
    }
    for (int t = 0; t < T; t++) {
        const int first = starts ? starts[t] : 0, keys = t + 1 - first;
        const size_t at = (size_t)t * C, key = first * stride, sum = (size_t)first * HS;
        const float delta = attention_delta(dout + at, out + at, stored_or_null(rest, at), HS);
        if (plain) {
            attention_backward_query(dq + t * stride, dk + sum, dv + sum, delta, dout + at, lse[t], q + t * stride,
                                     k + key, v + key, stride, keys, HS);
        } else {
            attention_backward_query_fast(dq + t * stride, dk + sum, dv + sum, delta, dout + at, lse[t],
                                          q + t * stride, k + key, kt + first, vt + first, stride, p, ds, keys, T, HS);
        }
    }
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < HS; i++) {
            dq[t * stride + C + i] = to_stored(dk[(size_t)t * HS + i]);
            dq[t * stride + 2 * C + i] = to_stored(dv[(size_t)t * HS + i]);
        }
    }
}

static inline void attention_backward(Stored* dqkv, float* delta, const Stored* dout, const Stored* out,
                                      const Stored* rest, const float* lse, const Stored* qkv, const int* starts,
                                      const int* ends, int B, int T, int C, int NH) {
    (void)delta; // unused: computed in local variables, or in thread_scratch() by flash
    const int HS = C / NH;
    if (uses_flash_attention()) {
        flash_backward(dqkv, dout, out, rest, lse, qkv, starts, ends, B, T, C, NH);
        return;
    }
    #pragma omp parallel for collapse(2) schedule(dynamic)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            const size_t at = (size_t)b * T * C + h * HS, at3 = (size_t)b * T * 3 * C + h * HS;
            attention_backward_head(dqkv + at3, dout + at, out + at, stored_or_null(rest, at),
                                    lse + ((size_t)b * NH + h) * T, qkv + at3,
                                    starts ? starts + (size_t)b * T : NULL, T, C, HS);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// with a cache: few queries, so keys are not transposed: their scores are dot products

// sum (vecs * LANES) = p (keys) @ x (keys,vecs * LANES), whose rows are `stride` apart. Inlined with constant `vecs`.
static inline __attribute__((always_inline)) void cached_sums(float* sum, const float* p, const Stored* x,
                                                              size_t stride, int keys, int vecs) {
    Vec acc[4] = {{0}};
    for (int s = 0; s < keys; s++) {
        #pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) { acc[v] += p[s] * vec_load(x + s * stride + v * LANES); }
    }
    #pragma GCC unroll 4
    for (int v = 0; v < vecs; v++) { *(Vec*)(sum + v * LANES) = acc[v]; }
}

// attention_query() in vector code, without the log-sum-exp. p (keys) is scratch.
static inline void attention_query_cached(Stored* out, const Stored* q, const Stored* k, const Stored* v, size_t stride,
                                          float* p, int keys, int HS) {
    enum { WIDE = 4 * LANES };
    float x[MAX_HEAD_SIZE], max;
    for (int i = 0; i < HS; i++) { x[i] = to_float(q[i]) / sqrtf((float)HS); }
    for (int s = 0; s < keys; s += DOT_ROWS) {
        dot_products(p + s, 0, x, 0, k + s * stride, stride, 1, min_int(DOT_ROWS, keys - s), HS);
    }
    const float sum = attention_exponentials(p, &max, keys);
    int i = 0;
    for (; i + WIDE <= HS; i += WIDE) { cached_sums(x + i, p, v + i, stride, keys, 4); }
    for (; i + LANES <= HS; i += LANES) { cached_sums(x + i, p, v + i, stride, keys, 1); }
    for (; i < HS; i++) {
        x[i] = 0;
        for (int s = 0; s < keys; s++) { x[i] += p[s] * to_float(v[s * stride + i]); }
    }
    for (i = 0; i < HS; i++) { out[i] = to_stored(x[i] / sum); }
}

static inline void attention_cached(Stored* out, float* lse, Stored* cache, const Stored* qkv, int B, int T, int past,
                                    int capacity, int C, int NH) {
    const int HS = C / NH;
    for (int b = 0; b < B; b++) {
        Stored* rows = cache + (size_t)b * capacity * 2 * C;
        for (int t = 0; t < T; t++) {
            memcpy(rows + (size_t)(past + t) * 2 * C, qkv + ((size_t)b * T + t) * 3 * C + C,
                   (size_t)2 * C * sizeof(Stored));
        }
    }
    if (past == 0 && T > 1 && uses_flash_attention()) { // a prompt: its keys are all in qkv
        flash_forward(out, NULL, lse, qkv, NULL, B, T, C, NH);
        return;
    }
    #pragma omp parallel for collapse(3) schedule(dynamic) if ((size_t)B * T * (past + T) * C >= DOT_SHARED)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            for (int t = 0; t < T; t++) {
                const Stored* rows = cache + (size_t)b * capacity * 2 * C + h * HS;
                const size_t n = (size_t)b * T + t, stride = (size_t)2 * C;
                const Stored* q = qkv + n * 3 * C + h * HS;
                const int keys = past + t + 1;
                if (cpu.kernels == KERNELS_PLAIN) {
                    attention_query(out + n * C + h * HS, NULL, q, rows, rows + C, stride, keys, HS);
                    continue;
                }
                float* p = thread_scratch((size_t)keys * sizeof *p);
                attention_query_cached(out + n * C + h * HS, q, rows, rows + C, stride, p, keys, HS);
            }
        }
    }
}
