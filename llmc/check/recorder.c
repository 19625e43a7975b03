#include "recorder.h"
#include "../model/optimizer.h"

// Each function below has the arguments of its operation in backend.h, and needs few of them.
#pragma GCC diagnostic ignored "-Wunused-parameter"

// The recording under way. A backend's functions get no context, so it is global.
static struct {
    Backend backend;
    const GPT2* model;
    OpSizes size; // of a whole micro-batch
    StepOps* ops;
    uintptr_t next; // address that device_alloc returns next
} recorder;

// ---------------------------------------------------------------------------------------------------------------------
// notes

// Notes a run of an operation that does the work of so many `cases`.
static void note_cases(const char* name, const char* layer, const OpSizes* size, double cases) {
    StepOps* ops = recorder.ops;
    const int op = op_number(name);
    int i = 0;
    while (i < ops->count && (ops->op[i].op != op || strcmp(ops->op[i].layer, layer) ||
                              memcmp(&ops->op[i].size, size, sizeof *size))) { i++; }
    if (i == MAX_STEP_OPS) { fatal("a step has more than %d different operations", MAX_STEP_OPS); }
    if (i == ops->count) { ops->op[ops->count++] = (StepOp){.op = op, .layer = layer, .size = *size}; }
    ops->op[i].runs++;
    ops->op[i].cases += cases;
}

// Notes a run on N rows of C channels.
static void note(const char* name, int N, int C) {
    OpSizes size = recorder.size;
    size.T = N / size.B;
    size.C = C;
    note_cases(name, "", &size, 1);
}

// Notes a run over n parameters.
static void note_params(const char* name, size_t n) {
    const OpCost cost = op_cost(&recorder.backend, op_number(name), &recorder.size);
    note_cases(name, "", &recorder.size, (double)n / cost.items);
}

// Returns the name of the parameter that begins at this address.
static const char* param_name(const Stored* address) {
    const GPT2* g = recorder.model;
    const size_t at = ((uintptr_t)address - (uintptr_t)g->params) / recorder.backend.element_bytes;
    for (int i = 0; i < g->params_table.count; i++) {
        const Tensor* t = &g->params_table.row[i];
        for (int l = 0; l < t->layers; l++) {
            if (tensor_at(t, l) == at) { return t->name; }
        }
    }
    fatal("an operation of a step reads no parameter where it should");
}

// Notes a run of a linear layer.
static void note_linear(const char* name, const Stored* weight, int N, int C, int OC) {
    OpSizes size = recorder.size;
    size.T = N / size.B;
    size.C = C;
    size.OC = OC;
    note_cases(name, param_name(weight), &size, 1);
}

// ---------------------------------------------------------------------------------------------------------------------
// operations

static void encoder_forward(Residual* out, const int* tokens, const Stored* wte, const Stored* wpe, int B, int T,
                            int C) {
    note("encoder_forward", B * T, C);
}

static void encoder_backward(float* dwte, float* dwpe, const Residual* dout, const int* tokens, const int* order, int B,
                             int T, int C) {
    note("encoder_backward", B * T, C);
}

static void layernorm_forward(Stored* out, float* mean, float* rstd, const Residual* inp, const Stored* weight,
                              const Stored* bias, int N, int C) {
    note("layernorm_forward", N, C);
}

static void residual_layernorm_forward(Residual* residual, Stored* out, float* mean, float* rstd, const Residual* inp1,
                                       const Stored* inp2, const Stored* weight, const Stored* bias, int N, int C) {
    note("residual_layernorm_forward", N, C);
}

static void layernorm_backward(Residual* dinp, Stored* dinp_stored, float* dweight, float* dbias, const Stored* dout,
                               const Residual* inp, const Stored* weight, const float* mean, const float* rstd, int N,
                               int C) {
    note("layernorm_backward", N, C);
}

static void matmul_forward(Stored* out, const Stored* inp, const Stored* weight, const Stored* bias, int N, int C,
                           int OC) {
    note_linear("matmul_forward", weight, N, C, OC);
}

static void matmul_gelu_forward(Stored* out, Stored* pre, const Stored* inp, const Stored* weight, const Stored* bias,
                                int N, int C, int OC) {
    note_linear("matmul_gelu_forward", weight, N, C, OC);
}

static void matmul_backward(Stored* dinp, float* dweight, float* dbias, const Stored* dout, const Stored* inp,
                            const Stored* weight, GradMode mode, int N, int C, int OC) {
    note_linear(mode == GRADS_SET ? "first_matmul_backward" : "matmul_backward", weight, N, C, OC);
}

static void matmul_gelu_backward(Stored* dinp, float* dweight, float* dbias, const Stored* dout, const Stored* inp,
                                 const Stored* pre, const Stored* weight, GradMode mode, int N, int C, int OC) {
    note_linear(mode == GRADS_SET ? "first_matmul_gelu_backward" : "matmul_gelu_backward", weight, N, C, OC);
}

static void gelu_forward(Stored* out, const Stored* inp, size_t n) {
    const int N = recorder.size.B * recorder.size.T;
    note("gelu_forward", N, (int)(n / (size_t)N));
}

static void attention_forward(Stored* out, Stored* rest, float* lse, const Stored* qkv, const int* starts, int B, int T,
                              int C, int NH) {
    note(rest ? "exact_attention_forward" : "attention_forward", B * T, C);
}

