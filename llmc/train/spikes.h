// Judges each step by its loss and norm, and does with bad ones what --on_spike asks. A step is bad if its loss or norm
// is not finite, or a spike: if its z-score (base/outlier.h) is above --skip_loss_z or --skip_norm_z. A bad step does
// not update the weights. Its batch counts as consumed.
//
//   skip        the run goes on
//   stop        after --bad_steps bad steps in a row, the run saves and ends with exit code 4
//   rewind:N    after these, the run goes back to the last good checkpoint, leaves out N steps of data, and goes on
//
// PaLM was trained so (Chowdhery et al. 2022, section 5.1), by hand: about 20 times it went back about 100 steps and
// skipped 200 to 500 batches, among them those before and in the spike. The same batches made no spike from other
// checkpoints: it takes certain data and certain weights. This program repeats its bits, so the same data would lead to
// the same spike. Therefore all data from the checkpoint to the last bad step are left out, even if these are more than
// N steps.
//
// A checkpoint is good if it is undamaged, its numbers are finite, and it is from before the streak of bad steps: the
// step after it is not one of them. Earlier bad steps do not count. Newer ones are set aside as rewound-step_*. The
// windows left out are part of the run's state (files/rewinds.h): a killed run goes on with the same data, and so does
// one with another number of ranks. Windows have absolute numbers, so that all ranks leave out the same ones.
//
// Without a good checkpoint, or after --max_rewinds rewinds, the run ends as with stop. If the loss or norm of the last
// step is not finite, it ends without saving: the weights may be the fault.
#pragma once
#include "setup.h"

typedef enum { ON_SPIKE_SKIP, ON_SPIKE_STOP, ON_SPIKE_REWIND } OnSpike;

// Returns what --on_spike asks, and sets `steps`, which may be NULL, to N; a usage error if it is wrong.
OnSpike on_spike(const Config* c, long long* steps);

// Returns true if a step's update must wait until the step was judged.
bool spikes_may_skip(const Config* c);

// Judges the step that has just been computed, before it counts as done. Returns true if its update is skipped. Sets
// its z-scores, and adapts the loss scale. Ends the program if the loss or norm is not finite and --on_spike does not
// say otherwise. All ranks judge alike without another collective: their sums are equal, and a gradient that overflowed
// on one rank is not finite after the reduction either, nor is the norm. Steps that are not finite are left out of the
// statistics of outliers.
bool spikes_judge(TrainRun* run, StepRecord* r);

// Does what --on_spike asks after the bad step `r`, which is not done yet. Returns true if the run went back: the step
// is then not done. If the run is to end, sets run->stops and run->spike. Collective.
bool spikes_answer(TrainRun* run, const StepRecord* r);
