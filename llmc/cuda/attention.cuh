// Causal multi-head attention, softmax(q k^T / sqrt(HS)) v. This file has the plain kernels, which take any size,
// attention with a cache of keys and values for generation, and the choice between the plain kernels, flash.cuh and
// cuDNN (attention_cudnn.h).
//
// Nothing of size T*T is kept. Backward recomputes each probability from the log-sum-exp of its row (Dao et al. 2022):
//   p = exp(q k / sqrt(HS) - lse),  dp = dout v,  ds = p (dp - delta) / sqrt(HS),  delta = sum(dout * out)
// In the plain backward kernels a warp takes one query or one key, and its lanes share the head's channels. It adds
// over the sequence in the order of positions.
#pragma once
#include "common.cuh"
#include "flash.cuh"

static constexpr int MAX_HEAD_SIZE = 256; // model_check() allows no more
static constexpr int LANE_CHANNELS = MAX_HEAD_SIZE / WARP_SIZE;
static constexpr int QUERY_WARPS = 8; // warps that share the keys of one query
static constexpr int ROW_WARPS = 4;   // warps of a block in backward, one per row

// A lane's channels of one head's row: lane, lane + 32, ...; zeros behind the row's end.
struct HeadRow {
    float x[LANE_CHANNELS];
};

static __device__ inline HeadRow load_head_row(const floatX* row, int HS) {
    HeadRow r;
    #pragma unroll
    for (int i = 0; i < LANE_CHANNELS; i++) {
        const int channel = threadIdx.x % WARP_SIZE + i * WARP_SIZE;
        r.x[i] = channel < HS ? to_float(row[channel]) : 0.0f;
    }
    return r;
}

static __device__ inline void store_head_row(floatX* row, const HeadRow& r, int HS) {
    #pragma unroll
    for (int i = 0; i < LANE_CHANNELS; i++) {
        const int channel = threadIdx.x % WARP_SIZE + i * WARP_SIZE;
        if (channel < HS) { row[channel] = to_floatX(r.x[i]); }
    }
}

static __device__ inline float head_dot(const HeadRow& a, const HeadRow& b) {
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < LANE_CHANNELS; i++) { sum += a.x[i] * b.x[i]; }
    return warp_sum(sum);
}

static __device__ inline void add_scaled(HeadRow* sum, float factor, const HeadRow& r) {
    #pragma unroll
    for (int i = 0; i < LANE_CHANNELS; i++) { sum->x[i] += factor * r.x[i]; }
}

// ---------------------------------------------------------------------------------------------------------------------
// choice of the kernels

// Returns the workspace that the memory plan reserves where cuDNN was asked for. On Hopper, before cuDNN 9.25, the
// deterministic backward stores the gradients of all scores in 16 bits, to add those of queries in a fixed order
// (https://github.com/NVIDIA/cudnn-frontend/pull/398). Elsewhere it may need less. The other backward adds in fp32.
static inline size_t cudnn_workspace_bytes(int B, int T, int C, int NH) {
    const size_t rows = ceil_div(T, 64) * 64, scores = (size_t)B * NH * rows * rows * sizeof(uint16_t);
    const size_t queries = (size_t)B * rows * (C + 2 * NH) * sizeof(float) + ((size_t)1 << 20);
    return gpu.nondeterministic ? queries : queries + scores;
}

static inline void cudnn_free_workspace(Pass pass) {
    CudnnWorkspace* w = &gpu.cudnn_workspace[pass];
    if (w->memory) { device_free(w->memory, w->bytes); }
    *w = {};
}

