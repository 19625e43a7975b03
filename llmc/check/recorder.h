// Lists the operations of a training step, by running the model (model/gpt2.c) and the optimizer over a backend that
// computes nothing: each of its functions notes the operation and its shapes. So nobody writes this list by hand, and a
// change of the model changes it. `bench step` prints the list, `bench ops` times what is on it, and
// dev/bench/predict.py predicts a step from it.
//
// The arithmetic and the bytes of an operation are those of its case in op_cases.h. Copies and zeroing are not listed.
#pragma once
#include "../train/plan.h"
#include "op_cases.h"

// All runs of an operation with the same shapes in a step.
typedef struct {
    int op;             // its number in op_cases.h
    const char* layer;  // a linear layer, by its weight: "qkvw" for instance; of Muon's matrices, the first; else ""
    OpSizes size;       // of the case that has these shapes, or, for an operation over parameters, of any case
    int runs;
    double cases;       // the work of all runs, in runs of the case: `runs`, but for operations over parameters
} StepOp;

enum { MAX_STEP_OPS = 64 };

typedef struct {
    StepOp op[MAX_STEP_OPS]; // in the order of their first run
    int count;
} StepOps;

// Records the step of a plan for one process: all micro-batches, the norm and the update. The plan's backend gives the
// sizes of elements and the rows of a chunk; it need not be open. Not for use by two threads at once.
StepOps record_step(const Plan* p);

// Returns the work of all runs.
OpCost step_op_cost(const Backend* b, const StepOp* op);
