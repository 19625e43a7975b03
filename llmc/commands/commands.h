// The commands beside train, check and bench, each in a file of its own. Each returns the exit code.
#pragma once
#include "../comm/comm.h"
#include "../options/config.h"
#include "../model/backend.h"

// Continues prompts by the weights of --init, or of the newest checkpoint in --out (generate_command.c).
int generate_command(const Config* c, const Backend* b, enum dtype dtype);

// Prints the validation loss of the same weights, or their scores on the test sets of --eval_data; each rank reads its
// share of the windows or rows.
int eval_command(Config* c, const Backend* b, enum dtype dtype, Comm* comm);

// Prints a model's tensors and memory, or reads whole token files. Needs no device.
int info_command(Config* c, const Backend* b, enum dtype dtype);

// Writes report.html about the runs in the given folders.
int report_command(const Config* c);

// Turns standard input into token ids, or back with --decode.
int tokenize_command(const Config* c);
