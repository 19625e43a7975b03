// Computes what one can see inside a model that reads one text: losses, likeliest tokens, attention, the logit lens,
// norms of the residual stream, the effect of parts that are switched off, neighbours in the embedding.
//
// A model whose `num_layers` is lowered ends its residual stream early: gpt2_forward() then applies the last layernorm
// to the stream after so many layers, and gpt2_logits() reads it. That is the logit lens (nostalgebraist 2020,
// "interpreting GPT: the logit lens"), and leaves the queries and keys of the last of these layers in memory.
//
// A part is switched off by zeros in place of parameters: the values (v) of a head, so that the head adds nothing; the
// output projection of a layer's attention or MLP, with its bias. What it adds to the residual stream is then zero.
#pragma once
#include "../model/generate.h"
#include "../model/gpt2.h"

enum { FACTS_BEST = 5 }; // likeliest tokens, and nearest ones

// In a Candidate, `logit` is a log-probability or a cosine. A layer has NH + 2 parts: its heads, then all of its
// attention, then its MLP.
typedef struct {
    int T, L, NH;       // tokens, layers, heads of each
    int* tokens;        // (T)
    float* losses;      // (T-1): losses[t] of token t + 1
    float* without;     // (L,NH+2,T-1): the same while a part is switched off
    Candidate* next;    // (T,FACTS_BEST): likeliest tokens behind token t
    Candidate* lens;    // (L+1,T): the likeliest behind token t after so many layers
    float* norms;       // (L+1,T): Euclidean norm of the residual stream after so many layers
    float* attention;   // (L,NH,T,T): probabilities; token t attends to tokens 0..t
    Candidate* nearest; // (T,FACTS_BEST): tokens whose embedding has the highest cosine with that of token t
} Facts;

// Computes the facts of T tokens, 2 <= T <= g->T, in a model that stores fp32 and has no backward; facts_free() frees
// them. Parameters are as before when it returns. Fails if a loss is not finite: there is nothing to free then.
bool facts_compute(Facts* f, GPT2* g, const int* tokens, int T, Error* err);
void facts_free(Facts* f);