static void attention_backward(Stored* dqkv, float* delta, const Stored* dout, const Stored* out, const Stored* rest,
                               const float* lse, const Stored* qkv, const int* starts, const int* ends, int B, int T,
                               int C, int NH) {
    note(rest ? "exact_attention_backward" : "attention_backward", B * T, C);
}

static void classifier_backward(float* losses, Stored* dinp, float* dweight, Stored* logits, const Stored* inp,
                                const Stored* weight, const int* targets, float dloss, GradMode mode, int chunk, int N,
                                int C, int V, int Vp) {
    note(mode == GRADS_SET ? "first_classifier_backward" : "classifier_backward", N, C);
}

static void loss_add(double* total, const float* losses, int N) { note("loss_add", N, recorder.size.C); }

static void norm_squared(double* out, const float* x, size_t n) { note_params("norm_squared", n); }

static void adamw_update(Stored* params, float* masters, float* m, float* v, const float* grads,
                         const double* grad_norm_squared, const AdamW* hyper, const TensorTable* table, size_t begin,
                         size_t end) {
    note_params("adamw_update", end - begin);
}

static void muon_update(const MuonMatrix* matrices, int count, int rows, int cols, const double* grad_norm_squared,
                        const Muon* hyper, void* scratch) {
    enum { MATRICES_OF_CASE = 3 };
    OpSizes size = recorder.size;
    size.OC = rows;
    size.C = cols;
    note_cases("muon_update", param_name(matrices->params), &size, (double)count / MATRICES_OF_CASE);
}

// ---------------------------------------------------------------------------------------------------------------------
// the device: its memory has addresses, but is not there

static void* device_alloc(size_t bytes, const char* what) {
    const uintptr_t at = recorder.next;
    recorder.next += round_up(bytes, TENSOR_ALIGN);
    return (void*)at;
}

static void device_free(void* p, size_t bytes) {}
static void* host_alloc(size_t bytes, const char* what) { return alloc_or_die(bytes, 1, what); }
static void host_free(void* p) { free(p); }
static void device_zero(void* p, size_t bytes) {}
static void device_upload(void* device, const void* host, size_t bytes) {}
static void device_send(void* device, const void* host, size_t bytes) {}
static void device_sync(void) {}
static void device_forget(Recording** recording) {}
static void device_range_push(const char* name, int layer) {}
static void device_range_pop(void) {}
static void params_changed(void) {}

static void device_replay(Recording** recording, const char* name, Work work, const void* arguments, size_t bytes) {
    work(arguments);
}

// The functions that a step calls. The others are NULL, so test_recorder.c crashes when a step begins to call one.
#define CALLED(_)                                                                                              \
    _(encoder_forward), _(encoder_backward), _(layernorm_forward), _(residual_layernorm_forward),              \
    _(layernorm_backward), _(matmul_forward), _(matmul_gelu_forward), _(matmul_backward),                      \
    _(matmul_gelu_backward), _(gelu_forward), _(attention_forward), _(attention_backward),                     \
    _(classifier_backward), _(loss_add), _(norm_squared), _(adamw_update), _(muon_update), _(params_changed),  \
    _(device_alloc), _(device_free), _(host_alloc), _(host_free), _(device_zero), _(device_upload),            \
    _(device_send), _(device_sync), _(device_replay), _(device_forget), _(device_range_push),                  \
    _(device_range_pop)
#define ENTRY(function) .function = function

static Backend recording_backend(const Backend* of) {
    return (Backend){.device = of->device,
                     .storage = of->storage,
                     .element_bytes = of->element_bytes,
                     .residual_bytes = of->residual_bytes,
                     .classifier_chunk = of->classifier_chunk,
                     .muon_bytes = of->muon_bytes,
                     .muon_at_a_time = of->muon_at_a_time,
                     CALLED(ENTRY)};
}

// ---------------------------------------------------------------------------------------------------------------------
// a step

StepOps record_step(const Plan* p) {
    StepOps ops = {.count = 0};
    GPT2 g;
    Optimizer o;
    recorder.backend = recording_backend(p->backend);
    recorder.model = &g;
    recorder.size = op_sizes_of(&p->shape, p->B, p->T);
    recorder.ops = &ops;
    recorder.next = TENSOR_ALIGN;
    plan_layout(p, &g);
    g.backend = &recorder.backend;
    gpt2_alloc(&g);
    optimizer_alloc(&o, &g, p->rates.kind, STATE_ON_DEVICE, NULL);
    const long long tokens = (long long)p->B * p->T;
    gpt2_zero_grads(&g);
    for (long long done = 0; done < p->total_batch_size; done += tokens) {
        gpt2_upload(&g, NULL, (size_t)tokens);
        gpt2_micro_step(&g, p->B, p->T, 1.0f / (float)p->total_batch_size, NULL, NULL);
    }
    optimizer_norm(&o);
    optimizer_update(&o, &p->rates.peak);
    optimizer_free(&o);
    gpt2_free(&g);
    return ops;
}

OpCost step_op_cost(const Backend* b, const StepOp* op) {
    OpCost cost = op_cost(b, op->op, &op->size);
    cost.flops *= op->cases;
    cost.read *= op->cases;
    cost.written *= op->cases;
    return cost;
}
