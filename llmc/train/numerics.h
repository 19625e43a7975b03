// The numerics of a run: the loss scale, and the judgement of each step by its loss and norm. A step is bad if its loss
// or norm is not finite, or a spike: if its z-score (base/outlier.h) is above --skip_z. A bad step does not update the
// weights. Its batch counts as consumed.
//
//   --on_spike skip      the run goes on
//   --on_spike stop:N    after N bad steps in a row, the run ends with exit code 4 (spikes.h)
#pragma once
#include "../files/checkpoint.h"
#include "../log/logger.h"
#include "plan.h"

// STEP_ENDS_RUN: by --on_spike, or because the loss or norm is not finite and no option asks to skip that.
typedef enum { STEP_UPDATES, STEP_SKIPS, STEP_ENDS_RUN } Verdict;

bool step_is_finite(const StepRecord* r);

// Returns true if a step's update must wait until the step was judged.
bool numerics_may_skip(const SpikeRule* rule);

// Judges the step that has just been computed, before it counts as done. Sets its z-scores, adapts the loss scale, and
// logs why an update is skipped. All ranks judge alike without another collective: their sums are equal, and a gradient
// that overflowed on one rank is not finite after the reduction either, nor is the norm. Steps that are not finite are
// left out of the statistics of outliers.
Verdict numerics_judge(Numerics* n, StepRecord* r, const SpikeRule* rule, Logger* log);
