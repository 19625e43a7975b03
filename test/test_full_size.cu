// Audits the GPU's operations at the sizes of GPT-2 124M and 1558M, up to the largest batches that fit on GPUs of 80
// and 141 GB, without that memory (test/emulator/include/emu/audit.h). An operation must touch its tensors from the
// first byte to the last and nothing beyond them; grids must be within CUDA's limits. `make emu EMU=check` builds it:
// build/emu-check/test_full_size.
#include <climits>
#include <cuda_runtime.h>
extern "C" {
#include "../llmc/check/op_cases.h"
#include "../llmc/train/plan.h"
}
#include "test.h"

extern "C" const Backend cuda_bf16, cuda_fp32;

// Settings of the emulator, which reads them before main() does. 9.0: for FP8. 256 SMs: see plan_of().
__attribute__((constructor(101))) static void begin_audit(void) {
    setenv("EMU_AUDIT", "1", 1);
    setenv("EMU_MEMORY", "0x100000000000", 1);
    setenv("EMU_CC", "90", 1);
    setenv("EMU_SMS", "256", 1);
}

// ---------------------------------------------------------------------------------------------------------------------
// shapes

typedef struct {
    const char* model;
    int gigabytes; // of the GPU; 0: a batch of 64
} Shape;
// The first two have the largest offsets; the others are left out unless long=1 is in the environment.
static const Shape SHAPES[] = {{"gpt2", 141}, {"gpt2-xl", 141}, {"gpt2", 80}, {"gpt2-xl", 80}, {"gpt2", 0}};
static bool is_long() { return getenv("long") && *getenv("long"); }

// Returns the plan with the largest batch that fits, a multiple of 32 or, if it is large, of 288: with 256 SMs, which
// run a power of two or 9 blocks each, loops over the grid then give the last rows to the last block, which the audit
// runs.
static Plan plan_of(const Shape* shape, const Backend* b, enum dtype dtype) {
    Error err;
    Plan p;
    Config c;
    config_defaults(&c);
    c.model = shape->model;
    c.recompute = recompute_all;
    EXPECT(plan_make(&p, b, dtype, &c, NULL, &err));
    const size_t memory = b->device_memory_usable((size_t)shape->gigabytes << 30);
    const int largest = largest_batch(&p, INT_MAX, memory), unit = largest < 288 ? 32 : 288;
    p.B = shape->gigabytes ? largest / unit * unit : 64;
    return p;
}

// ---------------------------------------------------------------------------------------------------------------------
// one operation

// Returns integer number i of a tensor: tokens in order, so that the first positions have token 0 and the last ones
// token V - 1; documents that are whole sequences.
static int integer_at(const OpCase* c, const OpTensor* t, size_t i) {
    if (!strcmp(t->name, "order")) { return (int)i; }
    if (!strcmp(t->name, "starts")) { return 0; }
    if (!strcmp(t->name, "ends")) { return c->size.T; }
    return i == t->n - 1 ? c->size.V - 1 : (int)(i * (size_t)c->size.V / t->n);
}

static void fill_integers(const OpCase* c, const OpTensor* t) {
    int* host = (int*)alloc_or_die(t->n, sizeof *host, t->name);
    for (size_t i = 0; i < t->n; i++) { host[i] = integer_at(c, t, i); }
    c->backend->device_copy_in(t->data, host, op_bytes(c, t));
    free(host);
}

// Returns the bytes that may stay untouched: the last elements of a range that AdamW updates may belong to a block that
// is not run; a document begins at the first token, whatever that is.
static size_t slack(const OpCase* c, size_t bytes) {
    if (!strcmp(op_name(c->op), "document_bounds")) { return sizeof(int); }
    return !strcmp(op_name(c->op), "adamw_update") ? bytes / 100 : 0;
}

static void expect_touched(const OpCase* c, const OpTensor* t, size_t needed) {
    const emu::Touched part = emu::audit_touched(t->data);
    const size_t bytes = op_bytes(c, t), span = part.begin < part.end ? part.end - part.begin : 0;
    const size_t needed_bytes = bytes / t->n * needed;
    if (span == bytes || (span <= needed_bytes && span + slack(c, bytes) >= needed_bytes)) { return; }
    TEST_FAIL("%s: %s: bytes %zu to %zu of %zu are touched", op_name(c->op), t->name, part.begin, part.end, bytes);
}

// Memory in use once the device was open, and what operations may take beside their tensors (operations_bytes).
static size_t opened_bytes, planned_bytes;

static void audit_op(const Backend* b, int op, const OpSizes* sizes) {
    OpCase c = op_declare(b, op, sizes);
    size_t own = sizeof c.hyper;
    c.device_hyper = (Hyper*)b->device_alloc(sizeof c.hyper, "hyperparameters");
    for (int i = 0; i < c.count; i++) {
        OpTensor* t = &c.tensor[i];
        t->data = b->device_alloc(op_bytes(&c, t), t->name);
        if (t->elem == ELEM_INT) { fill_integers(&c, t); }
        own += op_bytes(&c, t);
    }
    op_stage(&c, CASE_PREPARE);
    emu::audit_forget();
    op_stage(&c, CASE_CALL);
    b->device_sync();
    for (int i = 0; i < c.count; i++) { expect_touched(&c, &c.tensor[i], c.touched[i]); }
    EXPECT(emu::mem.used - opened_bytes - own <= planned_bytes);
    b->params_changed(); // forgets FP8 copies of its weights
    for (int i = 0; i < c.count; i++) { b->device_free(c.tensor[i].data, op_bytes(&c, &c.tensor[i])); }
    b->device_free(c.device_hyper, sizeof c.hyper);
}

// ---------------------------------------------------------------------------------------------------------------------
// all operations

