// Continues a run: finds the checkpoint of --resume, takes its options, weights, moments and state, and refuses what
// cannot be continued.
#pragma once
#include "run.h"

// With --skip_windows on the command line a run goes back behind these windows: it sets aside its checkpoints that have
// been trained on one of them, as rewound-step_*, and continues from the newest of the others.

// Returns rank 0's checkpoint, which the caller frees, and its state, which the caller releases with json_decref(), and
// takes its options; NULL for a fresh run. Collective.
char* resume_open(TrainRun* run, json_t** state);

// Ends the program unless the data is what the run in `checkpoint` (NULL: a fresh run) was trained on.
void resume_check_data(const TrainRun* run, const char* checkpoint, json_t* state);

// Takes step and pending phases from the checkpoint. Returns true if nothing is left to do: the run is complete, and
// its logs in --out say so. Collective.
bool resume_is_finished(TrainRun* run, const char* checkpoint, const json_t* state);

// Sets the loss scale to its start or, if it is dynamic, to the checkpoint's, unless this start gives another option.
// state NULL: to its start.
void resume_loss_scale(TrainRun* run, const char* checkpoint, json_t* state);

// Takes weights, moments and state from a checkpoint. Ends the program if they cannot be read. Collective.
void resume_load(TrainRun* run, const char* checkpoint, json_t* state);

// Warns if the learning rate of a group of parameters jumps by more than 2% (chosen) at a resumption because options
// changed.
void resume_warn_of_lr_jump(const TrainRun* run, json_t* state);

// Returns the command that continues the run from its end; the caller frees it.
char* resume_command(const TrainRun* run);

// Records the options of a fresh run, so that it can be resumed before its first checkpoint.
void resume_record_options(const TrainRun* run);
