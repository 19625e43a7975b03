// `bench predict GPU`: predicts the time of a training step on a GPU, operation by operation, without the GPU. The
// prediction is computed from the list of a step's kernels (step.h), data sheets (gpus.h), the shape of each matmul
// (matmul_model.h), the machine code of our attention (attention_model.h) and assumed efficiencies (predict.c).
//
// A matmul by cuBLASLt takes the time of matmul_model.h. Any other kernel takes the longer of two times: its bytes /
// (the memory's bandwidth * MEMORY_EFFICIENCY), and its arithmetic / (the peak of its dtype * efficiency_of). To each
// is added the time of a launch (step_gap).
#pragma once
#include "record.h"
#include "step.h"

// Seconds between two kernels, when they are launched one by one and when they are replayed from a graph. Both are
// assumed.
static const double KERNEL_GAP = 2e-6, GRAPH_KERNEL_GAP = 1e-6;

static const double MEMORY_EFFICIENCY = 0.80; // assumed part of the data sheet's bandwidth that a kernel reaches

// Returns the part of the peak that a kernel with this kind of work is assumed to reach in the step, 0 to 1. Of a
// matmul by cuBLASLt: the part at which multiprocessors sum.
double efficiency_of(const Step* s, WorkKind work);

// All runs of an operation in a step, or of several operations.
typedef struct {
    double times, launches;     // runs of the operation, kernel launches
    double flops, matmul_flops; // matmul_flops: without work element by element
    double read, written;       // bytes
    double seconds;
    double memory_seconds, arithmetic_seconds, gap_seconds; // the parts of `seconds`, by what bounds the kernels
} Prediction;

// Returns KERNEL_GAP, or GRAPH_KERNEL_GAP if the step is replayed from a graph.
double step_gap(const Step* s);

// Returns the dtype whose peak bounds a kernel with this kind of work: "fp32", "tf32", "bf16",
// "fp16" or "fp8".
const char* work_dtype(const Step* s, WorkKind work);

// Predicts `times` runs of the kernels.
Prediction predict_kernels(const Step* s, const KernelList* k, double times);

// Predicts one part of the step; NUM_PARTS: all of it.
Prediction predict_step(const Step* s, StepPart part);

// Returns how much longer a step of a run takes on this GPU than predict_step() says: 1.09 before Hopper, 1.20 from
// Hopper on. These are llm.c's published steps of 124M over their predictions (LLM_C in test_predict.c); its four
// others are then predicted within 6%. The causes are not told apart: clocks that fall under a long load, the slowest
// of eight GPUs, communication, matmuls for which cuBLASLt does not take its fastest algorithm.
double training_factor(const GpuFacts* gpu);

// Returns "memory", "arithmetic" or "launches", whichever takes the most time.
const char* prediction_bound(const Prediction* p);

// ---------------------------------------------------------------------------------------------------------------------
// GPU and step

// Finds a GPU by name or alias ("h100", "RTX 4090"), else the first whose alias contains `asked`; NULL: none. Case,
// spaces and hyphens do not matter.
const GpuFacts* gpu_find(const char* asked);

// Returns the step of a plan on a GPU, with the kernels that the options name.
Step step_of(const Plan* p, const Config* c, const GpuFacts* gpu);

// Returns true if a kernel of the step does this kind of work.
bool step_has(const Step* s, WorkKind work);

// Runs the command `bench predict`: prints the prediction, and writes predict.json into --out unless that is empty.
// Returns the exit code.
int bench_predict(const Config* c);
