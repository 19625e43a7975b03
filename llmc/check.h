// `check`: every operation, and ten training steps, of a device against the reference, the CPU in fp32: its fast
// kernels if the device is a GPU, the plain loops if it is the CPU itself. Exit code 3 if anything differs by more than
// rounding explains.
#pragma once
#include "bounds.h"
#include "host_memory.h"
#include "rounding.h"
#include "trainer.h"

// ---------------------------------------------------------------------------------------------------------------------
// state

typedef struct {
    const Harness *device, *reference;
    Config device_config, reference_config;
    GPT2Config shape;
    const Bounds* bounds;
    bool stores_bf16; // the device does
    int compared, failed;
} Check;

static inline const char* check_verdict(Check* k, bool ok) {
    k->compared++;
    k->failed += !ok;
    return ok ? "ok" : "FAILED";
}

// ---------------------------------------------------------------------------------------------------------------------
// operations

static inline double round_to_bf16(double x) { return bf16_value(bf16_nearest((float)x)); }

// Fills `inputs`, rounded as the device will store them, and copies them to `copies`.
static inline void check_fill(const Check* k, double** inputs, double** copies, const OpTensor* tensors, int count,
                              const OpSizes* sizes) {
    for (int i = 0; i < count; i++) {
        const bool scratch = tensors[i].role == ROLE_SCRATCH;
        inputs[i] = scratch ? NULL : (double*)alloc_or_die(tensors[i].n, sizeof **inputs, tensors[i].name);
        copies[i] = scratch ? NULL : (double*)alloc_or_die(tensors[i].n, sizeof **copies, tensors[i].name);
    }
    op_fill(inputs, tensors, count, sizes, 1);
    for (int i = 0; i < count; i++) {
        if (!inputs[i]) { continue; }
        for (size_t j = 0; k->stores_bf16 && tensors[i].elem == ELEM_FLOATX && j < tensors[i].n; j++) {
            inputs[i][j] = round_to_bf16(inputs[i][j]);
        }
        memcpy(copies[i], inputs[i], tensors[i].n * sizeof **inputs);
    }
}

static inline void check_op(Check* k, int op, const OpSizes* sizes) {
    OpTensor tensors[MAX_OP_TENSORS];
    double *got[MAX_OP_TENSORS], *want[MAX_OP_TENSORS];
    const char* name = k->device->op_name(op);
    const int count = k->device->op_tensors(op, sizes, tensors);
    check_fill(k, want, got, tensors, count, sizes);
    k->device->open(&k->device_config);
    k->device->op_run(op, sizes, got);
    for (int i = 0; i < count; i++) {
        if (tensors[i].role == ROLE_READ && memcmp(got[i], want[i], tensors[i].n * sizeof **got) != 0) {
            printf("%-28s %-10s was written to  %s\n", name, tensors[i].name, check_verdict(k, false));
        }
    }
    k->reference->open(&k->reference_config);
    k->reference->op_run(op, sizes, want);
    for (int i = 0; i < count; i++) {
        const OpTensor* t = &tensors[i];
        if (t->role == ROLE_WRITE || t->role == ROLE_ADD) {
            const Difference d = compare(got[i], want[i], t->n);
            const double bound = op_bound(k->bounds, name, t->elem);
            printf("%-28s %-10s %12zu %10.2e %10.2e %10.2e  %s\n", name, t->name, t->n, d.error, d.worst, bound,
                   check_verdict(k, is_within(&d, bound)));
        }
        free(got[i]);
        free(want[i]);
    }
    fflush(stdout);
}

