// Sets up a training run by its plan: opens data, memory, weights and logs. Data and memory are checked before the
// model is allocated or a log is changed.
#pragma once
#include "run.h"

// Opens a run, which train_close() closes and frees; every failure ends the program. All ranks call it. If the run was
// finished (run->was_finished), neither model nor loaders nor logs are opened.
TrainRun* train_open(Start start, Comm* comm);

// Closes logs, loaders and model and frees the run; returns the exit code.
int train_close(TrainRun* run);

// ---------------------------------------------------------------------------------------------------------------------
// parts that other commands use

// Allocates the batches of a loader of B sequences of T tokens, in memory that the device copies from; host_free()
// frees them.
int* open_batches(const Backend* b, int B, int T);

// Opens a tokenizer, which tokenizer_free() closes; returns false if --tokenizer is "none". Ends the program if the
// tokenizer has ids that the model does not have.
bool open_tokenizer(Tokenizer* t, const TokenizerPlan* plan, const GPT2Config* m);

// Returns GPT2.eot for a model that reads several documents at a time: the end of text with --document_mask 1, else
// NO_DOCUMENTS. t NULL: there is no tokenizer, which with the mask ends the program.
int documents_eot(const DataPlan* data, const Tokenizer* t);

// Opens --eval_data for a planned model, which test_sets_close() closes; t NULL: there is no tokenizer. Sets *count, 0
// if the option is empty, and ends the program if a file cannot be read.
TestSet* open_test_sets(const PhasePlan* p, const Tokenizer* t, int* count);

// Ends the program if a checkpoint in `folder`, with this state.json (NULL: none), was made with another tokenizer; `t`
// NULL: none is used. option: the value of --tokenizer, for errors.
void check_tokenizer(const char* option, const Tokenizer* t, const json_t* state, const char* folder);

// Ends the program if data were made with another tokenizer than `t` (provenance.h). `option`: of the data. name: the
// value of --tokenizer.
void check_data_tokenizer(Dataset* d, const char* option, const Tokenizer* t, const char* name);