// Fails if others found that cuDNN computes this pass wrongly, or cannot, on this GPU. Transformer Engine refuses the
// same (transformer_engine/common/fused_attn/fused_attn.cpp), and cuDNN's own check may let some pass.
static inline bool cudnn_is_trusted(CudnnPass cudnn_pass, Error* err) {
    if (gpu.major < 8) { return fail(err, "cuDNN's attention needs compute capability 8.0"); } // its documentation
    const size_t version = attention_cudnn_version(); // 0: it cannot be opened, and the plan will say why
    if (version == 91000 || version == 91001) {
        return fail(err, "cuDNN 9.10.0 and 9.10.1 are known for errors in attention: install another version");
    }
    const bool is_old = version && version < 91801;
    if (is_old && (gpu.major >= 12 || (gpu.major >= 10 && cudnn_pass == CUDNN_BACKWARD))) {
        return fail(err, "compute capability %d.%d needs cuDNN 9.18.1 or later", gpu.major, gpu.minor);
    }
    if (gpu.major >= 12 && cudnn_pass == CUDNN_BACKWARD) {
        return fail(err, "cuDNN has no deterministic backward for compute capability %d.%d", gpu.major, gpu.minor);
    }
    return true;
}

// Builds cuDNN's plan for a shape at its first use, and allocates its workspace. That may be half of the free memory,
// so that later allocations find some. If cuDNN was asked for, it may be all, and what the memory plan reserved even if
// kernels that were loaded since have taken the margin. Returns false, with the reason, if cuDNN cannot.
static inline bool cudnn_prepare(Pass pass, int B, int T, int C, int NH, Error* err) {
    CudnnWorkspace* w = &gpu.cudnn_workspace[pass];
    const CudnnPass cudnn_pass = pass == PASS_FORWARD   ? CUDNN_FORWARD
                                 : gpu.nondeterministic ? CUDNN_BACKWARD_ANY_ORDER
                                                        : CUDNN_BACKWARD;
    const AttentionType type = FLOATX_IS_FP16 ? ATTENTION_IN_FP16 : ATTENTION_IN_BF16;
    const AttentionShape shape = {B, T, NH, C / NH, type, cudnn_pass};
    if (!memcmp(&w->shape, &shape, sizeof shape)) { return true; }
    if (!cudnn_is_trusted(cudnn_pass, err)) { return false; }
    const size_t available = device_memory_available(), planned = cudnn_workspace_bytes(B, T, C, NH);
    const size_t most = w->bytes + (is_attention_requested("cudnn") ? max_size(available, planned) : available / 2);
    size_t bytes = 0;
    if (!attention_cudnn_prepare(&shape, most, &bytes, err)) { return false; }
    if (bytes > most) {
        return fail(err, "a workspace of %.0f MiB is needed, for which memory is too small", in_mib(bytes));
    }
    if (bytes > w->bytes) {
        cudnn_free_workspace(pass);
        w->memory = (char*)device_alloc(bytes, "cuDNN's workspace");
        w->bytes = bytes;
    }
    w->shape = shape;
    return true;
}

// Returns true if cuDNN computes this pass of attention. flash.cuh computes shapes that cuDNN lacks or was not chosen
// for, such as a smaller last batch or the shorter sequences of --seq_ramp. Each can read the other's results.
static inline bool uses_cudnn_attention(Pass pass, int B, int T, int C, int NH) {
    Error err;
    const bool is_chosen = gpu.attention[pass] == ATTENTION_CUDNN;
    if (!is_chosen || (gpu.cudnn_B && (B != gpu.cudnn_B || T != gpu.cudnn_T))) { return false; }
    if (cudnn_prepare(pass, B, T, C, NH, &err)) { return true; }
    static bool is_reported;
    if (!is_reported) {
        notice("cuDNN has no attention for %d x %d tokens, %d heads of %d (%s): our own kernels run instead", B, T,
               NH, C / NH, err.text);
    }
    is_reported = true;
    return false;
}

// Returns true if flash.cuh computes attention. a and b are the activations that it would read and write.
static inline bool uses_flash_attention(const floatX* a, const floatX* b, int HS) {
    if (!gpu.flash) { return false; }
    if (flash_supports(a, HS) && flash_supports(b, HS)) { return true; }
    static bool is_reported;
    if (!is_reported) {
        notice("heads of %d channels do not fit attention in tiles, which takes multiples of 8 up to %d: the slow "
               "plain kernels run instead",
               HS, flash_max_head_size());
    }
    is_reported = true;
    return false;
}

