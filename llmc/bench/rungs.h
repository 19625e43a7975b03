// The rungs of `bench ladder`, each one switch on top of the rung before, and what was measured on them. The rungs are
// those of the lecture "Let's reproduce GPT-2 (124M)"; dev/ladder.md has its figures.
#pragma once
#include "record.h"

// ---------------------------------------------------------------------------------------------------------------------
// rungs

enum { MAX_RUNGS = 12 };
enum { ALL_THREADS = 0 }; // as many as --threads says

typedef struct {
    const char* name;
    enum dtype dtype;
    enum residual residual;
    enum kernels kernels;
    int fused;
    enum attention attention;
    int pad_vocab, graph;
    int threads;
} Rung;

// The rungs of a device, and the steps of each: warm-up, and those timed unless --max_steps is given.
typedef struct {
    const Rung* rungs;
    int count, warm_up, steps;
} LadderKind;

extern const LadderKind GPU_LADDER, CPU_LADDER;

// The learning rate of all rungs. With it the loss of 124M falls in every step. At the default rate, without warm-up,
// the loss jumps, and rounding decides when: FP8's was 11.67 where bf16's was 10.26, on an H100.
extern const double LADDER_LR;

// Options that the rungs decide.
enum { NUM_DECIDED = 7 };
extern const char* const DECIDED[NUM_DECIDED];

// The number of updates on the one batch after which losses are compared, or at the last step if there are fewer. Five
// updates amplify the rounding errors of the first about sevenfold, for 124M in bf16 and 4 x 64 tokens.
enum { UPDATES_COMPARED = 5 };

// Returns the largest relative difference of the losses of two rungs with these values of --dtype.
double loss_tolerance(enum dtype a, enum dtype b);

// Returns the same for two rungs; 0 if they differ in threads or graphs alone, which do not change a bit of the loss.
// All else changes at least the order of sums, other variants of kernels (not same_kernels) included.
double rung_tolerance(const Rung* a, const Rung* b, bool same_kernels);

// ---------------------------------------------------------------------------------------------------------------------
// a ladder

typedef struct {
    bool ran;
    char why_not[64];
    char level[16];   // instructions that the kernels were compiled for (cpu/processor.h)
    char kernels[KERNELS_TEXT]; // device_kernels(): on a GPU each rung is autotuned
    int threads;
    double ms, tokens_per_second, loss;
    double flops, peak_flops;      // operations per second, as MFU counts them; the peak is NAN on an emulated GPU
    double loss_error, tolerance;  // against the rung before; 0 at the first
    double gain, total_gain;       // tokens/s over those of the rung before and of the first
    size_t plan_bytes, peak_bytes; // memory as planned, and as used
} RungResult;

typedef struct {
    const Config* config; // each rung changes it, and makes a plan of its own
    BenchGiven given;
    const LadderKind* kind;
    bool on_gpu;
    int steps;            // timed, of each rung
    Rung rung[MAX_RUNGS]; // those of the kind that this machine can run
    RungResult result[MAX_RUNGS];
    int count, failed;
    int* batch;
    // of the machine and the options, as the first child found them
    Plan plan; // of the first rung
    int threads;
    double copy_bandwidth; // bytes per second
    char model[128], device[128];
} Ladder;

// Chooses the rungs of the kind that this machine can run. Where it has no backend for a dtype, that rung is left out,
// and the rungs above keep the dtype of the rung below. On a GPU without bf16 the rungs in bf16 are in fp16. find:
// find_backend().
void ladder_choose(Ladder* l, const Backend* (*find)(enum dtype dtype, enum cpu cpu));

// Returns true if the loss is finite and its error within the tolerance.
bool rung_is_ok(const RungResult* r);

// Compares a rung with the last one that ran before it, and with the first; -1: there is none.
void rung_compare(Ladder* l, int index, int first, int before);
