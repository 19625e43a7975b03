#include "autotune.h"
#include "consistency.h"
#include "random_batch.h"
#include "../files/tune_cache.h"

enum { MAX_VARIANTS = 3 }; // of a choice, on any device
static const char* const CHOICE_NAMES[NUM_CHOICES] = {
    "flash_forward", "flash_keys", "flash_queries", "attention_forward", "attention_backward", "gelu_forward",
    "gelu_backward", "matmul_sms"};

// ---------------------------------------------------------------------------------------------------------------------
// measuring

// Begins the sum of a range of the gradients over all ranks.
static void range_ready(void* comm, float* grads, TensorRange range) {
    comm_all_reduce_begin(comm, grads + range.begin, range.size);
}

// Queues the operations of a choice, on the activations and gradients of layer 0; for CHOICE_MATMUL_SMS backward of all
// layers, with its collectives. Changes the gradients of parameters.
static void run_choice(GPT2* g, Comm* comm, Choice choice) {
    const Backend* b = g->backend;
    const int B = g->B, T = g->T, N = B * T, C = g->config.channels;
    const Params p = params_at(g, 0);
    const Grads dp = grads_at(g, 0);
    const Acts a = acts_at(g, 0);
    const int *starts = gpt2_documents(g, a.starts), *ends = gpt2_documents(g, a.ends);
    switch (choice) {
    case CHOICE_FLASH_FORWARD:
    case CHOICE_ATTENTION_FORWARD:
        b->attention_forward(a.atty, a.atty_rest, a.lse, a.qkv, starts, B, T, C, g->config.num_heads);
        break;
    case CHOICE_ATTENTION_BACKWARD:
    case CHOICE_FLASH_KEYS:
    case CHOICE_FLASH_QUERIES:
        b->attention_backward(a.dbt4c, a.delta, a.dbtc, a.atty, a.atty_rest, a.lse, a.qkv, starts, ends, B, T, C,
                              g->config.num_heads);
        break;
    case CHOICE_MATMUL_SMS:
        gpt2_backward(g, B, T, 1.0f / (float)N, range_ready, comm);
        comm_end(comm);
        break;
    case CHOICE_GELU_FORWARD: b->matmul_gelu_forward(a.fch_gelu, a.fch, a.ln2, p.fcw, p.fcb, N, C, 4 * C); break;
    default:
        b->matmul_gelu_backward(a.dbt4c, dp.fcprojw, dp.fcprojb, a.dbtc, a.fch_gelu, a.fch, p.fcprojw, GRADS_SET, N,
                                4 * C, C);
    }
}

// Returns seconds of one run. The first run is a warm-up: the device works on it while the timed ones are queued.
static double seconds_of_choice(GPT2* g, Comm* comm, Choice choice) {
    const Backend* b = g->backend;
    enum { RUNS = 2 };
    run_choice(g, comm, choice);
    b->device_timer_start();
    for (int i = 0; i < RUNS; i++) { run_choice(g, comm, choice); }
    return b->device_timer_stop() / RUNS;
}

// Sets seconds[i] to the shortest time of variant i; skips variants whose seconds[i] is INFINITY. Variants alternate,
// so that other load on the machine slows all of them. Ranks time collectives equally often.
static void time_variants(GPT2* g, Comm* comm, Choice choice, double seconds[MAX_VARIANTS]) {
    const Backend* b = g->backend;
    enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 20 }; // these and the seconds are chosen, not measured
    const double enough = choice == CHOICE_MATMUL_SMS ? 0 : 0.05;
    const double most = choice == CHOICE_MATMUL_SMS ? INFINITY : 1; // seconds, for all variants
    const double begin = seconds_now();
    double spent = 0;
    b->run_alone(choice);
    for (int round = 0; spent < most && round < (spent < enough ? MOST_ROUNDS : LEAST_ROUNDS); round++) {
        for (int i = 0; i < MAX_VARIANTS; i++) {
            if (!isfinite(seconds[i])) { continue; }
            b->choose_variant(choice, i, g->B, g->T, g->config.channels, g->config.num_heads);
            const double now = seconds_of_choice(g, comm, choice);
            seconds[i] = round ? fmin(seconds[i], now) : now;
        }
        spent = seconds_now() - begin;
    }
    b->run_alone(NUM_CHOICES);
}

