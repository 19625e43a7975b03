// Continues a run: finds the checkpoint of --resume, and takes its options.
//
// With --skip_windows on the command line a run goes back behind these windows: it sets aside its checkpoints that have
// been trained on one of them, as rewound-step_*, and continues from the newest of the others.
#pragma once
#include "plan.h"
#include <jansson.h>

// Returns rank 0's checkpoint, which the caller frees, and its state, which the caller releases with json_decref(), and
// takes its options; NULL for a fresh run. skip: --skip_windows of this start. Collective.
char* resume_open(Config* c, const SkipWindows* skip, Comm* comm, json_t** state);

// Prints the options of this start, as resolved, that differ from those in the checkpoint's state, and parses the
// checkpoint's to `before`. Fails if one of them cannot change in a resumed run.
bool resume_check_changes(Plan* before, const json_t* options, enum dtype dtype, const json_t* state, Error* err);

// Returns the command that continues the run; the caller frees it. is_recorded: a checkpoint or options.json has the
// options of this start, which is not so if a resumed run changed some and has saved nothing since. needs_launcher: it
// is to be started by a launcher, under which --gpus has no effect.
char* resume_command(const Config* c, bool is_recorded, bool needs_launcher);
