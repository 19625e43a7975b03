// `check`: runs every operation, and ten training steps, on a device and on the reference, and compares. The reference
// is the CPU in fp32: its fast kernels for a GPU, the plain loops for the CPU itself.
#pragma once
#include "../train/plan.h"
#include "compare.h"

typedef struct {
    const Backend *device, *reference;
    DeviceOptions device_options, reference_options;
    const Bounds* bounds;
    int compared, failed;
} Check;

// Opens both backends with their options, runs an operation on each, and prints a line for each tensor compared. Inputs
// are rounded on both sides to the types that the device has.
void check_op(Check* k, int op, const OpSizes* sizes);

// Runs `check` for a --dtype of the backend `device`. Returns the exit code: EXIT_CHECK_FAILED if anything differs by
// more than rounding explains.
int check_command(const Config* config, const Backend* device, const char* dtype, const Backend* reference);
