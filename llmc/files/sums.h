// Checksums of whole files, in a file that `b2sum -c` checks too: a line "HASH  NAME" for each. The hash is BLAKE2b
// (blake2b.h). The name has no folder: the files lie beside their checksums.
//
//   FOLDER/checkpoint.b2sums    every other file of a checkpoint (checkpoint.h)
//   PREFIX.b2sums               the shards that ./prepare made (manifest.h) or data/fetch.sh downloaded
#pragma once
#include "../base/blake2b.h"

typedef struct {
    char hex[BLAKE2B_HEX + 1];
    char* name;
} Sum;

// Zero it before the first use.
typedef struct {
    Sum* list;
    size_t count;
} Sums;

void sums_free(Sums* s);

// Adds a file's checksum, or replaces it.
void sums_set(Sums* s, const char* name, const char* hex);

// Returns the checksum of a file, which belongs to `s`; NULL if it has none.
const char* sums_find(const Sums* s, const char* name);

// Replaces the file of checksums atomically.
bool sums_save(const Sums* s, const char* path, Error* err);

// Reads a file of checksums, which sums_free() frees. Fails, with nothing to free, if it has any other line.
bool sums_load(Sums* s, const char* path, Error* err);

// Computes the checksum of a file.
bool sum_file(const char* path, char hex[BLAKE2B_HEX + 1], Error* err);

// Fails if FOLDER/NAME cannot be read, or has another checksum than `wanted` (NULL: it has none): then it is damaged.
bool sum_verify(const char* folder, const char* name, const char* wanted, Error* err);

// Compares a file with its checksum in the file of checksums `list`, which is in the same folder. Sets `has_sum` to
// false if it has none, or there is no such list, or it is NULL. Fails as sum_verify(), or if the list cannot be read.
bool sum_verify_by_list(const char* path, const char* list, bool* has_sum, Error* err);
