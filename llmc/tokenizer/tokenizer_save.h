// Writes a tokenizer as the files that Hugging Face's programs read:
//
//   vocab.json               {"TOKEN": id, ...} in the order of ids, as OpenAI's encoder.json
//   merges.txt               a line "LEFT RIGHT" for each merge, as OpenAI's vocab.bpe
//   tokenizer.json           both, and how text is cut, for the library `tokenizers`
//   tokenizer_config.json    the longest text, and the name of the end of text if it is not <|endoftext|>
//
// For GPT-2's tokenizer all four have the bytes of OpenAI's release. A byte of a token is written as a visible
// character (byte_level.h).
#pragma once
#include "tokenizer.h"

// The names of tokens, and the merges, as these files and GGUF's have them.
typedef struct {
    char** name;    // [count] of each token, UTF-8
    int (*half)[2]; // [count] its merge; NO_TOKEN: it is a byte or special
    int count;
} TokenNames;

// Makes the names, which token_names_free() frees on failure too. Fails, naming `name`, if a token is no merge of two
// others, or if the name of a special token is not UTF-8 or belongs to another token.
bool token_names_make(TokenNames* n, const Tokenizer* t, const char* name, Error* err);
void token_names_free(TokenNames* n);

enum { NUM_TOKENIZER_FILES = 4 };
extern const char* const TOKENIZER_FILES[NUM_TOKENIZER_FILES]; // their names

// The contents of the files, to be written any number of times. Zero it before the first use.
typedef struct {
    char* text[NUM_TOKENIZER_FILES];
    size_t size[NUM_TOKENIZER_FILES];
} TokenizerFiles;

// Makes the files, which tokenizer_files_free() frees. `max_length`: tokens of the longest text; 0: there is no limit.
// Fails, naming `name`, as token_names_make().
bool tokenizer_files_make(TokenizerFiles* files, const Tokenizer* t, int max_length, const char* name, Error* err);
void tokenizer_files_free(TokenizerFiles* files);

// Writes the files into a folder, each atomically.
bool tokenizer_files_write(const TokenizerFiles* files, const char* folder, Error* err);
