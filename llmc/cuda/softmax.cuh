// Softmax and cross-entropy of rows of logits, and their gradient in place. A block takes a row, which is a whole
// vocabulary.
//
// Rows of up to HELD_ROW_BYTES are read once, and held in registers until their gradient is written. That is a third
// less traffic than reading them twice, since a GPU's rows together are larger than its L2 cache.
//
// Longer rows are read twice. So are rows of at most one pack for each thread, which would leave most threads of the
// other kernel idle. The first pass finds the maximum and the sum of exponentials together: the sum is rescaled
// whenever the maximum grows (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"). The second pass
// writes the gradient.
#pragma once
#include "ptx.cuh"
#include "vector.cuh"
#include <float.h>

static constexpr int SOFTMAX_THREADS = 512;
// 28 of the 64 registers that a thread of so large a block has: room for 57344 logits of 16 bits
static constexpr int HELD_THREADS = 1024, HELD_PACKS = 7, HELD_ROW_BYTES = HELD_THREADS * HELD_PACKS * 16;

// The error of __expf grows with the distance of its argument from 0. The largest logit has argument 0, so the error is
// large only where terms are too small to matter.
template <int WIDTH>
static __global__ void softmax_rows_kernel(float* losses, floatX* logits, const int* targets, float dloss, int V,
                                           int Vp) {
    floatX* row = logits + (size_t)blockIdx.x * Vp;
    const int target = targets[blockIdx.x], first = threadIdx.x * WIDTH, step = SOFTMAX_THREADS * WIDTH;
    const float at_target = to_float(row[target]); // before it is overwritten
    float x[WIDTH], max = -FLT_MAX, sum = 0;       // finite, so that the difference of two such maxima is 0
    for (int v = first; v < V; v += step) {
        load_floats(x, row + v);
        float larger = max;
        for (int k = 0; k < WIDTH; k++) {
            if (v + k >= V) { x[k] = -INFINITY; }
            larger = fmaxf(larger, x[k]);
        }
        sum *= __expf(max - larger);
        max = larger;
        for (int k = 0; k < WIDTH; k++) { sum += __expf(x[k] - max); }
    }
    const float row_max = block_max(max), row_sum = block_sum(sum * __expf(max - row_max));
    if (threadIdx.x == 0) { losses[blockIdx.x] = row_max + logf(row_sum) - at_target; }
    if (dloss == 0.0f) { return; }
    const float scale = dloss / row_sum;
    for (int v = first; v < Vp; v += step) {
        load_floats(x, row + v);
        for (int k = 0; k < WIDTH; k++) {
            const float onehot = v + k == target ? dloss : 0.0f;
            x[k] = v + k < V ? __expf(x[k] - row_max) * scale - onehot : 0.0f;
        }
        store_floats(row + v, x);
    }
}

// Eight (or in fp32 four) neighbouring logits, as they are stored: unpacked ones would need twice the registers.
typedef uint4 Logits;

// Returns the lower (k even) or the upper one of two 16-bit floats.
static __device__ inline float float_of_pair(uint32_t word, int k, bf16) { // a bf16 is the upper half of a float
    return __uint_as_float(k % 2 ? word & 0xffff0000u : word << 16);
}
static __device__ inline float float_of_pair(uint32_t word, int k, fp16) {
    __half2 pair;
    memcpy(&pair, &word, sizeof pair);
    return k % 2 ? __high2float(pair) : __low2float(pair);
}
static __device__ inline float float_of_pair(uint32_t word, int, fp32) { return __uint_as_float(word); } // just one

// nvcc would keep a pack of 16-bit floats in as many 32-bit registers.
static __device__ inline float held_logit(const Logits& held, int k) {
    const uint32_t words[] = {held.x, held.y, held.z, held.w}, word = words[k * sizeof(floatX) / sizeof(uint32_t)];
    return float_of_pair(word, k, floatX());
}

