// Training data: which tokens make up window number g, and a thread that reads them ahead of time.
//
// In each epoch every window of the data set (see dataset.h) comes exactly once, in an order that is a function of
// (seed, epoch) alone. So one number is the whole state: window g is at place g % W of epoch g / W, for W windows in
// all. Who asks for which g, in batches of how many rows, on how many ranks, makes no difference to what window g
// holds.
#pragma once
#include "dataset.h"
#include "rng.h"
#include <limits.h>
#include <pthread.h>
#include <signal.h>

// ---------------------------------------------------------------------------------------------------------------------
// the order

// The image of i < n under a permutation of 0..n-1 that `key` chooses, computed without a table: a Feistel network
// (Luby & Rackoff 1988) permutes the numbers of 2 * half bits, and is applied again until the result is below n
// ("cycle walking": Black & Rogaway 2002), less than four times on average. n <= 2^62.
static inline uint64_t permute(uint64_t i, uint64_t n, uint64_t key) {
    enum { ROUNDS = 8 };
    int half = 1;
    while (n > 1ull << (2 * half)) { half++; }
    const uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (rng_u64(key, round, right) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

typedef enum { DATA_IN_ORDER, DATA_SHUFFLED } DataOrder;

// The window, numbered in the order of the files, that comes as number g of a run over `num_windows` windows.
static inline uint64_t data_window(uint64_t g, uint64_t num_windows, DataOrder order, uint64_t seed) {
    uint64_t epoch = g / num_windows, place = g % num_windows;
    return order == DATA_SHUFFLED ? permute(place, num_windows, rng_u64(seed, RNG_SHUFFLE, epoch)) : place;
}

// order (n) = 0..n-1 sorted by token, equal ones in their own order. counts (vocab_size + 1) is scratch.
static inline void data_sort(int* order, const int* tokens, size_t n, int* counts, int vocab_size) {
    memset(counts, 0, ((size_t)vocab_size + 1) * sizeof *counts);
    for (size_t i = 0; i < n; i++) { counts[tokens[i] + 1]++; }
    for (int v = 0; v < vocab_size; v++) { counts[v + 1] += counts[v]; }
    for (size_t i = 0; i < n; i++) { order[counts[tokens[i]]++] = (int)i; }
}

// ---------------------------------------------------------------------------------------------------------------------
// the loader

// Windows first .. first+rows-1 of a run. tokens, targets and order (rows*T each) lie one behind another, so that one
// copy takes all three. order: the positions 0..rows*T-1 sorted stably by token, as encoder_backward wants them.
typedef struct {
    int *tokens, *targets, *order;
    uint64_t first;
    int rows, T;
} Batch;

// Batches asked for and not yet taken, at most; and their memory, with one more for the batch in use, and one for the
// batch before it, which may still be on its way to a GPU.
enum { LOADER_AHEAD = 2, LOADER_BATCHES = LOADER_AHEAD + 2 };

// It must stay where it is while it is open: its thread knows the address.
typedef struct {
    Dataset* data; // the thread's alone while the loader is open
    DataOrder order;
    uint64_t seed;
    int max_rows;
    int* counts;                   // scratch of data_sort
    Batch queue[LOADER_BATCHES];   // batch k, asked for or filled, is at k % LOADER_BATCHES
    uint64_t asked, filled, taken; // how many so far: taken <= filled <= asked <= taken + LOADER_AHEAD
    bool failed, closing;
    Error error;                   // if `failed`: of batch number `filled`
    pthread_mutex_t mutex;         // guards the three numbers, the flags and the error
    pthread_cond_t changed;
    pthread_t thread;
} DataLoader;

// How many ints dataloader_open wants as `memory`.
static inline size_t dataloader_ints(int max_rows, int T) {
    return (size_t)LOADER_BATCHES * 3 * (size_t)max_rows * (size_t)T;
}

static inline bool dataloader_fill(DataLoader* l, Batch* b, Error* err) {
    const size_t T = (size_t)b->T;
    for (int row = 0; row < b->rows; row++) {
        uint64_t window = data_window(b->first + (uint64_t)row, l->data->num_windows, l->order, l->seed);
        const size_t at = (size_t)row * T;
        if (!dataset_read(l->data, window, b->tokens + at, b->targets + at, err)) { return false; }
    }
    data_sort(b->order, b->tokens, (size_t)b->rows * T, l->counts, l->data->vocab_size);
    return true;
}

static inline void loader_lock(DataLoader* l) {
    if (pthread_mutex_lock(&l->mutex) != 0) { fatal("the data loader cannot lock its queue"); }
}
static inline void loader_unlock(DataLoader* l) { pthread_mutex_unlock(&l->mutex); }
static inline void loader_await_change(DataLoader* l) { pthread_cond_wait(&l->changed, &l->mutex); }
static inline void loader_tell_change(DataLoader* l) { pthread_cond_broadcast(&l->changed); }

static inline void* dataloader_thread(void* loader) {
    DataLoader* l = (DataLoader*)loader;
    Error error;
    loader_lock(l);
    while (!l->closing && !l->failed) {
        if (l->filled == l->asked) { loader_await_change(l); continue; }
        Batch* b = &l->queue[l->filled % LOADER_BATCHES];
        loader_unlock(l);
        bool ok = dataloader_fill(l, b, &error);
        loader_lock(l);
        if (ok) {
            l->filled++;
        } else {
            l->error = error;
            l->failed = true;
        }
        loader_tell_change(l);
    }
    loader_unlock(l);
    return NULL;
}

// Starts a loader of batches of up to max_rows windows. `memory`, dataloader_ints() ints, is where the batches will be:
// the caller's, because a GPU wants pages that are locked. `data` and `memory` must outlive the loader.
static inline void dataloader_open(DataLoader* l, Dataset* data, DataOrder order, uint64_t seed, int max_rows,
                                   int* memory) {
    memset(l, 0, sizeof *l);
    if (max_rows > INT_MAX / data->T) {
        fatal("%d rows of %d tokens are more than a batch can hold: lower --batch_size", max_rows, data->T);
    }
    l->data = data;
    l->order = order;
    l->seed = seed;
    l->max_rows = max_rows;
    l->counts = (int*)alloc_or_die((size_t)data->vocab_size + 1, sizeof *l->counts, "sorting tokens");
    for (int i = 0; i < LOADER_BATCHES; i++) {
        l->queue[i].tokens = memory + (size_t)i * (dataloader_ints(max_rows, data->T) / LOADER_BATCHES);
        l->queue[i].T = data->T;
    }
    sigset_t all, before; // signals are for the main thread
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_mutex_init(&l->mutex, NULL);
    if (!error) { error = pthread_cond_init(&l->changed, NULL); }
    if (!error) { error = pthread_create(&l->thread, NULL, dataloader_thread, l); }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) { fatal("cannot start the data loader's thread: %s", strerror(error)); }
}

// Asks for windows first .. first+rows-1 of the run (see data_window). At most LOADER_AHEAD batches can be asked for
// and not yet taken.
static inline void dataloader_request(DataLoader* l, uint64_t first, int rows) {
    if (rows < 1 || rows > l->max_rows) { fatal("the data loader was asked for %d rows, of %d", rows, l->max_rows); }
    loader_lock(l);
    if (l->asked - l->taken == LOADER_AHEAD) { fatal("the data loader was asked for too many batches ahead"); }
    Batch* b = &l->queue[l->asked % LOADER_BATCHES];
    const size_t n = (size_t)rows * (size_t)b->T;
    b->targets = b->tokens + n;
    b->order = b->targets + n;
    b->first = first;
    b->rows = rows;
    l->asked++;
    loader_tell_change(l);
    loader_unlock(l);
}

// The oldest batch asked for, once it is there; good until the next call. Ends the program if it cannot be read.
static inline const Batch* dataloader_wait(DataLoader* l) {
    loader_lock(l);
    if (l->taken == l->asked) { fatal("the data loader is waited for, but nothing was asked"); }
    while (l->taken == l->filled && !l->failed) { loader_await_change(l); }
    if (l->taken == l->filled) {
        loader_unlock(l);
        pthread_join(l->thread, NULL); // it has nothing left to do
        fatal("%s", l->error.text);
    }
    const Batch* b = &l->queue[l->taken++ % LOADER_BATCHES];
    loader_unlock(l);
    return b;
}

// How many batches were asked for and not yet taken: 0 .. LOADER_AHEAD.
static inline int dataloader_pending(const DataLoader* l) { return (int)(l->asked - l->taken); }

// Ends the thread. Batches asked for and not taken are dropped.
static inline void dataloader_close(DataLoader* l) {
    loader_lock(l);
    l->closing = true;
    loader_tell_change(l);
    loader_unlock(l);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
    free(l->counts);
    memset(l, 0, sizeof *l);
}
