// Softmax and cross-entropy of rows of logits, and their gradient in place. A block takes a row, which is a whole
// vocabulary, and reads it twice. The first pass finds the maximum and the sum of exponentials together: the sum is
// rescaled whenever the maximum grows (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax"). The
// second pass writes the gradient.
#pragma once
#include "vector.cuh"
#include <float.h>

static constexpr int SOFTMAX_THREADS = 512;

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
    enum { WIDE = FLOATX_WIDTH };
    const unsigned blocks = (unsigned)rows;
    if (is_wide<WIDE>(logits, Vp)) {
        softmax_rows_kernel<WIDE><<<blocks, SOFTMAX_THREADS, 0, gpu.stream>>>(losses, logits, targets, dloss, V, Vp);
    } else {
        softmax_rows_kernel<1><<<blocks, SOFTMAX_THREADS, 0, gpu.stream>>>(losses, logits, targets, dloss, V, Vp);
    }
    cuda_launched("softmax_rows");
}

// out (rows,V) in float = the first V columns of logits (rows,Vp).
static inline void copy_logits(float* out, const floatX* logits, int rows, int V, int Vp) {
    copy_logits_kernel<<<(unsigned)rows, THREADS_IN_BLOCK, 0, gpu.stream>>>(out, logits, V, Vp);
    cuda_launched("copy_logits");
}
