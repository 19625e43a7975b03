// Validation data: the windows of the shards in order, none twice, in batches of which the last may have fewer rows.
// The ranks take turns, so the windows in all are the same for any number of ranks and any size of batch.
#pragma once
#include "dataloader.h"

typedef struct {
    DataLoader loader;
    uint64_t num_windows; // of all ranks
    int max_rows;
    uint64_t next, stride; // the batch to ask for next, and from one of this rank's batches to its next
} EvalLoader;

// How many windows `max_tokens` stands for: whole ones, at least one, at most all. -1: all.
static inline uint64_t eval_windows(const Dataset* data, long long max_tokens) {
    uint64_t wanted = max_tokens < 0 ? data->num_windows : (uint64_t)max_tokens / (uint64_t)data->T;
    return max_size(1, min_size(wanted, data->num_windows));
}

// Batches of up to max_rows windows; `memory`: dataloader_ints() ints. As for a DataLoader, `data` and `memory` must
// outlive it, and it must stay where it is.
static inline void evalloader_open(EvalLoader* e, Dataset* data, long long max_tokens, int max_rows, int* memory) {
    dataloader_open(&e->loader, data, DATA_IN_ORDER, 0, max_rows, memory);
    e->num_windows = eval_windows(data, max_tokens);
    e->max_rows = max_rows;
}

static inline uint64_t evalloader_num_batches(const EvalLoader* e) {
    return ceil_div(e->num_windows, (size_t)e->max_rows);
}

static inline void evalloader_request(EvalLoader* e) {
    if (e->next >= evalloader_num_batches(e)) { return; }
    uint64_t first = e->next * (uint64_t)e->max_rows;
    dataloader_request(&e->loader, first, (int)min_size((size_t)e->max_rows, e->num_windows - first));
    e->next += e->stride;
}

// Begins a pass over the windows: batches rank, rank + num_ranks, ... are this rank's.
static inline void evalloader_begin(EvalLoader* e, int rank, int num_ranks) {
    while (dataloader_pending(&e->loader)) { dataloader_wait(&e->loader); } // of a pass that was left early
    e->next = (uint64_t)rank;
    e->stride = (uint64_t)num_ranks;
    for (int i = 0; i < LOADER_AHEAD; i++) { evalloader_request(e); }
}

// This rank's next batch, good until the next call; NULL at the end of the pass.
static inline const Batch* evalloader_next(EvalLoader* e) {
    if (!dataloader_pending(&e->loader)) { return NULL; }
    const Batch* b = dataloader_wait(&e->loader);
    evalloader_request(e);
    return b;
}

static inline void evalloader_close(EvalLoader* e) { dataloader_close(&e->loader); }
