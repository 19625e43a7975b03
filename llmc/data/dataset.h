// Reads a data set: opens token shards and cuts them into windows.
//
// Each shard is cut into consecutive windows of T tokens, whose targets are the same tokens shifted by one. The rest of
// a shard, at most T tokens, begins no window.
#pragma once
#include "../base/base.h"
#include "shard.h"

typedef struct {
    char* path;
    size_t num_tokens;
    uint64_t first_window; // windows in the shards before this one
    uint64_t content;      // hash of its size, its first and its last tokens
    int largest;           // id among its first and its last tokens
} DataFile;

typedef struct {
    int file; // -1: none
    Shard shard;
} OpenShard;

// One thread at a time may read it.
typedef struct {
    int T, vocab_size, num_files;
    TokenHeader header;
    DataFile* files; // sorted by path
    uint64_t num_windows, num_tokens;
    uint64_t hash;    // of the shards' names (without folders), sizes, first and last tokens: a resumed run compares it
    OpenShard* open;  // file i can only be at i % num_open, so that thousands of shards need few file descriptors
    int num_open;
    int* window;      // T + 1 tokens
} Dataset;

// Closes the shards and frees all memory.
void dataset_close(Dataset* d);

// Opens the shards that match `patterns`, which commas or spaces separate (a backslash before one makes it part of a
// name). Files named .json or .b2sums, which ./prepare writes beside its shards, are ignored unless nothing else
// matches. Formats may be mixed (shard.h). `header` says whether a file with no known header is nanoGPT's or an error.
// `option` names the patterns' option in messages. Reads each file's header, first and last tokens. Fails if nothing
// matches, or a file is no token file, is too short for a window, or has a token there beyond the vocabulary; then
// nothing stays open. Warns of shards that seem to be copies of others, and of gaps in their numbers.
bool dataset_open(Dataset* d, const char* option, const char* patterns, TokenHeader header, int T, int vocab_size,
                  Error* err);

// Reads all tokens of file i. Fails if one is beyond the vocabulary.
bool dataset_check_file(Dataset* d, int i, Error* err);

// Returns true if files match all of the patterns. Fails with the same error as dataset_open if not.
bool dataset_exists(const char* option, const char* patterns, Error* err);

// Sets *found to true if `token`, other than as the first token of a file, is in the first file or among the first or
// last 32,768 tokens of another. Fails if a file cannot be read.
bool dataset_find(Dataset* d, int token, bool* found, Error* err);

// Reads window number `window` < num_windows in the order of the files: tokens (T), targets (T). Fails if a shard has
// changed since dataset_open, or holds a token beyond the vocabulary.
bool dataset_read(Dataset* d, uint64_t window, int* tokens, int* targets, Error* err);
