// The part of `check` that trains: makes the same steps on two devices and compares losses, norms, gradients and
// weights.
#pragma once
#include "check.h"

// Counts a comparison and returns its verdict, "ok" or "FAILED".
const char* check_verdict(Check* k, bool ok);

// Trains on the device under each --recompute (the given one, if it is given) and once on the reference. The plan is
// the device's; its batch is the reference's too.
void check_training(Check* k, const Plan* plan, const Config* config);

// The largest number of steps, and micro-batches in each.
enum { CHECK_STEPS = 10, CHECK_MICRO_BATCHES = 2 };
