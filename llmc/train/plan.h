// A plan is what a command does, resolved from its options, its initial weights and the machine: typed values, each
// text parsed once. Everything below takes a plan or a part of one, and never sees the options (Config).
//
// A plan needs no device for a given --batch_size, so that `info` can plan for GPUs that are not present.
#pragma once
#include "../comm/comm.h"
#include "../data/skip_windows.h"
#include "../data/shard.h"
#include "../eval/test_set.h"
#include "../files/checkpoint_folders.h"
#include "../model/generate.h"
#include "../model/gpt2.h"
#include "../model/loss_scale.h"
#include "../model/optimizer.h"
#include "../options/config.h"
#include "rates.h"
#include "schedule.h"

// The data that a run trains and validates on.
typedef struct {
    const char *train, *val; // patterns of token shards
    TokenHeader header;
    long long val_tokens;    // -1: all
    bool shuffles, overfits, masks_documents;
    SkipWindows skip;
} DataPlan;

// Says what happens between steps; 0 steps: never.
typedef struct {
    long long val_every, sample_every;
    const char* eval_data;    // files of test sets
    TestSetOptions test_sets; // --eval_rules; the tokenizer is opened later
    const char* prompt;
    size_t sample_tokens;
    Sampling sampling;
} PhasePlan;

typedef struct {
    const char* out;   // empty: nothing is written
    long long every;   // steps between checkpoints; 0: none
    KeepRule keep;
    bool leaves_done_file; // DONE_%08d at the end, as llm.c
} SavePlan;

typedef struct {
    const char* option; // the value of --tokenizer
    const char* path;   // what it is opened from: the option's value, or the folder of the weights
} TokenizerPlan;

// The steps that count as spikes, and the end of a run by them (spikes.h).
typedef struct {
    double loss_z, norm_z; // z-scores beyond which a loss or norm is a spike; 0: none is
    long long bad_steps;   // in a row, after which the run ends; 0: it goes on
} SpikeRule;

typedef struct {
    const Backend* backend;
    enum dtype dtype;  // never auto
    DeviceOptions device; // but for its local rank
    const char* model; // --model, or the shape of the weights as L=...,H=...,C=...,T=...,V=...; lasts until the end
    GPT2Config shape;
    const char* weights; // folder or file of the initial weights; NULL: random ones
    bool zero_init_out;  // --init_out zero
    uint64_t seed;
    int B, T;                   // sequences in a micro-batch, tokens in a sequence
    long long total_batch_size; // tokens in an optimizer step, over all ranks
    long long max_steps;        // -1: one epoch
    Ramp batch_ramp, seq_ramp;
    Schedule schedule;
    Keep keep;
    bool exact;                 // --attention exact: gpt2_keep_rest()
    Rates rates;                // of the optimizer
    bool rounds_at_random;      // --stochastic_round
    LossScale loss_scale;       // at the begin of a run
    bool has_zero;              // --zero 1
    StatePlace place;           // --offload: of masters and moments
    int shards;                 // ranks that shard the optimizer's state (--zero 1); else 1
    const char* nccl_algorithms; // Comm.algorithms
    enum tune tune;
    int samples;                // texts that are generated, or test rows that are scored, at once; 0: none
    int sample_context;         // positions that a run's texts use: those that it trains
    int sample_capacity;        // positions that each of them has in the cache of keys and values
    TokenizerPlan tokenizer;
    DataPlan data;
    PhasePlan phases;
    SpikeRule spikes;           // --skip_z, --on_spike
    SavePlan save;
    long long replay_every;     // steps; 0: never
    double max_hours;           // 0: no limit
    bool has_tensorboard;
} Plan;

// ---------------------------------------------------------------------------------------------------------------------
// making a plan

// Resolves everything but the batch, whose B and total_batch_size stay as given (0: auto). weights: a Hugging Face
// folder, checkpoint or file that decides the shape, and that the weights come from; NULL: --model does, and they are
// random. A wrong option returns false and an Error; an unreadable folder ends the program.
bool plan_make(Plan* p, const Backend* b, enum dtype dtype, const Config* c, const char* weights, Error* err);

// Parses the options alone, as plan_make() does first: whether they are well-formed does not depend on weights.
bool plan_parse(Plan* p, enum dtype dtype, const Config* c, Error* err);

// Fails if an option was given that the plan leaves without effect (config_check_needs() finds those that single
// options do).
bool plan_check_effects(const Plan* p, const Config* c, Error* err);

// Resolves the batch for the ranks of `comm`. With --batch_size auto the device must be open, and all ranks call this:
// each asks its device for memory, and the smallest batch of all ranks is taken.
bool plan_batch(Plan* p, Comm* comm, Error* err);

// Sets --tokenizer, if neither the user nor a checkpoint did, to the folder that the weights come from (NULL: random
// weights) if that has a tokenizer.
void take_folder_tokenizer(Config* c, const char* folder);

// Returns the tokenizer of the options for weights from `folder` (NULL: random). A file that the run in the checkpoint
// `folder` had is not read again: the checkpoint has a copy.
TokenizerPlan tokenizer_plan(const Config* c, const char* folder);

// Returns what a --recompute keeps of the activations.
Keep keep_of(enum recompute recompute);

// Reads the texts of --skip_z, "LOSS[:NORM]", and --on_spike, "skip" or "stop[:N]". Fails if one is another.
bool spike_rule_parse(SpikeRule* spikes, const char* skip_z, const char* on_spike, Error* err);

// Returns whether token files may lack a header: --data_format.
TokenHeader token_header(const Config* c);

// Returns the shape as text: L=...,H=...,C=...,T=...,V=...; the caller frees it.
char* shape_text(const GPT2Config* m);

// Returns the options, with the plan's values for "auto" and for defaults that depend on the model, as state.json,
// metrics.jsonl and reports record them. The caller owns the reference.
json_t* plan_options(const Plan* p, const Config* c);

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
void open_device(const Backend* b, const DeviceOptions* options, Comm* comm);

// ---------------------------------------------------------------------------------------------------------------------
// memory

enum { PLAN_MEMORY_LINES = GPT2_MEMORY_LINES + OPTIMIZER_MEMORY_LINES };

// Bytes that a run takes of this rank's memory.
typedef struct {
    MemoryLine line[PLAN_MEMORY_LINES]; // the memory report: model and optimizer
    size_t of_lines; // the sum of those on the device
    size_t device;   // of the device, in all: also operations, samples, a margin; on a CPU also what `host` counts
    size_t state;    // masters and moments in host memory (--offload), which each update copies to the device and back
    size_t host;     // batches, buffers, and the state in host memory
} PlanMemory;

PlanMemory plan_memory(const Plan* p);

// Returns plan_memory().device.
size_t plan_bytes(const Plan* p);

// Returns the memory that a device must have for the plan, in GB (2^30 bytes), rounded up to a tenth.
double plan_least_gb(const Plan* p);

// The largest batch that --batch_size auto chooses (chosen, not measured).
enum { MAX_AUTO_BATCH = 1024 };

// Returns the largest B up to `most` with which the plan fits into `available` bytes; 0: none.
int largest_batch(const Plan* p, long long most, size_t available);

// Returns true if the plan fits: into this rank's memory and, on a GPU, what all ranks of its machine need of the
// host's into that. No rank returns true before all have looked, since none may allocate until then. Else the program
// is to end: returns false with the options that help in `err`; if the device's memory is short, prints the memory
// report to standard error first.
bool plan_check_memory(const Plan* p, Comm* comm, Error* err);
