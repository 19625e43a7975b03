// The start of a run: the options, the checkpoint that it continues, and all ranks agree on a plan. Nothing below sees
// the options.
#pragma once
#include "../files/checkpoint.h"
#include "plan.h"
#include <jansson.h>

typedef struct {
    Plan plan;
    char* checkpoint; // to continue from; NULL: a fresh run
    json_t* state;    // its state.json
    TrainState begin; // train_state_from_json(state)
    Plan before;      // plan_parse() of its options
    json_t* options;  // as resolved, for the run's files
    char *command_if_recorded, *command_if_not; // that continue the run (resume_command)
    bool needs_launcher; // these commands are to be started by a launcher, as this run was
    int lock;         // file descriptor of out/.lock; -1: there is none
} Start;

// Makes the plan of a run, locks --out, and opens the device. `c` gets the options of --preset and of the checkpoint
// that is resumed. Every failure ends the program. All ranks call it.
Start start_run(Config* c, const Backend* b, enum dtype dtype, Comm* comm);
void start_free(Start* s);
