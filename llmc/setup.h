// Sets up a training run: options and checkpoint become a plan, then data, memory, weights and logs are opened.
// Options, data and memory are checked before the model is allocated or a log is changed.
#pragma once
#include "data/dataloader.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "files/checkpoint.h"
#include "log/logger.h"
#include "optimizer.h"
#include "plan.h"
#include "schedule.h"

// The next micro-batch to request from the loader.
typedef struct {
    long long tokens; // trained on before its step
    uint64_t window;  // first window of its step
    long long row;    // its own first window, relative to `window`
} Cursor;

// Host memory for copies to and from the device while work goes on there (Backend.host_alloc).
typedef struct {
    double sums[NUM_SUMS]; // fetched from the device: the sums of a step
    double stop;           // sent to the device: 1 if this rank was asked to stop
} Mailbox;

typedef struct {
    Config* config;
    Plan plan;
    Comm* comm;
    GPT2 model;
    Optimizer optimizer;
    Mailbox* mailbox;
    Tokenizer tokenizer;
    bool has_tokenizer; // not with --tokenizer none
    Dataset train_data, val_data;
    DataLoader loader;
    EvalLoader val;
    int *train_memory, *val_memory; // of the loaders' batches
    bool has_val, resumed;
    bool stops; // SIGINT or SIGTERM came to one of the ranks
    BatchRamp ramp;
    long long num_steps, total_tokens; // at the end of the run
    TrainState state;
    Cursor cursor;
    Logger log;
    double peak_flops; // of one rank; 0: unknown
    int lock;          // file descriptor of out/.lock, -1 without --out
} TrainRun;

// Opens a run, which train_close() closes and frees; every failure ends the program. All ranks call it. `c` gets the
// options of --preset and of the checkpoint that is resumed.
TrainRun* train_open(Config* c, const Backend* b, const char* dtype, Comm* comm);

// Closes logs, loaders and model and frees the run; returns the exit code.
int train_close(TrainRun* run);

// ---------------------------------------------------------------------------------------------------------------------
// parts that other commands use

// Allocates the batches of a loader of B sequences of T tokens, in memory that the device copies from; host_free()
// frees them.
int* open_batches(const Backend* b, int B, int T);

// Opens --tokenizer, which tokenizer_free() closes; returns false if that is "none". Ends the program if it has ids
// that the model does not have.
bool open_tokenizer(Tokenizer* t, const Config* c, const GPT2Config* m);

// Returns the known entropy of a corpus in nats a token, from the file that ./prepare left beside its shards; NAN if
// there is none.
double corpus_floor(const Dataset* data);
