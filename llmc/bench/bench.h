// `bench`: measures and predicts speed. bench ladder, ops, plans, predict, data, comm and scale are in headers of these
// names.
#pragma once
#include "../comm/comm.h"
#include "../options/config.h"

// Runs the bench that config->args names, `ladder` for instance. Returns the exit code.
int bench_command(const Config* config, Comm* comm);
