// `bench scale`: predicts a step of --total_batch_size tokens on 1, 2, 4, ... 1,024 GPUs (or CPU processes): time,
// tokens per second, efficiency and cost, by the method of scale_model.h. Its inputs are measured here or given:
//
//   the parts of a step   measured on this device, while all processes that were started are at work, so that they
//                         share cores and memory as in training; or --step_ms and --update_ms
//   the connection        measured by an all-reduce of a layer's gradients, if several processes were started; or
//                         --link
#pragma once
#include "../comm/comm.h"
#include "record.h"
#include "scale_model.h"

enum { SCALE_MOST = 1024, SCALE_COUNTS = 11 };

typedef struct {
    const Config* config;
    Comm* comm;
    const Backend* backend;
    Plan plan; // of one process; total_batch_size is the step's
    ScaleModel model;
    Network net;
    double copy_bandwidth; // 0: not measured
    char device[128];
    int n[SCALE_COUNTS], count; // processes
    ScaledStep at[SCALE_COUNTS][SCALE_MODES];
} BenchScale;

// Return tokens per second, and efficiency, of prediction i in one of the modes of scale_model.h.
double scale_tokens_per_second(const BenchScale* b, int i, int mode);
double scale_efficiency(const BenchScale* b, int i, int mode); // speed / (speed of one process * processes)

extern const char* const SCALE_NAMES[SCALE_MODES];

// Runs the command `bench scale`. Returns the exit code.
int bench_scale(const Config* config, Comm* comm);
