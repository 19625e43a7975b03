// The commands beside train, check and bench that need a model. Each returns the exit code.
#pragma once
#include "comm/comm.h"
#include "config.h"
#include "gpt2.h"

// Takes from a checkpoint of ours the options that go with its tokens; those of the command line override them.
// `folder`: of the weights; NULL: random ones.
void take_data_options(Config* c, const char* folder);

// Prints a continuation of --prompt by the weights of --init, or of the newest checkpoint in --out.
int generate_command(const Config* c, const Backend* b, const char* dtype);

// Prints the validation loss of the same weights, or their scores on the test sets of --eval_data; each rank reads its
// share of the windows or rows.
int eval_command(Config* c, const Backend* b, const char* dtype, Comm* comm);

// Prints a model's tensors and memory, or reads whole token files. Needs no device.
int info_command(Config* c, const Backend* b, const char* dtype);

// Writes report.html about the runs in the given folders.
int report_command(const Config* c);

// Turns standard input into token ids, or back with --decode.
int tokenize_command(const Config* c);
