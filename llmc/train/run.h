// A training run: the sum of its parts. Each part is changed by the file of its name alone. setup.h opens a run,
// train.c has its loop.
#pragma once
#include "numerics.h"
#include "phases.h"
#include "position.h"
#include "ranks.h"
#include "saving.h"
#include "start.h"

typedef struct {
    Start start;
    const Plan* plan;     // start.plan
    Tokenizer* tokenizer; // NULL: there is none
    GPT2 model;
    Optimizer optimizer;
    Position position; // in the data
    Numerics numerics; // loss scale and spikes
    PhaseState phases; // validation, test sets, samples
    Ranks ranks;       // stops and saves, by vote
    Saving saving;
    Logger log;
    long long step;       // done
    long long updates;    // of these, not skipped
    long long first_step; // of this start
    bool was_finished;    // before this start, which does nothing
    double peak_flops;    // of one rank; 0: unknown
} TrainRun;
