// Memory that the operations take beside the tensors of the model.
#pragma once
#include "attention.h"
#include "crossentropy.h"
#include "packed.h"
#include "residual.h"

// Returns the bytes of weight_scratch(): of the largest weight's gradient.
static inline size_t largest_weight_scratch(const TensorTable* params) {
    size_t most = 0;
    for (int i = 0; i < params->count; i++) {
        const Tensor* t = &params->row[i];
        if (tensor_is_operand(t)) { most = max_size(most, weight_scratch_bytes((int)t->cols, (int)t->rows)); }
    }
    return most;
}

// Returns the bytes of packed weights; of thread_scratch(): in each thread the largest of a matmul's and of attention's
// backward, in tiles or not, and in one thread the partial sums of layernorm's backward; of weight_scratch(), to train;
// and of shared_scratch(): a chunk's softmax.
static inline size_t operations_bytes(const TensorTable* params, bool trains, int B, int T, int C, int NH) {
    FlashBackward head;
    Softmax softmax;
    const int chunk = classifier_chunk(B * T), Vp = (int)params->row[0].rows; // of wte
    const size_t matmul = gemm_scratch_bytes(), attention = max_size(flash_backward_memory(&head, NULL, T, C / NH),
                                                                     attention_backward_bytes(false, T, C / NH));
    const size_t layernorm = (size_t)LAYERNORM_BLOCKS * 2 * C * sizeof(float);
    const size_t shared = trains && SHARES_PACKED ? largest_weight_scratch(params) : 0;
    return packed_weights_bytes(params, trains, B * T) + (size_t)cpu.threads * max_size(matmul, attention) + shared +
           layernorm + softmax_memory(&softmax, NULL, chunk, C, Vp);
}
