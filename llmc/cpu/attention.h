// Causal multi-head attention, softmax(q k^T / sqrt(HS)) v, without ever holding a row of scores: the softmax is kept up
// to date as keys go by ("online": Milakov & Gimelshein 2018). Backward rebuilds each probability from the log-sum-exp:
//   p = exp(q k / sqrt(HS) - lse),  dp = dout v,  ds = p (dp - sum(dout * out)) / sqrt(HS)
// Threads split batch and heads; within a head everything is summed in one order.
#pragma once
#include "device.h"
#include "../ops.h"

// The state of one query on its way over the keys; HS numbers of `o`.
static inline void attention_add_key(float* o, float* max, float* sum, float score, const floatX* v, int HS) {
    const float old = *max;
    *max = fmaxf(old, score);
    const float shrink = expf(old - *max), p = expf(score - *max);
    *sum = *sum * shrink + p;
    for (int i = 0; i < HS; i++) { o[i] = o[i] * shrink + p * to_float(v[i]); }
}

static inline float attention_score(const floatX* q, const floatX* k, int HS) {
    float dot = 0;
    #pragma omp simd reduction(+ : dot)
    for (int i = 0; i < HS; i++) { dot += to_float(q[i]) * to_float(k[i]); }
    return dot / sqrtf((float)HS);
}

enum { MAX_HEAD_SIZE = 256 };

// One query over `keys` keys; key s and its value stand at k + s * stride and v + s * stride. Returns the log-sum-exp.
static inline float attention_query(floatX* out, const floatX* q, const floatX* k, const floatX* v, size_t stride, int keys, int HS) {
    float o[MAX_HEAD_SIZE] = {0}, max = -INFINITY, sum = 0;
    for (int s = 0; s < keys; s++) {
        attention_add_key(o, &max, &sum, attention_score(q, k + s * stride, HS), v + s * stride, HS);
    }
    for (int i = 0; i < HS; i++) { out[i] = to_floatX(o[i] / sum); }
    return max + logf(sum);
}

OP void attention_forward(floatX* out, float* lse, const floatX* qkv, int B, int T, int C, int NH) {
    const int HS = C / NH;
    #pragma omp parallel for collapse(2) schedule(dynamic)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            const floatX* head = qkv + (size_t)b * T * 3 * C + h * HS;
            for (int t = 0; t < T; t++) {
                lse[((size_t)b * NH + h) * T + t] = attention_query(out + ((size_t)b * T + t) * C + h * HS,
                    head + (size_t)t * 3 * C, head + C, head + 2 * C, (size_t)3 * C, t + 1, HS);
            }
        }
    }
}

// One query's part of the backward pass: dq, and additions to dk and dv of the keys up to its own.
static inline void attention_backward_query(floatX* dq, float* dk, float* dv, const floatX* dout, const floatX* out, float lse,
                                            const floatX* q, const floatX* k, const floatX* v, size_t stride, int keys, int HS) {
    const float scale = 1.0f / sqrtf((float)HS);
    float sum[MAX_HEAD_SIZE] = {0}, delta = 0;
    for (int i = 0; i < HS; i++) { delta += to_float(dout[i]) * to_float(out[i]); }
    for (int s = 0; s < keys; s++) {
        const floatX *ks = k + s * stride, *vs = v + s * stride;
        float *dks = dk + (size_t)s * HS, *dvs = dv + (size_t)s * HS, dp = 0;
        const float p = expf(attention_score(q, ks, HS) - lse);
        #pragma omp simd reduction(+ : dp)
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

OP void attention_backward(floatX* dqkv, const floatX* dout, const floatX* out, const float* lse, const floatX* qkv, int B,
                           int T, int C, int NH) {
    const int HS = C / NH;
    const size_t stride = (size_t)3 * C;
    #pragma omp parallel for collapse(2) schedule(dynamic)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            const size_t head = (size_t)b * T * stride + h * HS;
            float* dk = (float*)alloc_or_die((size_t)2 * T * HS, sizeof *dk, "the gradients of a head's keys and values");
            float* dv = dk + (size_t)T * HS;
            for (int t = 0; t < T; t++) {
                const size_t at = ((size_t)b * T + t) * C + h * HS;
                attention_backward_query(dqkv + head + t * stride, dk, dv, dout + at, out + at,
                    lse[((size_t)b * NH + h) * T + t], qkv + head + t * stride, qkv + head + C, qkv + head + 2 * C, stride, t + 1, HS);
            }
            for (int t = 0; t < T; t++) {
                for (int i = 0; i < HS; i++) {
                    dqkv[head + t * stride + C + i] = to_floatX(dk[(size_t)t * HS + i]);
                    dqkv[head + t * stride + 2 * C + i] = to_floatX(dv[(size_t)t * HS + i]);
                }
            }
            free(dk);
        }
    }
}

OP void attention_cached(floatX* out, floatX* cache, const floatX* qkv, int B, int T, int past, int capacity, int C, int NH) {
    const int HS = C / NH;
    for (int b = 0; b < B; b++) {
        floatX* rows = cache + (size_t)b * capacity * 2 * C;
        for (int t = 0; t < T; t++) {
            memcpy(rows + (size_t)(past + t) * 2 * C, qkv + ((size_t)b * T + t) * 3 * C + C, (size_t)2 * C * sizeof(floatX));
        }
    }
    #pragma omp parallel for collapse(3) schedule(dynamic)
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < NH; h++) {
            for (int t = 0; t < T; t++) {
                const floatX* rows = cache + (size_t)b * capacity * 2 * C + h * HS;
                const size_t n = (size_t)b * T + t;
                attention_query(out + n * C + h * HS, qkv + n * 3 * C + h * HS, rows, rows + C, (size_t)2 * C, past + t + 1, HS);
            }
        }
    }
}
