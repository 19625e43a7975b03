// Model FLOPs utilization (Chowdhery et al. 2022, appendix B): the operations that a step needs by its formula, over
// what the machine could do in that time. The peak is measured, or that of a GPU whose data sheet is known
// (llmc/cuda/peak.cuh).
#pragma once
#include "gpt2.h"

// As llm.c counts, so that figures compare: all stored parameters, positions and padding included, and half of the
// 12 L C T of that appendix for attention, since half of the scores are masked.
// Forward and backward: two operations for each weight and token forward, four backward, and the attention scores.
static inline double model_flops_per_token(const GPT2* g) {
    const GPT2Config* m = &g->config;
    return 6.0 * (double)g->params_table.size + 6.0 * m->num_layers * (double)m->channels * (double)g->T;
}
