// `bench`: measures speed, and lists what a step computes. Its forms have headers of their own: ladder, ops, step,
// plans, collectives (`bench comm`).
#pragma once
#include "../comm/comm.h"
#include "../options/config.h"

// Runs the bench that config->args names, `ladder` for instance. Returns the exit code.
int bench_command(const Config* config, Comm* comm);
