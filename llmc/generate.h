// Generates text one token at a time, with a cache of the earlier tokens' keys and values (KVCache).
#pragma once
#include "base.h"
#include "data/tokenizer.h"
#include "gpt2.h"
#include "models.h"

typedef struct {
    double temperature; // 0: always the likeliest token
    int top_k;          // sample among the k likeliest tokens; 0: among all
    double top_p;       // sample among the likeliest tokens that hold this much probability; 1: among all
    uint64_t seed;      // token number i of a text uses random number i of this seed
} Sampling;

typedef struct {
    float logit;
    int id;
} Candidate;

// Returns a token for logits (V), chosen by the uniform number u in [0,1). `candidates` (V) is scratch.
int sample_token(const float* logits, int V, const Sampling* s, double u, Candidate* candidates);

// A text that is being generated. The model's activations serve as scratch, so no training step may be under way.
typedef struct {
    GPT2* model;
    KVCache cache;
    float *device_logits, *logits; // (V)
    Candidate* candidates;         // (V)
    TokenList tokens;              // all so far
    size_t fed;                    // tokens that went through the model, or were dropped from its context
} Generator;

Generator generator_open(GPT2* model);
void generator_close(Generator* g);

// Feeds the model the tokens that it has not seen, and fetches the logits of the next one. Tokens that do not fit into
// the context restart it with its last half.
void generator_feed(Generator* g);

// Takes a piece of a text; returns false to end it there.
typedef bool (*TextSink)(void* context, const char* text, size_t bytes);

// Continues `prompt` (empty: the start of a document) by up to `count` tokens, or to the end of the document, and
// passes the text of each new token to `sink` as it comes. Fails if a logit is not finite.
bool generate(GPT2* model, const Tokenizer* tokenizer, const char* prompt, size_t count, const Sampling* s,
              TextSink sink, void* context, Error* err);

// Returns false if the tokenizer has ids that the model does not have. `option`: the value of --tokenizer, for the
// error.
bool tokenizer_fits(const Tokenizer* t, const GPT2Config* m, const char* option, Error* err);
