// Causal multi-head attention, softmax(q k^T / sqrt(HS)) v. Nothing of size T*T is kept: backward rebuilds each
// probability from the log-sum-exp of its row,
//   p = exp(q k / sqrt(HS) - lse),  dp = dout v,  ds = p (dp - sum(dout * out)) / sqrt(HS)
// Threads split batch and heads; within a head everything is summed in one order.
#pragma once
#include "device.h"
#include "math.h"
#include "../ops.h"

enum { MAX_HEAD_SIZE = 256 };

// ---------------------------------------------------------------------------------------------------------------------
// plain: a query and a key at a time. The softmax is kept up to date as keys go by ("online": Milakov & Gimelshein
// 2018).

static inline float attention_score(const floatX* q, const floatX* k, int HS) {
    float dot = 0;
    #pragma omp simd reduction(+ : dot)
    for (int i = 0; i < HS; i++) { dot += to_float(q[i]) * to_float(k[i]); }
    return dot / sqrtf((float)HS);
}

// One query over `keys` keys; key s and its value stand at k + s * stride and v + s * stride. Returns the log-sum-exp.
static inline float attention_query(floatX* out, const floatX* q, const floatX* k, const floatX* v, size_t stride,
                                    int keys, int HS) {
    float o[MAX_HEAD_SIZE] = {0}, max = -INFINITY, sum = 0;
    for (int s = 0; s < keys; s++) {
        const float score = attention_score(q, k + s * stride, HS), old = max;
        max = fmaxf(old, score);
        const float shrink = expf(old - max), p = expf(score - max);
        sum = sum * shrink + p;
        for (int i = 0; i < HS; i++) { o[i] = o[i] * shrink + p * to_float(v[s * stride + i]); }
    }
    for (int i = 0; i < HS; i++) { out[i] = to_floatX(o[i] / sum); }
    return max + logf(sum);
}

// One query's part of the backward pass: dq, and additions to dk and dv (keys,HS) of the keys up to its own.
static inline void attention_backward_query(floatX* dq, float* dk, float* dv, const floatX* dout, const floatX* out,
                                            float lse, const floatX* q, const floatX* k, const floatX* v, size_t stride,
                                            int keys, int HS) {
    const float scale = 1.0f / sqrtf((float)HS);
    float sum[MAX_HEAD_SIZE] = {0}, delta = 0;
    for (int i = 0; i < HS; i++) { delta += to_float(dout[i]) * to_float(out[i]); }
    for (int s = 0; s < keys; s++) {
        const floatX *ks = k + s * stride, *vs = v + s * stride;
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
    for (int i = 0; i < HS; i++) { dq[i] = to_floatX(sum[i]); }
}

// ---------------------------------------------------------------------------------------------------------------------
// fast: a query and all its keys at a time. Keys and values are copied once for a head, also transposed, so that the
// inner loops run over neighbours in memory: over keys for scores, over the head's channels for sums.

typedef struct {
    float *k, *v, *kt, *vt; // (T,HS), (T,HS), (HS,T), (HS,T)
    float *p, *ds;          // (T): of one query
    float *dk, *dv;         // (T,HS)
} HeadScratch;

static inline HeadScratch head_scratch(const floatX* k, const floatX* v, size_t stride, int T, int HS) {
    const size_t n = (size_t)T * HS;
    float* memory = (float*)alloc_or_die(6 * n + 2 * (size_t)T, sizeof(float), "one head of attention");
    HeadScratch h = {memory,         memory + n,         memory + 2 * n, memory + 3 * n,
                     memory + 6 * n, memory + 6 * n + T, memory + 4 * n, memory + 5 * n};
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < HS; i++) {
            h.k[(size_t)t * HS + i] = h.kt[(size_t)i * T + t] = to_float(k[t * stride + i]);
            h.v[(size_t)t * HS + i] = h.vt[(size_t)i * T + t] = to_float(v[t * stride + i]);
        }
    }
    return h;
}

// out (keys) = scale * x (HS) @ xt (HS,T), the first `keys` columns
static inline void head_scores(float* out, const floatX* x, const float* xt, float scale, int keys, int T, int HS) {
    memset(out, 0, (size_t)keys * sizeof *out);
    for (int i = 0; i < HS; i++) {
        const float xi = scale * to_float(x[i]), *row = xt + (size_t)i * T;
        for (int s = 0; s < keys; s++) { out[s] += xi * row[s]; }
    }
}

// out (HS) = p (keys) @ rows (keys,HS)
static inline void head_weighted_sum(float* out, const float* p, const float* rows, int keys, int HS) {
    memset(out, 0, (size_t)HS * sizeof *out);
    for (int s = 0; s < keys; s++) {
        for (int i = 0; i < HS; i++) { out[i] += p[s] * rows[(size_t)s * HS + i]; }
    }
}

static inline float attention_query_fast(floatX* out, const floatX* q, const HeadScratch* h, int keys, int T, int HS) {
    float o[MAX_HEAD_SIZE], max = -INFINITY, sum = 0;
    head_scores(h->p, q, h->kt, 1.0f / sqrtf((float)HS), keys, T, HS);
    #pragma omp simd reduction(max : max)
    for (int s = 0; s < keys; s++) { max = h->p[s] > max ? h->p[s] : max; }
    #pragma omp simd reduction(+ : sum)
    for (int s = 0; s < keys; s++) {
        h->p[s] = exp_fast(h->p[s] - max);
        sum += h->p[s];
    }
    head_weighted_sum(o, h->p, h->v, keys, HS);
    for (int i = 0; i < HS; i++) { out[i] = to_floatX(o[i] / sum); }
    return max + logf(sum);
}

