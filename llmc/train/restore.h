// Continues the run of a checkpoint that resume.h has found: takes its weights, moments and state, and refuses other
// data.
#pragma once
#include "../files/checkpoint.h"
#include "position.h"
#include "start.h"

// Ends the program unless the data with this hash is what the run of the checkpoint was trained on.
void restore_check_data(const Start* start, uint64_t train_data);

// Returns true if the logs in --out say that the checkpoint's run finished at this step, or if they are another run's.
// Collective.
bool restore_logs_have_end(const Start* start, Comm* comm, long long step);

// Loads weights, moments and state of the checkpoint; without one, initial weights, and the state of a fresh run. Ends
// the program if they cannot be read. Collective.
TrainState restore_state(Optimizer* o, const Start* start, Comm* comm);

// Warns if the learning rate of a group of parameters jumps by more than 2% (chosen) at a resumption, after `step`
// steps, because options changed.
void restore_warn_of_lr_jump(const Start* start, const Position* p, long long step);
