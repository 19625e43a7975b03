// The classifier: logits, softmax over the first V columns, cross entropy, and both gradients, in chunks of rows, so
// that the largest tensor of a GPT-2, logits (N,Vp), is never held in full. The logits of a chunk turn into their own
// gradient in place.
#pragma once
#include "../gpus.h"
#include "../ops.h"
#include "matmul.cuh"
#include "softmax.cuh"

// Each chunk goes over the weight twice and over its fp32 gradient twice (it is added to): 12 Vp C bytes in bf16,
// beside 6 rows Vp C operations. An H100 does about 200 operations in the time of a byte, so these cost the same at 400
// rows: 8192 rows keep the first below 5 %. fp32 is content with half as many: there are 16 Vp C bytes, but operations
// take at least twice as long. Logits of 50304 columns take 786 MiB either way, and less where B*T is less, as on a
// small GPU.
OP int classifier_chunk(int C) {
    (void)C;
    return gpu_classifier_chunk(sizeof(floatX));
}

OP void classifier_loss(float* losses, floatX* logits, const floatX* inp, const floatX* weight, const int* targets,
                        int chunk, int N, int C, int V, int Vp) {
    for (int n = 0, rows; n < N; n += rows) {
        rows = N - n < chunk ? N - n : chunk;
        matmul_forward_floatX(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        softmax_rows(losses + n, logits, targets + n, 0.0f, rows, V, Vp);
    }
}

OP void classifier_backward(float* losses, floatX* dinp, float* dweight, floatX* logits, const floatX* inp,
                            const floatX* weight, const int* targets, float dloss, int chunk, int N, int C, int V,
                            int Vp) {
    for (int n = 0, rows; n < N; n += rows) {
        rows = N - n < chunk ? N - n : chunk;
        const floatX* x = inp + (size_t)n * C;
        matmul_forward_floatX(logits, x, weight, NULL, rows, C, Vp);
        softmax_rows(losses + n, logits, targets + n, dloss, rows, V, Vp);
        const Matmul to_inp = backward_inp_product(dinp + (size_t)n * C, logits, weight, rows, C, Vp);
        multiply(&to_inp);
        const Matmul to_weight = backward_weight_product(dweight, logits, x, rows, C, Vp);
        multiply(&to_weight);
    }
}

OP void classifier_logits(float* out, floatX* logits, const floatX* inp, const floatX* weight, int chunk, int N, int C,
                          int V, int Vp) {
    for (int n = 0, rows; n < N; n += rows) {
        rows = N - n < chunk ? N - n : chunk;
        matmul_forward_floatX(logits, inp + (size_t)n * C, weight, NULL, rows, C, Vp);
        copy_logits(out + (size_t)n * V, logits, rows, V, Vp);
    }
}
