// Opens what a plan names: data, the tokenizer, test sets. Failures end the program.
#pragma once
#include "../data/dataset.h"
#include "plan.h"

// Opens token shards for a planned model, which dataset_close() closes. option: of `patterns`, for errors.
void open_dataset(Dataset* d, const char* option, const char* patterns, const Plan* p);

// Allocates the batches of a loader of B sequences of T tokens, in memory that the device copies from; host_free()
// frees them.
int* open_batches(const Backend* b, int B, int T);

// Opens a tokenizer; NULL if --tokenizer is "none". Ends the program if the tokenizer has ids that the model does not
// have.
Tokenizer* open_tokenizer(const TokenizerPlan* plan, const GPT2Config* m);
void close_tokenizer(Tokenizer* t);

// Returns GPT2.eot for a model that reads several documents at a time: the end of text with --document_mask 1, else
// NO_DOCUMENTS. t NULL: there is no tokenizer, which with the mask ends the program.
int documents_eot(const DataPlan* data, const Tokenizer* t);

// Opens --eval_data for a planned model, which test_sets_close() closes; t NULL: there is no tokenizer. Sets *count, 0
// if the option is empty.
TestSet* open_test_sets(const PhasePlan* p, const Tokenizer* t, int* count);

// Ends the program if the weights in `folder` (NULL: none) are a checkpoint of a run with another tokenizer. Only warns
// if they may differ, as --tokenizer was given, and then also of a model whose folder has another tokenizer. `t` NULL:
// none is used. option: --tokenizer's value, for messages.
void check_tokenizer(const char* option, const Tokenizer* t, const char* folder, bool may_differ);

// Ends the program if data were made with another tokenizer than `t` (provenance.h), unless that is NULL. `option`: of
// the data. name: the value of --tokenizer.
void check_data_tokenizer(Dataset* d, const char* option, const Tokenizer* t, const char* name);
