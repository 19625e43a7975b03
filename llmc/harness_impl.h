// The harness of one device and storage type: what harness.h offers to main, in terms of the model and the operations.
#pragma once
#include "op_cases.h"
#include "train.h"

static inline const char* harness_lacks(const Config* config) {
    const DeviceOptions options = device_options(config, (int)config->device, false);
    return device_lacks(&options);
}
static inline void harness_open(const Config* config) { device_open_for(config); }
static inline void harness_open_for_rank(const Config* config, Comm* comm) { open_devices(comm, config); }

// ---------------------------------------------------------------------------------------------------------------------
// operations

static inline const char* harness_op_name(int op) { return op < NUM_OPS ? OPS[op].name : NULL; }

static inline int harness_op_tensors(int op, const OpSizes* sizes, OpTensor tensors[MAX_OP_TENSORS]) {
    const OpCase c = op_declare(&OPS[op], sizes);
    memcpy(tensors, c.tensor, sizeof c.tensor);
    return c.count;
}

static inline void harness_op_run(int op, const OpSizes* sizes, double* const* values) {
    OpCase c = op_declare(&OPS[op], sizes);
    op_alloc(&c);
    for (int i = 0; i < c.count; i++) { op_put(&c.tensor[i], values[i]); }
    params_changed();
    op_run(&c, &OPS[op]);
    for (int i = 0; i < c.count; i++) {
        if (values[i]) { op_get(&c.tensor[i], values[i]); }
    }
    op_close(&c);
}

static inline OpCost harness_op_cost(int op, const OpSizes* sizes) {
    const OpCase c = op_declare(&OPS[op], sizes);
    return op_cost(&c);
}

// Seconds that a run takes when caches hold nothing of it: they are filled with `cold` before. Packed weights are
// forgotten too, as after each update. A GPU gets the filling and the run in one go, and the time is that of both: so
// what it takes to start a kernel does not show. Without `op` there is the filling alone.
static inline double seconds_of_run(OpCase* c, const OpEntry* op, void* cold) {
    params_changed();
    double start = seconds_now();
    device_zero(cold, (size_t)COLD_MIB << 20);
    if (DEVICE_IS_HOST) { start = seconds_now(); }
    if (op) { op_stage(c, op, CASE_CALL); }
    device_sync();
    return seconds_now() - start;
}

static inline OpTime harness_op_time(int op, const OpSizes* sizes) {
    enum { LEAST_RUNS = 3, MOST_RUNS = 20 };
    const double enough = 0.3, resolution = 1e-6; // seconds
    OpCase c = op_open(&OPS[op], sizes, 1);
    void* cold = device_alloc((size_t)COLD_MIB << 20, "clearing caches");
    op_run(&c, &OPS[op]);
    double best = INFINITY, filling = DEVICE_IS_HOST ? 0 : INFINITY;
    const double begin = seconds_now();
    for (int run = 0; run < LEAST_RUNS || (run < MOST_RUNS && seconds_now() - begin < enough); run++) {
        best = fmin(best, seconds_of_run(&c, &OPS[op], cold));
        if (!DEVICE_IS_HOST) { filling = fmin(filling, seconds_of_run(&c, NULL, cold)); }
    }
    device_free(cold, (size_t)COLD_MIB << 20);
    const OpCost cost = op_cost(&c);
    const OpTime time = {cost.flops, cost.read + cost.written, fmax(best - filling, resolution)};
    op_close(&c);
    return time;
}

// ---------------------------------------------------------------------------------------------------------------------
// models

struct HarnessModel {
    GPT2 g;
    Config config;
    int* host;   // two batches: one may be on its way while the next one comes
    int batches; // so far
    int steps;   // so far
};

static inline void harness_resolve(Config* c, GPT2Config* shape) {
    Error err;
    Comm alone = comm_alone();
    const char* folder = strcmp(c->init, "random") ? c->init : NULL;
    if (!shape_from_config(c, folder, shape, &err) || !resolve_seq_len(c, shape, &err) ||
        !resolve_batch(c, shape, &alone, &err)) {
        usage_error("%s", err.text);
    }
}