// `only`: what the operations' names must contain.
static inline void check_ops(Check* k, const OpSizes* s, const char* only, const char* title) {
    printf("\n%s: B=%d T=%d C=%d NH=%d OC=%d V=%d (%d in memory)\n", title, s->B, s->T, s->C, s->NH, s->OC, s->V,
           s->Vp);
    printf("%-28s %-10s %12s %10s %10s %10s\n", "operation", "tensor", "elements", "error", "worst", "bound");
    for (int op = 0; k->device->op_name(op); op++) {
        if (strstr(k->device->op_name(op), only)) { check_op(k, op, s); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// training

enum { CHECK_STEPS = 10, CHECK_MICRO_BATCHES = 2, CHECK_REPEATED_STEPS = 2 }; // at most: --max_steps asks for fewer

// What a few steps did: weights before them, gradients after the first, weights after the last.
typedef struct {
    double loss[CHECK_STEPS], norm[CHECK_STEPS];
    float *initial, *grads, *weights;
} Trace;

static inline Trace trace_run(const Harness* h, const Config* c, const GPT2Config* shape, const int* batches,
                              int steps) {
    Error err;
    Trace trace;
    const size_t elements = h->model_table(shape).size;
    const size_t batch = (size_t)3 * (size_t)c->batch_size * (size_t)c->seq_len;
    h->open(c);
    HarnessModel* model = h->model_open(c, shape, &err);
    if (!model) { fatal("%s", err.text); }
    trace.initial = (float*)alloc_or_die(elements, sizeof(float), "weights");
    trace.grads = (float*)alloc_or_die(elements, sizeof(float), "gradients");
    trace.weights = (float*)alloc_or_die(elements, sizeof(float), "weights");
    h->model_read(model, MODEL_MASTERS, trace.initial);
    for (int i = 0; i < steps; i++) {
        h->model_step(model, batches + CHECK_MICRO_BATCHES * batch * (size_t)i, CHECK_MICRO_BATCHES, &trace.loss[i],
                      &trace.norm[i]);
        if (i == 0) { h->model_read(model, MODEL_GRADS, trace.grads); }
    }
    h->model_read(model, MODEL_MASTERS, trace.weights);
    h->model_close(model);
    return trace;
}

static inline void trace_free(Trace* trace) {
    free(trace->initial);
    free(trace->grads);
    free(trace->weights);
}

// One layer's tensor, less `from` unless that is NULL. It is compared as a whole: the true gradient of the key third of
// qkvb is zero, since a constant added to all scores of a query changes nothing, and what is computed there is rounding
// error, small only beside the rest of qkvb.
static inline Difference compare_layer(const float* got, const float* want, const float* from, const Tensor* t,
                                       int layer) {
    const size_t n = t->used_rows * t->cols, at = tensor_at(t, layer);
    double* values = (double*)alloc_or_die(2 * n, sizeof *values, t->name);
    for (size_t i = 0; i < n; i++) {
        const double start = from ? from[at + i] : 0.0;
        values[i] = got[at + i] - start;
        values[n + i] = want[at + i] - start;
    }
    const Difference d = compare(values, values + n, n);
    free(values);
    return d;
}

// The layer that is farthest off.
static inline Difference compare_tensor(const float* got, const float* want, const float* from, const Tensor* t) {
    Difference farthest = compare_layer(got, want, from, t, 0);
    for (int l = 1; l < t->layers; l++) {
        const Difference d = compare_layer(got, want, from, t, l);
        if (!(d.error <= farthest.error)) { farthest = d; }
    }
    return farthest;
}

static inline int check_steps(const Check* k) {
    const long long asked = k->device_config.max_steps;
    return asked > 0 && asked < CHECK_STEPS ? (int)asked : CHECK_STEPS;
}

static inline void check_trace(Check* k, const Trace* got, const Trace* want) {
    const Bounds* b = k->bounds;
    printf("%-6s %10s %10s %10s %10s   %10s %10s %10s %10s\n", "step", "loss", "reference", "error", "bound", "norm",
           "reference", "error", "bound");
    for (int i = 0; i < check_steps(k); i++) {
        const Difference loss = compare(&got->loss[i], &want->loss[i], 1);
        const Difference norm = compare(&got->norm[i], &want->norm[i], 1);
        printf("%-6d %10.6f %10.6f %10.2e %10.2e   %10.5f %10.5f %10.2e %10.2e  %s\n", i + 1, got->loss[i],
               want->loss[i], loss.error, b->loss, got->norm[i], want->norm[i], norm.error, b->norm,
               check_verdict(k, loss.error <= b->loss && norm.error <= b->norm));
    }
    const TensorTable table = k->device->model_table(&k->shape);
    if (memcmp(got->initial, want->initial, table.size * sizeof(float)) != 0) {
        printf("the initial weights differ  %s\n", check_verdict(k, false));
    }
    printf("%-10s %7s %14s %10s %10s   %14s %10s\n", "tensor", "layers", "gradient error", "cosine", "bound",
           "change's error", "bound");
    for (int i = 0; i < table.count; i++) {
        const Tensor* t = &table.row[i];
        const Difference grad = compare_tensor(got->grads, want->grads, NULL, t);
        const Difference change = compare_tensor(got->weights, want->weights, want->initial, t);
        printf("%-10s %7d %14.2e %10.6f %10.2e   %14.2e %10.2e  %s\n", t->name, t->layers, grad.error, grad.cosine,
               b->gradient, change.error, b->change,
               check_verdict(k, grad.error <= b->gradient && change.error <= b->change));
    }
}

// The same steps again give the same bits.
static inline void check_repeated(Check* k, const Trace* first, const int* batches) {
    const size_t bytes = k->device->model_table(&k->shape).size * sizeof(float);
    const int steps = check_steps(k) < CHECK_REPEATED_STEPS ? check_steps(k) : CHECK_REPEATED_STEPS;
    Trace again = trace_run(k->device, &k->device_config, &k->shape, batches, steps);
    const size_t numbers = (size_t)steps * sizeof(double);
    const bool same = !memcmp(first->loss, again.loss, numbers) && !memcmp(first->norm, again.norm, numbers) &&
                      !memcmp(first->grads, again.grads, bytes);
    printf("%d of these steps again: the same bits  %s\n", steps, check_verdict(k, same));
    trace_free(&again);
}

static inline void check_training(Check* k) {
    static const char* const modes[] = {"none", "gelu", "all"};
    const size_t n = (size_t)k->device_config.batch_size * (size_t)k->device_config.seq_len;
    const int steps = check_steps(k), count = steps * CHECK_MICRO_BATCHES;
    const bool all_modes = config_source(&k->device_config, "recompute") == FROM_DEFAULT;
    const char* given = k->device_config.recompute;
    int* batches = (int*)alloc_or_die((size_t)count * 3 * n, sizeof *batches, "batches of tokens");
    for (int i = 0; i < count; i++) {
        batch_random(batches + (size_t)i * 3 * n, n, k->shape.vocab_size, (uint64_t)k->device_config.seed, (uint64_t)i);
    }
    Trace want = trace_run(k->reference, &k->reference_config, &k->shape, batches, steps);
    for (int i = 0; i < 3; i++) {
        if (!all_modes && strcmp(modes[i], given)) { continue; }
        k->device_config.recompute = modes[i];
        printf("\n%d training steps, each of %d micro-batches of %lld x %lld tokens, --recompute %s\n", steps,
               CHECK_MICRO_BATCHES, k->device_config.batch_size, k->device_config.seq_len, modes[i]);
        Trace got = trace_run(k->device, &k->device_config, &k->shape, batches, steps);
        check_trace(k, &got, &want);
        check_repeated(k, &got, batches);
        trace_free(&got);
        fflush(stdout);
    }
    trace_free(&want);
    free(batches);
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

enum { CHECK_TOKENS = 64 }; // --seq_len, if it is not given

// What the user did not give is chosen so that the check is quick; the CPU against itself takes a smaller model.
static inline void check_defaults(Config* c, bool on_cpu) {
    const bool named = config_source(c, "model") > FROM_DEFAULT || strcmp(c->init, "random");
    if (!named && on_cpu) { c->model = "L=2,H=4,C=256,T=64,V=1003"; }
    if (c->batch_size == 0) { c->batch_size = 4; }
}

// Makes batches smaller where the reference would take too long, or would not fit: widths and kernels stay the user's.
static inline void check_reduce(Check* k) {
    enum { MOST_SECONDS = 300, LEAST_TOKENS = 32 };
    Config* c = &k->reference_config;
    const bool plain = !strcmp(c->kernels, "plain");
    const double flops = k->reference->peak_flops() * (plain ? 0.02 : 0.3); // what they reach, about
    const long long B = c->batch_size, T = c->seq_len;
    const TensorTable table = k->reference->model_table(&k->shape);
    // three traces; and the classifier's weight and its gradient, in doubles, for both sides, and as they are stored
    const size_t traces = 9 * table.size * sizeof(float) + 6 * tensors_largest(&table) * sizeof(double);
    for (;;) {
        const long long tokens = c->batch_size * c->seq_len;
        const ModelPlan plan = k->reference->model_plan(c, &k->shape);
        const double seconds = plan.flops_per_token * (double)tokens * CHECK_STEPS * CHECK_MICRO_BATCHES / flops;
        const bool fits = plan.bytes + traces <= host_memory_available();
        if (fits && seconds <= MOST_SECONDS) { break; }
        if (tokens <= LEAST_TOKENS) {
            if (!fits) {
                fatal("not enough memory for the reference: %.1f MiB are needed, %.1f MiB are available; give a "
                      "--model with fewer layers",
                      (double)(plan.bytes + traces) / 1048576, (double)host_memory_available() / 1048576);
            }
            break;
        }
        if (c->batch_size > 1) { c->batch_size = (c->batch_size + 1) / 2; }
        else { c->seq_len = (c->seq_len + 1) / 2; }
    }
    if (c->batch_size == B && c->seq_len == T) { return; }
    printf("reduced from %lld x %lld to %lld x %lld tokens: more would take the reference longer than %d minutes, or "
           "more memory than there is\n",
           B, T, c->batch_size, c->seq_len, MOST_SECONDS / 60);
    k->device_config.batch_size = c->batch_size;
    k->device_config.seq_len = c->seq_len;
}

static inline void check_heading(const Check* k, const char* kernels) {
    const Config *c = &k->device_config, *r = &k->reference_config;
    const GPT2Config* m = &k->shape;
    printf("check: %s, %s, %s kernels, --fused %d --flash %d\n", k->device->device_name(), c->dtype, kernels, c->fused,
           c->flash);
    printf("against: %s, %s, %s kernels\n", k->reference->device_name(), r->dtype, r->kernels);
    printf("model: L=%d H=%d C=%d T=%d V=%d (%d in memory), %lld x %lld tokens\n", m->num_layers, m->num_heads,
           m->channels, m->max_seq_len, m->vocab_size, m->padded_vocab_size, c->batch_size, c->seq_len);
}

static inline int check_command(Config* config, const Trainer* device, const Trainer* reference) {
    const bool on_cpu = device->harness == reference->harness || !strcmp(device->device, reference->device);
    Check k;
    memset(&k, 0, sizeof k);
    k.device = device->harness;
    k.reference = reference->harness;
    k.stores_bf16 = !strcmp(device->storage, "bf16");
    k.bounds = bounds_of(config->dtype);
    if (on_cpu && !strcmp(config->kernels, "plain")) {
        usage_error("check --kernels plain: on the CPU the plain kernels are what the others are checked against");
    }
    check_defaults(config, on_cpu);
    // AdamW divides by the gradient's own size. With its usual epsilon the first step is lr * sign(gradient), and an
    // element whose gradient is rounding error moves by lr, one way or the other: nothing to compare.
    config->eps = 1e-4;
    k.device_config = *config;
    if (!on_cpu) { k.device_config.threads = 0; } // they are the reference's
    k.device->open(&k.device_config);
    k.device->resolve(&k.device_config, &k.shape);
    if (config_source(config, "seq_len") == FROM_DEFAULT) {
        k.device_config.seq_len = (long long)min_size((size_t)k.device_config.seq_len, CHECK_TOKENS);
    }
    k.reference_config = k.device_config;
    k.reference_config.threads = config->threads;
    k.reference_config.dtype = "fp32";
    k.reference_config.kernels = on_cpu ? "plain" : "fast";
    k.reference_config.recompute = "none";
    k.reference_config.fused = k.reference_config.flash = 1;
    k.reference_config.device = 0;
    k.reference->open(&k.reference_config);
    check_heading(&k, device->level ? device->level : config->kernels);
    check_reduce(&k);
    const OpSizes given = op_sizes_of(&k.shape, (int)k.device_config.batch_size, (int)k.device_config.seq_len);
    const OpSizes tails = op_sizes_small(), tiles = op_sizes_tiles();
    check_ops(&k, &given, "", "operations in the shapes of the model");
    check_ops(&k, &tails, "", "operations in shapes full of tails");
    check_ops(&k, &tiles, "attention", "attention over many tiles");
    check_training(&k);
    printf("\n%d comparisons, %d failed\n", k.compared, k.failed);
    return k.failed ? EXIT_CHECK_FAILED : EXIT_DONE;
}
