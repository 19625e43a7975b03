// The commands `tokenize`, and `info` of a tokenizer.
#pragma once
#include "../tokenizer/tokenizer.h"

// Encodes everything that can be read from `in` and writes the tokens to `out`: decimal ids on one line, separated by
// spaces. Ends the program if reading or writing fails.
void tokenize_text(const Tokenizer* t, FILE* in, FILE* out);

// Reads decimal ids, separated by white space, from `in` and writes the bytes of these tokens to `out`. Ends the
// program if one is no id of the vocabulary, or if reading or writing fails.
void tokenize_ids(const Tokenizer* t, FILE* in, FILE* out);

// Prints the numbers of tokens, the end of text, the special tokens and the hash of the tokenizer at `path`
// (tokenizer_read). Fails if it cannot be read.
bool tokenizer_print_info(const char* path, Error* err);
