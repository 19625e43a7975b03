// Lists every operation of a backend: its tensors by name, the role of each, its arithmetic, and the call. The list
// serves the tests of gradients and of backends (test/check/test_backends.c), the comparison of two devices (`check`),
// the timing of operations (`bench ops`) and their costs (recorder.h).
//
// A case is one function that runs in several stages: first it declares tensors and work; then, when the tensors have
// memory, it prepares and makes the call (op_run.h). Gradients are found by name: a backward operation's `dinp` is the
// gradient of its forward operation's `inp`. first_... is an operation in a step's first micro-batch (GradMode).
#pragma once
#include "../model/backend.h"
#include "../options/models.h"

// The use of a tensor by an operation. ADD: read and written.
typedef enum { ROLE_READ, ROLE_WRITE, ROLE_ADD, ROLE_SCRATCH } Role;

typedef enum { ELEM_STORED, ELEM_RESIDUAL, ELEM_FLOAT, ELEM_INT, ELEM_DOUBLE } Elem;

typedef struct {
    const char* name;
    Role role;
    Elem elem;
    size_t n;
    void* data; // device memory while a case is open, else NULL
} OpTensor;

enum { MAX_OP_TENSORS = 16 };

// OC: output channels of a linear layer. past, capacity: of attention's cache. chunk: rows of logits at a time; 0: as
// many as suit the device.
typedef struct {
    int B, T, C, NH, OC, V, Vp, past, capacity, chunk;
} OpSizes;

// The work that an operation cannot avoid: arithmetic, bytes read and written, and elements of its largest tensor.
// Bytes move between memory and processor if caches are empty before the operation and large enough during it: inputs
// and outputs count once, ROLE_ADD in both directions, scratch never.
typedef struct {
    double flops, read, written, items;
} OpCost;

typedef enum { CASE_DECLARE, CASE_PREPARE, CASE_CALL } CaseStage;

// One operation of one backend at given sizes.
typedef struct {
    const Backend* backend;
    int op;
    OpSizes size;
    float dloss;
    Hyper hyper, *device_hyper;
    OpTensor tensor[MAX_OP_TENSORS];
    size_t touched[MAX_OP_TENSORS]; // elements of each tensor that the operation needs
    double flops;                   // arithmetic that it needs
    int count;                      // tensors declared
    int next;                       // index of the tensor whose memory op_tensor returns next, within a stage
    CaseStage stage;
} OpCase;

// ---------------------------------------------------------------------------------------------------------------------
// sizes

// Small sizes with tails: none is a multiple of a vector, a tile or a block, and the 7 rows of a chunk do not divide N.
extern const OpSizes OP_SIZES_SMALL;

// Sizes for attention in tiles: heads fill a tile only in part, there are enough tiles of keys and queries that a GPU
// uses their shared memory again, and the last tile is partial.
extern const OpSizes OP_SIZES_TILES;

// Sizes for which a GPU's kernels need several blocks, the last of them partial, as the last chunk is. They are
// multiples of 16, so that FP8 takes them.
extern const OpSizes OP_SIZES_BLOCKS;

// The sizes of a model. The linear layer is the widest of a block; the cache has room behind the new positions.
OpSizes op_sizes_of(const GPT2Config* m, int B, int T);

// ---------------------------------------------------------------------------------------------------------------------
// the list

// Returns the name of an operation; NULL beyond the last one.
const char* op_name(int op);

// Returns the number of an operation; ends the program if none has this name.
int op_number(const char* name);

// Returns the number of the operation that computes the gradients of `op`; -1 if none does.
int op_backward(int op);

// Returns an operation with its tensors declared, without memory. `b` need not be open.
OpCase op_declare(const Backend* b, int op, const OpSizes* sizes);

// Runs a stage of a case whose tensors have memory. The call is queued, not waited for.
void op_stage(OpCase* c, CaseStage stage);

// Returns where document number k of sequence b, which begins at position `begin`, ends in the inputs of the operations
// that take documents: long ones, single tokens, multiples of tiles and others.
int op_document_end(const OpSizes* s, int b, int k, int begin);

// Returns the bytes of a tensor on the case's backend.
size_t op_bytes(const OpCase* c, const OpTensor* t);

// Returns the cost of an operation at these sizes. Allocates nothing; `b` need not be open.
OpCost op_cost(const Backend* b, int op, const OpSizes* sizes);
