#include "op_run.h"
#include "../data/dataloader.h"
#include "../base/rng.h"
#include "../model/stored.h"

// ---------------------------------------------------------------------------------------------------------------------
// random inputs

static bool is_input(const OpTensor* t) { return t->role == ROLE_READ || t->role == ROLE_ADD; }

// Fills a tensor that an operation reads. Integers are below V, those of `text` below 5. Other numbers are normal, with
// a standard deviation of 1/sqrt(C) for matrices of weights, so that results of matmuls, logits above all, are about 1;
// of 1 for `qkv`, so that scores differ; of 1/2 elsewhere. `v` and `norm` are squares; 4 is added to `norm`, so that
// AdamW clips.
static void fill_tensor(double* values, const OpTensor* t, const OpSizes* s, uint64_t seed) {
    const bool is_matrix = !strcmp(t->name, "weight") && t->n > (size_t)s->C;
    const bool is_square = !strcmp(t->name, "v") || !strcmp(t->name, "norm");
    const uint64_t ids = !strcmp(t->name, "text") ? 5 : (uint64_t)s->V;
    const float deviation = is_matrix ? 1.0f / sqrtf((float)s->C) : !strcmp(t->name, "qkv") ? 1.0f : 0.5f;
    const size_t period = min_size(t->n, 1048573); // large tensors repeat; a prime, so that rows differ
    #pragma omp parallel for
    for (size_t i = 0; i < period; i++) {
        const float x = deviation * rng_normal(seed, RNG_TEST, i);
        values[i] = t->elem == ELEM_INT ? (double)(rng_u64(seed, RNG_TEST, i) % ids)
                    : !is_square        ? x
                    : t->elem == ELEM_DOUBLE ? 4.0 + (double)(x * x) : x * x;
    }
    for (size_t i = period; i < t->n; i++) { values[i] = values[i - period]; }
}

// Sets `order` to the positions sorted by their tokens.
static void fill_order(double* order, const double* tokens, size_t n, int V) {
    int* memory = alloc_or_die(2 * n + (size_t)V + 1, sizeof *memory, "the order of tokens");
    for (size_t i = 0; i < n; i++) { memory[i] = (int)tokens[i]; }
    data_sort(memory + n, memory, n, memory + 2 * n, V);
    for (size_t i = 0; i < n; i++) { order[i] = memory[n + i]; }
    free(memory);
}

// Sets starts, or ends, to those of the documents of op_document_end().
static void fill_documents(double* values, const OpSizes* s, bool ends) {
    for (int b = 0; b < s->B; b++) {
        for (int k = 0, t = 0; t < s->T; k++) {
            const int begin = t, end = op_document_end(s, b, k, begin);
            for (; t < end; t++) { values[(size_t)b * (size_t)s->T + (size_t)t] = ends ? end : begin; }
        }
    }
}