static inline void attention_backward_query_fast(floatX* dq, const HeadScratch* h, const floatX* dout,
                                                 const floatX* out, float lse, const floatX* q, int keys, int T,
                                                 int HS) {
    const float scale = 1.0f / sqrtf((float)HS);
    float sum[MAX_HEAD_SIZE], qf[MAX_HEAD_SIZE], df[MAX_HEAD_SIZE], delta = 0;
    for (int i = 0; i < HS; i++) {
        qf[i] = to_float(q[i]), df[i] = to_float(dout[i]);
        delta += df[i] * to_float(out[i]);
    }
    head_scores(h->p, q, h->kt, scale, keys, T, HS);
    head_scores(h->ds, dout, h->vt, 1.0f, keys, T, HS);
    #pragma omp simd
    for (int s = 0; s < keys; s++) {
        h->p[s] = exp_fast(h->p[s] - lse);
        h->ds[s] = h->p[s] * (h->ds[s] - delta) * scale;
    }
    head_weighted_sum(sum, h->ds, h->k, keys, HS);
    for (int s = 0; s < keys; s++) {
        float *dks = h->dk + (size_t)s * HS, *dvs = h->dv + (size_t)s * HS;
        for (int i = 0; i < HS; i++) {
            dks[i] += h->ds[s] * qf[i];
            dvs[i] += h->p[s] * df[i];
        }
    }
    for (int i = 0; i < HS; i++) { dq[i] = to_floatX(sum[i]); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the operations: head h of sequence b has its queries at qkv + b*T*3C + h*HS, its keys C behind them, its values 2C

OP void attention_forward(floatX* out, float* lse, const floatX* qkv, int B, int T, int C, int NH) {
    const int HS = C / NH;
    const size_t stride = (size_t)3 * C;
    #pragma omp parallel for collapse(2) schedule(dynamic)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            const floatX *q = qkv + (size_t)b * T * stride + h * HS, *k = q + C, *v = q + 2 * C;
            floatX* o = out + (size_t)b * T * C + h * HS;
            float* l = lse + ((size_t)b * NH + h) * T;
            if (cpu.kernels == KERNELS_PLAIN) {
                for (int t = 0; t < T; t++) {
                    l[t] = attention_query(o + (size_t)t * C, q + t * stride, k, v, stride, t + 1, HS);
                }
                continue;
            }
            const HeadScratch head = head_scratch(k, v, stride, T, HS);
            for (int t = 0; t < T; t++) {
                l[t] = attention_query_fast(o + (size_t)t * C, q + t * stride, &head, t + 1, T, HS);
            }
            free(head.k);
        }
    }
}

OP void attention_backward(floatX* dqkv, float* delta, const floatX* dout, const floatX* out, const float* lse,
                           const floatX* qkv, int B, int T, int C, int NH) {
    (void)delta; // a query's is summed where it is used
    const int HS = C / NH;
    const size_t stride = (size_t)3 * C;
    #pragma omp parallel for collapse(2) schedule(dynamic)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            const floatX *q = qkv + (size_t)b * T * stride + h * HS, *k = q + C, *v = q + 2 * C;
            floatX* dq = dqkv + (size_t)b * T * stride + h * HS;
            const HeadScratch head = head_scratch(k, v, stride, T, HS);
            for (int t = 0; t < T; t++) {
                const size_t at = ((size_t)b * T + t) * C + h * HS;
                const float l = lse[((size_t)b * NH + h) * T + t];
                if (cpu.kernels == KERNELS_PLAIN) {
                    attention_backward_query(dq + t * stride, head.dk, head.dv, dout + at, out + at, l, q + t * stride,
                                             k, v, stride, t + 1, HS);
                } else {
                    attention_backward_query_fast(dq + t * stride, &head, dout + at, out + at, l, q + t * stride, t + 1,
                                                  T, HS);
                }
            }
            for (int t = 0; t < T; t++) {
                for (int i = 0; i < HS; i++) {
                    dq[t * stride + C + i] = to_floatX(head.dk[(size_t)t * HS + i]);
                    dq[t * stride + 2 * C + i] = to_floatX(head.dv[(size_t)t * HS + i]);
                }
            }
            free(head.k);
        }
    }
}

OP void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int B, int T, int past, int capacity, int C,
                         int NH) {
    const int HS = C / NH;
    for (int b = 0; b < B; b++) {
        floatX* rows = cache + (size_t)b * capacity * 2 * C;
        for (int t = 0; t < T; t++) {
            memcpy(rows + (size_t)(past + t) * 2 * C, qkv + ((size_t)b * T + t) * 3 * C + C,
                   (size_t)2 * C * sizeof(floatX));
        }
    }
    #pragma omp parallel for collapse(3) schedule(dynamic)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            for (int t = 0; t < T; t++) {
                const floatX* rows = cache + (size_t)b * capacity * 2 * C + h * HS;
                const size_t n = (size_t)b * T + t;
                attention_query(out + n * C + h * HS, qkv + n * 3 * C + h * HS, rows, rows + C, (size_t)2 * C,
                                past + t + 1, HS);
            }
        }
    }
}
