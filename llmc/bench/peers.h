// `bench peers`: a training step of this program beside PyTorch's and llm.c's, in turn on this machine. The Python of
// --python runs dev/bench/peers.py, whose head describes the measurement.
#pragma once
#include "../options/config.h"

// Runs the command `bench peers`: checks that --python has torch and transformers and that --llmc has a trainer, then
// becomes the script, whose exit code is the program's. Returns only by ending the program.
int bench_peers(const Config* config);
