// Loads training and validation data: a thread reads batches of windows (dataset.h) ahead of time.
//
// Training. Each epoch has every window of the data set exactly once, in an order that depends on (seed, epoch) alone.
// So one number g is the position of a run: window g is at place g % W of epoch g / W, for W windows in the data set.
// Its tokens depend neither on the size of a batch nor on the number of ranks.
//
// Validation. The windows come in the order of the shards, none twice; the last batch may have fewer rows. The ranks
// take batches in turn, so that together they read the same windows for any number of ranks and any size of a batch.
#pragma once
#include "../base/base.h"
#include "dataset.h"
#include "skip_windows.h"
#include <pthread.h>

// ---------------------------------------------------------------------------------------------------------------------
// the order

// Returns the image of i < n under a permutation of 0..n-1 that `key` chooses, computed without a table: a Feistel
// network (Luby & Rackoff 1988) permutes the numbers of 2 * half bits, and is applied again until the result is below n
// ("cycle walking": Black & Rogaway 2002), less than four times on average. n <= 2^62.
uint64_t permute(uint64_t i, uint64_t n, uint64_t key);

typedef enum { DATA_IN_ORDER, DATA_SHUFFLED } DataOrder;

// Returns the window, numbered in the order of the files, that is number g of a run over `num_windows` windows.
uint64_t data_window(uint64_t g, uint64_t num_windows, DataOrder order, uint64_t seed);

// Writes to order (n) the numbers 0..n-1 sorted by token, equal ones in their own order (a counting sort). counts
// (vocab_size + 1) is scratch.
void data_sort(int* order, const int* tokens, size_t n, int* counts, int vocab_size);

// ---------------------------------------------------------------------------------------------------------------------
// the loader

// Windows of a run: `rows` from `first` on, but for those that it leaves out. tokens, targets and order (rows*T each)
// lie one behind another, so that one copy takes all three. order: the positions 0..rows*T-1 sorted stably by token, as
// encoder_backward wants them.
typedef struct {
    int *tokens, *targets, *order;
    uint64_t first;
    int rows, T;
} Batch;

// LOADER_AHEAD: the most batches that have been requested and not yet taken. There is memory for two more: the batch in
// use, and the one before it, which may still be being copied to a GPU.
enum { LOADER_AHEAD = 2, LOADER_BATCHES = LOADER_AHEAD + 2 };

// Must not be moved while it is open: its thread uses the address.
typedef struct {
    Dataset* data; // the thread's alone while the loader is open
    DataOrder order;
    uint64_t seed;
    const SkipWindows* skip;       // NULL: no window is left out
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

// Returns the number of ints that dataloader_open takes as `memory`.
size_t dataloader_ints(int max_rows, int T);

// Starts a loader of batches of up to max_rows windows. It stores them in `memory`, dataloader_ints() ints, which the
// caller allocates, page-locked if batches are copied to a GPU. `data`, `skip` and `memory` must outlive the loader.
// Ends the program if the thread cannot be started.
void dataloader_open(DataLoader* l, Dataset* data, DataOrder order, uint64_t seed, const SkipWindows* skip,
                     int max_rows, int* memory);

// Asks for `rows` windows of the run from `first` on (see data_window), but for those that are left out. At most
// LOADER_AHEAD batches can be asked for and not yet taken; more end the program.
void dataloader_request(DataLoader* l, uint64_t first, int rows);

// Waits for the oldest batch asked for and returns it; good until the next call. Ends the program if it cannot be read.
const Batch* dataloader_wait(DataLoader* l);

// Returns the number of batches asked for and not yet taken: 0 .. LOADER_AHEAD.
int dataloader_pending(const DataLoader* l);

// Ends the thread and frees the loader's memory. Batches asked for and not taken are dropped.
void dataloader_close(DataLoader* l);

// ---------------------------------------------------------------------------------------------------------------------
// validation

typedef struct {
    DataLoader loader;
    uint64_t num_windows; // of all ranks
    uint64_t next, stride; // the batch to ask for next; the distance between this rank's batches
} EvalLoader;

// Returns the number of whole windows in `max_tokens` tokens: at least one, at most all. -1: all.
uint64_t eval_windows(const Dataset* data, long long max_tokens);

// Starts a loader of batches of up to max_rows windows; `memory` has dataloader_ints() ints. As for a DataLoader,
// `data` and `memory` must outlive it, and it must stay where it is.
void evalloader_open(EvalLoader* e, Dataset* data, long long max_tokens, int max_rows, int* memory);

// Begins a pass over the windows: batches rank, rank + num_ranks, ... are this rank's.
void evalloader_begin(EvalLoader* e, int rank, int num_ranks);

// Returns this rank's next batch, good until the next call; NULL at the end of the pass.
const Batch* evalloader_next(EvalLoader* e);

// Ends the thread, also in the middle of a pass.
void evalloader_close(EvalLoader* e);