// Returns the sizes with which an operation has the model's own largest tensors.
static OpSizes sizes_of(const Plan* p, int op) {
    OpSizes s = op_sizes_of(&p->shape, p->B, p->T);
    const size_t parameters = model_parameters(&p->shape);
    s.capacity = s.past + s.T;  // no row of the cache stays unused
    s.chunk = s.B * s.T / 2;    // larger than in a run, with larger offsets
    if (!strcmp(op_name(op), "adamw_update")) { s.OC = (int)(parameters / (size_t)s.C); }
    if (!strcmp(op_name(op), "norm_squared")) {
        s.B = 1;
        s.T = (int)(parameters / (size_t)s.C);
    }
    return s;
}

// Plain kernels sum a weight's gradient over all rows in one block, which takes minutes here: NO_LONG_SUMS.
typedef enum { ALL_OPS, LINEAR_LAYERS, RESIDUAL_STREAM, NO_LONG_SUMS } Ops;

static bool is_linear_layer(int op) { return strstr(op_name(op), "matmul") || strstr(op_name(op), "gelu"); }

static bool is_chosen(int op, Ops ops) {
    const char* name = op_name(op);
    const bool multiplies = is_linear_layer(op) || strstr(name, "classifier");
    return ops == LINEAR_LAYERS     ? is_linear_layer(op)
           : ops == RESIDUAL_STREAM ? strstr(name, "encoder") || strstr(name, "layernorm")
           : ops == NO_LONG_SUMS    ? !(multiplies && strstr(name, "backward"))
                                    : true;
}

static void audit_ops(const Plan* p, Ops ops) {
    char name[96];
    const OpSizes all = op_sizes_of(&p->shape, p->B, p->T);
    const TensorTable table = gpt2_params_table(&p->shape, 1);
    const size_t planned = p->backend->operations_bytes(&table, true, p->B, p->T, all.C, all.NH);
    planned_bytes = max_size(planned_bytes, planned); // what a larger shape took is kept
    snprintf(name, sizeof name, "%s, %s, batch %d", p->model, dtype_names[p->dtype], p->B);
    test_case = name;
    EXPECT(p->B >= 32);
    for (int op = 0; op_name(op); op++) {
        OpSizes s = sizes_of(p, op);
        if (!is_chosen(op, ops)) { continue; }
        audit_op(p->backend, op, &s);
        if (!is_linear_layer(op)) { continue; }
        s.C = all.OC; // the layer behind GELU
        s.OC = all.C;
        audit_op(p->backend, op, &s);
    }
    test_case = NULL;
}

static void audit(const Backend* b, enum dtype dtype, const Config* c, Ops ops) {
    if (!emu::audits) { fatal("the emulator began before begin_audit()"); }
    const DeviceOptions options = device_options(c, dtype);
    b->device_open(&options);
    opened_bytes = emu::mem.used;
    planned_bytes = 0;
    for (int i = 0; i < (is_long() ? 5 : ops == NO_LONG_SUMS ? 1 : 2); i++) {
        const Plan p = plan_of(&SHAPES[i], b, dtype);
        audit_ops(&p, ops);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// the audit itself

static __global__ void touch_kernel(char* x, size_t n, bool is_narrow) {
    const unsigned narrow = blockIdx.x * blockDim.x + threadIdx.x;
    const size_t i = is_narrow ? narrow : (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { x[i] = 1; }
}

TEST(an_index_that_wraps_around_leaves_the_end_untouched) {
    const size_t n = (size_t)5 << 30, threads = 256;
    char* x = NULL;
    EXPECT(cudaMalloc(&x, n) == cudaSuccess);
    for (int is_narrow = 0; is_narrow <= 1; is_narrow++) {
        emu::audit_forget();
        touch_kernel<<<(unsigned)(n / threads), threads>>>(x, n, is_narrow);
        EXPECT(cudaDeviceSynchronize() == cudaSuccess);
        const emu::Touched part = emu::audit_touched(x);
        EXPECT(part.begin == 0 && part.end == (is_narrow ? (size_t)1 << 30 : n));
    }
    EXPECT(cudaFree(x) == cudaSuccess);
}

static Config options_with(enum kernels kernels, bool fused) {
    Config c;
    config_defaults(&c);
    c.kernels = kernels;
    c.attention = kernels == kernels_plain ? attention_plain : attention_flash;
    c.fused = fused;
    return c;
}

TEST(bf16_touches_its_tensors_and_no_more) {
    const Config c = options_with(kernels_fast, true);
    audit(&cuda_bf16, dtype_bf16, &c, ALL_OPS);
}
TEST(unfused_layers_touch_their_tensors_and_no_more) {
    const Config c = options_with(kernels_fast, false);
    audit(&cuda_bf16, dtype_bf16, &c, LINEAR_LAYERS);
}
TEST(fp8_layers_touch_their_tensors_and_no_more) {
    const Config c = options_with(kernels_fast, true);
    audit(&cuda_bf16, dtype_fp8, &c, LINEAR_LAYERS);
}
TEST(a_residual_stream_in_bf16_touches_its_tensors_and_no_more) {
    const Config c = options_with(kernels_fast, true);
    audit(cuda_bf16.with_bf16_residual, dtype_bf16, &c, RESIDUAL_STREAM);
}
TEST(fp32_touches_its_tensors_and_no_more) {
    const Config c = options_with(kernels_fast, true);
    audit(&cuda_fp32, dtype_fp32, &c, ALL_OPS);
}
TEST(plain_kernels_touch_their_tensors_and_no_more) {
    const Config c = options_with(kernels_plain, true);
    audit(&cuda_bf16, dtype_bf16, &c, NO_LONG_SUMS);
}

TEST_MAIN()
