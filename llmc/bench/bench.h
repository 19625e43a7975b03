// `bench`: measures speed, and lists what a step computes. Ladder, ops and collectives (`bench comm`) have headers of
// their own.
#pragma once
#include "../comm/comm.h"
#include "../options/config.h"

// Runs the bench that config->args names, `ladder` for instance. Returns the exit code.
int bench_command(const Config* config, Comm* comm);

// Run the commands `bench step` (step.c) and `bench plans` (plans.c). Return the exit code.
int bench_step(const Config* config);
int bench_plans(const Config* config);
