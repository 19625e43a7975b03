// A set of documents, by 128 bits of hash each, to find exact repeats. Two different documents of 10^9 have the same
// hash with probability 10^-21. Not against an adversary, who can make two with the same hash.
//
// Memory: 16 bytes for each slot, of which three quarters are used at most: 21 to 43 bytes for each document, and half
// as much again while it grows.
#pragma once
#include "../base/base.h"

typedef struct {
    uint64_t half[2]; // the first is 0 in a free slot only
} DocumentHash;

typedef struct {
    DocumentHash* slots;
    size_t room, count; // room: a power of two
} DocumentSet;

// Returns the hash of a document's text.
DocumentHash document_hash(const void* text, size_t bytes);

// Adds a document. Returns false if it is there already. All zeros is the empty set.
bool document_set_add(DocumentSet* s, DocumentHash hash);
void document_set_free(DocumentSet* s);
