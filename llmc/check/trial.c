#include "trial.h"
#include "../train/autotune.h"
#include "../train/weights.h"

struct Trial {
    GPT2 g;
    Optimizer o;
    Hyper hyper;
    int* host;    // two batches: one may be uploaded while the next one is written
    double* sums; // the model's sums, fetched to the host
    int batches, steps; // so far
};

// ---------------------------------------------------------------------------------------------------------------------
// opening

Trial* trial_open(const Plan* p, const char* variants, Error* err) {
    const Backend* b = p->backend;
    Comm alone = comm_alone();
    if (!plan_check_memory(p, &alone, err)) { return NULL; }
    Trial* t = alloc_or_die(1, sizeof *t, "a trial");
    GPT2* g = &t->g;
    t->hyper = p->rates.peak;
    plan_layout(p, g);
    gpt2_alloc(g);
    optimizer_alloc(&t->o, g, p->rates.kind, STATE_ON_DEVICE, NULL);
    load_weights(g, &t->o, p);
    autotune(&t->o, p, &alone, variants, NULL);
    t->host = b->host_alloc(2 * gpt2_batch_ints(g) * sizeof(int), "batches of tokens");
    t->sums = b->host_alloc(NUM_SUMS * sizeof(double), "losses and norms");
    return t;
}

void trial_close(Trial* t) {
    const Backend* b = t->g.backend;
    b->device_sync();
    b->host_free(t->host);
    b->host_free(t->sums);
    optimizer_free(&t->o);
    gpt2_free(&t->g);
    free(t);
}

const GPT2* trial_model(const Trial* t) { return &t->g; }

void trial_read(const Trial* t, TrialPart part, float* out) {
    const float* from = part == TRIAL_GRADS ? t->g.grads : t->o.masters;
    t->g.backend->device_copy_out(out, from, t->g.params_table.size * sizeof(float));
}

// ---------------------------------------------------------------------------------------------------------------------
// steps

// Queues the upload of a batch of `n` tokens.
static void upload(Trial* t, const int* batch, size_t n) {
    int* host = t->host + gpt2_batch_ints(&t->g) * (size_t)(t->batches++ % 2);
    memcpy(host, batch, 3 * n * sizeof *host);
    gpt2_upload(&t->g, host, n);
}

// Updates the weights from the gradients of a step, and waits.
static void update(Trial* t) {
    const Backend* b = t->g.backend;
    t->hyper.adamw.step = ++t->steps;
    optimizer_norm(&t->o);
    b->device_fetch(t->sums, t->g.sums, NUM_SUMS * sizeof(double));
    optimizer_update(&t->o, &t->hyper);
    b->device_sync();
}

void trial_step(Trial* t, const int* batches, int micro_batches, double* loss, double* norm) {
    GPT2* g = &t->g;
    const size_t n = (size_t)g->B * (size_t)g->T;
    const double tokens = (double)n * micro_batches;
    gpt2_zero_grads(g);
    for (int i = 0; i < micro_batches; i++) {
        upload(t, batches + 3 * n * (size_t)i, n);
        gpt2_micro_step(g, g->B, g->T, (float)(1.0 / tokens), NULL, NULL);
    }
    update(t);
    *loss = t->sums[SUM_LOSS] / tokens;
    *norm = sqrt(t->sums[SUM_NORM]);
}