static inline void harness_layout(GPT2* g, const Config* c, const GPT2Config* shape) {
    gpt2_layout(g, shape, (int)c->batch_size, (int)c->seq_len, keep_of(c));
}

// There are no samples, so the plan has no cache of keys and values.
static inline Config harness_config(const Config* c) {
    Config config = *c;
    config.sample_every = 0;
    return config;
}

static inline ModelPlan harness_model_plan(const Config* c, const GPT2Config* shape) {
    GPT2 g;
    const Config config = harness_config(c);
    harness_layout(&g, c, shape);
    const ModelPlan plan = {run_bytes(&g, &config), model_flops_per_token(&g)};
    return plan;
}

static inline TensorTable harness_model_table(const GPT2Config* shape) { return gpt2_params_table(shape); }

// As a run would have it; the same for a model that is opened again, so that it gives the same bits again.
static inline void harness_choose(const GPT2* g) {
    static char *asked, *chosen; // of the last model
    const GPT2Config* m = &g->config;
    char* now = format("%d x %d, C=%d NH=%d, %s", g->B, g->T, m->channels, m->num_heads, device_kernels());
    const bool again = asked && !strcmp(asked, now);
    choose_kernels(g, NULL, again ? chosen : NULL);
    free(asked);
    asked = now;
    if (again) { return; }
    free(chosen);
    chosen = format("%s", device_kernels());
}

static inline HarnessModel* harness_model_open(const Config* c, const GPT2Config* shape, Error* err) {
    const Config config = harness_config(c);
    HarnessModel* model = (HarnessModel*)alloc_or_die(1, sizeof *model, "a model");
    GPT2* g = &model->g;
    harness_layout(g, c, shape);
    const Comm alone = comm_alone();
    if (!check_memory(g, &config, &alone, err)) {
        free(model);
        return NULL;
    }
    gpt2_alloc(g);
    model->config = config;
    load_weights(g, &config, strcmp(c->init, "random") ? c->init : NULL);
    harness_choose(g);
    model->host = (int*)host_alloc(2 * gpt2_batch_size(g) * sizeof(int), "batches of tokens");
    return model;
}

static inline void harness_model_step(HarnessModel* model, const int* batches, int micro_batches, double* loss,
                                      double* norm) {
    GPT2* g = &model->g;
    const Config* c = &model->config;
    const size_t n = (size_t)g->B * g->T, size = gpt2_batch_size(g);
    const double tokens = (double)n * micro_batches;
    const AdamW hyper = {(float)c->lr,           (float)c->beta1,     (float)c->beta2,  (float)c->eps,
                         (float)c->weight_decay, (float)c->grad_clip, ++model->steps, 0};
    gpt2_zero_grads(g);
    for (int i = 0; i < micro_batches; i++) {
        int* host = model->host + size * (size_t)(model->batches++ % 2);
        memcpy(host, batches + size * (size_t)i, size * sizeof *host);
        const Batch batch = {host, host + n, host + 2 * n, 0, g->B, g->T};
        batch_to_device(g, &batch);
        gpt2_micro_step(g, g->B, g->T, (float)(1.0 / tokens), NULL, NULL);
    }
    gpt2_grad_norm(g);
    gpt2_fetch_sums(g);
    gpt2_update(g, &hyper);
    device_sync();
    *loss = g->mailbox->sums[SUM_LOSS] / tokens;
    *norm = sqrt(g->mailbox->sums[SUM_NORM]);
}

// When each range of the gradients was ready, on the device.
typedef struct {
    double at[1024 + 2]; // model_check allows 1,024 layers
    int count;
} ReadyTimes;

static inline void harness_note_ready(void* ready_times, float* grads, TensorRange range) {
    ReadyTimes* ready = (ReadyTimes*)ready_times;
    (void)grads, (void)range;
    device_sync();
    ready->at[ready->count++] = seconds_now();
}

