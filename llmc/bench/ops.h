// `bench ops`: times each operation by itself, beside its limit: as a table, as JSON, and as a roofline. First those of
// a training step, with its shapes (check/recorder.h), then all others of op_cases.h.
//
// A GPU first makes the choices that training with these options makes, so that what is timed is what training runs.
//
// The limit is the least time that the machine needs: for the bytes at the speed of a copy, for the arithmetic at its
// peak, whichever is longer. Runs begin with cold caches: in training, other layers come between two uses of a weight.
// But in training an operation also finds its predecessor's output in the caches, so times here add up to more than a
// step. Small tensors can be faster than the limit: when a run ends, its output may still be in the caches, while the
// large copy waits for memory and also reads the memory that it overwrites.
#pragma once
#include "../check/op_run.h"
#include "../check/recorder.h"
#include "../cuda/gpus.h"
#include "record.h"
#include "roofline.h"

typedef struct {
    BenchGiven given;
    char* const* words; // after `bench ops`
    int num_words;
    Plan plan;
    const GpuFacts* gpu; // NULL: a CPU, or a GPU that is not in the table
    double bandwidth;       // bytes per second, measured, of a copy
    double peak_flops;      // operations per second, measured: of a large matmul or, on a CPU, in registers
    double tile_flops;      // of a CPU's tiles with operands in the caches (Backend.device_matmul_flops)
    double published_flops; // by data sheet; 0: unknown
    bool is_emulated;
    RooflinePoint row[MAX_STEP_OPS];
    int count;
    json_t* rows;
} BenchOps;

// Returns the least time that an operation needs, over the time that it took; NAN on an emulated GPU. Sets by_memory if
// memory is the limit.
double op_reached(const BenchOps* b, const OpTime* t, bool* by_memory);

// Returns true if one of the words is part of "name layer", or if there are no words.
bool op_is_asked_for(const BenchOps* b, const char* name, const char* layer);

// Runs the command `bench ops`. Returns the exit code.
int bench_ops(const Config* config);
