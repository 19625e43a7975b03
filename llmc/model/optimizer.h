// The optimizer of a model that is trained: fp32 master weights, momentum and moments, the norm of the gradient and the
// update. AdamW updates all parameters; or Muon updates the weights of the blocks' linear layers, which need a momentum
// but no second moments, and AdamW the rest.
//
// With ZeRO-1 (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models") the
// state is sharded over a group of ranks. Each rank keeps masters and moments of its shards, updates these, and the
// ranks exchange updated parameters.
#pragma once
#include "../comm/comm.h"
#include "gpt2.h"
#include "segments.h"
#include "staging.h"

// Tells where masters and moments are. In host memory, each update streams them through device memory (staging.h). The
// masters of fp32 are the parameters, which stay on the device.
typedef enum { STATE_ON_DEVICE, STATE_IN_HOST } StatePlace;

// This rank's matrices of one shape.
typedef struct {
    int rows, cols, count;
    const MuonMatrix* matrices;
} MuonList;

enum { MUON_SHAPES = 3 }; // (C,C), (4C,C), (C,4C)
enum { OPTIMIZER_MEMORY_LINES = 6 };

typedef struct {
    GPT2* model;
    Comm* zero_group; // ranks that shard this state; NULL: this rank has all of it
    Segments segments;
    MuonList lists[MUON_SHAPES];
    // device memory, but for masters and moments that are in host memory
    float* masters; // the parameters in fp32; the model's params themselves if the storage type is fp32
    float *m, *v;   // first moments or momentum; second moments
    void* scratch;  // of muon_update
    float* staging; // of state in host memory; NULL: there is none
    size_t slot_floats, part; // of staging: floats of a slot; most elements that AdamW updates at a time
    Hyper* hyper;
    Hyper* host_hyper; // copied to hyper by each update
    MuonMatrix *matrices, *staged; // staged: the matrices of one part, in device memory
    Recording *norm, *update;
    MemoryLine memory[OPTIMIZER_MEMORY_LINES]; // what is allocated
    Rounding rounding; // seed: of all updates (--stochastic_round); step: the one that made the loaded masters, or 0
} Optimizer;

// ---------------------------------------------------------------------------------------------------------------------
// memory

// Lists what optimizer_alloc() will allocate for a model after gpt2_layout(). shards: ranks that shard the state, or 1.
// All ranks allocate as much as the one with the largest shards.
void optimizer_memory(const GPT2* g, OptimizerKind kind, StatePlace place, int shards,
                      MemoryLine line[OPTIMIZER_MEMORY_LINES]);

// Allocates the state of a model after gpt2_alloc(). Its layout must have zero_group->size shards; with a group of one
// rank, or NULL, nothing is sharded. Masters and moments are zero. optimizer_free() frees the state.
void optimizer_alloc(Optimizer* o, GPT2* model, OptimizerKind kind, StatePlace place, Comm* zero_group);
void optimizer_free(Optimizer* o);

// ---------------------------------------------------------------------------------------------------------------------
// state

// Returns the layout of `block` (masters, m or v). Tensors that it does not have have no rows.
const TensorTable* optimizer_table(const Optimizer* o, const float* block);

// Returns true if `block` (masters, m or v) holds all elements of its layout, not only this rank's shards.
bool optimizer_is_whole(const Optimizer* o, const float* block);

// Sets n elements of `block` (masters, m or v) from element `begin` of its layout on; those outside of this rank's
// shards are skipped.
void optimizer_put(const Optimizer* o, float* block, size_t begin, const float* host, size_t n);

// Returns `block` (masters, m or v) if it is whole and the host can read and write it: on a CPU, or with STATE_IN_HOST.
// Else returns NULL. Waits for queued work.
float* optimizer_in_host(const Optimizer* o, float* block);

// Returns all elements of `block` (masters, m or v): the block itself or, if it is sharded, a copy in device memory,
// gathered from all ranks into the gradients, which are lost. Collective: all ranks of the group call it. With
// STATE_IN_HOST, call it only where optimizer_in_host() returns NULL.
const float* optimizer_whole(const Optimizer* o, float* block);

// Sets the model's parameters, on all ranks, to the masters, rounded as update o->rounding.step has rounded them; to
// the nearest if no update has been made. Call it on all ranks after optimizer_put() of masters.
void optimizer_masters_changed(const Optimizer* o);

// ---------------------------------------------------------------------------------------------------------------------
// a step

// With ZeRO: begins the reduction of one of the layout's ranges (tensors_range) of the gradients, each shard to its
// rank. Complete after comm_end() of the group.
void optimizer_reduce_begin(const Optimizer* o, TensorRange range);

// Queues adding the squared norm of the gradient, of all of it or of this rank's shards, to the model's sums[SUM_NORM].
// Padding is zero and does not count.
void optimizer_norm(Optimizer* o);

// Queues one update, after optimizer_norm() and the all-reduce of the sums. At most once between two device_sync().
void optimizer_update(Optimizer* o, const Hyper* hyper);

// Queues the matmuls of an update on each rank, for autotune(), and changes nothing but the settings in device memory,
// which each update sets.
void optimizer_queue_matmuls(Optimizer* o);
