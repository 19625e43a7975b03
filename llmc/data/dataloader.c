#include "dataloader.h"
#include "../base/rng.h"
#include <limits.h>
#include <signal.h>

// ---------------------------------------------------------------------------------------------------------------------
// the order

uint64_t permute(uint64_t i, uint64_t n, uint64_t key) {
    enum { ROUNDS = 8 }; // chosen; four suffice if the round function is random
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

uint64_t data_window(uint64_t g, uint64_t num_windows, DataOrder order, uint64_t seed) {
    uint64_t epoch = g / num_windows, place = g % num_windows;
    return order == DATA_SHUFFLED ? permute(place, num_windows, rng_u64(seed, RNG_SHUFFLE, epoch)) : place;
}

void data_sort(int* order, const int* tokens, size_t n, int* counts, int vocab_size) {
    memset(counts, 0, ((size_t)vocab_size + 1) * sizeof *counts);
    for (size_t i = 0; i < n; i++) { counts[tokens[i] + 1]++; }
    for (int v = 0; v < vocab_size; v++) { counts[v + 1] += counts[v]; }
    for (size_t i = 0; i < n; i++) { order[counts[tokens[i]]++] = (int)i; }
}

// ---------------------------------------------------------------------------------------------------------------------
// the loader

size_t dataloader_ints(int max_rows, int T) {
    return (size_t)LOADER_BATCHES * 3 * (size_t)max_rows * (size_t)T;
}

static bool dataloader_fill(DataLoader* l, Batch* b, Error* err) {
    const size_t T = (size_t)b->T;
    for (int row = 0; row < b->rows; row++) {
        const uint64_t number = skip_windows_next(l->skip, b->first, (uint64_t)row),
                       window = data_window(number, l->data->num_windows, l->order, l->seed);
        const size_t at = (size_t)row * T;
        if (!dataset_read(l->data, window, b->tokens + at, b->targets + at, err)) { return false; }
    }
    data_sort(b->order, b->tokens, (size_t)b->rows * T, l->counts, l->data->vocab_size);
    return true;
}

static void loader_lock(DataLoader* l) {
    if (pthread_mutex_lock(&l->mutex) != 0) { fatal("the data loader cannot lock its queue"); }
}

static void* dataloader_thread(void* loader) {
    DataLoader* l = (DataLoader*)loader;
    Error error;
    loader_lock(l);
    while (!l->closing && !l->failed) {
        if (l->filled == l->asked) { pthread_cond_wait(&l->changed, &l->mutex); continue; }
        Batch* b = &l->queue[l->filled % LOADER_BATCHES];
        pthread_mutex_unlock(&l->mutex);
        bool ok = dataloader_fill(l, b, &error);
        loader_lock(l);
        if (ok) {
            l->filled++;
        } else {
            l->error = error;
            l->failed = true;
        }
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

void dataloader_open(DataLoader* l, Dataset* data, DataOrder order, uint64_t seed, const SkipWindows* skip,
                     int max_rows, int* memory) {
    memset(l, 0, sizeof *l);
    if (max_rows > INT_MAX / data->T) {
        fatal("%d rows of %d tokens are more than a batch can hold: lower --batch_size", max_rows, data->T);
    }
    l->data = data;
    l->order = order;
    l->seed = seed;
    l->skip = skip;
    l->max_rows = max_rows;
    l->counts = alloc_or_die((size_t)data->vocab_size + 1, sizeof *l->counts, "sorting tokens");
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

void dataloader_request(DataLoader* l, uint64_t first, int rows) {
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
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
}

const Batch* dataloader_wait(DataLoader* l) {
    loader_lock(l);
    if (l->taken == l->asked) { fatal("the data loader is waited for, but nothing was asked"); }
    while (l->taken == l->filled && !l->failed) { pthread_cond_wait(&l->changed, &l->mutex); }
    if (l->taken == l->filled) {
        pthread_mutex_unlock(&l->mutex);
        pthread_join(l->thread, NULL); // it has nothing left to do
        fatal("%s", l->error.text);
    }
    const Batch* b = &l->queue[l->taken++ % LOADER_BATCHES];
    pthread_mutex_unlock(&l->mutex);
    return b;
}

int dataloader_pending(const DataLoader* l) { return (int)(l->asked - l->taken); }

void dataloader_close(DataLoader* l) {
    loader_lock(l);
    l->closing = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
    free(l->counts);
    memset(l, 0, sizeof *l);
}

uint64_t eval_windows(const Dataset* data, long long max_tokens) {
    uint64_t wanted = max_tokens < 0 ? data->num_windows : (uint64_t)max_tokens / (uint64_t)data->T;
    return max_size(1, min_size(wanted, data->num_windows));
}

void evalloader_open(EvalLoader* e, Dataset* data, long long max_tokens, int max_rows, int* memory) {
    dataloader_open(&e->loader, data, DATA_IN_ORDER, 0, NULL, max_rows, memory);
    e->num_windows = eval_windows(data, max_tokens);
}

static uint64_t evalloader_num_batches(const EvalLoader* e) {
    return ceil_div(e->num_windows, (size_t)e->loader.max_rows);
}

static void evalloader_request(EvalLoader* e) {
    if (e->next >= evalloader_num_batches(e)) { return; }
    uint64_t first = e->next * (uint64_t)e->loader.max_rows;
    dataloader_request(&e->loader, first, (int)min_size((size_t)e->loader.max_rows, e->num_windows - first));
    e->next += e->stride;
}

void evalloader_begin(EvalLoader* e, int rank, int num_ranks) {
    while (dataloader_pending(&e->loader)) { dataloader_wait(&e->loader); } // of a pass that was left early
    e->next = (uint64_t)rank;
    e->stride = (uint64_t)num_ranks;
    for (int i = 0; i < LOADER_AHEAD; i++) { evalloader_request(e); }
}

const Batch* evalloader_next(EvalLoader* e) {
    if (!dataloader_pending(&e->loader)) { return NULL; }
    const Batch* b = dataloader_wait(&e->loader);
    evalloader_request(e);
    return b;
}

void evalloader_close(EvalLoader* e) { dataloader_close(&e->loader); }
