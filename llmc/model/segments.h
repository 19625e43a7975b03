// Segments: the layout of the parameters (tensors.h), cut into what is updated, and sharded, in one way.
//
// AdamW updates ranges of the layout; a group of ranks (optimizer.h) cuts each of them into equal shards, wherever its
// tensors lie. A matrix that Muon updates is one shard, because its update needs all of it: each has one rank as its
// owner, chosen so that all ranks have about the same work over all layers.
#pragma once
#include "tensors.h"

typedef enum { OPTIMIZER_ADAMW, OPTIMIZER_MUON } OptimizerKind;

// A range of the parameters that is updated, and sharded, in one way.
typedef struct {
    TensorRange range;
    int rows, cols;    // of a matrix that Muon updates; 0: AdamW updates the range
    int owner;         // with ZeRO: the rank that has the matrix
    TensorRange v;     // in the layout of v; empty for a matrix
    size_t at, v_at;   // with ZeRO: where masters and m, and v, have this rank's shard of it
} Segment;

// The layout cut into segments, for one rank of a group. All of it is a pure function of the model and of the ranks.
typedef struct {
    Segment* segment;    // in the order of the layout
    int count;
    TensorTable v_table; // the layout of v: the parameters'; with Muon, matrices have no rows
    size_t most, most_v; // elements of the largest shards, over all ranks: of masters and m, of v
} Segments;

// Cuts a layout with `shards` shards for rank `rank` of so many. The caller frees Segments.segment.
Segments make_segments(const TensorTable* table, OptimizerKind kind, int rank, int shards);

// Returns the elements of a segment that a rank has.
size_t segment_shard_size(const Segment* k, int rank, int shards);
