// The ladder: what each technique brings, measured. A rung is a switch on top of the rung before, and trains the same
// model from the same weights on the same batch; it must arrive at the same loss.
//
// The rungs, and the figures beside ours, are those of the lecture "Let's reproduce GPT-2 (124M)" and of people who
// followed it in PyTorch.
#pragma once
#include "dataset.h"
#include "trainer.h"

enum { NUM_PUBLISHED = 4 };

typedef struct {
    const char* name;
    const char *dtype, *kernels;
    int fused, flash, pad_vocab;
    const char* published[NUM_PUBLISHED]; // in the order of PUBLISHED; empty: none
} Rung;

static const char* const PUBLISHED[NUM_PUBLISHED] = {"A100 tok/s", "4060 Ti tok/s", "A100 ms", "3090 gain"};
static const char PUBLISHED_NOTE[] =
    "Published, in PyTorch, for the 124M model, as rounded by their authors: tokens/s on an A100 and an RTX 4060 Ti,\n"
    "ms for 16 x 1024 tokens on an A100, speed-up on an RTX 3090 over the rung before. Before the flash rung their\n"
    "attention is made of matmuls, ours of simple kernels: our flash rung gains more, those before it less.";

static const Rung GPU_RUNGS[] = {
    {"plain kernels, fp32", "fp32", "plain", 0, 0, 0, {"", "", "", ""}},
    {"cuBLASLt, fp32", "fp32", "fast", 0, 0, 0, {"16000", "1600", "1000", ""}},
    {"tf32", "tf32", "fast", 0, 0, 0, {"49000", "2000", "380", "1.5"}},
    {"bf16", "bf16", "fast", 0, 0, 0, {"54500", "3250", "334", "1.5"}},
    {"fused", "bf16", "fast", 1, 0, 0, {"126000", "", "", "1.3"}},
    {"flash attention", "bf16", "fast", 1, 1, 0, {"170000", "15000", "", "1.1"}},
    {"padded vocabulary", "bf16", "fast", 1, 1, 1, {"175000", "15300", "100", "1.06"}},
};
static const Rung CPU_RUNGS[] = {
    {"plain loops", "fp32", "plain", 1, 1, 0, {"", "", "", ""}},
    {"fast kernels", "fp32", "fast", 1, 1, 0, {"", "", "", ""}},
    {"padded vocabulary", "fp32", "fast", 1, 1, 1, {"", "", "", ""}},
};
enum {
    NUM_GPU_RUNGS = sizeof GPU_RUNGS / sizeof *GPU_RUNGS,
    NUM_CPU_RUNGS = sizeof CPU_RUNGS / sizeof *CPU_RUNGS,
    MAX_RUNGS = NUM_GPU_RUNGS
};
enum { NUM_DECIDED = 5 };
static const char* const DECIDED[NUM_DECIDED] = {"dtype", "kernels", "fused", "flash", "pad_vocab"}; // by the rungs

enum { BENCH_WARM_UP = 2, BENCH_STEPS = 10 };

// How far the loss may be from the rung before, relatively, by the coarser of the two types: a dozen steps on one batch
// multiply the rounding of the first one.
typedef struct {
    const char* dtype;
    double tolerance;
} LossTolerance;
static const LossTolerance LOSS_TOLERANCES[] = {{"bf16", 1e-2}, {"tf32", 2e-3}, {"fp32", 1e-5}}; // coarsest first

static inline double loss_tolerance(const char* a, const char* b) {
    for (size_t i = 0; i < sizeof LOSS_TOLERANCES / sizeof *LOSS_TOLERANCES; i++) {
        const LossTolerance* t = &LOSS_TOLERANCES[i];
        if (!strcmp(t->dtype, a) || !strcmp(t->dtype, b)) { return t->tolerance; }
    }
    fatal("the ladder has no tolerance for %s", a);
}

typedef struct {
    const Rung* rung;
    bool ran; // false: it does not fit into memory
    double ms, tokens_per_second, mfu, loss;
    double loss_error, tolerance; // against the rung before; 0 at the first
    double gain, total_gain;      // tokens/s against the rung before and against the first
    size_t bytes;
} RungResult;

typedef const Trainer* (*FindTrainer)(const char* dtype);

