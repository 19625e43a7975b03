// Generates texts one token at a time, up to MAX_TEXTS at once, with a cache of the earlier tokens' keys and values
// (KVCache). Texts take turns in its slots; the newest tokens of all go through the model together, which reads the
// weights once.
//
// A text is a function of its prompt, its number among the samples of this prompt and the seed: token number i of
// sample s takes random number s * 2^32 + i. Other texts do not change it: a prompt goes through the model alone, and
// on a CPU no row of a small batch depends on the others (cpu/few_rows.h). On a GPU the library's matmuls may round in
// another way in a batch of another size.
#pragma once
#include "../base/base.h"
#include "../tokenizer/tokenizer.h"
#include "gpt2.h"

typedef struct {
    double temperature; // 0: always the likeliest token
    int top_k;          // sample among the k likeliest tokens; 0: among all
    double top_p;       // sample among the likeliest tokens that hold this much probability; 1: among all
    uint64_t seed;
} Sampling;

typedef struct {
    float logit;
    int id;
} Candidate;

// Writes the ids of scores (V) to candidates (V), the k highest first and in order; equal ones by id.
void candidates_best(Candidate* candidates, const float* scores, int k, int V);

// The same for logits, and turns those of the first k into log-probabilities, ln softmax(logits). Returns what was
// subtracted from them.
double candidates_logprobs(Candidate* candidates, const float* logits, int k, int V);

// Returns a token for logits (V), chosen by the uniform number u in [0,1). `candidates` (V) is scratch.
int sample_token(const float* logits, int V, const Sampling* s, double u, Candidate* candidates);

// ---------------------------------------------------------------------------------------------------------------------
// feeding the model

enum { MAX_TEXTS = 16 }; // at once: as many rows as cpu/few_rows.h takes

// A text that is being generated.
typedef struct {
    TokenList tokens; // all so far
    size_t fed;       // tokens that went through the model, or were dropped from its context
    bool is_cut;      // some were dropped
    int slot;         // of the cache
    float* logits;    // (V) of the next token
} Sequence;

// The model's activations serve as scratch, so no training step may be under way. B*T of the model is at least the
// number of slots.
typedef struct {
    GPT2* model;
    KVCache cache;
    float *device_logits, *logits; // (slots,V)
    Candidate* candidates;         // (V)
} Generator;

// `slots` texts at once, of `capacity` positions each.
Generator generator_open(GPT2* model, int slots, int capacity);
void generator_close(Generator* g);

// Returns an empty text in a slot. token_list_free(&text.tokens) frees it.
Sequence generator_sequence(Generator* g, int slot);

// Feeds the model what it has not seen of each text, at least one token: the newest tokens of all together, earlier
// ones text by text. Fetches the logits of their next tokens. Tokens that do not fit into a text's context restart it
// with its last half.
void generator_feed(Generator* g, Sequence* const* texts, int count);

// ---------------------------------------------------------------------------------------------------------------------
// generating

typedef struct {
    int context;       // positions that are used; 0: all of the model's
    Sampling sampling;
    size_t max_tokens; // of a text, behind its prompt
    int samples;       // texts for each prompt
    bool stops_at_eot;
    int alternatives;  // likeliest tokens that are passed on with each token; 0: no log-probabilities either
} GenerateOptions;

// A token as it is chosen. Its log-probability is the model's own, ln softmax(logits), whatever the temperature; `best`
// are the likeliest tokens, whose logits have become log-probabilities too.
typedef struct {
    size_t text; // prompt * samples + sample
    int id;
    const char* bytes; // NULL: the tokenizer does not have this id, since the model's vocabulary is larger
    size_t size;
    double logprob;
    const Candidate* best;
} NextToken;

typedef enum { ENDED_BY_EOT, ENDED_BY_LENGTH, ENDED_BY_SINK } TextEnd;

typedef struct {
    bool (*token)(void* context, const NextToken* token);    // returns false to end the text behind this token
    void (*end)(void* context, size_t text, TextEnd reason); // may be NULL
    void* context;
} TextSink;

typedef struct {
    size_t tokens;                 // generated, of all texts
    double first_seconds, seconds; // until the first token, until the last
} GenerateTimes;

// Returns the tokens of a prompt, which token_list_free() frees; an empty one is the start of a document.
TokenList prompt_tokens(const Tokenizer* t, const char* text, size_t bytes);

// Return how many of `count` texts are generated at once, and how many of the `context` positions each takes, behind a
// prompt of at most `longest` tokens.
int generate_slots(size_t count);
int generate_capacity(int context, size_t longest, size_t max_tokens);

// Continues each prompt `samples` times, by up to max_tokens tokens or to the end of the document, and passes each
// token to `sink`. Sets *times, unless that is NULL. Fails if a logit is not finite.
bool generate(GPT2* model, const Tokenizer* tokenizer, const TokenList* prompts, size_t num_prompts,
              const GenerateOptions* options, const TextSink* sink, GenerateTimes* times, Error* err);