// ---------------------------------------------------------------------------------------------------------------------
// forward, also with a cache for generation

namespace { // has a member of type floatX: see device.cuh
// Location of keys and values: key s of sequence b begins at p + b * batch + s * row, its value C elements further.
struct KeyRows {
    const floatX* p;
    size_t batch, row;
};
} // namespace

// Computes attention of row blockIdx.x of (B,T), head blockIdx.y: of the query at position past + t to the keys up to
// it. Each warp keeps an online softmax over its own keys (Milakov & Gimelshein 2018, "Online normalizer calculation
// for softmax"). The block then merges the softmaxes of its warps. rest, lse and starts may be NULL.
static __global__ void __launch_bounds__(QUERY_WARPS* WARP_SIZE)
    attention_query_kernel(floatX* out, floatX* rest, float* lse, const floatX* qkv, KeyRows keys, const int* starts,
                           int T, int past, int C, int NH) {
    const int HS = C / NH, h = blockIdx.y, b = blockIdx.x / T, t = blockIdx.x % T;
    const int warp = threadIdx.x / WARP_SIZE, lane = threadIdx.x % WARP_SIZE;
    const HeadRow q = load_head_row(qkv + (size_t)blockIdx.x * 3 * C + h * HS, HS);
    const float scale = 1.0f / sqrtf((float)HS);
    HeadRow o = {};
    float max = -INFINITY, sum = 0;
    #pragma unroll 2
    for (int s = (starts ? starts[blockIdx.x] : 0) + warp; s <= past + t; s += QUERY_WARPS) {
        const floatX* k = keys.p + b * keys.batch + s * keys.row + h * HS;
        const HeadRow key = load_head_row(k, HS), value = load_head_row(k + C, HS);
        const float score = head_dot(q, key) * scale, old = max;
        max = fmaxf(old, score);
        const float shrink = expf(old - max), p = expf(score - max);
        sum = sum * shrink + p;
        #pragma unroll
        for (int i = 0; i < LANE_CHANNELS; i++) { o.x[i] = o.x[i] * shrink + p * value.x[i]; }
    }

    __shared__ float maxima[QUERY_WARPS], sums[QUERY_WARPS], outs[QUERY_WARPS][MAX_HEAD_SIZE];
    if (lane == 0) {
        maxima[warp] = max;
        sums[warp] = sum;
    }
    #pragma unroll
    for (int i = 0; i < LANE_CHANNELS; i++) { outs[warp][lane + i * WARP_SIZE] = o.x[i]; }
    __syncthreads();
    for (int w = 0; w < QUERY_WARPS; w++) { max = fmaxf(max, maxima[w]); }
    sum = 0;
    for (int w = 0; w < QUERY_WARPS; w++) { sum += sums[w] * expf(maxima[w] - max); }
    for (int channel = threadIdx.x; channel < HS; channel += blockDim.x) {
        float x = 0;
        for (int w = 0; w < QUERY_WARPS; w++) { x += outs[w][channel] * expf(maxima[w] - max); }
        const size_t at = (size_t)blockIdx.x * C + h * HS + channel;
        out[at] = to_floatX(x / sum);
        if (rest) { rest[at] = to_floatX(x / sum - to_float(out[at])); }
    }
    if (lse && threadIdx.x == 0) { lse[((size_t)b * NH + h) * T + t] = max + logf(sum); }
}

static inline void attention_query(floatX* out, floatX* rest, float* lse, const floatX* qkv, KeyRows keys,
                                   const int* starts, int B, int T, int past, int C, int NH) {
    const dim3 grid((unsigned)B * (unsigned)T, NH);
    const unsigned threads = QUERY_WARPS * WARP_SIZE;
    attention_query_kernel<<<grid, threads, 0, gpu.stream>>>(out, rest, lse, qkv, keys, starts, T, past, C, NH);
    cuda_launched("attention_query");
}

