// Judges each step by its loss and norm, and does with bad ones what --on_spike asks. A step is bad if its loss or norm
// is not finite, or a spike: if its z-score (base/outlier.h) is above --skip_z. A bad step does not update the
// weights. Its batch counts as consumed.
//
//   skip        the run goes on
//   stop[:N]    after N bad steps in a row (1), the run ends with exit code 4
//
// A run that ends so, or because its loss is not finite, names the last good checkpoint and the windows of the data
// from there to the bad step, as the options that go back and leave them out: --resume auto --skip_windows FIRST-LAST.
// scripts/supervise.sh starts the run again with them. PaLM was trained so (Chowdhery et al. 2022, section 5.1): about
// 20 times it went back about 100 steps and skipped 200 to 500 batches, among them those before and in the spike. The
// same batches made no spike from other checkpoints: it takes certain data and certain weights. This program repeats
// its bits, so the same data would lead to the same spike.
//
// A checkpoint is good if it is undamaged, its numbers are finite, and it is from before the streak of bad steps: the
// step after it was finite and no spike. Nothing is saved at the end: the run goes back.
#pragma once
#include "run.h"

// Returns true if a step's update must wait until the step was judged.
bool spikes_may_skip(const SpikeRule* rule);

// Judges the step that has just been computed, before it counts as done. Returns true if its update is skipped. Sets
// its z-scores, and adapts the loss scale. Ends the run, with exit code 4, after N bad steps with --on_spike stop:N, or
// if the loss or norm is not finite and no option asks to skip that. All ranks judge alike without another collective:
// their sums are equal, and a gradient that overflowed on one rank is not finite after the reduction either, nor is the
// norm. Steps that are not finite are left out of the statistics of outliers.
bool spikes_judge(TrainRun* run, StepRecord* r);
