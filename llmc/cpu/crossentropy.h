// The classifier: logits, softmax over the first V columns, cross-entropy and both gradients. Rows are done in chunks,
// so that the logits (N,Vp), the largest tensor of a GPT-2, are never held in full.
#pragma once
#include "device.h"
#include "math.h"
#include "matmul.h"

// Returns the loss of one row of logits. If dloss != 0, replaces the logits by their gradient, dloss * (softmax -
// onehot(target)), which is exactly zero in the padding columns V..Vp: padded rows of the embedding never change.
static inline float softmax_row_plain(Stored* row, int target, float dloss, int V, int Vp) {
    float max = -INFINITY, sum = 0;
    for (int v = 0; v < V; v++) { max = fmaxf(max, to_float(row[v])); }
    for (int v = 0; v < V; v++) { sum += expf(to_float(row[v]) - max); }
    const float loss = max + logf(sum) - to_float(row[target]);
    if (dloss == 0.0f) { return loss; }
    for (int v = 0; v < V; v++) {
        const float onehot = v == target ? dloss : 0.0f;
        row[v] = to_stored(expf(to_float(row[v]) - max) * (dloss / sum) - onehot);
    }
    for (int v = V; v < Vp; v++) { row[v] = to_stored(0.0f); }
    return loss;
}

// Returns the largest of max and x (n), ignoring NaN. Keeps WIDE maxima side by side: compilers do not vectorize one.
static inline float row_max(float max, const Stored* x, int n) {
    enum { WIDE = 64 }; // four vectors of AVX-512
    float best[WIDE];
    int i = 0;
    for (int j = 0; j < WIDE; j++) { best[j] = max; }
    for (; i + WIDE <= n; i += WIDE) {
        #pragma omp simd
        for (int j = 0; j < WIDE; j++) { best[j] = to_float(x[i + j]) > best[j] ? to_float(x[i + j]) : best[j]; }
    }
    for (; i < n; i++) { best[0] = to_float(x[i]) > best[0] ? to_float(x[i]) : best[0]; }
    for (int half = WIDE / 2; half > 0; half /= 2) {
        for (int j = 0; j < half; j++) { best[j] = best[j + half] > best[j] ? best[j + half] : best[j]; }
    }
    return best[0];
}

// softmax_row_plain in vector code and in two sweeps over the row, which is larger than the L1 cache. The first sweep
// finds maximum and sum block by block (online softmax: Milakov & Gimelshein 2018), the second writes the gradient.
// Sums of 50257 numbers lose digits in float, so the blocks' sums are added up in double.
static inline float softmax_row_fast(Stored* row, int target, float dloss, int V, int Vp) {
    enum { BLOCK = 2048 }; // 8 KiB in fp32: stays in L1 for the second loop
    float max = -INFINITY;
    double sum = 0;
    for (int begin = 0; begin < V; begin += BLOCK) {
        const int end = (int)min_size((size_t)V, (size_t)begin + BLOCK);
        const float old = max;
        float part = 0;
        max = row_max(old, row + begin, end - begin);
        #pragma omp simd reduction(+ : part)
        for (int v = begin; v < end; v++) { part += exp_fast(to_float(row[v]) - max); }
        if (max > old) { sum *= exp((double)old - (double)max); }
        sum += (double)part;
    }
    const float at_target = to_float(row[target]), loss = max + (float)log(sum) - at_target;
    if (dloss == 0.0f) { return loss; }
    const float scale = (float)((double)dloss / sum);
    #pragma omp simd
    for (int v = 0; v < V; v++) { row[v] = to_stored(exp_fast(to_float(row[v]) - max) * scale); }
    row[target] = to_stored(exp_fast(at_target - max) * scale - dloss);
    for (int v = V; v < Vp; v++) { row[v] = to_stored(0.0f); }
    return loss;
}

static inline void softmax_rows(float* losses, Stored* logits, const int* targets, float dloss, int rows, int V,
                                int Vp) {
    #pragma omp parallel for
    for (int n = 0; n < rows; n++) {
        Stored* row = logits + (size_t)n * Vp;
        losses[n] = cpu.kernels == KERNELS_PLAIN ? softmax_row_plain(row, targets[n], dloss, V, Vp)
                                                 : softmax_row_fast(row, targets[n], dloss, V, Vp);
    }
}

// Each chunk reads the weight and its gradient once more, so larger chunks are faster but take more memory: at 124M in
// fp32, 512 rows take 2% longer than 1024, and 256 rows 7%. bf16 gets 1024 rows, because its matmuls may be several
// times as fast, which makes this traffic a larger part. The logits of a chunk take 103 MB in both types.
static inline int classifier_chunk(int C) {
    (void)C;
    return sizeof(Stored) == sizeof(float) ? 512 : 1024;
}

static inline void classifier_loss(float* losses, Stored* logits, const Stored* inp, const Stored* weight,
                                   const int* targets, int chunk, int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
        matmul_forward(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        softmax_rows(losses + n, logits, targets + n, 0.0f, rows, V, Vp);
    }
}

static inline void classifier_backward(float* losses, Stored* dinp, float* dweight, Stored* logits, const Stored* inp,
                                       const Stored* weight, const int* targets, float dloss, int chunk, int N, int C,
                                       int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
        const Stored* x = inp + (size_t)n * C;
        matmul_forward(logits, x, weight, NULL, rows, C, Vp);
        softmax_rows(losses + n, logits, targets + n, dloss, rows, V, Vp);
        matmul_backward_inp(dinp + (size_t)n * C, logits, weight, rows, C, Vp);
        matmul_backward_weight(dweight, logits, x, rows, C, Vp);
    }
}

static inline void classifier_logits(float* out, Stored* logits, const Stored* inp, const Stored* weight, int chunk,
                                     int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
        matmul_forward(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        #pragma omp parallel for if (rows > 1)
        for (int r = 0; r < rows; r++) {
            for (int v = 0; v < V; v++) { out[(size_t)(n + r) * V + v] = to_float(logits[(size_t)r * Vp + v]); }
        }
    }
}

static inline void loss_add(double* total, const float* losses, int N) {
    for (int n = 0; n < N; n++) { *total += (double)losses[n]; }
}
