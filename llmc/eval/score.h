// Scores a test set (test_set.h): the model's loss on the ending of each row, and what that says about each item.
//
// Rows go through the model in batches, longest first, each padded behind its end, where causal attention never looks.
// On a CPU, rows that begin alike (endings of one context, items behind the same examples) go through one by one in
// place of that, if this saves a quarter of the tokens or more: a cache of keys and values (KVCache) keeps what a row
// shares with the one before it. On a GPU, batches are faster than what sharing saves (judged by launches, not
// measured). Ranks take batches, or runs of items, in turn, and then share all losses: a score is the same for any
// number of ranks.
#pragma once
#include "../comm/comm.h"
#include "../model/gpt2.h"
#include "scored_rows.h"

typedef struct {
    size_t total;           // items; 0: the scoring was interrupted
    size_t correct;         // by the form's norm
    size_t correct_by_sum;  // by the lowest sum of the losses; 0 if there is one ending
    double perplexity;      // of one ending, a word: exp(the mean of the items' losses); of a text: of a token's loss;
                            // NAN if there are several endings
    size_t tokens;          // of a text, those that were scored
    double bits_per_byte;   // of a text
} TestScore;

// Scores a set that was read for the T of `g`. Collective. Returns false and an Error if a loss is not finite. Before
// each round of batches all ranks call is_interrupted (may be NULL), and end if it returns true. `losses`, NULL or one
// for each row, gets the sum of a row's losses.
bool test_set_score(TestScore* score, double* losses, const TestSet* s, GPT2* g, Comm* comm,
                    bool (*is_interrupted)(void*), void* context, Error* err);

// Returns correct / total.
double test_accuracy(size_t correct, size_t total);

// Returns the standard error of an accuracy, as of a sample of items; 0 for one item.
double test_standard_error(size_t correct, size_t total);

// Prints a score: llm.c's line "HellaSwag: 1/4 = 0.250000", and below it standard errors, rules and published scores.
void test_score_print(const TestSet* s, const TestScore* score);
