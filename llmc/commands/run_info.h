// `info FOLDER...`: sums up training runs from what they have left in their folders, or describes tokenizers
// (commands/tokenize.h). `info FILE...`: token files and tokenizers.
#pragma once
#include "../options/config.h"

// Prints, for each folder on the command line: model, options that are not defaults, steps, tokens, time and what
// restarts have lost of it, skipped updates, losses, checkpoints with the result of verifying them, and how the run
// ended; for each file, what describe_tokens() prints. Returns EXIT_CHECK_FAILED if a checkpoint or a file is damaged.
// A folder without metrics.jsonl ends the program.
int run_info_command(const Config* c);
