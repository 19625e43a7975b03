// The phases of a training run between its steps: validation, scores of test sets, samples, the report. All ranks do
// the same phases at the same steps. train.c has the loop, saving.h the checkpoints.
#pragma once
#include "../data/dataloader.h"
#include "../files/checkpoint.h"
#include "../log/logger.h"
#include "plan.h"
#include "ranks.h"

// Must not be moved once it has begun: its loader knows the address.
typedef struct {
    const Plan* plan;
    const Tokenizer* tokenizer; // NULL: there is none
    bool has_val;
    Dataset val_data;
    EvalLoader val;
    int* val_memory;     // of the loader's batches
    TestSet* test_sets;  // of --eval_data
    int num_test_sets;
    long long last_step; // of the run
    long long done_step; // the last step that has phases, done but for those that are pending; -1: none yet
    Phases pending;
    double report_due;   // seconds_now() when report.html is to be written again
    // from phases_begin() on
    GPT2* model;
    Ranks* ranks;
    Logger* log;
} PhaseState;

// Opens --val_data and --eval_data. tokenizer NULL: there is none. Failures end the program.
void phases_open(PhaseState* p, const Plan* plan, long long last_step, const Tokenizer* tokenizer);

// Takes what a stop has left of the phases of a checkpoint's step, but for what the options no longer ask for.
void phases_resume(PhaseState* p, long long step, Phases pending);

// Gives the phases what they work on, and opens the loader of validation.
void phases_begin(PhaseState* p, GPT2* model, Ranks* ranks, Logger* log);
void phases_close(PhaseState* p);

// Makes the phases pending that are due after this step, or at the start. Does nothing when called again for a step.
void phases_add_due(PhaseState* p, long long step);

bool phases_are_pending(const PhaseState* p);

// The next three do a phase that is pending, and leave it so if the run is to stop meanwhile.

// Validates, logs the loss and sets *result. Returns false if the run is to stop.
bool phases_validate(PhaseState* p, Validated* result);

// Scores the test sets of --eval_data, and logs the scores.
void phases_score(PhaseState* p);

// Logs a sample, which rank 0 makes.
void phases_sample(PhaseState* p);

// Writes report.html, and sets report_due to the time of the next: in ten seconds, or after a hundred times the time
// that it took (both chosen). On rank 0; the others do nothing.
void phases_report(PhaseState* p);
