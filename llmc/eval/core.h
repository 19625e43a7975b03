// CORE (Li et al. 2024, "DataComp-LM", arXiv 2406.11794): the mean of an accuracy over 22 tasks, each centered so that
// guessing gives 0: (accuracy - baseline) / (1 - baseline).
//
// The tasks are a folder, nanochat's eval_bundle for instance:
//   core.yaml            icl_tasks: a list of {label, dataset_uri, num_fewshot: [N], icl_task_type,
//                        continuation_delimiter (" " if it is not given)}
//   eval_meta_data.csv   columns "Eval Task", a label, and "Random baseline", in percent; others are not read
//   eval_data/URI        JSON lines, in one of llm-foundry's forms
//
// The rules are nanochat's. A prompt is the examples, each followed by a blank line, and the item: context, delimiter,
// ending. In front is the end-of-text token, and of a prompt that is too long the last T tokens stay.
//   multiple_choice     {query, choices, gold}: the lowest mean loss of the tokens behind those that all prompts begin
//                       with
//   schema              {context_options, continuation, gold}: the lowest mean loss of the tokens that all end with
//   language_modeling   {context, continuation}: each token of the continuation is the likeliest one; the context is
//                       trimmed
// Lines come in the order of Python's Random(1337).shuffle(); with --eval_limit N the first N of them are all there is.
// The examples of item i are Random(1234 + i).sample() of the others.
//
// Of YAML only what these lists use is read: block lists of mappings, plain, 'single' and "double" quoted text, [N],
// comments. Anything else is an error, with its line; so is a key that is not listed above (but for has_categories).
#pragma once
#include "score.h"

typedef struct {
    TestTask* tasks;
    int count;
} CoreList;

// Reads the list of a folder, which core_list_free() frees. Fails, and names the file and the line, if it is not as
// above, or a task has no baseline.
bool core_list_read(CoreList* list, const char* folder, Error* err);
void core_list_free(CoreList* list);

// The parts of it: fills tasks without a baseline from core.yaml's text; returns a task's baseline, a fraction, in the
// text of a CSV file.
bool core_read_yaml(CoreList* list, const char* folder, const char* path, const char* text, Error* err);
bool core_read_baseline(double* baseline, const char* label, const char* path, const char* text, Error* err);

// Returns CORE of the tasks among `count` sets, the mean of their centered accuracies, and sets its standard error and
// the number of tasks; NAN if there are none.
double core_score(const TestSet* sets, const TestScore* scores, int count, double* standard_error, int* tasks);

// Prints CORE and what others have published; nothing if there are no tasks.
void core_print(const TestSet* sets, const TestScore* scores, int count);
