// The forms of test sets that are known, with their rules. Two programs that score one file by other rules get other
// numbers from one model, so a result always names them.
//
// Rules of llm.c and build-nanogpt for HellaSwag: the context is `ctx`, each ending is tokenized by itself behind a
// space, and the likeliest ending has the lowest mean loss per token. Rules of lm-evaluation-harness: the context is
// "activity_label: ctx_a Ctx_b" without the brackets of WikiHow, context and ending are tokenized together, and the
// loss is divided by the ending's characters. Both also count by the sum of the losses ("acc").
//
// The other sets are scored by lm-evaluation-harness' rules. Members of their lines:
//   PIQA           goal, sol1, sol2, label
//   ARC            question {stem, choices [{text, label}]} or, from Hugging Face, question,
//                  choices {text [], label []}; answerKey
//   OpenBookQA     question_stem, choices {text [], label []}, answerKey (AllenAI's files have ARC's form)
//   CommonsenseQA  as ARC, and question_concept: the choices are listed in the context, the endings are their letters
//   MMLU           question, choices [] or A, B, C, D; answer, a letter or a number from 0 on; perhaps subject: as
//                  CommonsenseQA
//   BoolQ          passage, question, answer (true or false) or SuperGLUE's label: the endings are "no" and "yes"
//   WinoGrande     sentence, option1, option2, answer: an option takes the place of "_", and the rest is scored
//   LAMBADA        text: its last word is to be predicted
//   and three of llm-foundry, for many sets: query, choices, gold; context_options, continuation, gold (the context is
//   chosen); context, continuation (which is to be predicted)
#pragma once
#include "../base/base.h"
#include <jansson.h>

enum { MAX_ENDINGS = 64 };

// When the model is right about an item: the ending of its label has the
typedef enum {
    BY_TOKEN,     // lowest loss per token, and by its sum
    BY_CHARACTER, // lowest loss per character, and by its sum
    BY_SUM,       // lowest loss
    AS_FORESEEN,  // there is one ending: right if each of its tokens is the likeliest one
    AS_TEXT,      // never: only the loss is of interest (text.h)
} TestNorm;

// Ways to make rows of tokens from texts. Each decides too which tokens are scored.
typedef enum {
    ROWS_TOGETHER, // context and ending together, cut behind as many tokens as the context alone has (lm-eval)
    ROWS_APART,    // context and ending each by itself (llm.c)
    ROWS_PREFIX,   // CORE's: the end-of-text token and all text together; all behind what an item's rows begin with,
    ROWS_SUFFIX,   // what they end with,
    ROWS_WHOLE,    // or all behind the tokens of the text without the ending
} TestRowRule;

// An item as text: pairs of a context and its ending.
typedef struct {
    int label, count;
    char **contexts, **endings; // without the space between them
    char* heading;              // stands in front, and in front of examples; NULL: nothing
} ItemText;

// Returns the bytes of a text without the white space at its end, that of ASCII which Python's strip() removes.
size_t trimmed_length(const char* text);

// Frees the texts; the item is empty then.
void item_text_free(ItemText* item);

typedef struct {
    const char* name;
    const char* rules;      // the rules of --eval_rules that ask for it; NULL: all
    const char* members[2]; // of a line, which tell it from those of other forms
    TestNorm norm;
    TestRowRule rows;
    const char *convention, *published; // printed with each result; published may be NULL
    bool (*read)(ItemText* item, const json_t* line, Error* err); // fills an empty item
} TestForm;

// Returns the form of a line, by its members; NULL and an Error if there is none.
const TestForm* test_form_of(const json_t* line, const char* rules, Error* err);

// Returns the form of llm.c's .bin at `path`: the file's name tells MMLU from HellaSwag.
const TestForm* test_form_bin(const char* path);

// CORE's kinds of tasks (core.h): multiple_choice, schema, language_modeling.
enum { CORE_CHOICE, CORE_SCHEMA, CORE_LANGUAGE, CORE_KINDS };
extern const TestForm CORE_FORMS[CORE_KINDS];
