// Continues the run of a checkpoint that resume.h has found: takes its weights, moments and state, and refuses other
// data.
#pragma once
#include "run.h"

// Ends the program unless the data is what the run of the checkpoint was trained on.
void restore_check_data(const TrainRun* run);

// Takes step and pending phases from the checkpoint, if there is one. Returns true if nothing is left to do: the run is
// complete, and its logs in --out say so. Collective.
bool restore_is_finished(TrainRun* run);

// Takes weights, moments and state from the checkpoint. Ends the program if they cannot be read. Collective.
void restore_run(TrainRun* run);

// Warns if the learning rate of a group of parameters jumps by more than 2% (chosen) at a resumption because options
// changed.
void restore_warn_of_lr_jump(const TrainRun* run);

// Records the options of a fresh run, so that it can be resumed before its first checkpoint.
void restore_record_options(const TrainRun* run);
