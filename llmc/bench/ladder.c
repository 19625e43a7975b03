#include "ladder.h"
#include "../train/backends.h"
#include "../check/trial.h"
#include "ladder_results.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

// ---------------------------------------------------------------------------------------------------------------------
// processes

int in_child(void (*work)(Ladder*, int), Ladder* l, int index, size_t* peak_bytes) {
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

// Returns the options of a rung.
static Config rung_config(const Config* config, const Rung* r) {
    Config c = *config;
    c.dtype = r->dtype;
    c.residual = r->residual;
    c.kernels = r->kernels;
    c.fused = r->fused;
    c.attention = r->attention;
    c.pad_vocab = r->pad_vocab;
    c.graph = r->graph;
    c.lr = LADDER_LR;
    if (r->threads != ALL_THREADS) { c.threads = r->threads; }
    return c;
}

// Probes the machine and resolves the options. --batch_size auto is the largest that fits the first rung, whose
// activations are the largest.
static void ladder_probe(Ladder* l, int unused) {
    (void)unused;
    Config first = rung_config(l->config, &l->kind->rungs[0]);
    first.threads = l->config->threads;
    Comm alone = comm_alone();
    l->plan = bench_open(&first, &alone);
    const Backend* b = l->plan.backend;
    snprintf(l->model, sizeof l->model, "%s", l->plan.model);
    l->plan.model = l->model; // the parent sees only shared memory
    l->threads = b->device_threads();
    l->copy_bandwidth = b->device_copy_bandwidth();
    snprintf(l->device, sizeof l->device, "%s", b->device_name());
    ladder_choose(l, find_backend);
}

// ---------------------------------------------------------------------------------------------------------------------
// measuring

// Returns the median milliseconds of a step, and sets *loss to the loss after UPDATES_COMPARED updates.
static double time_steps(const Ladder* l, Trial* trial, double* loss) {
    const int warm_up = l->kind->warm_up;
    double* ms = alloc_or_die((size_t)l->steps, sizeof *ms, "times");
    for (int i = 0; i < warm_up + l->steps; i++) {
        double now, norm;
        const double start = seconds_now();
        trial_step(trial, l->batch, 1, &now, &norm);
        if (i >= warm_up) { ms[i - warm_up] = 1e3 * (seconds_now() - start); }
        if (i <= UPDATES_COMPARED) { *loss = now; }
    }
    const double middle = median(ms, (size_t)l->steps);
    free(ms);
    return middle;
}

// Trains a few steps on a rung and fills in its result.
static void rung_run(Ladder* l, int index) {
    Error err;
    RungResult* r = &l->result[index];
    Config c = rung_config(l->config, &l->rung[index]);
    c.batch_size = l->plan.B;
    c.seq_len = l->plan.T;
    const Backend* b = bench_backend(&c, c.dtype);
    const DeviceOptions options = device_options(&c, c.dtype);
    const char* lack = b->device_lacks(&options);
    if (lack) {
        snprintf(r->why_not, sizeof r->why_not, "%s", lack);
        return;
    }
    b->device_open(&options);
    const Plan plan = bench_plan(b, c.dtype, &c, 0);
    const size_t available = b->device_memory_available();
    r->plan_bytes = plan_bytes(&plan);
    Trial* trial = trial_open(&plan, NULL, &err);
    if (!trial) {
        notice("%s: %s", l->rung[index].name, err.text);
        snprintf(r->why_not, sizeof r->why_not, "does not fit into memory");
        return;
    }
    r->ms = time_steps(l, trial, &r->loss);
    r->peak_bytes = available - min_size(available, b->device_memory_available());
    snprintf(r->kernels, sizeof r->kernels, "%s", b->device_kernels());
    r->tokens_per_second = 1e3 * (double)plan.B * plan.T / r->ms;
    r->flops = gpt2_flops_per_token(trial_model(trial), plan.T) * r->tokens_per_second;
    trial_close(trial);
    r->peak_flops = device_is_emulated(b) ? (double)NAN : b->device_peak_flops();
    r->threads = b->device_threads();
    snprintf(r->level, sizeof r->level, "%s", b->level ? b->level : "");
    r->ran = true;
}

// Runs a rung in a process of its own. On a CPU the system's peak of that process is the memory used.
static void rung_measure(Ladder* l, int index) {
    RungResult* r = &l->result[index];
    size_t peak_bytes;
    const int code = in_child(rung_run, l, index, &peak_bytes);
    if (code == EXIT_RUNTIME || code == EXIT_USAGE) { exit(code); } // it printed the reason
    if (code != EXIT_DONE) {
        r->ran = false;
        snprintf(r->why_not, sizeof r->why_not, "ended with code %d", code);
    }
    if (!l->on_gpu) { r->peak_bytes = peak_bytes; }
}

// ---------------------------------------------------------------------------------------------------------------------
// the command

// Refuses options that the rungs decide, and sets the steps.
static void ladder_options(Ladder* l) {
    const Config* c = l->config;
    for (int i = 0; i < NUM_DECIDED; i++) {
        if (config_source(c, DECIDED[i]) > FROM_DEFAULT) {
            usage_error("bench ladder: the rungs set --%s: leave it out", DECIDED[i]);
        }
    }
    if (c->max_steps == 0) { usage_error("bench ladder: --max_steps 0 leaves nothing to measure"); }
    if (c->max_steps > 1000000) { usage_error("bench ladder: --max_steps %lld is too many", c->max_steps); }
    l->steps = c->max_steps < 0 ? l->kind->steps : (int)c->max_steps;
}

static void ladder_climb(Ladder* l) {
    int first = -1, before = -1;
    for (int i = 0; i < l->count; i++) {
        rung_measure(l, i);
        rung_compare(l, i, first, before);
        print_rung(l, i);
        if (l->result[i].ran) { before = i; }
        if (first < 0) { first = before; }
    }
    if (first < 0) { fatal("bench ladder: no rung ran; give a smaller --batch_size, --seq_len or --model"); }
}

int bench_ladder(const Config* config) {
    Ladder* l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (l == MAP_FAILED) { fatal("out of memory: %zu bytes for the ladder", sizeof *l); }
    size_t ignored;
    l->config = config;
    l->on_gpu = program_has_gpu();
    l->kind = l->on_gpu ? &GPU_LADDER : &CPU_LADDER;
    ladder_options(l);
    const int code = in_child(ladder_probe, l, 0, &ignored);
    if (code != EXIT_DONE) { exit(code); } // it printed the reason
    const size_t n = (size_t)l->plan.B * (size_t)l->plan.T;
    l->batch = alloc_or_die(3 * n, sizeof *l->batch, "a batch of tokens"); // that all rungs train on
    batch_random(l->batch, n, l->plan.shape.vocab_size, (uint64_t)config->seed, 0);
    print_ladder_heading(l, min_int(UPDATES_COMPARED, l->steps + l->kind->warm_up - 1));
    ladder_climb(l);
    l->given = bench_given(config, &l->plan);
    ladder_write(l);
    const bool failed = l->failed > 0;
    free(l->batch);
    munmap(l, sizeof *l);
    return failed ? EXIT_CHECK_FAILED : EXIT_DONE;
}