void op_fill(double* const* values, const OpTensor* tensors, int count, const OpSizes* s, uint64_t seed) {
    const double* tokens = NULL;
    for (int i = 0; i < count; i++) {
        const OpTensor* t = &tensors[i];
        const bool has_input = is_input(t);
        if (!values[i]) { continue; }
        if (has_input) { fill_tensor(values[i], t, s, mix64(seed) + (uint64_t)i); }
        for (size_t k = 0; !has_input && k < t->n; k++) { values[i][k] = (double)NAN; }
        if (!strcmp(t->name, "tokens")) { tokens = values[i]; }
        if (has_input && is_one_of(t->name, "starts|ends")) { fill_documents(values[i], s, t->name[0] == 'e'); }
        if (!strcmp(t->name, "order") && tokens) { fill_order(values[i], tokens, t->n, s->V); }
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// values

static double element_get(const OpCase* c, Elem elem, const void* from, size_t i) {
    switch (elem) {
    case ELEM_FLOAT: return ((const float*)from)[i];
    case ELEM_DOUBLE: return ((const double*)from)[i];
    case ELEM_INT: return ((const int*)from)[i];
    case ELEM_STORED: return stored_get(c->backend, from, i);
    default: return residual_get(c->backend, from, i);
    }
}

static void element_put(const OpCase* c, Elem elem, void* to, size_t i, double x) {
    switch (elem) {
    case ELEM_FLOAT: ((float*)to)[i] = (float)x; break;
    case ELEM_DOUBLE: ((double*)to)[i] = x; break;
    case ELEM_INT: ((int*)to)[i] = isfinite(x) ? (int)x : -1; break;
    case ELEM_STORED: stored_put(c->backend, to, i, (float)x); break;
    default: residual_put(c->backend, to, i, (float)x);
    }
}

double op_rounded(const Backend* b, Elem elem, double x) {
    return elem == ELEM_STORED     ? (double)as_stored(b, (float)x)
           : elem == ELEM_RESIDUAL ? (double)as_residual(b, (float)x)
                                   : x;
}

// By parts: a GPU's tensor may be larger than the host's memory. The first part's NaN serve all others.
void op_put(const OpCase* c, const OpTensor* t, const double* values) {
    const size_t part = min_size(t->n, (size_t)1 << 20), size = op_bytes(c, t) / t->n;
    char *host = alloc_or_die(part, size, t->name), *to = t->data;
    for (size_t first = 0; first < t->n; first += part) {
        const size_t count = min_size(part, t->n - first);
        for (size_t i = 0; i < count && (values || first == 0); i++) {
            element_put(c, t->elem, host, i, values ? values[first + i] : (double)NAN);
        }
        c->backend->device_copy_in(to + first * size, host, count * size);
    }
    free(host);
}

void op_get(const OpCase* c, const OpTensor* t, double* values) {
    void* host = alloc_or_die(op_bytes(c, t), 1, t->name);
    c->backend->device_copy_out(host, t->data, op_bytes(c, t));
    for (size_t i = 0; i < t->n; i++) { values[i] = element_get(c, t->elem, host, i); }
    free(host);
}

// ---------------------------------------------------------------------------------------------------------------------
// running

static void op_alloc(OpCase* c) {
    const Backend* b = c->backend;
    c->device_hyper = b->device_alloc(sizeof c->hyper, "hyperparameters");
    for (int i = 0; i < c->count; i++) {
        OpTensor* t = &c->tensor[i];
        t->data = b->device_alloc(op_bytes(c, t), t->name);
    }
}

OpCase op_open(const Backend* b, int op, const OpSizes* sizes, uint64_t seed) {
    OpCase c = op_declare(b, op, sizes);
    double* values[MAX_OP_TENSORS] = {NULL};
    op_alloc(&c);
    for (int i = 0; i < c.count; i++) {
        const OpTensor* t = &c.tensor[i];
        if (is_input(t)) { values[i] = alloc_or_die(t->n, sizeof *values[i], t->name); }
    }
    op_fill(values, c.tensor, c.count, sizes, seed);
    for (int i = 0; i < c.count; i++) {
        op_put(&c, &c.tensor[i], values[i]);
        free(values[i]);
    }
    b->params_changed(); // weights of an earlier case may have had the same address
    return c;
}

void op_run(OpCase* c) {
    op_stage(c, CASE_PREPARE);
    op_stage(c, CASE_CALL);
    c->backend->device_sync();
}

void op_close(OpCase* c) {
    const Backend* b = c->backend;
    for (int i = 0; i < c->count; i++) { b->device_free(c->tensor[i].data, op_bytes(c, &c->tensor[i])); }
    b->device_free(c->device_hyper, sizeof c->hyper);
    c->count = 0;
}

void op_run_values(const Backend* b, int op, const OpSizes* sizes, double* const* values) {
    OpCase c = op_declare(b, op, sizes);
    op_alloc(&c);
    for (int i = 0; i < c.count; i++) { op_put(&c, &c.tensor[i], values[i]); }
    b->params_changed();
    op_run(&c);
    for (int i = 0; i < c.count; i++) {
        if (values[i]) { op_get(&c, &c.tensor[i], values[i]); }
    }
    op_close(&c);
}

// ---------------------------------------------------------------------------------------------------------------------
// time

// Empties the caches, then runs the operation, if c is not NULL. Returns the seconds of the run on a CPU, of both on a
// GPU: there the run is queued while caches are emptied, so that the time to launch its kernels does not count.
static double seconds_of_run(const Backend* b, OpCase* c, void* cold) {
    b->params_changed();
    double start = seconds_now();
    b->device_zero(cold, (size_t)COLD_MIB << 20);
    if (b->is_host) { start = seconds_now(); }
    if (c) { op_stage(c, CASE_CALL); }
    b->device_sync();
    return seconds_now() - start;
}

OpTime op_time(const Backend* b, int op, const OpSizes* sizes) {
    enum { LEAST_RUNS = 3, MOST_RUNS = 20 }; // these and the seconds are chosen, not measured
    const double enough = 0.3, resolution = 1e-6; // seconds
    OpCase c = op_open(b, op, sizes, 1);
    void* cold = b->device_alloc((size_t)COLD_MIB << 20, "emptying caches");
    op_run(&c);
    double best = INFINITY, emptying = b->is_host ? 0 : INFINITY;
    const double begin = seconds_now();
    for (int run = 0; run < LEAST_RUNS || (run < MOST_RUNS && seconds_now() - begin < enough); run++) {
        best = fmin(best, seconds_of_run(b, &c, cold));
        if (!b->is_host) { emptying = fmin(emptying, seconds_of_run(b, NULL, cold)); }
    }
    b->device_free(cold, (size_t)COLD_MIB << 20);
    op_close(&c);
    const OpCost cost = op_cost(b, op, sizes);
    return (OpTime){cost.flops, cost.read + cost.written, fmax(best - emptying, resolution)};
}
