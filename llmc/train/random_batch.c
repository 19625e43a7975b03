#include "random_batch.h"
#include "../base/rng.h"
#include "../data/dataloader.h"

void batch_sort(int* batch, size_t n, int V) {
    int* counts = alloc_or_die((size_t)V + 1, sizeof *counts, "counts of tokens");
    data_sort(batch + 2 * n, batch, n, counts, V);
    free(counts);
}

void batch_random(int* batch, size_t n, int V, uint64_t seed, uint64_t index) {
    for (size_t i = 0; i < 2 * n; i++) { batch[i] = (int)(rng_u64(seed, RNG_TEST, index * 2 * n + i) % (uint64_t)V); }
    batch_sort(batch, n, V);
}
