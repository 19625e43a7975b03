// `bench presets`: what each preset costs and reaches. The steps and tokens are the preset's; milliseconds, hours and
// dollars on eight A100s and eight H100s are predicted.
//
// Each GPU takes an eighth of a step's tokens and of the update (ZeRO-1). The step is predict_step()'s times
// training_factor(), which was taken from llm.c's steps on such machines, so it has their communication in it.
#pragma once
#include "../options/config.h"

enum { NUM_MACHINES = 2, MACHINE_GPUS = 8 };

typedef struct {
    const char *gpu, *name; // as gpu_find() knows it; in the table
    double price;           // dollars an hour for the machine: those of llm.c's scripts
} Machine;

static const Machine MACHINES[NUM_MACHINES] = {{"A100 SXM 80GB", "8 A100-80", 14}, {"H100 SXM", "8 H100", 28}};

typedef struct {
    long long steps, step_tokens;
    double tokens;                // of the run
    int B[NUM_MACHINES];          // sequences in a micro-batch; 0: one does not fit
    double seconds[NUM_MACHINES]; // of a full step; NAN where it does not fit
} PresetCost;

// Predicts the cost of preset number i. A run with a batch ramp is taken to have full steps alone.
PresetCost preset_cost(int i);

// Runs the command; returns the exit code.
int bench_presets(void);
