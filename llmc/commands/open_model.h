// Opens the model that a command is about: the weights of --init or of the newest checkpoint in --out. Failures end the
// program.
#pragma once
#include "../train/plan.h"

// Returns the folder to load weights from: --init or, if that was not given, the newest checkpoint in --out. NULL
// stands for random weights. The caller frees it.
char* weights_folder(const Config* c);

// Takes from a checkpoint of ours the options that go with its tokens, and from another folder its tokenizer; those of
// the command line override them.
void take_data_options(Config* c, const char* folder);

// Returns how many positions of a model are trained: with weights of a run that began at random, as many as its
// --seq_len.
int trained_positions(const GPT2Config* m, const char* folder);

// Ends the program if a tokenizer (NULL: there is none to compare) is not that of the run with the weights in `folder`;
// only warns if it is the one that --tokenizer gives.
void check_weights_tokenizer(const Config* c, const Tokenizer* t, const char* folder);

// Opens the tokenizer of weights from `folder` (NULL: random ones), whose device is open: that of a run must be the
// one it was trained with. `command` needs it, for errors.
Tokenizer* open_text_tokenizer(const Config* c, const Plan* p, const char* folder, const char* command);

// Opens a model without backward as planned, with weights.
void open_model(GPT2* g, const Plan* p, Comm* comm);
