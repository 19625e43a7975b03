// Rows of tokens that a model scores, by items: what a test set is in memory (test_set.h).
#pragma once
#include "../tokenizer/tokenizer.h"
#include "forms.h"

typedef struct {
    size_t begin;   // in TestSet.tokens
    int tokens;     // at most T + 1, CORE's T: a longer context has lost its first ones
    int scored;     // the last of them, the ending
    int characters; // of the ending's text, without the space before it; 0: unknown
} TestRow;

typedef struct {
    size_t first; // of its rows
    int rows, label;
} TestItem;

// Sharing of contexts: a row that goes through the model alone is computed only behind what it shares with the row
// before it (score.h).
typedef enum { SHARE_IF_LESS, SHARE_NEVER, SHARE_ALWAYS } ContextSharing;

typedef struct {
    char* path;
    const TestForm* form;
    char* name;       // of the form; with the path behind it if several sets of a run have this form
    char* convention; // of the form, with the examples
    const char* published; // scores of others by this convention; NULL: none are known
    double baseline;  // of CORE: the accuracy of guessing; NAN: no task of CORE
    size_t bytes;     // of the scored tokens of a text
    ContextSharing sharing; // set for tests
    TokenList tokens;
    TestRow* rows;
    TestItem* items;
    size_t num_rows, num_items, num_cut; // num_cut: rows whose context was too long
} TestSet;

// The model and the rules that a set is read for, and when it is scored.
typedef struct {
    const Tokenizer* tokenizer; // NULL: there is none, only .bin files can be read
    int T, vocab_size;          // of the model: tokens that it reads at once, ids that it knows
    // --eval_rules
    const char* rules;          // "llm.c" or "lm-eval"
    int shots;                  // examples in front of each item
    const char* examples;       // their file; NULL or "": the set's own
    long long limit;            // items that are read, the first ones; 0: all
    long long every;            // steps between scorings while training; 0: never; -1: as the loss is validated
} TestSetOptions;

// A task of CORE.
typedef struct {
    const char *name, *file; // of the items, in FOLDER/eval_data, without .jsonl
    const char* delimiter;   // between context and ending
    const TestForm* form;
    int shots;
    double baseline;
} TestTask;
