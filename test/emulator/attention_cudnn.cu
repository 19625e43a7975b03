// A stand-in for cuDNN's attention (llmc/cuda/attention_cudnn.h). It computes the same tensors in plain kernels, with
// one thread for each query. It refuses the shapes that cuDNN is known to refuse, and workspaces above the limit. It
// asks for the workspaces of cuDNN 9.19, and overwrites them. With EMU_CUDNN=0 it refuses every shape.
#include "../../llmc/cuda/attention_cudnn.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { MOST_CHANNELS = 128 };

// One head of one sequence, and the row (position) of it that this thread computes.
struct Head {
    size_t qkv, out, lse; // offset of the head's first row in each tensor, in elements
    size_t row;           // elements from one row of qkv to the next: q, k and v, C elements each
    int C, T, HS, i;      // i: this thread's row
};

static __device__ Head head_of(AttentionShape s) {
    const int h = blockIdx.y % s.NH, b = blockIdx.y / s.NH, C = s.NH * s.HS;
    return {(size_t)b * s.T * 3 * C + h * s.HS, (size_t)b * s.T * C + h * s.HS, (size_t)blockIdx.y * s.T,
            (size_t)3 * C, C, s.T, s.HS, (int)(blockIdx.x * blockDim.x + threadIdx.x)};
}

template <class Type> static __device__ float dot(const Type* a, const Type* b, int n) {
    float sum = 0;
    for (int i = 0; i < n; i++) { sum += (float)a[i] * (float)b[i]; }
    return sum;
}

template <class Type>
static __global__ void cudnn_forward_kernel(Type* out, float* lse, const Type* qkv, AttentionShape s) {
    const Head at = head_of(s);
    if (at.i >= at.T) { return; }
    const Type *q = qkv + at.qkv + at.i * at.row, *k = qkv + at.qkv + at.C, *v = k + at.C;
    const float scale = 1.0f / sqrtf((float)at.HS);
    float sums[MOST_CHANNELS] = {}, max = -INFINITY, total = 0;
    for (int j = 0; j <= at.i; j++) { max = fmaxf(max, dot(q, k + j * at.row, at.HS) * scale); }
    for (int j = 0; j <= at.i; j++) {
        const float p = expf(dot(q, k + j * at.row, at.HS) * scale - max);
        total += p;
        for (int c = 0; c < at.HS; c++) { sums[c] += p * (float)v[j * at.row + c]; }
    }
    for (int c = 0; c < at.HS; c++) { out[at.out + (size_t)at.i * at.C + c] = Type(sums[c] / total); }
    lse[at.lse + at.i] = max + logf(total);
}

// The backward that adds in any order begins with another row in each call, and with another EMU_ORDER.
static int calls;

template <class Type>
static __global__ void cudnn_delta_kernel(float* delta, const Type* dout, const Type* out, AttentionShape s) {
    const Head at = head_of(s);
    if (at.i >= at.T) { return; }
    if (s.pass == CUDNN_BACKWARD_ANY_ORDER && at.i == 0 && blockIdx.y == 0) { calls++; }
    const size_t row = at.out + (size_t)at.i * at.C;
    delta[at.lse + at.i] = dot(dout + row, out + row, at.HS);
}

// Probability of one key for one query, and the gradient of their score.
struct Pair {
    float p, ds;
};
template <class Type>
static __device__ Pair pair_of(const Head& at, const Type* qkv, const Type* dout, const float* lse, const float* delta,
                               int query, int key) {
    const Type *q = qkv + at.qkv + query * at.row, *k = qkv + at.qkv + key * at.row + at.C;
    const float scale = 1.0f / sqrtf((float)at.HS), p = expf(dot(q, k, at.HS) * scale - lse[at.lse + query]);
    const float dp = dot(dout + at.out + (size_t)query * at.C, k + at.C, at.HS);
    return {p, p * (dp - delta[at.lse + query]) * scale};
}

