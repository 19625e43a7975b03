// Batches of random tokens, for what trains without data: checks, benches, autotuning.
#pragma once
#include "../base/base.h"

// A batch is 3 * n ints: tokens, targets and order, as gpt2_upload() takes it. Fills in the order.
void batch_sort(int* batch, size_t n, int V);

// Fills a batch (3 * n ints) with random tokens and targets below V, which depend on `seed` and `index` alone, and
// their order.
void batch_random(int* batch, size_t n, int V, uint64_t seed, uint64_t index);
