// The classifier: logits, softmax over the first V columns, cross entropy, and both gradients, in chunks of rows, so
// that the largest tensor of a GPT-2, logits (N,Vp), is never held in full.
#pragma once
#include "device.h"
#include "math.h"
#include "../ops.h"
#include "matmul.h"

// Loss of one row of logits. With dloss != 0 the logits turn into dloss * its gradient, softmax - onehot(target), which
// is exactly zero in the padding columns V..Vp: the padded rows of the embedding must never move.
static inline float softmax_row_plain(floatX* row, int target, float dloss, int V, int Vp) {
    float max = -INFINITY, sum = 0;
    for (int v = 0; v < V; v++) { max = fmaxf(max, to_float(row[v])); }
    for (int v = 0; v < V; v++) { sum += expf(to_float(row[v]) - max); }
    const float loss = max + logf(sum) - to_float(row[target]);
    if (dloss == 0.0f) { return loss; }
    for (int v = 0; v < V; v++) {
        const float onehot = v == target ? dloss : 0.0f;
        row[v] = to_floatX(expf(to_float(row[v]) - max) * (dloss / sum) - onehot);
    }
    for (int v = V; v < Vp; v++) { row[v] = to_floatX(0.0f); }
    return loss;
}

// The largest of max and x (n), NaN left out. Many running maxima side by side: compilers make no vector code of one.
static inline float row_max(float max, const floatX* x, int n) {
    enum { WIDE = 64 };
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

// The same in vector code and two sweeps over the row, which is larger than the L1 cache: the first finds the maximum
// and the sum block by block, the second writes the gradient. Sums of 50257 numbers lose digits in float: those of the
// blocks are added up in double, and brought to a new maximum where a block has one.
static inline float softmax_row_fast(floatX* row, int target, float dloss, int V, int Vp) {
    enum { BLOCK = 2048 };
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
    for (int v = 0; v < V; v++) { row[v] = to_floatX(exp_fast(to_float(row[v]) - max) * scale); }
    row[target] = to_floatX(exp_fast(at_target - max) * scale - dloss);
    for (int v = V; v < Vp; v++) { row[v] = to_floatX(0.0f); }
    return loss;
}

static inline void softmax_rows(float* losses, floatX* logits, const int* targets, float dloss, int rows, int V,
                                int Vp) {
#pragma omp parallel for
    for (int n = 0; n < rows; n++) {
        floatX* row = logits + (size_t)n * Vp;
        losses[n] = cpu.kernels == KERNELS_PLAIN ? softmax_row_plain(row, targets[n], dloss, V, Vp)
                                                 : softmax_row_fast(row, targets[n], dloss, V, Vp);
    }
}

// Each chunk goes over the weight and its gradient once more, so more rows cost less: at 124M in fp32, 512 rows take 2%
// longer than 1024, and 256 rows 7%. Products of bf16 may be several times as fast, and that traffic weighs more. The
// logits are 103 MB in both types.
OP int classifier_chunk(int C) {
    (void)C;
    return sizeof(floatX) == sizeof(float) ? 512 : 1024;
}

OP void classifier_loss(float* losses, floatX* logits, const floatX* inp, const floatX* weight, const int* targets,
                        int chunk, int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
        matmul_forward(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        softmax_rows(losses + n, logits, targets + n, 0.0f, rows, V, Vp);
    }
}

OP void classifier_backward(float* losses, floatX* dinp, float* dweight, floatX* logits, const floatX* inp,
                            const floatX* weight, const int* targets, float dloss, int chunk, int N, int C, int V,
                            int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
        const floatX* x = inp + (size_t)n * C;
        matmul_forward(logits, x, weight, NULL, rows, C, Vp);
        softmax_rows(losses + n, logits, targets + n, dloss, rows, V, Vp);
        matmul_backward_inp(dinp + (size_t)n * C, logits, weight, rows, C, Vp);
        matmul_backward_weight(dweight, logits, x, rows, C, Vp);
    }
}

OP void classifier_logits(float* out, floatX* logits, const floatX* inp, const floatX* weight, int chunk, int N, int C,
                          int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = N - n < chunk ? N - n : chunk;
        matmul_forward(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        #pragma omp parallel for
        for (int r = 0; r < rows; r++) {
            for (int v = 0; v < V; v++) { out[(size_t)(n + r) * V + v] = to_float(logits[(size_t)r * Vp + v]); }
        }
    }
}

OP void loss_add(double* total, const float* losses, int N) {
    for (int n = 0; n < N; n++) { *total += (double)losses[n]; }
}
