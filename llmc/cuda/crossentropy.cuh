// The classifier: logits, softmax over the first V columns, cross-entropy, and both gradients. It works in chunks of
// rows, so that the largest tensor of GPT-2, logits (N,Vp), is never held in full. The gradient of a chunk's logits
// overwrites them.
#pragma once
#include "matmul.cuh"
#include "softmax.cuh"

// Each chunk reads the weight twice, and reads and writes its fp32 gradient: 12 Vp C bytes in bf16, against 6 rows Vp C
// operations. An H100's data sheet has about 300 operations per byte: memory and arithmetic then take equal time at 600
// rows, and memory takes 7% of arithmetic's time at 8192 rows, 2% at 32768. In fp32 half as many rows are enough: a
// chunk moves 16 Vp C bytes, but its operations take at least twice as long. Large batches have larger chunks, whose
// logits take a few percent of the memory of their other activations.
static inline int classifier_chunk(int N) {
    enum { LEAST = 16384 / sizeof(floatX), MOST = 4 * LEAST };
    return min_int(N, min_int(MOST, max_int(LEAST, N / 4)));
}

static inline void classifier_loss(float* losses, floatX* logits, const floatX* inp, const floatX* weight,
                                   const int* targets, int chunk, int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = min_int(chunk, N - n);
        matmul_forward_floatX(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        softmax_rows(losses + n, logits, targets + n, 0.0f, rows, V, Vp);
    }
}

static inline void classifier_backward(float* losses, floatX* dinp, float* dweight, floatX* logits, const floatX* inp,
                                       const floatX* weight, const int* targets, float dloss, GradMode mode, int chunk,
                                       int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk, mode = GRADS_ADD) {
        const int rows = min_int(chunk, N - n);
        const floatX* x = inp + (size_t)n * C;
        matmul_forward_floatX(logits, x, weight, NULL, rows, C, Vp);
        softmax_rows(losses + n, logits, targets + n, dloss, rows, V, Vp);
        const Matmul to_inp = backward_inp_matmul(dinp + (size_t)n * C, logits, weight, rows, C, Vp);
        multiply(&to_inp);
        const Matmul to_weight = backward_weight_matmul(dweight, logits, x, mode, rows, C, Vp);
        multiply(&to_weight);
    }
}

static inline void classifier_logits(float* out, floatX* logits, const floatX* inp, const floatX* weight, int chunk,
                                     int N, int C, int V, int Vp) {
    for (int n = 0; n < N; n += chunk) {
        const int rows = min_int(chunk, N - n);
        matmul_forward_floatX(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        copy_logits(out + (size_t)n * V, logits, rows, V, Vp);
    }
}