// Full packs of logits are held; of the few behind them each thread takes one. -INFINITY stands for logits beyond the
// row, whose exponentials are 0, so that no pack needs a mask.
static __global__ void __launch_bounds__(HELD_THREADS)
    softmax_held_kernel(float* losses, floatX* logits, const int* targets, float dloss, int V, int Vp) {
    enum { WIDTH = FLOATX_WIDTH, STEP = HELD_THREADS * WIDTH };
    const uint32_t none = FLOATX_IS_FP16 ? 0xfc00fc00u : FLOATX_IS_16_BITS ? 0xff80ff80u : 0xff800000u; // -INFINITY
    floatX* row = logits + (size_t)blockIdx.x * Vp;
    const int target = targets[blockIdx.x], first = threadIdx.x * WIDTH, full = V / WIDTH * WIDTH;
    const int single = full + (int)threadIdx.x;
    const float at_target = to_float(row[target]); // before it is overwritten
    const float rest = single < V ? to_float(row[single]) : -INFINITY;
    Logits held[HELD_PACKS];
    #pragma unroll
    for (int i = 0; i < HELD_PACKS; i++) {
        held[i] = Logits{none, none, none, none};
        if (first + i * STEP < full) { held[i] = *(const Logits*)(row + first + i * STEP); }
    }
    float max = fmaxf(rest, -FLT_MAX); // finite, so that the difference of two maxima is 0
    #pragma unroll
    for (int i = 0; i < HELD_PACKS; i++) {
        for (int k = 0; k < WIDTH; k++) { max = fmaxf(max, held_logit(held[i], k)); }
    }
    const float row_max = block_max(max), offset = row_max * LOG2_E;
    const auto exponential = [&](float logit) { return exp2_approx(fmaf(logit, LOG2_E, -offset)); };
    float sum = exponential(rest);
    #pragma unroll
    for (int i = 0; i < HELD_PACKS; i++) {
        for (int k = 0; k < WIDTH; k++) { sum += exponential(held_logit(held[i], k)); }
    }
    const float row_sum = block_sum(sum), scale = dloss / row_sum;
    if (threadIdx.x == 0) { losses[blockIdx.x] = row_max + logf(row_sum) - at_target; }
    if (dloss == 0.0f) { return; }
    #pragma unroll
    for (int i = 0; i < HELD_PACKS; i++) {
        float x[WIDTH];
        for (int k = 0; k < WIDTH; k++) { x[k] = exponential(held_logit(held[i], k)) * scale; }
        if (first + i * STEP < full) { store_floats(row + first + i * STEP, x); }
    }
    if (single < Vp) { row[single] = to_floatX(exponential(rest) * scale); }
    // the thread that wrote the target's gradient writes it again
    if ((target < full ? target / WIDTH % HELD_THREADS : target - full) == (int)threadIdx.x) {
        row[target] = to_floatX(exponential(at_target) * scale - dloss);
    }
}

static __global__ void copy_logits_kernel(float* out, const floatX* logits, int V, int Vp) {
    for (int v = threadIdx.x; v < V; v += blockDim.x) {
        out[(size_t)blockIdx.x * V + v] = to_float(logits[(size_t)blockIdx.x * Vp + v]);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// launchers

// losses (rows) = the cross-entropy of logits (rows,Vp), with the softmax over the first V columns. With dloss != 0 the
// logits are replaced by dloss times the gradient, softmax - onehot(target). It is exactly zero in the padding columns
// V..Vp, whatever they held: the padding rows of the embedding must never change.
static inline void softmax_rows(float* losses, floatX* logits, const int* targets, float dloss, int rows, int V,
                                int Vp) {
    constexpr int WIDE = FLOATX_WIDTH;
    const size_t bytes = Vp * sizeof(floatX);
    const bool wide = is_wide<WIDE>(Vp, logits);
    const bool held = wide && bytes > SOFTMAX_THREADS * 16 && bytes <= HELD_ROW_BYTES && Vp - V < HELD_THREADS - WIDE;
    const auto kernel = held ? softmax_held_kernel : wide ? softmax_rows_kernel<WIDE> : softmax_rows_kernel<1>;
    const int threads = held ? HELD_THREADS : SOFTMAX_THREADS;
    kernel<<<(unsigned)rows, threads, 0, gpu.stream>>>(losses, logits, targets, dloss, V, Vp);
    cuda_launched("softmax_rows");
}

// out (rows,V) in float = the first V columns of logits (rows,Vp).
static inline void copy_logits(float* out, const floatX* logits, int rows, int V, int Vp) {
    copy_logits_kernel<<<(unsigned)rows, THREADS_IN_BLOCK, 0, gpu.stream>>>(out, logits, V, Vp);
    cuda_launched("copy_logits");
}
