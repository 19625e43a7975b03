// Settings of the optimizer, from the options of the group "optimizer": learning rates and decays of the groups of
// parameters, and the momentum of Muon, which may rise at the beginning and fall at the end of a run. As the learning
// rate (schedule.h), the momentum is a pure function of the step.
#pragma once
#include "../options/config.h"
#include "../model/optimizer.h"

// A momentum that differs in the first or in the last steps: warmup and cooldown of --momentum.
typedef struct {
    long long steps; // 0: none
    double momentum; // of the first step of all, or of the last
} MomentumRamp;

typedef struct {
    OptimizerKind kind;
    Hyper peak; // all settings but those of a step: peak rates, and the momentum between the ramps
    double lr[NUM_GROUPS];
    MomentumRamp warmup, cooldown;
} Rates;

// Reads the options. Fails if one is wrong.
bool rates_parse(Rates* r, const Config* c, Error* err);

// Returns the momentum at `step` of `steps` (which may be fractions: schedule_rate). In the first warmup.steps it rises
// in a straight line; in the last cooldown.steps it falls in one, to its end in the last step.
double rates_momentum(const Rates* r, double step, double steps);
