// Memory that the operations take beside the tensors of the model. Operations have no variants: the level of
// instructions is chosen with the backend (backends.c).
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

static inline const char* variant_name(Choice choice, int i, int B, int T, int C, int NH) {
    return (void)choice, (void)i, (void)B, (void)T, (void)C, (void)NH, (const char*)NULL;
}
static inline void choose_variant(Choice choice, int i, int B, int T, int C, int NH) {
    (void)choice, (void)i, (void)B, (void)T, (void)C, (void)NH;
}
static inline void run_alone(Choice choice) { (void)choice; }
static inline const char* variants_key(int B, int T, int C, int NH) {
    return (void)B, (void)T, (void)C, (void)NH, "";
}

// A CPU's matmuls are this program's own: no library offers algorithms to choose from.
static inline void matmuls_watch(void) {}
static inline void matmuls_tune(double seconds) { (void)seconds; }
static inline char* matmuls_save(void) { return format("%s", ""); }
static inline void matmuls_load(const char* lines) { (void)lines; }
static inline const char* matmuls_identity(void) { return ""; }
static inline bool matmul_facts(int i, int algorithm, MatmulFacts* facts) {
    return (void)i, (void)algorithm, (void)facts, false;
}
