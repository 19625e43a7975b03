// What an object file of a device and storage type offers to main: train_gpt2.c and train_gpt2.cu are compiled once for
// each type, and each object exports one of these.
#pragma once
#include "comm.h"
#include "config.h"
#include "harness.h"

typedef struct {
    const char *device, *storage;             // cpu or cuda; fp32 or bf16
    const char* level;                        // the instructions it is compiled for (cpu/processor.h); NULL for a GPU
    double (*kernel_flops)(void);             // what one thread reaches in matmuls; NULL for a GPU
    int (*train)(Config* config, Comm* comm); // these return the exit code
    int (*generate)(Config* config);
    int (*eval)(Config* config, Comm* comm);
    int (*info)(Config* config);
    // What state.json of the run that --resume goes on with has at object.key; NULL: nothing
    const char* (*saved_choice)(const Config* config, const char* object, const char* key);
    const CommEngine* engine; // how its processes add up gradients; NULL: not in this build; for a CPU main has MPI's
    const Harness* harness;   // for check and bench
} Trainer;
