// `bench`: measures speed, and lists what a step computes. Ladder and ops have headers of their own.
#pragma once
#include "../comm/comm.h"
#include "../options/config.h"

// Runs the bench that config->args names, `ladder` for instance. Returns the exit code.
int bench_command(const Config* config, Comm* comm);

// Run the commands `bench step` (step.c), `bench plans` (plans.c) and `bench comm` (collectives.c). Return the exit
// code: bench_comm() EXIT_CHECK_FAILED if a sum was wrong.
int bench_step(const Config* config);
int bench_plans(const Config* config);
int bench_comm(const Config* config, Comm* comm);
