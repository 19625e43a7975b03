// What `check` and `bench` see of an object file of a device and storage type, in terms of host memory alone: floatX
// and the kernels exist only inside such an object, and the two commands compare several of them. harness_impl.h is
// the other side.
#pragma once
#include "comm.h"
#include "dataloader.h"
#include "models.h"
#include "rng.h"
#include "tensors.h"

// ---------------------------------------------------------------------------------------------------------------------
// operations

typedef enum { ROLE_READ, ROLE_WRITE, ROLE_ADD, ROLE_SCRATCH } Role; // ADD: read and written
typedef enum { ELEM_FLOATX, ELEM_FLOAT, ELEM_INT, ELEM_DOUBLE } Elem;

typedef struct {
    const char* name;
    Role role;
    Elem elem;
    size_t n;
    void* data; // device memory, for op_cases.h alone
} OpTensor;
enum { MAX_OP_TENSORS = 16 };

// OC: columns that a linear layer makes of C. past, capacity: of attention's cache. chunk: rows of logits at a time; 0:
// as many as suit the device.
typedef struct {
    int B, T, C, NH, OC, V, Vp, past, capacity, chunk;
} OpSizes;

// Tails everywhere: nothing is a multiple of a vector, a tile or a block, and 7 rows of logits do not divide N.
static inline OpSizes op_sizes_small(void) {
    const OpSizes s = {3, 13, 42, 3, 75, 133, 160, 4, 19, 7};
    return s;
}

// For attention in tiles: heads that fill a tile only in part, and so many positions that tiles of keys and queries
// follow one another until their shared memory is used again, the last one in part.
static inline OpSizes op_sizes_tiles(void) {
    const OpSizes s = {1, 197, 80, 2, 80, 133, 160, 70, 300, 7};
    return s;
}

// The linear layer is the widest one of a block; the cache has room behind the new positions.
static inline OpSizes op_sizes_of(const GPT2Config* m, int B, int T) {
    const int past = T / 2 + 1;
    const OpSizes s = {B, T, m->channels, m->num_heads, 4 * m->channels, m->vocab_size, m->padded_vocab_size, past,
                       past + T + 1, 0};
    return s;
}

// Values of a tensor that an operation reads: normal with a deviation of 1/2; matrices of weights of 1/sqrt(C), so that
// what comes out of them, logits above all, is about 1; queries and keys of 1, so that scores differ.
static inline void op_fill_tensor(double* values, const OpTensor* t, const OpSizes* s, uint64_t seed) {
    const bool is_matrix = !strcmp(t->name, "weight") && t->n > (size_t)s->C;
    const bool is_square = !strcmp(t->name, "v") || !strcmp(t->name, "norm");
    const float deviation = is_matrix ? 1.0f / sqrtf((float)s->C) : !strcmp(t->name, "qkv") ? 1.0f : 0.5f;
    const size_t period = min_size(t->n, 1048573); // large tensors repeat themselves, but no two rows: a prime
    #pragma omp parallel for
    for (size_t i = 0; i < period; i++) {
        const float x = deviation * rng_normal(seed, RNG_TEST, i);
        values[i] = t->elem == ELEM_INT ? (double)(rng_u64(seed, RNG_TEST, i) % (uint64_t)s->V)
                    : !is_square        ? x
                    : t->elem == ELEM_DOUBLE ? 4.0 + (double)(x * x) : x * x;
    }
    for (size_t i = period; i < t->n; i++) { values[i] = values[i - period]; }
}

// `order` is not random: it sorts `tokens`.
static inline void op_fill_order(double* order, const double* tokens, size_t n, int V) {
    int* memory = (int*)alloc_or_die(2 * n + (size_t)V + 1, sizeof *memory, "the order of tokens");
    for (size_t i = 0; i < n; i++) { memory[i] = (int)tokens[i]; }
    data_sort(memory + n, memory, n, memory + 2 * n, V);
    for (size_t i = 0; i < n; i++) { order[i] = memory[n + i]; }
    free(memory);
}

