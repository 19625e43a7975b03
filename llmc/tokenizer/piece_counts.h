// Counts the distinct pieces of a text, cut by GPT-2's pattern, with any number of threads and bounded memory.
//
// Each thread counts in a hash table of its own. When a table is full, its counts go to temporary files, one for each
// part of the range of hashes, so that in the end one part after the other is added up in memory. All counts are
// exact. Only the list that is returned is bounded too: if the pieces do not fit, the rarest are left out.
#pragma once
#include "tokenizer.h"

typedef struct PieceCounts PieceCounts;

// Distinct pieces and how often each of them came. Pieces of one byte, which have no pair, are not among them.
typedef struct {
    unsigned char* bytes; // of all pieces, end to end
    uint32_t* length;     // [count]
    uint64_t* times;      // [count]
    size_t count, num_bytes, room_bytes;
    uint64_t least;       // pieces that came less often were left out; 1: none were
    double share;         // but for this part of those that came once less
} Pieces;

// Begins to count for `threads` threads, whose tables together take about `memory` bytes; piece_counts_finish() frees
// it. `folder`: where temporary files are made.
PieceCounts* piece_counts_open(int threads, size_t memory, const char* folder);

// Counts the pieces of a text. Each call runs on one of the threads, whose number `thread` is. Ends the program if
// temporary files cannot be written.
void piece_counts_add(PieceCounts* p, int thread, const char* text, size_t bytes);

// Returns the pieces, at most max_bytes of them all together, each counted with one byte more; pieces_free() frees
// them.
Pieces piece_counts_finish(PieceCounts* p, size_t max_bytes);
void pieces_free(Pieces* pieces);