// Returns the fastest variant; INFINITY marks one that does not exist. A variant other than 0 has to be faster by 3%
// (chosen, not measured), so that repeated starts choose the same.
static int fastest_variant(const double* seconds, int count) {
    const double margin = 0.97;
    int best = 0;
    for (int i = 1; i < count; i++) {
        if (seconds[i] < (best ? seconds[best] : margin * seconds[0])) { best = i; }
    }
    return best;
}

// ---------------------------------------------------------------------------------------------------------------------
// choosing

// Returns the name of variant i, or NULL if there is none.
static const char* name_of(const GPT2* g, Choice choice, int i) {
    const Backend* b = g->backend;
    return i < MAX_VARIANTS ? b->variant_name(choice, i, g->B, g->T, g->config.channels, g->config.num_heads) : NULL;
}

// Returns what stands behind "name=" in a list of "choice=variant", which may be NULL; NULL if it has no such choice.
static const char* find_choice(const char* list, const char* name) {
    const size_t n = strlen(name);
    const char* at = list ? strstr(list, name) : NULL; // no name is part of another
    return at && at[n] == '=' ? at + n + 1 : NULL;
}

// Returns the variant that `saved`, a list of "choice=variant", names for a choice; -1 if it names none, or one that
// does not exist here.
static int saved_variant(const GPT2* g, Choice choice, const char* saved) {
    const char* at = find_choice(saved, CHOICE_NAMES[choice]);
    const size_t n = at ? strcspn(at, " ") : 0;
    for (int i = 0; at && i < MAX_VARIANTS; i++) {
        const char* name = name_of(g, choice, i);
        if (name && strlen(name) == n && !strncmp(at, name, n)) { return i; }
    }
    if (at && name_of(g, choice, 0)) {
        notice("%s=%.*s, which an earlier start chose, does not exist here: choosing again",
               CHOICE_NAMES[choice], (int)n, at);
    }
    return -1;
}

// Returns the saved variant of a choice, or the fastest. Variants that do not exist, or are not the saved one, get the
// time INFINITY. If more than one is left, they are timed.
static int choose_one(GPT2* g, Comm* comm, Choice choice, const char* saved, bool has_tokens) {
    double seconds[MAX_VARIANTS];
    int count = 0;
    const int variant = saved_variant(g, choice, saved);
    const bool can_run = choice != CHOICE_MATMUL_SMS || variant >= 0 || (comm && has_tokens);
    for (int i = 0; i < MAX_VARIANTS; i++) {
        const bool is_open = can_run && (variant < 0 || i == variant) && name_of(g, choice, i);
        seconds[i] = is_open ? 0 : INFINITY;
        count += is_open;
    }
    if (count > 1) { time_variants(g, comm, choice, seconds); }
    if (comm) { comm_all_reduce_host(comm, seconds, MAX_VARIANTS); } // so that all ranks choose the same
    return fastest_variant(seconds, MAX_VARIANTS);
}

// ---------------------------------------------------------------------------------------------------------------------
// algorithms of matmuls

// Queues all matmuls of a step, with GELU fused and apart, and backward's on fewer multiprocessors too. Their operands
// are those of a real step, on random tokens.
static void queue_matmuls(Optimizer* o, Comm* comm) {
    GPT2* g = o->model;
    const Backend* b = g->backend;
    const size_t n = (size_t)g->B * (size_t)g->T;
    int* batch = b->host_alloc(gpt2_batch_ints(g) * sizeof *batch, "tokens to tune on");
    batch_random(batch, n, g->config.vocab_size, 0, 0);
    gpt2_upload(g, batch, n);
    // not watched: in the first step the device's own memory for operands in FP8 grows, and moves
    gpt2_forward(g, g->B, g->T, NULL);
    gpt2_backward(g, g->B, g->T, 1.0f / (float)n, NULL, NULL);
    b->matmuls_watch();
    for (int variant = MAX_VARIANTS - 1; variant >= 0; variant--) { // the default comes last
        bool exists = variant == 0;
        for (int choice = CHOICE_GELU_FORWARD; choice <= CHOICE_GELU_BACKWARD; choice++) {
            if (!name_of(g, (Choice)choice, variant)) { continue; }
            exists = true;
            b->choose_variant((Choice)choice, variant, g->B, g->T, g->config.channels, g->config.num_heads);
        }
        if (!exists) { continue; }
        if (comm && name_of(g, CHOICE_MATMUL_SMS, 1)) {
            b->choose_variant(CHOICE_MATMUL_SMS, 1, g->B, g->T, g->config.channels, g->config.num_heads);
            gpt2_forward(g, g->B, g->T, NULL);
            run_choice(g, comm, CHOICE_MATMUL_SMS);
            b->choose_variant(CHOICE_MATMUL_SMS, 0, g->B, g->T, g->config.channels, g->config.num_heads);
        }
        gpt2_forward(g, g->B, g->T, NULL);
        gpt2_backward(g, g->B, g->T, 1.0f / (float)n, NULL, NULL);
    }
    optimizer_queue_matmuls(o);
    b->device_sync();
    b->host_free(batch);
}

