// Training data: which tokens make up window number g, and a thread that reads them ahead of time.
//
// Each shard is cut into consecutive windows of T tokens, whose targets are the same tokens shifted by one. In each
// epoch every window comes exactly once, in an order that is a function of (seed, epoch) alone. So one number is the
// whole state: window g is at place g % W of epoch g / W, for W windows in all. Who asks for which g, in batches of how
// many rows, on how many ranks, makes no difference to what window g holds.
#pragma once
#include "base.h"
#include "rng.h"
#include "shard.h"
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

// ---------------------------------------------------------------------------------------------------------------------
// the data set: shards and their windows

typedef struct {
    char* path;
    size_t num_tokens;
    uint64_t first_window; // windows in the shards before this one
} DataFile;

typedef struct {
    int file; // -1: none
    Shard shard;
} OpenShard;

// One thread at a time may read it.
typedef struct {
    int T, vocab_size, num_files;
    DataFile* files; // sorted by path
    uint64_t num_windows, num_tokens;
    uint64_t hash;    // of the shards' names (without folders), sizes, first and last tokens: a resumed run compares it
    OpenShard* open;  // file i can only be at i % num_open, so that thousands of shards need few file descriptors
    int num_open;
    uint16_t* window; // T + 1 tokens
} Dataset;

static inline int data_compare_paths(const void* a, const void* b) {
    return strcmp(*(char* const*)a, *(char* const*)b);
}

// All files that match, sorted as bytes whatever the locale. The caller calls globfree, also after a failure.
static inline bool data_match(glob_t* found, const char* option, const char* patterns, Error* err) {
    static const char* const separators = ", \t\n";
    memset(found, 0, sizeof *found);
    bool any = false;
    for (const char *end, *p = patterns + strspn(patterns, separators); *p; p = end + strspn(end, separators)) {
        for (end = p; *end && !strchr(separators, *end); end++) {
            if (*end == '\\' && end[1]) { end++; } // glob() takes the backslash away
        }
        char* pattern = format("%.*s", (int)(end - p), p);
        int error = glob(pattern, GLOB_NOSORT | (any ? GLOB_APPEND : 0), NULL, found);
        any = true;
        if (error) {
            fail(err, "%s %s: %s", option, pattern,
                 error == GLOB_NOMATCH ? "no such file: token shards are made by ./prepare or fetched by data/fetch.sh"
                                       : "out of memory, or a folder that cannot be read");
        }
        free(pattern);
        if (error) { return false; }
    }
    if (!any) { return fail(err, "%s: no file is given: name the token shards that ./prepare made", option); }
    qsort(found->gl_pathv, found->gl_pathc, sizeof *found->gl_pathv, data_compare_paths);
    return true;
}

// File i, open; NULL on failure. Good until the next call.
static inline const Shard* dataset_shard(Dataset* d, int i, Error* err) {
    OpenShard* slot = &d->open[i % d->num_open];
    if (slot->file == i) { return &slot->shard; }
    if (slot->file >= 0) { shard_close(&slot->shard); }
    slot->file = -1;
    if (!shard_open(&slot->shard, d->files[i].path, err)) { return NULL; }
    slot->file = i;
    return &slot->shard;
}

// Adds one shard to the numbers of windows and tokens and to the hash.
static inline bool dataset_add(Dataset* d, int i, Error* err) {
    enum { HASHED = 1 << 15 };
    uint16_t tokens[HASHED];
    const Shard* shard = dataset_shard(d, i, err);
    if (!shard) { return false; }
    size_t n = shard->num_tokens, hashed = min_size(n, HASHED), T = (size_t)d->T;
    if (n < T + 1) {
        return fail(err, "%s: %zu tokens are too few for one window of %d and its last target: leave the file out, or "
                    "lower --seq_len", shard->path, n, d->T);
    }
    const char* slash = strrchr(shard->path, '/');
    const char* name = slash ? slash + 1 : shard->path;
    d->hash = hash64(name, strlen(name), d->hash);
    d->hash = hash64(&n, sizeof n, d->hash);
    for (int end = 0; end < 2; end++) {
        if (!shard_read(shard, end ? n - hashed : 0, hashed, tokens, err)) { return false; }
        d->hash = hash64(tokens, hashed * sizeof *tokens, d->hash);
    }
    d->files[i].num_tokens = n;
    d->files[i].first_window = d->num_windows;
    d->num_windows += (n - 1) / T;
    d->num_tokens += n;
    return true;
}

