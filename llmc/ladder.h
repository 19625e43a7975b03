// The ladder: what each technique brings, measured. A rung is a switch on top of the rung before, and trains the same
// model from the same weights on the same batch; it must arrive at the same loss.
//
// A rung runs in a process of its own, so that its peak of memory is its own: the high-water mark that the system keeps
// of a process does not fall, and what one rung leaves behind (scratch of threads, packed weights) would count in the
// next. Neither OpenMP's threads nor a GPU survive a fork, so the process that prints begins neither. Results come back
// in memory that all share.
//
// The rungs, and the figures beside ours, are those of the lecture "Let's reproduce GPT-2 (124M)" and of people who
// followed it in PyTorch.
#pragma once
#include "bench_record.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { NUM_PUBLISHED = 4 };
enum { ALL_THREADS = 0 }; // as many as --threads says

typedef struct {
    const char* name;
    const char *dtype, *kernels;
    int fused, flash, pad_vocab, graph;
    int threads;
    const char* published[NUM_PUBLISHED]; // in the order of PUBLISHED; empty: none
} Rung;

static const char* const PUBLISHED[NUM_PUBLISHED] = {"A100 tok/s", "4060 Ti tok/s", "A100 ms", "3090 gain"};
static const char PUBLISHED_NOTE[] =
    "Published, in PyTorch, for the 124M model, as rounded by their authors: tokens/s on an A100 and an RTX 4060 Ti,\n"
    "ms for 16 x 1024 tokens on an A100, speed-up on an RTX 3090 over the rung before. Before the flash rung their\n"
    "attention is made of matmuls, ours of simple kernels: our flash rung gains more, those before it less.\n"
    "From there on ours is the faster of our own kernels and cuDNN's, if the program has that.";

static const Rung GPU_RUNGS[] = {
    {"plain kernels, fp32", "fp32", "plain", 0, 0, 0, 0, ALL_THREADS, {"", "", "", ""}},
    {"cuBLASLt, fp32", "fp32", "fast", 0, 0, 0, 0, ALL_THREADS, {"16000", "1600", "1000", ""}},
    {"tf32", "tf32", "fast", 0, 0, 0, 0, ALL_THREADS, {"49000", "2000", "380", "1.5"}},
    {"bf16", "bf16", "fast", 0, 0, 0, 0, ALL_THREADS, {"54500", "3250", "334", "1.5"}},
    {"fused", "bf16", "fast", 1, 0, 0, 0, ALL_THREADS, {"126000", "", "", "1.3"}},
    {"flash attention", "bf16", "fast", 1, 1, 0, 0, ALL_THREADS, {"170000", "15000", "", "1.1"}},
    {"padded vocabulary", "bf16", "fast", 1, 1, 1, 0, ALL_THREADS, {"175000", "15300", "100", "1.06"}},
    {"CUDA graphs", "bf16", "fast", 1, 1, 1, 1, ALL_THREADS, {"", "", "", ""}},
    {"fp8", "fp8", "fast", 1, 1, 1, 1, ALL_THREADS, {"", "", "", ""}},
};
static const Rung CPU_RUNGS[] = {
    {"plain loops", "fp32", "plain", 0, 0, 0, 0, 1, {"", "", "", ""}},
    {"vectors and blocks", "fp32", "fast", 0, 0, 0, 0, 1, {"", "", "", ""}},
    {"fused", "fp32", "fast", 1, 0, 0, 0, 1, {"", "", "", ""}},
    {"flash attention", "fp32", "fast", 1, 1, 0, 0, 1, {"", "", "", ""}},
    {"bf16", "bf16", "fast", 1, 1, 0, 0, 1, {"", "", "", ""}},
    {"padded vocabulary", "bf16", "fast", 1, 1, 1, 0, 1, {"", "", "", ""}},
    {"all threads", "bf16", "fast", 1, 1, 1, 0, ALL_THREADS, {"", "", "", ""}},
};
enum { MAX_RUNGS = 12 };
enum { NUM_DECIDED = 6 };
static const char* const DECIDED[NUM_DECIDED] = {"dtype", "kernels", "fused", // by the rungs
                                                 "flash", "pad_vocab", "graph"};

// The rungs of a device, and how many steps a rung takes by default. On a GPU graphs are recorded in the second and,
// for the other buffer of batches, in the third.
typedef struct {
    const Rung* rungs;
    int count, warm_up, steps;
} LadderKind;
static const LadderKind GPU_LADDER = {GPU_RUNGS, sizeof GPU_RUNGS / sizeof *GPU_RUNGS, 3, 10};
static const LadderKind CPU_LADDER = {CPU_RUNGS, sizeof CPU_RUNGS / sizeof *CPU_RUNGS, 1, 5};

