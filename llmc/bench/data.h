// `bench data`: how fast the data loader (data/dataloader.h) delivers the windows of --train_data, beside how fast GPUs
// are predicted to take them (predict.h): as a table and as JSON.
//
// The shards are opened, and windows are read in random order, as training does, and in the order of the files: once
// after the shards were dropped from the page cache, and then the same ones again, from memory. A batch is taken as
// soon as it is ready, as by a GPU that takes no time. Each takes a second, or --max_steps batches.
#pragma once
#include "record.h"

// Runs the command `bench data`. Returns the exit code.
int bench_data(const Config* config);
