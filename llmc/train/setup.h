// Sets up a training run by its plan: opens data, memory, weights and logs. Data and memory are checked before the
// model is allocated or a log is changed.
#pragma once
#include "run.h"

// Opens a run, which train_close() closes and frees; every failure ends the program. All ranks call it. If the run was
// finished (run->was_finished), neither model nor loaders nor logs are opened.
TrainRun* train_open(Start start, Comm* comm);

// Returns true if all steps are done, and all phases after the last one.
bool train_is_complete(const TrainRun* run);

// Closes logs, loaders and model and frees the run; returns the exit code.
int train_close(TrainRun* run);
