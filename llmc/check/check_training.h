// The part of `check` that trains: makes the same steps on two devices and compares losses, norms, gradients and
// weights.
#pragma once
#include "../train/plan.h"
#include "check_op.h"

// Trains on the device with each --recompute (all_modes) or with the plan's, and once on the reference, on the same
// batches. `plan` is the device's.
void check_training(Check* k, const Plan* plan, bool all_modes);

// The largest number of steps (--max_steps may give fewer), and the micro-batches of each.
enum { CHECK_STEPS = 10, CHECK_MICRO_BATCHES = 2 };