template <class Type>
static __global__ void cudnn_backward_kernel(Type* dqkv, const Type* dout, const float* lse, const float* delta,
                                             const Type* qkv, AttentionShape s, int order) {
    const Head at = head_of(s);
    if (at.i >= at.T) { return; }
    float dq[MOST_CHANNELS] = {}, dk[MOST_CHANNELS] = {}, dv[MOST_CHANNELS] = {};
    const int first = s.pass == CUDNN_BACKWARD_ANY_ORDER ? (calls * 13 + order) % at.T : 0;
    for (int n = 0; n < at.T; n++) {
        const int j = (first + n) % at.T;
        const Pair pair = j <= at.i ? pair_of(at, qkv, dout, lse, delta, at.i, j) // j is the key
                                    : pair_of(at, qkv, dout, lse, delta, j, at.i); // j is the query
        const Type *q = qkv + at.qkv + j * at.row, *k = q + at.C, *d = dout + at.out + (size_t)j * at.C;
        for (int c = 0; c < at.HS; c++) {
            if (j <= at.i) { dq[c] += pair.ds * (float)k[c]; }
            if (j >= at.i) {
                dk[c] += pair.ds * (float)q[c];
                dv[c] += pair.p * (float)d[c];
            }
        }
    }
    Type* to = dqkv + at.qkv + at.i * at.row;
    for (int c = 0; c < at.HS; c++) {
        to[c] = Type(dq[c]);
        to[at.C + c] = Type(dk[c]);
        to[2 * at.C + c] = Type(dv[c]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the interface

static size_t delta_bytes(const AttentionShape* s) { return (size_t)s->B * s->NH * s->T * sizeof(float); }

// The deterministic backward of Hopper stores the gradients of all scores; others add those of queries in fp32.
static size_t workspace_of(const AttentionShape* s) {
    const size_t heads = (size_t)s->B * s->NH, rows = (s->T + 63) / 64 * 64;
    if (s->pass == CUDNN_FORWARD) { return 0; }
    const bool stores_scores = s->pass == CUDNN_BACKWARD && emu::compute_capability() / 10 == 9;
    return delta_bytes(s) + (stores_scores ? heads * rows * rows * 2 : heads * s->T * s->HS * sizeof(float));
}

static dim3 blocks(const AttentionShape* s) { return dim3((s->T + 31) / 32, s->B * s->NH); }

bool attention_cudnn_prepare(const AttentionShape* s, size_t most_bytes, size_t* workspace_bytes, Error* err) {
    const int multiple = (int)emu::option("EMU_CUDNN", 1);
    *workspace_bytes = 0;
    if (!multiple) { return fail(err, "the stand-in has nothing for this device"); }
    if (s->T % multiple) { return fail(err, "sequences must be multiples of %d tokens", multiple); }
    if (s->T == 1) { return fail(err, "one query and one key are not supported"); }
    if (s->HS % 8 || s->HS > MOST_CHANNELS) { return fail(err, "heads must be multiples of 8, at most 128"); }
    if (s->pass == CUDNN_BACKWARD && emu::compute_capability() >= 100) { // as frontend 1.15 does
        return fail(err, "the deterministic algorithm is not supported on Blackwell");
    }
    *workspace_bytes = workspace_of(s);
    return *workspace_bytes <= most_bytes || fail(err, "no plan with a workspace of %zu bytes or less", most_bytes);
}

size_t attention_cudnn_version(void) { return (size_t)emu::option("EMU_CUDNN_VERSION", 91900); }

template <class Type>
static void cudnn_forward(Type* out, float* lse, const Type* qkv, const AttentionShape* s, cudaStream_t stream) {
    cudnn_forward_kernel<<<blocks(s), 32, 0, stream>>>(out, lse, qkv, *s);
}

template <class Type>
static void cudnn_backward(Type* dqkv, float* delta, const Type* dout, const Type* out, const float* lse,
                           const Type* qkv, const AttentionShape* s, cudaStream_t stream) {
    cudnn_delta_kernel<<<blocks(s), 32, 0, stream>>>(delta, dout, out, *s);
    const int order = (int)emu::option("EMU_ORDER", 0);
    cudnn_backward_kernel<<<blocks(s), 32, 0, stream>>>(dqkv, dout, lse, delta, qkv, *s, order);
}

void attention_cudnn_forward(void* out, float* lse, const void* qkv, const AttentionShape* s, void* workspace,
                             cudaStream_t stream) {
    (void)workspace;
    if (s->type == ATTENTION_IN_FP16) {
        cudnn_forward((__half*)out, lse, (const __half*)qkv, s, stream);
    } else {
        cudnn_forward((__nv_bfloat16*)out, lse, (const __nv_bfloat16*)qkv, s, stream);
    }
}

void attention_cudnn_backward(void* dqkv, const void* dout, const void* out, const float* lse, const void* qkv,
                              const AttentionShape* s, void* workspace, cudaStream_t stream) {
    float* delta = (float*)workspace;
    cudaMemsetAsync(workspace, 0xff, workspace_of(s), stream);
    if (s->type == ATTENTION_IN_FP16) {
        cudnn_backward((__half*)dqkv, delta, (const __half*)dout, (const __half*)out, lse, (const __half*)qkv, s,
                       stream);
    } else {
        cudnn_backward((__nv_bfloat16*)dqkv, delta, (const __nv_bfloat16*)dout, (const __nv_bfloat16*)out, lse,
                       (const __nv_bfloat16*)qkv, s, stream);
    }
}