// The loss that counts is that after so many updates on the one batch, or at the last step if there are fewer. Each
// update multiplies what the rounding of the first one did, about thirtyfold in five for 124M and 4 x 64 tokens.
enum { UPDATES_COMPARED = 5 };

// How far that loss may be from the rung before, relatively, by the coarser of the two types: some ten times of what
// was seen with bf16, 4e-4; five times that with fp8, whose gradients are some ten times as far off.
typedef struct {
    const char* dtype;
    double tolerance;
} LossTolerance;
static const LossTolerance LOSS_TOLERANCES[] = { // coarsest first
    {"fp8", 2e-2}, {"bf16", 4e-3}, {"tf32", 2e-3}, {"fp32", 1e-5}};

static inline double loss_tolerance(const char* a, const char* b) {
    for (size_t i = 0; i < sizeof LOSS_TOLERANCES / sizeof *LOSS_TOLERANCES; i++) {
        const LossTolerance* t = &LOSS_TOLERANCES[i];
        if (!strcmp(t->dtype, a) || !strcmp(t->dtype, b)) { return t->tolerance; }
    }
    fatal("the ladder has no tolerance for %s", a);
}

// Neither threads nor graphs change a bit; all else changes the order of sums at least, and so do other kernels, if the
// two rungs chose differently.
static inline double rung_tolerance(const Rung* a, const Rung* b, bool same_kernels) {
    const bool same = same_kernels && !strcmp(a->dtype, b->dtype) && !strcmp(a->kernels, b->kernels) &&
                      a->fused == b->fused && a->flash == b->flash && a->pad_vocab == b->pad_vocab;
    return same ? 0 : loss_tolerance(a->dtype, b->dtype);
}

typedef struct {
    bool ran;
    char why_not[64];
    char level[16];   // the instructions it was compiled for (cpu/processor.h)
    char kernels[96]; // that it was run with: on a GPU each rung chooses by timing (choose.h)
    int threads;
    double ms, tokens_per_second, flops, peak_flops, loss; // flops: operations per second, as MFU counts them
    double loss_error, tolerance;                          // against the rung before; 0 at the first
    double gain, total_gain;                               // tokens/s against the rung before and against the first
    size_t plan_bytes, peak_bytes;                         // memory as foreseen, and as used
} RungResult;

typedef struct {
    Config* config;
    FindTrainer find;
    const LadderKind* kind;
    bool on_gpu;
    Rung rung[MAX_RUNGS]; // those of the kind that this machine can do
    RungResult result[MAX_RUNGS];
    int count, failed;
    int* batch;
    // of the machine and the options, as the first child found them
    GPT2Config shape;
    long long B, T;
    int threads;
    double copy_bandwidth; // bytes per second
    char model[128], device[128];
} Ladder;

// ---------------------------------------------------------------------------------------------------------------------
// processes

// Does the work in a process of its own. Returns what it ended with, as a shell has it: 128 + the signal that killed
// it, or its exit code. *peak_bytes: the most memory it had.
static inline int in_child(void (*work)(Ladder*, int), Ladder* l, int index, size_t* peak_bytes) {
    int status;
    struct rusage usage;
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0) { fatal("cannot start a process: %s", strerror(errno)); }
    if (child == 0) {
        work(l, index);
        exit(EXIT_DONE);
    }
    while (wait4(child, &status, 0, &usage) < 0) {
        if (errno != EINTR) { fatal("cannot wait for a process: %s", strerror(errno)); }
    }
    *peak_bytes = (size_t)usage.ru_maxrss * 1024;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static inline Config rung_config(const Config* config, const Rung* r) {
    Config c = *config;
    c.dtype = r->dtype;
    c.kernels = r->kernels;
    c.fused = r->fused;
    c.flash = r->flash;
    c.pad_vocab = r->pad_vocab;
    c.graph = r->graph;
    if (r->threads != ALL_THREADS) { c.threads = r->threads; }
    return c;
}

// Takes those of the kind's rungs that this machine can do: without a dtype, the rungs above have that of the rung
// below.
static inline void ladder_choose(Ladder* l) {
    for (int i = 0; i < l->kind->count; i++) {
        Rung r = l->kind->rungs[i];
        const Rung* below = i > 0 ? &l->kind->rungs[i - 1] : NULL;
        if (!l->find(r.dtype)) {
            if (l->count == 0 || strcmp(below->dtype, r.dtype)) {
                notice("this program has no %s for this processor: left out", r.dtype);
                continue;
            }
            r.dtype = l->rung[l->count - 1].dtype;
        }
        if (l->threads == 1 && l->count > 0 && below->threads != r.threads) {
            notice("there is one processor, or --threads 1: '%s' is left out", r.name);
            continue;
        }
        l->rung[l->count++] = r;
    }
}

