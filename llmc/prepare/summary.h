// Counts documents, for the summary of ./prepare. PREFIX.json keeps the counts, so that they cover the whole input even
// if a run was interrupted.
#pragma once
#include "reader.h"
#include <jansson.h>

typedef struct {
    uint64_t documents, bytes; // that became tokens
    uint64_t longest, current; // bytes of the longest document, and of the last one so far
    uint64_t skipped[NUM_SKIPS];
} Summary;

void summary_add(Summary* s, const Chunk* c);

// Returns the counts as an object, a new reference.
json_t* summary_to_json(const Summary* s);

// Reads the counts from an object; what is missing there, as in the manifests of older versions, is 0.
Summary summary_from_json(const json_t* object);

// Prints one or two lines to standard output.
void summary_print(const Summary* s, uint64_t tokens);
