// Opens a tokenizer of any kind: built in, or a file or folder of any format.
#pragma once
#include "tokenizer.h"

// Returns the tokenizer that --tokenizer names: "gpt2" or "", "bytes", or else a path for tokenizer_read(). Ends the
// program if that cannot be read.
Tokenizer tokenizer_open(const char* option);

// Reads a tokenizer of any format: llm.c's file, a tokenizer.json, or a folder (tokenizer_json.h). On failure there is
// nothing to free.
bool tokenizer_read(Tokenizer* t, const char* path, Error* err);

// Returns true if a file begins as one in llm.c's format, or as JSON.
bool is_tokenizer_file(const char* path);