// Finds out what the machine is and what the options come to. --batch_size auto is what fits the first rung, whose
// activations are the largest.
static inline void ladder_probe(Ladder* l, int unused) {
    (void)unused;
    Config first = rung_config(l->config, &l->kind->rungs[0]);
    first.threads = l->config->threads;
    const Harness* h = l->find(first.dtype)->harness;
    h->open(&first);
    bench_resolve(h, &first, &l->shape, l->on_gpu);
    l->B = first.batch_size;
    l->T = first.seq_len;
    l->threads = h->threads();
    l->copy_bandwidth = h->copy_bandwidth();
    snprintf(l->model, sizeof l->model, "%s", first.model);
    snprintf(l->device, sizeof l->device, "%s", h->device_name());
    ladder_choose(l);
}

// ---------------------------------------------------------------------------------------------------------------------
// measuring

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

// Trains a few steps on a rung and fills in what was measured.
static inline void rung_run(Ladder* l, int index) {
    Error err;
    GPT2Config shape;
    RungResult* r = &l->result[index];
    Config c = rung_config(l->config, &l->rung[index]);
    const Trainer* trainer = l->find(c.dtype);
    const Harness* h = trainer->harness;
    const char* lack = h->lacks(&c);
    if (lack) {
        snprintf(r->why_not, sizeof r->why_not, "%s", lack);
        return;
    }
    h->open(&c);
    h->resolve(&c, &shape);
    const ModelPlan plan = h->model_plan(&c, &shape);
    const size_t available = h->memory_available();
    r->plan_bytes = plan.bytes;
    HarnessModel* model = h->model_open(&c, &shape, &err);
    if (!model) {
        notice("%s: %s", l->rung[index].name, err.text);
        snprintf(r->why_not, sizeof r->why_not, "does not fit into memory");
        return;
    }
    const int warm_up = l->kind->warm_up, steps = (int)c.max_steps;
    double* ms = (double*)alloc_or_die((size_t)steps, sizeof *ms, "times");
    double loss, norm;
    for (int i = 0; i < warm_up + steps; i++) {
        const double start = seconds_now();
        h->model_step(model, l->batch, 1, &loss, &norm);
        if (i >= warm_up) { ms[i - warm_up] = 1e3 * (seconds_now() - start); }
        if (i <= UPDATES_COMPARED) { r->loss = loss; }
    }
    r->peak_bytes = available - min_size(available, h->memory_available());
    snprintf(r->kernels, sizeof r->kernels, "%s", h->device_kernels());
    h->model_close(model);
    r->ms = median(ms, (size_t)steps);
    r->tokens_per_second = 1e3 * (double)(c.batch_size * c.seq_len) / r->ms;
    r->flops = plan.flops_per_token * r->tokens_per_second;
    r->peak_flops = h->peak_flops();
    r->threads = h->threads();
    snprintf(r->level, sizeof r->level, "%s", trainer->level ? trainer->level : "");
    r->ran = true;
}

// Runs a rung; of a processor's memory the system knows best what was used.
static inline void rung_measure(Ladder* l, int index) {
    RungResult* r = &l->result[index];
    size_t peak_bytes;
    const int code = in_child(rung_run, l, index, &peak_bytes);
    if (code == EXIT_RUNTIME || code == EXIT_USAGE) { exit(code); } // it has said why
    if (code != EXIT_DONE) {
        r->ran = false;
        snprintf(r->why_not, sizeof r->why_not, "ended with code %d", code);
    }
    if (!l->on_gpu) { r->peak_bytes = peak_bytes; }
}

static inline bool rung_is_ok(const RungResult* r) { return isfinite(r->loss) && r->loss_error <= r->tolerance; }

// Sets a rung against the last one that ran before it, and against the first; -1: there is none.
static inline void rung_compare(Ladder* l, int index, int first, int before) {
    RungResult* r = &l->result[index];
    if (!r->ran) { return; }
    r->gain = before >= 0 ? r->tokens_per_second / l->result[before].tokens_per_second : 1.0;
    r->total_gain = first >= 0 ? r->tokens_per_second / l->result[first].tokens_per_second : 1.0;
    if (before >= 0) {
        const RungResult* last = &l->result[before];
        r->tolerance = rung_tolerance(&l->rung[before], &l->rung[index], !strcmp(last->kernels, r->kernels));
        r->loss_error = fabs(r->loss / last->loss - 1.0);
    }
    l->failed += !rung_is_ok(r);
}
