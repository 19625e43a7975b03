// The classifier: logits, softmax over the first V columns, cross entropy, and both gradients, in chunks of rows, so that
// the largest tensor of a GPT-2, logits (N,Vp), is never held in full.
#pragma once
#include "device.h"
#include "../ops.h"
#include "matmul.h"

// Loss of each row of logits. With dloss != 0 the logits turn into dloss * its gradient, softmax - onehot(target), which
// is exactly zero in the padding columns V..Vp: the padded rows of the embedding must never move.
static inline void softmax_rows(float* losses, floatX* logits, const int* targets, float dloss, int rows, int V, int Vp) {
    #pragma omp parallel for
    for (int n = 0; n < rows; n++) {
        floatX* row = logits + (size_t)n * Vp;
        float max = -INFINITY, sum = 0;
        for (int v = 0; v < V; v++) { max = fmaxf(max, to_float(row[v])); }
        for (int v = 0; v < V; v++) { sum += expf(to_float(row[v]) - max); }
        losses[n] = max + logf(sum) - to_float(row[targets[n]]);
        if (dloss == 0.0f) { continue; }
        const float scale = dloss / sum;
        for (int v = 0; v < V; v++) {
            const float onehot = v == targets[n] ? dloss : 0.0f;
            row[v] = to_floatX(expf(to_float(row[v]) - max) * scale - onehot);
        }
        for (int v = V; v < Vp; v++) { row[v] = to_floatX(0.0f); }
    }
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
                            const floatX* weight, const int* targets, float dloss, int chunk, int N, int C, int V, int Vp) {
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
