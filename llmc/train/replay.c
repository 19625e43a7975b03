#include "replay.h"

// Runs the micro-batch; returns the loss and the sums of squares of the ranges, which the caller frees.
static double* run_once(GPT2* g, int B, int T, float dloss) {
    const Backend* b = g->backend;
    const int ranges = tensors_num_ranges(&g->params_table);
    double* result = alloc_or_die((size_t)ranges + 1, sizeof *result, "a replay");
    gpt2_zero_grads(g);
    gpt2_micro_step(g, B, T, dloss, NULL, NULL);
    b->device_copy_out(&result[ranges], &g->sums[SUM_LOSS], sizeof *result);
    for (int i = 0; i < ranges; i++) {
        const TensorRange r = tensors_range(&g->params_table, i);
        b->device_zero(&g->sums[SUM_NORM], sizeof *result);
        b->norm_squared(&g->sums[SUM_NORM], g->grads + r.begin, r.size);
        b->device_copy_out(&result[i], &g->sums[SUM_NORM], sizeof *result);
    }
    return result;
}

bool replay_agrees(GPT2* g, int B, int T, float dloss) {
    const size_t bytes = (size_t)(tensors_num_ranges(&g->params_table) + 1) * sizeof(double);
    double *first = run_once(g, B, T, dloss), *second = run_once(g, B, T, dloss);
    const bool agree = memcmp(first, second, bytes) == 0;
    free(first);
    free(second);
    return agree;
}
