#include "check_training.h"
#include "trial.h"

enum { CHECK_REPEATED_STEPS = 2 };

// The results of a few steps: weights before the first step, gradients after it, weights after the last step, and the
// kernels used (device_kernels).
typedef struct {
    double loss[CHECK_STEPS], norm[CHECK_STEPS];
    float *initial, *grads, *weights;
    char* variants;
} Trace;

static int check_steps(const Plan* p) {
    return p->max_steps > 0 && p->max_steps < CHECK_STEPS ? (int)p->max_steps : CHECK_STEPS;
}

// Trains `steps` steps on an open device.
static Trace trace_run(const Plan* p, const char* variants, const int* batches, int steps) {
    Error err;
    Trace trace;
    const size_t step_ints = CHECK_MICRO_BATCHES * 3 * (size_t)p->B * (size_t)p->T;
    Trial* trial = trial_open(p, variants, &err);
    if (!trial) { fatal("%s", err.text); }
    const size_t elements = trial_model(trial)->params_table.size;
    trace.initial = alloc_or_die(elements, sizeof(float), "weights");
    trace.grads = alloc_or_die(elements, sizeof(float), "gradients");
    trace.weights = alloc_or_die(elements, sizeof(float), "weights");
    trial_read(trial, TRIAL_MASTERS, trace.initial);
    for (int i = 0; i < steps; i++) {
        trial_step(trial, batches + step_ints * (size_t)i, CHECK_MICRO_BATCHES, &trace.loss[i], &trace.norm[i]);
        if (i == 0) { trial_read(trial, TRIAL_GRADS, trace.grads); }
    }
    trial_read(trial, TRIAL_MASTERS, trace.weights);
    trace.variants = format("%s", p->backend->device_kernels());
    trial_close(trial);
    return trace;
}

static void trace_free(Trace* trace) {
    free(trace->initial);
    free(trace->grads);
    free(trace->weights);
    free(trace->variants);
}

// ---------------------------------------------------------------------------------------------------------------------
// comparing traces

static void check_losses(Check* k, const Trace* got, const Trace* want, int steps) {
    const Bounds* b = k->bounds;
    printf("%-6s %10s %10s %10s %10s   %10s %10s %10s %10s\n", "step", "loss", "reference", "error", "bound", "norm",
           "reference", "error", "bound");
    for (int i = 0; i < steps; i++) {
        const Difference loss = compare(&got->loss[i], &want->loss[i], 1);
        const Difference norm = compare(&got->norm[i], &want->norm[i], 1);
        printf("%-6d %10.6f %10.6f %10.2e %10.2e   %10.5f %10.5f %10.2e %10.2e  %s\n", i + 1, got->loss[i],
               want->loss[i], loss.error, b->loss, got->norm[i], want->norm[i], norm.error, b->norm,
               check_verdict(k, loss.error <= b->loss && norm.error <= b->norm));
    }
}

static void check_tensors(Check* k, const Trace* got, const Trace* want, const TensorTable* table) {
    const Bounds* b = k->bounds;
    if (memcmp(got->initial, want->initial, table->size * sizeof(float)) != 0) {
        printf("the initial weights differ  %s\n", check_verdict(k, false));
    }
    printf("%-10s %7s %14s %10s %10s   %14s %10s\n", "tensor", "layers", "gradient error", "cosine", "bound",
           "change's error", "bound");
    for (int i = 0; i < table->count; i++) {
        const Tensor* t = &table->row[i];
        const Difference grad = compare_layers(got->grads, want->grads, NULL, t);
        const Difference change = compare_layers(got->weights, want->weights, want->initial, t);
        const double change_off = change_error(b, &change);
        printf("%-10s %7d %14.2e %10.6f %10.2e   %14.2e %10.2e  %s\n", t->name, t->layers, grad.error, grad.cosine,
               b->gradient, change_off, b->change,
               check_verdict(k, grad.error <= b->gradient && change_off <= b->change));
    }
}

// Repeats the first steps with the same variants: the bits must be the same.
static void check_repeated(Check* k, const Trace* first, const Plan* p, const int* batches) {
    const size_t bytes = gpt2_params_table(&p->shape, 1).size * sizeof(float);
    const int steps = min_int(check_steps(p), CHECK_REPEATED_STEPS);
    const size_t number_bytes = (size_t)steps * sizeof(double);
    Trace again = trace_run(p, first->variants, batches, steps);
    const bool same = !memcmp(first->loss, again.loss, number_bytes) &&
                      !memcmp(first->norm, again.norm, number_bytes) && !memcmp(first->grads, again.grads, bytes);
    printf("%d of these steps again: the same bits  %s\n", steps, check_verdict(k, same));
    trace_free(&again);
}

// ---------------------------------------------------------------------------------------------------------------------
// training

static Trace train_reference(const Check* k, const Plan* plan, const int* batches) {
    Plan p = *plan;
    p.backend = k->reference;
    p.dtype = dtype_fp32;
    p.keep = KEEP_ALL;
    k->reference->device_open(&k->reference_options);
    return trace_run(&p, NULL, batches, check_steps(plan));
}

void check_training(Check* k, const Plan* plan, bool all_modes) {
    const size_t n = (size_t)plan->B * (size_t)plan->T;
    const int steps = check_steps(plan), count = steps * CHECK_MICRO_BATCHES;
    const TensorTable table = gpt2_params_table(&plan->shape, 1);
    int* batches = alloc_or_die((size_t)count * 3 * n, sizeof *batches, "batches of tokens");
    for (int i = 0; i < count; i++) {
        batch_random(batches + (size_t)i * 3 * n, n, plan->shape.vocab_size, plan->seed, (uint64_t)i);
    }
    Trace want = train_reference(k, plan, batches);
    char* variants = NULL; // all traces on the device use the variants of the first
    k->device->device_open(&k->device_options);
    for (int i = 0; recompute_names[i]; i++) {
        Plan p = *plan;
        p.keep = keep_of((enum recompute)i);
        if (!all_modes && p.keep != plan->keep) { continue; }
        printf("\n%d training step%s, each of %d micro-batches of %d x %d tokens, --recompute %s\n", steps,
               plural((uint64_t)steps), CHECK_MICRO_BATCHES, p.B, p.T, recompute_names[i]);
        Trace got = trace_run(&p, variants, batches, steps);
        check_losses(k, &got, &want, steps);
        check_tensors(k, &got, &want, &table);
        check_repeated(k, &got, &p, batches);
        if (!variants) { variants = format("%s", got.variants); }
        trace_free(&got);
        fflush(stdout);
    }
    trace_free(&want);
    free(variants);
    free(batches);
}
