// The optimizer: fp32 master weights, AdamW's moments, the norm of the gradient and the update, for a model that is
// trained.
//
// With ZeRO-1 (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models") the
// ranges of the parameters' layout (tensors.h) are sharded over a group of ranks. Each rank keeps masters and moments
// of its shard of every range, updates these, and gathers the other ranks' updated parameters.
#pragma once
#include "comm/comm.h"
#include "gpt2.h"

typedef struct {
    GPT2* model;
    Comm* zero_group; // ranks that shard this state; NULL: this rank has all of it
    // device memory
    float* masters; // the parameters in fp32; the model's params themselves if the storage type is fp32
    float *m, *v;   // first and second moments
    AdamW* hyper;
    AdamW* host_hyper; // copied to hyper by each update
    Recording *norm, *update;
} Optimizer;

// ---------------------------------------------------------------------------------------------------------------------
// memory

enum { OPTIMIZER_MEMORY_LINES = 4 };

// Lists what optimizer_alloc() will allocate for a model after gpt2_layout(). shards: ranks that shard the state, or 1.
void optimizer_memory(const GPT2* g, int shards, MemoryLine line[OPTIMIZER_MEMORY_LINES]);

// Allocates the state of a model after gpt2_alloc(). Its layout must have zero_group->size shards; with a group of one
// rank, or NULL, nothing is sharded. Masters and moments are zero. optimizer_free() frees the state.
void optimizer_alloc(Optimizer* o, GPT2* model, Comm* zero_group);
void optimizer_free(Optimizer* o);

// ---------------------------------------------------------------------------------------------------------------------
// state

// Returns true if `block` (masters, m or v) holds all elements, not only this rank's shards.
bool optimizer_is_whole(const Optimizer* o, const float* block);

// Sets n elements of `block` (masters, m or v) from element `begin` of the layout on; those outside of this rank's
// shards are skipped.
void optimizer_put(const Optimizer* o, float* block, size_t begin, const float* host, size_t n);

// Returns all elements of `block` (masters, m or v) in device memory: the block itself or, if it is sharded, a copy
// gathered from all ranks in the memory of the gradients, which are lost. Collective: all ranks of the group call it.
const float* optimizer_whole(const Optimizer* o, float* block);

// Gathers the gradients of the last step, of which each rank has only its shards, on all ranks. Collective.
void optimizer_gather_grads(const Optimizer* o);

// Sets the model's parameters, on all ranks, to the rounded masters. Call it on all ranks after optimizer_put() of
// masters.
void optimizer_masters_changed(const Optimizer* o);

// ---------------------------------------------------------------------------------------------------------------------
// a step

// Queues adding the squared norm of the gradient, of all of it or of this rank's shards, to the model's sums[SUM_NORM].
// Padding is zero and does not count.
void optimizer_norm(Optimizer* o);

// Queues one AdamW step, after optimizer_norm() and the all-reduce of the sums. At most once between two device_sync().
void optimizer_update(Optimizer* o, const AdamW* hyper);