// Fills the tensors of an operation, reproducibly; with NaN where the operation has to write, or may scribble.
// values[i] may be NULL for scratch.
static inline void op_fill(double* const* values, const OpTensor* tensors, int count, const OpSizes* s, uint64_t seed) {
    const double *tokens = NULL, *order = NULL;
    for (int i = 0; i < count; i++) {
        const OpTensor* t = &tensors[i];
        const bool has_input = t->role == ROLE_READ || t->role == ROLE_ADD;
        if (!values[i]) { continue; }
        if (has_input) { op_fill_tensor(values[i], t, s, mix64(seed) + (uint64_t)i); }
        for (size_t k = 0; !has_input && k < t->n; k++) { values[i][k] = (double)NAN; }
        if (!strcmp(t->name, "tokens")) { tokens = values[i]; }
        if (!strcmp(t->name, "order")) { order = values[i]; }
        if (order && tokens) { op_fill_order((double*)values[i], tokens, t->n, s->V); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// batches

// tokens, targets and order (B*T each), one behind another, as the trainer takes them. Fills in the order.
static inline void batch_sort(int* batch, size_t n, int V) {
    int* counts = (int*)alloc_or_die((size_t)V + 1, sizeof *counts, "counts of tokens");
    data_sort(batch + 2 * n, batch, n, counts, V);
    free(counts);
}

// Random tokens with random targets.
static inline void batch_random(int* batch, size_t n, int V, uint64_t seed, uint64_t index) {
    for (size_t i = 0; i < 2 * n; i++) { batch[i] = (int)(rng_u64(seed, RNG_TEST, index * 2 * n + i) % (uint64_t)V); }
    batch_sort(batch, n, V);
}

// ---------------------------------------------------------------------------------------------------------------------
// the interface

static inline int compare_doubles(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static inline double median(double* x, size_t n) {
    qsort(x, n, sizeof *x, compare_doubles);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

enum { COLD_MIB = 512 }; // op_time fills caches with that much before each run

// What an operation cannot do without (op_cases.h): arithmetic, bytes read and written, and elements of the largest of
// its tensors.
typedef struct {
    double flops, read, written, items;
} OpCost;

// The same in sum, and the time of its best run.
typedef struct {
    double flops, bytes, seconds;
} OpTime;

// What training a model takes.
typedef struct {
    size_t bytes;           // of memory
    double flops_per_token; // as MFU counts them
} ModelPlan;

// Seconds that the parts of a step take in one process, each waited for.
typedef struct {
    double begin;             // once a step: zeroing gradients, and what the first forward after an update takes longer
    double forward;           // of a micro-batch
    double head, layer, tail; // of its backward: the classifier, one layer, the embeddings
    double update;            // the norm and AdamW
} StepTimes;

typedef enum { MODEL_GRADS, MODEL_MASTERS } ModelPart;
typedef struct HarnessModel HarnessModel;

typedef struct {
    // What the device cannot do of these options, in words; NULL: nothing. open() would refuse it.
    const char* (*lacks)(const Config* config);
    // Chooses the device and its kernels; may be called again, with other options. First of all.
    void (*open)(const Config* config);
    // The same for one of several processes, each with a GPU of its own.
    void (*open_for_rank)(const Config* config, Comm* comm);
    const char* (*device_name)(void);
    const char* (*device_kernels)(void); // those that the last model was opened with (device.h)
    int (*threads)(void); // of the CPU; 0 on a GPU
    double (*peak_flops)(void);
    double (*matmul_flops)(void); // that a large matmul reaches
    double (*copy_bandwidth)(void);
    size_t (*memory_available)(void);
    // Of the device's contract (device.h), for what Comm works on.
    void* (*alloc)(size_t bytes, const char* what);
    void (*free)(void* p, size_t bytes);
    void (*copy_in)(void* device, const void* host, size_t bytes);
    void (*copy_out)(void* host, const void* device, size_t bytes);
    void (*sync)(void);

    // Operation number `op` for given sizes. op_name: NULL beyond the last. op_tensors returns how many there are.
    const char* (*op_name)(int op);
    int (*op_tensors)(int op, const OpSizes* sizes, OpTensor tensors[MAX_OP_TENSORS]);
    // Runs it with values[i], which then are what the tensors hold; NULL, for scratch, are filled with NaN.
    void (*op_run)(int op, const OpSizes* sizes, double* const* values);
    // What it takes; asks no device, so it may be called before open().
    OpCost (*op_cost)(int op, const OpSizes* sizes);
    // Runs it several times, from cold caches, with tensors that op_fill filled.
    OpTime (*op_time)(int op, const OpSizes* sizes);

    // Decides shape, --seq_len and --batch_size from the options; a usage error if they do not fit together.
    void (*resolve)(Config* config, GPT2Config* shape);
    // A model of --batch_size and --seq_len with initial weights; NULL, with the reason, if memory does not suffice.
    HarnessModel* (*model_open)(const Config* config, const GPT2Config* shape, Error* err);
    ModelPlan (*model_plan)(const Config* config, const GPT2Config* shape);
    TensorTable (*model_table)(const GPT2Config* shape);
    // One update, as the options say, from the gradients of all the micro-batches, which lie one behind another in
    // `batches`; waits until it is done.
    void (*model_step)(HarnessModel* model, const int* batches, int micro_batches, double* loss, double* norm);
    // Medians over updates with two micro-batches of the first `rows` sequences (at most --batch_size) that `batch`
    // holds.
    StepTimes (*model_times)(HarnessModel* model, const int* batch, int rows, int repetitions);
    // Gradients of the last step, or the fp32 weights: table.size floats.
    void (*model_read)(HarnessModel* model, ModelPart part, float* out);
    void (*model_close)(HarnessModel* model);
} Harness;
