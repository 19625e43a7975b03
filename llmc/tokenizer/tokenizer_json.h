// Reads the tokenizer files of Hugging Face and OpenAI: byte-level byte-pair encoding whose text is cut by GPT-2's
// pattern. Other kinds are refused with the reason: other models (WordPiece, Unigram), patterns or normalizers, merges
// whose ids are in another order, tokens of more than 255 bytes.
//
//   {"added_tokens": [{"id": 50256, "content": "<|endoftext|>", "special": true, ...}],
//    "normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, ...}, ...
//    "model": {"type": "BPE", "vocab": {"!": 0, ..., "he": 258, ...}, "merges": ["h e", ...] or [["h", "e"], ...]}}
//
// vocab.json is the vocabulary alone, merges.txt the merges, a line each. Tokens of text are written as in
// byte_level.h. A token of several bytes that no merge makes is special: text never gives it. The end of text is the
// special token that tokenizer_config.json beside the file names as eos_token, or <|endoftext|>, or else the only one.
//
// Nothing is trusted: ids are 0 to V-1 without gaps, a merge names tokens, ids rise in the order of the merges, and
// each token is what its bytes merge into (tokenizer.h). So the list of tokens is all there is to keep. Not applied:
// truncation, padding, and the post-processor, which only adds special tokens.
#pragma once
#include "tokenizer.h"

// Reads a tokenizer.json. On failure, as of all functions here, there is nothing to free, and the error names the file
// and the entry.
bool tokenizer_read_json(Tokenizer* t, const char* path, Error* err);

// Reads a vocab.json and its merges.txt.
bool tokenizer_read_vocab(Tokenizer* t, const char* vocab_path, const char* merges_path, Error* err);

// Reads the tokenizer of a folder: tokenizer.json, or vocab.json and merges.txt, or tokenizer.bin, llm.c's format.
bool tokenizer_read_folder(Tokenizer* t, const char* folder, Error* err);

// Returns true if a folder has such files.
bool folder_has_tokenizer(const char* folder);
