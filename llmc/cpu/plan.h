// How much memory the operations take beside the tensors of the model. Which kernels are the fastest is not a question
// here: that is decided with the trainer (main.c).
#pragma once
#include "attention.h"
#include "layernorm.h"
#include "packed.h"
#include "../ops.h"

// The most that thread_scratch() will be asked for: by a block of a product, by a head of attention in backward, by the
// partial sums of layernorm's (LAYERNORM_BLOCKS rows of two gradients, in one thread).
OP size_t operations_bytes(const TensorTable* params, bool trains, int B, int T, int C, int NH) {
    (void)B;
    FlashBackward head;
    const size_t product = gemm_scratch_bytes(), attention = flash_backward_memory(&head, NULL, T, C / NH);
    const size_t layernorm = (size_t)LAYERNORM_BLOCKS * 2 * C * sizeof(float);
    return packed_weights_bytes(params, trains) + (size_t)cpu.threads * max_size(product, attention) + layernorm;
}

OP const char* operations_way(Choice choice, int i, int B, int T, int C, int NH) {
    return (void)choice, (void)i, (void)B, (void)T, (void)C, (void)NH, (const char*)NULL;
}
OP void operations_choose(Choice choice, int i, int B, int T, int C, int NH) {
    (void)choice, (void)i, (void)B, (void)T, (void)C, (void)NH;
}
