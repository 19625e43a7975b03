// `bench step`: lists the operations of a training step with their arithmetic and bytes, as check/recorder.h records
// them: as a table and as JSON. Needs no device. dev/bench/predict.py predicts a step on a GPU from the list.
#pragma once
#include "../options/config.h"

// Runs the command `bench step`. Returns the exit code.
int bench_step(const Config* config);
