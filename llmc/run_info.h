// `info FOLDER`: sums up a training run from what it has left in its folder.
#pragma once
#include "config.h"

// Prints, for each folder on the command line: model, options that are not defaults, steps, tokens, time and what
// restarts have lost of it, skipped updates, losses, checkpoints with the result of verifying them, and how the run
// ended. Returns EXIT_CHECK_FAILED if a checkpoint is damaged. A folder without metrics.jsonl ends the program.
int run_info_command(const Config* c);
