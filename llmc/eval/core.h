// CORE (Li et al. 2024, "DataComp-LM", arXiv 2406.11794): the mean of an accuracy over 22 tasks, each centered so that
// guessing gives 0: (accuracy - baseline) / (1 - baseline).
//
// The tasks' items are JSON lines in llm-foundry's forms, in FOLDER/eval_data: nanochat's eval_bundle for instance.
// core.c has a table of the 22 tasks, as the bundle's core.yaml and eval_meta_data.csv describe them.
//
// The rules are nanochat's. A prompt is the examples, each followed by a blank line, and the item: context, delimiter,
// ending. In front is the end-of-text token, and of a prompt that is too long the last T tokens stay.
//   multiple_choice     {query, choices, gold}: the lowest mean loss of the tokens behind those that all prompts begin
//                       with
//   schema              {context_options, continuation, gold}: the lowest mean loss of the tokens that all end with
//   language_modeling   {context, continuation}: each token of the continuation is the likeliest one; the context is
//                       trimmed
// Lines come in the order of Python's Random(1337).shuffle(); with --eval_rules limit:N the first N of them are
// all there is. The examples of item i are Random(1234 + i).sample() of the others.
#pragma once
#include "score.h"

enum { CORE_TASKS = 22 };

extern const TestTask CORE[CORE_TASKS];

// Returns CORE of the tasks among `count` sets, the mean of their centered accuracies, and sets its standard error and
// the number of tasks; NAN if there are none.
double core_score(const TestSet* sets, const TestScore* scores, int count, double* standard_error, int* tasks);

// Prints CORE and what others have published; nothing if there are no tasks.
void core_print(const TestSet* sets, const TestScore* scores, int count);