static inline void dataset_close(Dataset* d) {
    for (int i = 0; i < d->num_open; i++) {
        if (d->open[i].file >= 0) { shard_close(&d->open[i].shard); }
    }
    for (int i = 0; i < d->num_files; i++) { free(d->files[i].path); }
    free(d->files);
    free(d->open);
    free(d->window);
    memset(d, 0, sizeof *d);
}

// Opens the shards that match `patterns`, which commas or spaces separate (a backslash before one makes it part of a
// name). `option` is where they come from, for messages. Reads each shard's header, first and last tokens.
static inline bool dataset_open(Dataset* d, const char* option, const char* patterns, int T, int vocab_size,
                                Error* err) {
    glob_t found;
    memset(d, 0, sizeof *d);
    d->T = T;
    d->vocab_size = vocab_size;
    bool ok = data_match(&found, option, patterns, err);
    if (ok) {
        d->files = (DataFile*)alloc_or_die(found.gl_pathc, sizeof *d->files, "the list of shards");
        for (size_t i = 0; i < found.gl_pathc; i++) { // two patterns may match one file
            if (i > 0 && strcmp(found.gl_pathv[i], found.gl_pathv[i - 1]) == 0) { continue; }
            d->files[d->num_files++].path = format("%s", found.gl_pathv[i]);
        }
        struct rlimit descriptors;
        if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) { fatal("getrlimit: %s", strerror(errno)); }
        d->num_open = (int)max_size(1, min_size((size_t)d->num_files, descriptors.rlim_cur / 4));
        d->open = (OpenShard*)alloc_or_die((size_t)d->num_open, sizeof *d->open, "open shards");
        for (int i = 0; i < d->num_open; i++) { d->open[i].file = -1; }
        d->window = (uint16_t*)alloc_or_die((size_t)T + 1, sizeof *d->window, "a window of tokens");
    }
    for (int i = 0; ok && i < d->num_files; i++) { ok = dataset_add(d, i, err); }
    globfree(&found);
    if (!ok) { dataset_close(d); }
    return ok;
}

// Reads window number `window` < num_windows in the order of the files: tokens (T), targets (T).
static inline bool dataset_read(Dataset* d, uint64_t window, int* tokens, int* targets, Error* err) {
    int i = 0;
    for (int end = d->num_files; end - i > 1;) { // the last file that begins at or before the window
        int middle = i + (end - i) / 2;
        if (d->files[middle].first_window <= window) { i = middle; } else { end = middle; }
    }
    const size_t T = (size_t)d->T, first = (size_t)(window - d->files[i].first_window) * T;
    const Shard* shard = dataset_shard(d, i, err);
    if (!shard) { return false; }
    if (shard->num_tokens != d->files[i].num_tokens) {
        return fail(err, "%s: it had %zu tokens when the run began, and now has %zu: do not change the data of a run",
                    shard->path, d->files[i].num_tokens, shard->num_tokens);
    }
    if (!shard_read(shard, first, T + 1, d->window, err)) { return false; }
    for (size_t t = 0; t <= T; t++) {
        if (d->window[t] < d->vocab_size) { continue; }
        return fail(err, "%s: token %zu is %d, but the vocabulary has %d: was it prepared with another tokenizer? "
                    "See --tokenizer and V of --model", shard->path, first + t, d->window[t], d->vocab_size);
    }
    for (size_t t = 0; t < T; t++) {
        tokens[t] = d->window[t];
        targets[t] = d->window[t + 1];
    }
    return true;
}

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

// Batches asked for and not yet taken, at most; and their memory, with one more for the batch in use.
enum { LOADER_AHEAD = 2, LOADER_BATCHES = LOADER_AHEAD + 1 };

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
