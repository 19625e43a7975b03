// Runs and times the operations of op_cases.h on a backend. Values are doubles in host memory for all storage types.
#pragma once
#include "op_cases.h"

// ---------------------------------------------------------------------------------------------------------------------
// values

// Fills the inputs of an operation with random numbers that depend on `seed` alone, and outputs and scratch with NaN,
// so that elements that the operation does not write are found. values[i] belongs to tensors[i]; NULL is skipped.
void op_fill(double* const* values, const OpTensor* tensors, int count, const OpSizes* s, uint64_t seed);

// Returns a number rounded to the type that such an element has on a backend; integers and doubles as they are.
double op_rounded(const Backend* b, Elem elem, double x);

// Copies `values` to a tensor of an open case, rounded to its type; NULL fills it with NaN.
void op_put(const OpCase* c, const OpTensor* t, const double* values);

// Copies a tensor of an open case to `values`.
void op_get(const OpCase* c, const OpTensor* t, double* values);

// ---------------------------------------------------------------------------------------------------------------------
// running

// Allocates the tensors of an operation and fills them by op_fill. `b` must be open.
OpCase op_open(const Backend* b, int op, const OpSizes* sizes, uint64_t seed);

// Runs the operation once and waits for it.
void op_run(OpCase* c);

// Frees the tensors.
void op_close(OpCase* c);

// Runs an operation once on the tensors `values`, in the order of op_declare(), and sets them to the results. NULL, for
// scratch, is filled with NaN before the call.
void op_run_values(const Backend* b, int op, const OpSizes* sizes, double* const* values);

// ---------------------------------------------------------------------------------------------------------------------
// time

enum { COLD_MIB = 512 }; // op_time writes this much memory before each run, to empty the caches

// The work of an operation (OpCost; bytes are read + written), and the seconds of its fastest run.
typedef struct {
    double flops, bytes, seconds;
} OpTime;

// Times several runs on inputs of op_fill, each from cold caches and without packed weights, as after an update.
OpTime op_time(const Backend* b, int op, const OpSizes* sizes);
