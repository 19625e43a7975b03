// A training run, as its parts share it: setup.h opens it, train.c has its loop.
#pragma once
#include "../data/dataloader.h"
#include "../data/dataset.h"
#include "../tokenizer/tokenizer_save.h"
#include "../eval/test_set.h"
#include "../files/checkpoint.h"
#include "../files/saver.h"
#include "../log/logger.h"
#include "../model/optimizer.h"
#include "start.h"

// The next micro-batch to request from the loader.
typedef struct {
    long long tokens; // trained on before its step
    uint64_t window;  // first window of its step
    long long row;    // its own first window, relative to `window`
} Cursor;

// Host memory for copies to and from the device while work goes on there (Backend.host_alloc).
typedef struct {
    double sums[NUM_SUMS]; // fetched from the device: the sums of a step
    double votes[3];       // sent to the device, SUM_STOP to SUM_SLOW: 1 or 0
} Mailbox;

typedef struct {
    Start start;
    const Plan* plan; // start.plan
    Comm* comm;
    GPT2 model;
    Optimizer optimizer;
    Mailbox* mailbox;
    Tokenizer tokenizer;
    bool has_tokenizer; // not with --tokenizer none
    TokenizerFiles tokenizer_files; // for the checkpoints, from the first save on
    bool has_made_files;            // or tried to
    Dataset train_data, val_data;
    DataLoader loader;
    EvalLoader val;
    int *train_memory, *val_memory; // of the loaders' batches
    bool has_val, resumed;
    bool was_finished; // before this start, which does nothing
    TestSet* test_sets; // of --eval_data
    int num_test_sets;
    int nonfinite_steps; // the last steps in a row whose loss or norm was not finite
    bool stops;   // a rank was asked to stop
    bool saves;   // a rank was asked to save, or the last save failed
    bool is_slow; // a micro-batch takes long on some rank: ranks ask each other between two whether to stop
    bool replays;         // this step begins with a replay
    long long first_step; // of this start
    long long done_step;  // whose phases were done
    long long saved_step; // of the last checkpoint
    double val_loss;    // the last
    long long val_step; // and its step
    Saver saver;        // of rank 0
    int failed_saves;   // in a row
    long long saving_best_step; // TrainState.best_step and best_loss in the last save that was begun
    double saving_best_loss;
    int seq_len; // of the last step's sequences; 0: there was none in this start
    long long num_steps, total_tokens; // at the end of the run
    TrainState state;
    Cursor cursor;
    Logger log;
    double peak_flops; // of one rank; 0: unknown
    double compute_seconds; // that this rank computed in the last step, where is_timed_step()
    double report_due; // seconds_now() when report.html is to be written again
} TrainRun;
