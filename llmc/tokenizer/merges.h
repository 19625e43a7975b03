// The merges of a tokenizer, which its list of tokens implies.
//
// Hugging Face's files list the merges: pairs of tokens, in the order in which they are applied. This program merges
// the pair whose concatenation is the token of lowest id. Both give the same tokens for every text if, for each token
// that is not special and not a byte, merging its own bytes by tokens of lower ids ends with two parts. Those two parts
// are the pair that was merged. (In a text, as long as nothing was merged across the token's ends, its bytes merge as
// they do alone.) This holds for GPT-2's tokens and for every trained tokenizer.
#pragma once
#include "tokenizer.h"

// Sets `half` to the two tokens whose merge is token `id`. Returns false if `id` is special or a byte, or if its bytes
// do not merge into it.
bool tokenizer_halves(const Tokenizer* t, int id, int half[2]);
