// Resolves a run's options, its initial weights and the machine into a plan: the model's shape, the micro-batch, and
// the memory they take. Config holds the user's options unchanged; the plan holds all values derived from them.
//
// A plan needs no device for a given --batch_size, so that `info` can plan for GPUs that are not present.
#pragma once
#include "../comm/comm.h"
#include "../data/token_formats.h"
#include "../eval/scored_rows.h"
#include "../files/checkpoint_folders.h"
#include "../options/config.h"
#include "../model/gpt2.h"
#include "rates.h"

// The steps that count as spikes, and the end of a run by them (spikes.h).
typedef struct {
    double loss_z, norm_z; // z-scores beyond which a loss or norm is a spike; 0: none is
    long long bad_steps;   // in a row, after which the run ends; 0: it goes on
} SpikeRule;

typedef struct {
    const Backend* backend;
    enum dtype dtype;  // never auto
    const char* model; // --model, or the shape of the weights as L=...,H=...,C=...,T=...,V=...; lasts until the end
    GPT2Config shape;
    int B, T;                   // sequences in a micro-batch, tokens in a sequence
    long long total_batch_size; // tokens in an optimizer step, over all ranks
    Keep keep;
    bool exact;                 // --attention exact: gpt2_keep_rest()
    Rates rates;                // of the optimizer
    KeepRule kept;              // --keep
    SpikeRule spikes;           // --skip_z, --on_spike
    TestSetOptions test_sets;   // --eval_rules; the tokenizer is opened later
    int shards;                 // ranks that shard the optimizer's state (--zero 1); else 1
    const char* nccl_algorithms; // Comm.algorithms
    int samples;                // texts that are generated, or test rows that are scored, at once; 0: none
    int sample_capacity;        // positions that each of them has in the cache of keys and values
} Plan;

// ---------------------------------------------------------------------------------------------------------------------
// making a plan

// Resolves shape, sequence length and batch for the ranks of `comm`. weights_folder: a Hugging Face folder or
// checkpoint that decides the shape; NULL: --model does. A wrong option returns false and an Error; an unreadable
// folder ends the program. With --batch_size auto the device must be open, and all ranks call this: each asks its
// device for memory, and the smallest batch of all ranks is taken.
bool plan_make(Plan* p, const Backend* b, enum dtype dtype, const Config* c, const char* weights_folder, Comm* comm,
               Error* err);

// Resolves shape and sequence length alone; B is --batch_size, or 1 for auto.
bool plan_shape(Plan* p, const Backend* b, enum dtype dtype, const Config* c, const char* weights_folder, Error* err);

// Reads the texts of --skip_z, "LOSS[:NORM]", and --on_spike, "skip" or "stop[:N]". Fails if one is another.
bool spike_rule_parse(SpikeRule* spikes, const char* skip_z, const char* on_spike, Error* err);

// Returns whether token files may lack a header: --data_format.
TokenHeader token_header(const Config* c);

// Returns the shape as text: L=...,H=...,C=...,T=...,V=...; the caller frees it.
char* shape_text(const GPT2Config* m);

// Returns the options, with the plan's values for "auto" and for defaults that depend on the model, as state.json,
// metrics.jsonl and reports record them. The caller owns the reference.
json_t* plan_options(const Plan* p, const Config* c);

// Prints the options that differ from those in a checkpoint's state. Returns false and an Error if one of them cannot
// change in a resumed run.
bool plan_check_changes(const Plan* p, const Config* c, json_t* state, Error* err);

// Lays out the planned model; allocates nothing.
void plan_layout(const Plan* p, GPT2* g);

// ---------------------------------------------------------------------------------------------------------------------
// the device

// Returns the options of the device; a usage error if two of them contradict each other.
DeviceOptions device_options(const Config* c, enum dtype dtype);

// Returns true for a GPU that the tests emulate on the CPU (test/emulator); the device must be open. Shares of the peak
// are not printed for it.
bool device_is_emulated(const Backend* b);

// Opens this rank's device and connects it with those of other ranks. Two ranks with one GPU end the program.
void open_device(const Backend* b, const Config* c, enum dtype dtype, Comm* comm);

// ---------------------------------------------------------------------------------------------------------------------
// memory

// Returns the bytes of device memory that the run takes: model, optimizer, operations, samples, a margin; on a CPU also
// batches and buffers.
size_t plan_bytes(const Plan* p);

// Returns the bytes of model and optimizer alone, and fills the lines of the memory report.
enum { PLAN_MEMORY_LINES = GPT2_MEMORY_LINES + OPTIMIZER_MEMORY_LINES };
size_t plan_memory(const Plan* p, MemoryLine line[PLAN_MEMORY_LINES]);

// The largest batch that --batch_size auto chooses (chosen, not measured).
enum { MAX_AUTO_BATCH = 1024 };

// Returns the largest B up to `most` with which the plan fits into `available` bytes; 0: none.
int largest_batch(const Plan* p, long long most, size_t available);

// Returns true if the plan fits into this rank's memory. Else prints the memory report to standard error and returns
// false, with the options that help in `err`.
bool plan_check_memory(const Plan* p, const Comm* comm, Error* err);