static inline void attention_forward(floatX* out, floatX* rest, float* lse, const floatX* qkv, const int* starts, int B,
                                     int T, int C, int NH) {
    if (!starts && !rest && uses_cudnn_attention(PASS_FORWARD, B, T, C, NH)) {
        const CudnnWorkspace* w = &gpu.cudnn_workspace[PASS_FORWARD];
        attention_cudnn_forward(out, lse, qkv, &w->shape, w->memory, gpu.stream);
        return;
    }
    if (uses_flash_attention(qkv, out, C / NH)) {
        flash_forward_sized(out, rest, lse, qkv, starts, B, T, C, NH);
        return;
    }
    const KeyRows keys = {qkv + C, (size_t)T * 3 * C, (size_t)3 * C};
    attention_query(out, rest, lse, qkv, keys, starts, B, T, 0, C, NH);
}

// Copies keys and values of row blockIdx.x of (B,T), which are contiguous in qkv and in the cache.
static __global__ void attention_cache_kernel(floatX* cache, const floatX* qkv, int T, int past, int capacity, int C) {
    const int b = blockIdx.x / T, t = blockIdx.x % T;
    const floatX* from = qkv + (size_t)blockIdx.x * 3 * C + C;
    floatX* to = cache + ((size_t)b * capacity + past + t) * 2 * C;
    for (int i = threadIdx.x; i < 2 * C; i += blockDim.x) { to[i] = from[i]; }
}

static inline void attention_cache(floatX* cache, const floatX* qkv, int B, int T, int past, int capacity, int C) {
    const unsigned rows = (unsigned)B * (unsigned)T;
    attention_cache_kernel<<<rows, THREADS_IN_BLOCK, 0, gpu.stream>>>(cache, qkv, T, past, capacity, C);
    cuda_launched("attention_cache");
}

static inline void attention_cached(floatX* out, float* lse, floatX* cache, const floatX* qkv, int B, int T, int past,
                                    int capacity, int C, int NH) {
    attention_cache(cache, qkv, B, T, past, capacity, C);
    if (past == 0 && T > 1 && uses_flash_attention(qkv, out, C / NH)) { // a prompt: its keys are all in qkv
        flash_forward_sized(out, NULL, lse, qkv, NULL, B, T, C, NH);
        return;
    }
    const KeyRows keys = {cache, (size_t)capacity * 2 * C, (size_t)2 * C};
    attention_query(out, NULL, NULL, qkv, keys, NULL, B, T, past, C, NH);
}

// ---------------------------------------------------------------------------------------------------------------------
// backward

// Returns the row of (B,T) of this warp in the two kernels below; the head is blockIdx.y.
static __device__ inline unsigned attention_warp_row() { return blockIdx.x * ROW_WARPS + threadIdx.x / WARP_SIZE; }

// A warp computes delta of a query, which the kernel below needs too; and dq, a sum over the keys up to the query, from
// the beginning of its document on. rest and starts may be NULL.
static __global__ void __launch_bounds__(ROW_WARPS* WARP_SIZE)
    attention_backward_queries_kernel(floatX* dqkv, float* delta, const floatX* dout, const floatX* out,
                                      const floatX* rest, const float* lse, const floatX* qkv, const int* starts,
                                      unsigned rows, int T, int C, int NH) {
    const unsigned n = attention_warp_row();
    if (n >= rows) { return; }
    const int HS = C / NH, h = blockIdx.y, t = (int)(n % T);
    const size_t stride = (size_t)3 * C, b = n / T, statistic = (b * NH + h) * T + t, at = (size_t)n * C + h * HS;
    const float scale = 1.0f / sqrtf((float)HS);
    const HeadRow q = load_head_row(qkv + n * stride + h * HS, HS), d = load_head_row(dout + at, HS);
    HeadRow dq = {}, o = load_head_row(out + at, HS);
    if (rest) { add_scaled(&o, 1.0f, load_head_row(rest + at, HS)); }
    const float row_delta = head_dot(d, o);
    if (threadIdx.x % WARP_SIZE == 0) { delta[statistic] = row_delta; }
    for (int s = starts ? starts[n] : 0; s <= t; s++) {
        const floatX* k = qkv + (b * T + s) * stride + C + h * HS;
        const HeadRow key = load_head_row(k, HS), value = load_head_row(k + C, HS);
        const float p = expf(head_dot(q, key) * scale - lse[statistic]);
        add_scaled(&dq, p * (head_dot(d, value) - row_delta) * scale, key);
    }
    store_head_row(dqkv + n * stride + h * HS, dq, HS);
}

