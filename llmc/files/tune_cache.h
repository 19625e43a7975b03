// The choices of earlier starts on this machine, so that a start need not measure again: a text file for each GPU,
// driver and version of the library. A line has the algorithm of a matmul (Backend.matmuls_save), or the variants for a
// shape of micro-batches (Backend.variants_key and device_kernels).
#pragma once
#include "../base/base.h"

BEGIN_C

// Returns the file for a machine of this identity (Backend.matmuls_identity), in gpt2.c in $XDG_CACHE_HOME or ~/.cache;
// NULL if the environment names neither. free() it.
char* tune_cache_path(const char* identity);

// Returns the lines of a cache file; empty if it cannot be read. free() them.
char* tune_cache_read(const char* path);

// Adds lines, which replace older ones with the same key. A file that cannot be written is only warned of.
void tune_cache_add(const char* path, const char* lines);

// Returns the line of `lines` whose key, what stands before its first space, is `key` (n bytes); NULL if there is none.
const char* tune_line(const char* lines, const char* key, size_t n);

END_C