// Chooses the algorithm of each matmul: from `saved`, else from `cached`, else the fastest. Either may be NULL.
static void tune_matmuls(Optimizer* o, const Plan* p, Comm* comm, const char* saved, const char* cached) {
    const double seconds = 5; // in all, chosen
    const Backend* b = o->model->backend;
    const bool is_first = !comm || comm->rank == 0, tunes = p->tune != tune_0;
    if (b->is_host || p->device.plain || (!tunes && !saved)) { return; }
    queue_matmuls(o, comm);
    if (saved) { b->matmuls_load(saved); }
    if (cached) { b->matmuls_load(cached); }
    if (tunes && is_first) { b->matmuls_tune(seconds); }
    if (comm && comm->size > 1) { // the other ranks have timed nothing
        char* lines = share_text(comm, is_first ? b->matmuls_save() : NULL);
        b->matmuls_load(lines);
        free(lines);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// all choices

// Chooses the variants: from `saved`, which may be NULL, else the fastest. has_tokens: a batch is uploaded.
static void choose_variants(GPT2* g, Comm* comm, const char* saved, bool has_tokens) {
    const Backend* b = g->backend;
    if (g->eot != NO_DOCUMENTS) { gpt2_embed(g, g->B, g->T, NULL); } // finds those that attention is timed with
    for (int choice = 0; choice < NUM_CHOICES; choice++) {
        const int variant = choose_one(g, comm, (Choice)choice, saved, has_tokens);
        b->choose_variant((Choice)choice, variant, g->B, g->T, g->config.channels, g->config.num_heads);
    }
}

// Returns all that the times of the variants depend on. Asks for cuDNN's version, which opens cuDNN.
static char* variants_key(const GPT2* g, const Plan* p) {
    const char* key = g->backend->variants_key(g->B, g->T, g->config.channels, g->config.num_heads);
    return format("%s,%d%d", key, p->exact, p->has_zero);
}

// Returns the line of the cache for the variants of this run: their key, a space, and device_kernels().
static char* variants_line(const GPT2* g, const Plan* p) {
    char* key = variants_key(g, p);
    char* line = format("%s %s\n", key, g->backend->device_kernels());
    free(key);
    return line;
}

// Returns the variants in a cache's lines; NULL if there are none.
static char* cached_variants(const GPT2* g, const Plan* p, const char* lines) {
    if (!lines) { return NULL; }
    char* key = variants_key(g, p);
    const char* line = tune_line(lines, key, strlen(key));
    free(key);
    return line ? format("%.*s", (int)strcspn(line, "\n"), line) : NULL;
}

void autotune(Optimizer* o, const Plan* p, Comm* comm, const char* variants, const char* matmuls) {
    GPT2* g = o->model;
    const Backend* b = g->backend;
    const bool has_cache = p->tune != tune_0 && !b->is_host && !p->device.plain && (!comm || comm->rank == 0);
    char* path = has_cache ? tune_cache_path(b->matmuls_identity()) : NULL;
    char* cached = path && p->tune != tune_anew ? tune_cache_read(path) : NULL;
    tune_matmuls(o, p, comm, matmuls, cached);
    char* earlier = cached_variants(g, p, cached);
    if (comm) { earlier = share_text(comm, earlier); }
    choose_variants(g, comm, variants ? variants : earlier, p->tune != tune_0);
    if (path) { // but for a checkpoint's choices, which may be another GPU's
        char* algorithms = matmuls ? format("%s", "") : b->matmuls_save();
        char* kernels = variants ? format("%s", "") : variants_line(g, p);
        char* lines = format("%s%s", algorithms, kernels);
        tune_cache_add(path, lines);
        free(algorithms);
        free(kernels);
        free(lines);
    }
    free(path);
    free(cached);
    free(earlier);
}
