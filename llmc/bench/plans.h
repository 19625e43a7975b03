// `bench plans`: the matmuls of a training step on a GPU, and for each the algorithms that cuBLASLt offers, timed as at
// the start of a run (cuda/tune.cuh): as a table and as JSON.
#pragma once
#include "record.h"

// Runs the command `bench plans`. Returns the exit code.
int bench_plans(const Config* config);
