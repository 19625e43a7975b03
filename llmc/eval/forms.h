// The forms of test sets that are known, with their rules. Two programs that score one file by other rules get other
// numbers from one model, so a result always names them.
//
// llm.c's rules (those of build-nanogpt too) for HellaSwag: the context is `ctx`, each ending is tokenized by itself
// behind a space, and the likeliest ending has the lowest mean loss per token. Those of lm-evaluation-harness: the
// context is "activity_label: ctx_a Ctx_b" without the brackets of WikiHow, context and ending are tokenized together,
// and the loss is divided by the ending's characters. Both also count by the sum of the losses ("acc").
//
// The other sets are scored by lm-evaluation-harness' rules, without examples in front. Members of their lines:
//   PIQA         goal, sol1, sol2, label
//   ARC          question {stem, choices [{text, label}]} or, from Hugging Face, question, choices {text [], label []};
//                answerKey
//   WinoGrande   sentence, option1, option2, answer: an option takes the place of "_", and the rest is scored
//   LAMBADA      text: its last word is to be foreseen
//   and three of llm-foundry, for many sets: query, choices, gold; context_options, continuation, gold (the context is
//   chosen); context, continuation (which is to be foreseen)
#pragma once
#include "../base.h"
#include <jansson.h>

// When the model is right about an item: the ending of its label has the
typedef enum {
    BY_TOKEN,     // lowest loss per token, and by its sum
    BY_CHARACTER, // lowest loss per character, and by its sum
    BY_SUM,       // lowest loss
    AS_FORESEEN,  // there is one ending: right if each of its tokens is the likeliest one
} TestNorm;

typedef struct TestReader TestReader; // test_set.h

typedef struct {
    const char* name;
    const char* rules;      // a choice of --eval_rules; NULL: there is only one way
    const char* members[2]; // of a line, which tell it from those of other forms
    TestNorm norm;
    const char *convention, *published; // printed with each result; published may be NULL
    bool (*read)(TestReader* r, const json_t* line, Error* err); // adds the item of a line
} TestForm;

// Returns the form of a line, by its members; NULL and an Error if there is none.
const TestForm* test_form_of(const json_t* line, const char* rules, Error* err);

// Returns the form of llm.c's .bin.
const TestForm* test_form_bin(void);
