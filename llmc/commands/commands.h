// The commands beside train, check and bench that need a model. Each returns the exit code.
#pragma once
#include "../comm/comm.h"
#include "../options/config.h"
#include "../model/gpt2.h"
#include "../train/plan.h"

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

// ---------------------------------------------------------------------------------------------------------------------
// parts of the commands; failures end the program

// Returns the folder to load weights from: --init or, if that was not given, the newest checkpoint in --out. NULL
// stands for random weights. The caller frees it.
char* weights_folder(const Config* c);

// Takes from a checkpoint of ours the options that go with its tokens; those of the command line override them.
void take_data_options(Config* c, const char* folder);

// Opens a model without backward as planned, with weights.
void open_model(GPT2* g, const Plan* p, const Config* c, const Comm* comm, const char* folder);