// A micro-batch forward and backward; returns what forward took, and sets the parts of backward.
static inline double harness_micro_times(HarnessModel* model, const int* batch, int rows, StepTimes* t) {
    GPT2* g = &model->g;
    ReadyTimes ready;
    const size_t n = (size_t)rows * (size_t)g->T;
    int* host = model->host + gpt2_batch_size(g) * (size_t)(model->batches++ % 2);
    memcpy(host, batch, 3 * n * sizeof *host);
    const Batch b = {host, host + n, host + 2 * n, 0, rows, g->T};
    const double start = seconds_now();
    batch_to_device(g, &b);
    gpt2_forward(g, rows, g->T, NULL);
    device_sync();
    const double middle = seconds_now();
    ready.count = 0;
    gpt2_backward(g, rows, g->T, (float)(0.5 / (double)n), harness_note_ready, &ready);
    const int layers = g->config.num_layers;
    t->head = ready.at[0] - middle;
    t->layer = (ready.at[layers] - ready.at[0]) / layers;
    t->tail = ready.at[layers + 1] - ready.at[layers];
    return middle - start;
}

static inline StepTimes harness_step_times(HarnessModel* model, const int* batch, int rows) {
    GPT2* g = &model->g;
    const Config* c = &model->config;
    StepTimes t;
    const AdamW hyper = {(float)c->lr,           (float)c->beta1,     (float)c->beta2,  (float)c->eps,
                         (float)c->weight_decay, (float)c->grad_clip, ++model->steps, 0};
    double start = seconds_now();
    gpt2_zero_grads(g);
    device_sync();
    const double zeroing = seconds_now() - start, first = harness_micro_times(model, batch, rows, &t);
    t.forward = harness_micro_times(model, batch, rows, &t);
    t.begin = zeroing + fmax(0, first - t.forward);
    start = seconds_now();
    gpt2_grad_norm(g);
    gpt2_fetch_sums(g);
    gpt2_update(g, &hyper);
    device_sync();
    t.update = seconds_now() - start;
    return t;
}

static inline StepTimes harness_model_times(HarnessModel* model, const int* batch, int rows, int repetitions) {
    enum { PARTS = sizeof(StepTimes) / sizeof(double) };
    const size_t n = (size_t)repetitions;
    double* values = (double*)alloc_or_die(PARTS * n, sizeof *values, "times"); // all of a part, then the next part
    double part[PARTS];
    StepTimes t = harness_step_times(model, batch, rows); // one to warm up
    for (size_t i = 0; i < n; i++) {
        t = harness_step_times(model, batch, rows);
        memcpy(part, &t, sizeof part);
        for (size_t k = 0; k < PARTS; k++) { values[k * n + i] = part[k]; }
    }
    for (size_t k = 0; k < PARTS; k++) { part[k] = median(values + k * n, n); }
    memcpy(&t, part, sizeof t);
    free(values);
    return t;
}

static inline void harness_model_read(HarnessModel* model, ModelPart part, float* out) {
    const GPT2* g = &model->g;
    device_copy_out(out, part == MODEL_GRADS ? g->grads : g->masters, g->params_table.size * sizeof(float));
}

static inline void harness_model_close(HarnessModel* model) {
    host_free(model->host);
    gpt2_free(&model->g);
    free(model);
}

static const Harness HARNESS = {
    harness_lacks,
    harness_open,
    harness_open_for_rank,
    device_name,
    device_kernels,
    device_threads,
    device_peak_flops,
    device_matmul_flops,
    device_copy_bandwidth,
    device_memory_available,
    device_alloc,
    device_free,
    device_copy_in,
    device_copy_out,
    device_sync,
    harness_op_name,
    harness_op_tensors,
    harness_op_run,
    harness_op_cost,
    harness_op_time,
    harness_resolve,
    harness_model_open,
    harness_model_plan,
    harness_model_table,
    harness_model_step,
    harness_model_times,
    harness_model_read,
    harness_model_close,
};
