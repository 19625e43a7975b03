// Lists a training step: its operations, how often each runs, and the kernels of each on a GPU. The work that an
// operation cannot avoid comes from op_cases.h. Added here is what our kernels do besides: passes that are not fused,
// tensors that two kernels read.
//
// Bytes are those between a GPU's memory and its chip: a kernel reads each of its tensors once, and finds nothing in
// the caches.
#pragma once
#include "../check/op_cases.h"
#include "../cuda/gpus.h"
#include "../model/gpt2.h"
#include "matmul_model.h"

// A linear layer of a block on which an operation runs. An operation on several layers has a row for each.
typedef struct {
    const char *op, *layer;
    int in, out; // channels, as multiples of the model's
} OpLayer;

enum { NUM_OP_LAYERS = 12 };
extern const OpLayer OP_LAYERS[NUM_OP_LAYERS];

typedef enum { PART_EMBED, PART_LINEAR, PART_ATTENTION, PART_NORM, PART_CLASSIFIER, PART_UPDATE, NUM_PARTS } StepPart;

extern const char* const STEP_PARTS[NUM_PARTS]; // their names

// An operation of a step, and how often it runs: runs per micro-batch, per block of a micro-batch, and per step add up
// (step_times).
typedef struct {
    const char* op;    // its name in op_cases.h, or ZERO or CAST_WEIGHTS
    const char* layer; // of OP_LAYERS, or ""
    StepPart part;
    int batch;     // runs in a micro-batch
    int each;      // runs in each block of a micro-batch
    int all, gelu; // runs in each block besides, with --recompute all or gelu
    int step;      // runs in a step, over all parameters
} StepOp;

// Names of operations that have no case in op_cases.h: zeroing memory, casting weights to FP8. Compared by address.
extern const char ZERO[], CAST_WEIGHTS[];

// All operations of a step, in order.
enum { NUM_STEP_OPS = 26 };
extern const StepOp STEP_OPS[NUM_STEP_OPS];

// Ways to compute attention. This program has no attention by matmuls, which stores the scores (B,NH,T,T) in memory as
// PyTorch did before flash attention: `bench predict` shows it for comparison.
typedef enum { ATTENTION_BY_MATMULS, ATTENTION_PLAIN, ATTENTION_FLASH, ATTENTION_BY_CUDNN } AttentionForm;

typedef struct {
    const Backend* backend; // of the storage type and the residual stream; need not be open
    GPT2Config shape;
    int B, T;
    Keep keep;
    double micro_batches; // in a step
    double parameters;
    size_t element_bytes; // of a Stored
    int classifier_chunk; // rows of logits at a time
    const char* dtype;
    bool plain, fused, graph, fp8;
    bool muon; // updates the matrices of the blocks
    bool gelu_apart, gelu_gradient_apart, bias_gradient_apart; // kernels of their own, whatever `fused` says
    AttentionForm attention;
    const GpuFacts* gpu;
} Step;

// Kinds of arithmetic, which reach different parts of a GPU's peak (predict.h).
typedef enum { WORK_MATMUL, WORK_FP8_MATMUL, WORK_PLAIN_MATMUL, WORK_FLASH_FORWARD, WORK_FLASH_BACKWARD,
               WORK_FLASH_FP32, WORK_CUDNN_FORWARD, WORK_CUDNN_BACKWARD, WORK_PLAIN_ATTENTION, WORK_ELEMENTS,
               NUM_WORKS } WorkKind;

// One launch of a kernel, or several with the same kind of work.
typedef struct {
    WorkKind work;
    int launches;
    double flops, read, written; // sums over the launches; bytes read and written
    MatmulSize size;             // of each launch, if this is WORK_MATMUL or WORK_FP8_MATMUL
} Kernel;

typedef struct {
    Kernel kernel[8];
    int count;
} KernelList;

// Appends a kernel and returns it; the list holds 8 at most. flops, read and written are sums over `launches`.
Kernel* add_kernel(KernelList* k, WorkKind work, int launches, double flops, double read, double written);

// Appends `launches` matmuls of equal size, whose FLOPs follow from it. `read` counts the factors too.
Kernel* add_matmul(KernelList* k, WorkKind work, int launches, MatmulSize size, double read, double written);

// Returns the kernels of one run of an operation at the given sizes.
KernelList op_kernels(const Step* s, const char* name, const OpSizes* z);

// Returns how many times a step runs a row of STEP_OPS.
double step_times(const Step* s, const StepOp* row);

// Returns the kernels of one run of a row.
KernelList step_kernels(const Step* s, const StepOp* row);