typedef struct {
    Config* config;
    FindTrainer find;
    bool on_gpu;
    const Rung* rungs;
    int count, failed;
    RungResult result[MAX_RUNGS];
    GPT2Config shape;
    const char* device;
    double copy_bandwidth; // bytes per second
    int* batch;
} Ladder;

// ---------------------------------------------------------------------------------------------------------------------
// measuring

static inline int compare_doubles(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static inline double median(double* x, size_t n) {
    qsort(x, n, sizeof *x, compare_doubles);
    return n % 2 ? x[n / 2] : 0.5 * (x[n / 2 - 1] + x[n / 2]);
}

// The batch that all rungs train on: random tokens, or the first of --train_data.
static inline void ladder_batch(Ladder* l) {
    const Config* c = l->config;
    Error err;
    const size_t B = (size_t)c->batch_size, T = (size_t)c->seq_len, n = B * T;
    l->batch = (int*)alloc_or_die(3 * n, sizeof *l->batch, "a batch of tokens");
    if (config_source(c, "train_data") == FROM_DEFAULT) {
        batch_random(l->batch, n, l->shape.vocab_size, (uint64_t)c->seed, 0);
        return;
    }
    Dataset data;
    bool ok = dataset_open(&data, "--train_data", c->train_data, (int)T, l->shape.vocab_size, &err);
    for (size_t row = 0; ok && row < B; row++) {
        const uint64_t window = data_window(row, data.num_windows, DATA_SHUFFLED, (uint64_t)c->seed);
        ok = dataset_read(&data, window, l->batch + row * T, l->batch + n + row * T, &err);
    }
    if (!ok) { fatal("%s", err.text); }
    dataset_close(&data);
    batch_sort(l->batch, n, l->shape.vocab_size);
}

static inline Config rung_config(const Config* config, const Rung* r) {
    Config c = *config;
    c.dtype = r->dtype;
    c.kernels = r->kernels;
    c.fused = r->fused;
    c.flash = r->flash;
    c.pad_vocab = r->pad_vocab;
    return c;
}

// Trains a few steps on a rung and fills in what was measured.
static inline void rung_run(Ladder* l, RungResult* result) {
    Error err;
    GPT2Config shape;
    Config c = rung_config(l->config, result->rung);
    const Harness* h = l->find(c.dtype)->harness;
    h->open(&c);
    h->resolve(&c, &shape);
    const ModelPlan plan = h->model_plan(&c, &shape);
    result->bytes = plan.bytes;
    HarnessModel* model = h->model_open(&c, &shape, &err);
    if (!model) {
        notice("%s: %s", result->rung->name, err.text);
        return;
    }
    const size_t steps = (size_t)c.max_steps;
    double* ms = (double*)alloc_or_die(steps, sizeof *ms, "times");
    double norm;
    for (size_t i = 0; i < BENCH_WARM_UP + steps; i++) {
        const double start = seconds_now();
        h->model_step(model, l->batch, 1, &result->loss, &norm);
        if (i >= BENCH_WARM_UP) { ms[i - BENCH_WARM_UP] = 1e3 * (seconds_now() - start); }
    }
    h->model_close(model);
    result->ran = true;
    result->ms = median(ms, steps);
    result->tokens_per_second = 1e3 * (double)(c.batch_size * c.seq_len) / result->ms;
    result->mfu = plan.flops_per_token * result->tokens_per_second / h->peak_flops();
    free(ms);
}

static inline bool rung_is_ok(const RungResult* r) { return isfinite(r->loss) && r->loss_error <= r->tolerance; }

// Sets a rung against the last one that ran before it, and against the first.
static inline void rung_compare(Ladder* l, RungResult* result, const RungResult* first, const RungResult* before) {
    if (!result->ran) { return; }
    result->gain = before ? result->tokens_per_second / before->tokens_per_second : 1.0;
    result->total_gain = first ? result->tokens_per_second / first->tokens_per_second : 1.0;
    if (before) {
        result->tolerance = loss_tolerance(before->rung->dtype, result->rung->dtype);
        result->loss_error = fabs(result->loss / before->loss - 1.0);
    }
    l->failed += !rung_is_ok(result);
}
