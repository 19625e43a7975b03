// `check`: runs every operation, and ten training steps, on a device and on the reference, and compares. The reference
// is the CPU in fp32: its fast kernels for a GPU, the plain loops for the CPU itself.
#pragma once
#include "../options/config.h"
#include "../model/backend.h"

// Runs `check` for a --dtype of the backend `device`. Returns the exit code: EXIT_CHECK_FAILED if anything differs by
// more than rounding explains.
int check_command(const Config* config, const Backend* device, enum dtype dtype, const Backend* reference);
