// Prints the texts that `generate` makes. Several are made at once, and printed one after another: the first one that
// has not ended as it comes, in whole UTF-8 characters; each other one when those before it have ended. Three forms:
//
//   text    the prompt and its continuation; a heading "=== prompt 2, sample 1 ===" if there are several texts
//   table   --logprobs K: a line for each token, with its log-probability and the K likeliest tokens
//   JSON    --json: a line for each text, with prompt, sample (from 1), text, ids (of its tokens) and end ("eot",
//           "length" or "interrupt"); with --logprobs also logprob, the sum, and tokens: id, text, logprob and best,
//           the K likeliest tokens in the same form
#pragma once
#include "../model/generate.h"
#include "prompts.h"
#include <jansson.h>

typedef struct {
    const Prompts* prompts;
    const Tokenizer* tokenizer;
    int samples;         // texts for each prompt
    int alternatives;    // K; 0: no log-probabilities
    bool is_json;
    bool repeats_prompt; // in front of its continuation
} AnswerOptions;

typedef struct {
    Buffer text; // to be printed; for JSON the continuation
    size_t printed; // bytes
    json_t *ids, *tokens;
    double logprob; // the sum
    bool has_ended;
    TextEnd reason;
} Answer;

typedef struct {
    AnswerOptions options;
    size_t total, current; // all texts; the one that is being printed
    Answer* answer;
} Answers;

Answers answers_open(const AnswerOptions* options);
void answers_close(Answers* a);

// Returns the sink that prints. It ends all texts when SIGINT came (request_to_interrupt).
TextSink answers_sink(Answers* a);
