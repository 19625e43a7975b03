// The phases of a training run between its steps: validation, samples, the report, checkpoints. All ranks do the same
// phases at the same steps. train.c has the loop.
#pragma once
#include "run.h"

// Seconds of a micro-batch from which on ranks ask each other between two whether to stop, by a message of less than a
// millisecond (chosen).
static const double SLOW_BATCH = 0.5;

// Queues the upload of a batch: targets and order lie behind the tokens.
void upload_batch(GPT2* g, const Batch* b);

// Returns true if the run is to stop now, between two micro-batches or batches, and notes that in run->stops. If these
// are fast, several ranks stop only between steps. All ranks call it at the same places.
bool run_is_interrupted(void* run);

// Returns true before the first step, after every multiple of `every`, and after the last step; never if `every` is 0.
bool run_is_due(const TrainRun* run, long long every);

// Returns the phases that are due after this step, or at the start.
Phases train_phases_due(const TrainRun* run);

// Drops pending phases of a resumed run that its options no longer ask for.
void train_drop_pending(TrainRun* run);

// Returns true if all steps are done, and all phases after the last one.
bool train_is_complete(const TrainRun* run);

// The next three do a phase that is pending (run->state.pending), and leave it so if the run is to stop meanwhile.

// Validates, and logs the loss.
void train_validate(TrainRun* run);

// Scores the test sets of --eval_data, and logs the scores.
void train_score(TrainRun* run);

// Logs a sample, which rank 0 makes.
void train_sample(TrainRun* run);


// Writes report.html, and sets run->report_due to the time of the next: in ten seconds, or after a hundred times the
// time that it took (both chosen). On rank 0; the others do nothing.
void train_report(TrainRun* run);

// ---------------------------------------------------------------------------------------------------------------------
// checkpoints
//
// Rank 0 writes them, in a thread of its own while training goes on, if host memory has room for a copy (saver.h). A
// save that fails is tried again after the next step; after three retries the run ends. Without a copy and with ZeRO it
// ends at once: the other ranks may still be handing over their shards.

// Returns true if a checkpoint of this step is to be made: by --save_every, at the end, or because it was asked for.
bool train_save_is_due(const TrainRun* run);

// Returns the rule of the checkpoints to keep, by the best step so far.
KeepRule keep_rule(const Plan* p, const TrainState* s);

// Begins a checkpoint of this step, after waiting for the one before.
void train_save(TrainRun* run);

// Logs the save that has ended since the last call, if one has.
void train_look_at_save(TrainRun* run);

// At the end of a run: waits for the save that goes on, and repeats it, after pauses, if the last one failed.
void train_finish_save(TrainRun* run);
