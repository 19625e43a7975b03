// The end of a run by bad steps (numerics.h): it names the last good checkpoint and the windows of the data from there
// to the bad step, as the options that go back and leave them out: --resume auto --skip_windows FIRST-LAST.
// scripts/supervise.sh starts the run again with them. PaLM was trained so (Chowdhery et al. 2022, section 5.1): about
// 20 times it went back about 100 steps and skipped 200 to 500 batches, among them those before and in the spike. The
// same batches made no spike from other checkpoints: it takes certain data and certain weights. This program repeats
// its bits, so the same data would lead to the same spike.
//
// A checkpoint is good if it is undamaged, its numbers are finite, and it is from before the streak of bad steps: the
// step after it was finite and no spike. Nothing is saved at the end: the run goes back.
#pragma once
#include "run.h"

// Ends the run, with exit code 4, at a step that has just been computed and is the last in a row of bad ones.
void ATTR_NORETURN spikes_end_run(TrainRun* run, const StepRecord* r);
