// Sets up a training run: options and checkpoint become a plan, then data, memory, weights and logs are opened.
// Options, data and memory are checked before the model is allocated or a log is changed.
#pragma once
#include "run.h"

// Opens a run, which train_close() closes and frees; every failure ends the program. All ranks call it. `c` gets the
// options of --preset and of the checkpoint that is resumed. If the run was finished (run->was_finished), neither model
// nor loaders nor logs are opened.
TrainRun* train_open(Config* c, const Backend* b, enum dtype dtype, Comm* comm);

// Closes logs, loaders and model and frees the run; returns the exit code.
int train_close(TrainRun* run);

// ---------------------------------------------------------------------------------------------------------------------
// parts that other commands use

// Allocates the batches of a loader of B sequences of T tokens, in memory that the device copies from; host_free()
// frees them.
int* open_batches(const Backend* b, int B, int T);

// Sets --tokenizer, if neither the user nor a checkpoint did, to the folder that the weights come from (NULL: random
// weights) if that has a tokenizer.
void take_folder_tokenizer(Config* c, const char* folder);

// Opens --tokenizer, which tokenizer_free() closes; returns false if that is "none". A file that the run in the
// checkpoint `folder` had is not read again: the checkpoint has a copy. Ends the program if the tokenizer has ids that
// the model does not have.
bool open_tokenizer(Tokenizer* t, const Config* c, const GPT2Config* m, const char* folder);

// Returns GPT2.eot for a model that reads several documents at a time: the end of text with --document_mask 1, else
// NO_DOCUMENTS. t NULL: there is no tokenizer, which with the mask ends the program.
int documents_eot(const Config* c, const Tokenizer* t);

// Opens --eval_data for a planned model, which test_sets_close() closes; t NULL: there is no tokenizer. Sets *count, 0
// if the option is empty, and ends the program if a file cannot be read.
TestSet* open_test_sets(const Config* c, const Tokenizer* t, const Plan* p, int* count);

// Opens --text likewise.
TestSet* open_texts(const Config* c, const Tokenizer* t, const Plan* p, int* count);

// Ends the program if a checkpoint in `folder`, with this state.json (NULL: none), was made with another tokenizer; `t`
// NULL: none is used.
void check_tokenizer(const Config* c, const Tokenizer* t, const json_t* state, const char* folder);

// Ends the program if data were made with another tokenizer than `t` (provenance.h). `option`: of the data.
void check_data_tokenizer(Dataset* d, const char* option, const Tokenizer* t, const Config* c);
