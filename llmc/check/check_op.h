// Compares one operation on a device with the reference, and counts the comparisons of `check`.
#pragma once
#include "compare.h"

typedef struct {
    const Backend *device, *reference;
    DeviceOptions device_options, reference_options;
    const Bounds* bounds;
    int compared, failed;
} Check;

// Counts a comparison and returns its verdict, "ok" or "FAILED".
const char* check_verdict(Check* k, bool ok);

// Opens both backends with their options, runs an operation on each, and prints a line for each tensor compared. Inputs
// are rounded on both sides to the types that the device has.
void check_op(Check* k, int op, const OpSizes* sizes);