// A warp computes dk and dv of a key: sums over the queries from it on, to the end of its document. ends may be NULL.
static __global__ void __launch_bounds__(ROW_WARPS* WARP_SIZE)
    attention_backward_keys_kernel(floatX* dqkv, const floatX* dout, const float* lse, const float* delta,
                                   const floatX* qkv, const int* ends, unsigned rows, int T, int C, int NH) {
    const unsigned n = attention_warp_row();
    if (n >= rows) { return; }
    const int HS = C / NH, h = blockIdx.y, s = (int)(n % T);
    const size_t stride = (size_t)3 * C, b = n / T;
    const float scale = 1.0f / sqrtf((float)HS);
    const floatX* k = qkv + n * stride + C + h * HS;
    const HeadRow key = load_head_row(k, HS), value = load_head_row(k + C, HS);
    HeadRow dk = {}, dv = {};
    for (int t = s, end = ends ? ends[n] : T; t < end; t++) {
        const size_t query = b * T + t, statistic = (b * NH + h) * T + t;
        const HeadRow q = load_head_row(qkv + query * stride + h * HS, HS);
        const HeadRow d = load_head_row(dout + query * C + h * HS, HS);
        const float p = expf(head_dot(q, key) * scale - lse[statistic]);
        add_scaled(&dv, p, d);
        add_scaled(&dk, p * (head_dot(d, value) - delta[statistic]) * scale, q);
    }
    floatX* out = dqkv + n * stride + C + h * HS;
    store_head_row(out, dk, HS);
    store_head_row(out + C, dv, HS);
}

static inline void attention_backward_plain(floatX* dqkv, float* delta, const floatX* dout, const floatX* out,
                                            const floatX* rest, const float* lse, const floatX* qkv, const int* starts,
                                            const int* ends, int B, int T, int C, int NH) {
    const unsigned rows = (unsigned)B * (unsigned)T;
    const dim3 grid((unsigned)ceil_div(rows, ROW_WARPS), NH);
    const int threads = ROW_WARPS * WARP_SIZE;
    attention_backward_queries_kernel<<<grid, threads, 0, gpu.stream>>>(dqkv, delta, dout, out, rest, lse, qkv, starts,
                                                                        rows, T, C, NH);
    cuda_launched("attention_backward_queries");
    attention_backward_keys_kernel<<<grid, threads, 0, gpu.stream>>>(dqkv, dout, lse, delta, qkv, ends, rows, T, C, NH);
    cuda_launched("attention_backward_keys");
}

static inline void attention_backward(floatX* dqkv, float* delta, const floatX* dout, const floatX* out,
                                      const floatX* rest, const float* lse, const floatX* qkv, const int* starts,
                                      const int* ends, int B, int T, int C, int NH) {
    const int HS = C / NH;
    if (!starts && !rest && uses_cudnn_attention(PASS_BACKWARD, B, T, C, NH)) {
        const CudnnWorkspace* w = &gpu.cudnn_workspace[PASS_BACKWARD];
        attention_cudnn_backward(dqkv, dout, out, lse, qkv, &w->shape, w->memory, gpu.stream);
        return;
    }
    if (uses_flash_attention(qkv, dqkv, HS) && is_wide<FLOATX_WIDTH>(HS, dout, out, rest)) {
        flash_backward_sized(dqkv, delta, dout, out, rest, lse, qkv, starts, ends, B, T, C, NH);
    } else {
        attention_backward_plain(dqkv, delta, dout, out, rest, lse, qkv, starts, ends, B, T, C, NH);
    }
}
