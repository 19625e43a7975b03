#include "autotune.h"
#include "consistency.h"
#include "random_batch.h"
#include "../files/tune_cache.h"

static const char* const CHOICE_NAMES[NUM_CHOICES] = {
    "flash_forward", "flash_keys", "flash_queries", "attention_forward", "attention_backward", "gelu_forward",
    "gelu_backward", "matmul_sms"};

typedef struct {
    GPT2* g;
    Comm* comm;    // all ranks of it choose alike
    GradMode mode; // of the last backward pass of a step, and of most
} Tuning;

// ---------------------------------------------------------------------------------------------------------------------
// measuring

// Begins the sum of a range of the gradients over all ranks.
static void range_ready(void* comm, float* grads, TensorRange range) {
    comm_all_reduce_begin(comm, grads + range.begin, range.size);
}

// Queues a backward pass over the batch that is uploaded. ready: NULL, or called as gpt2_backward() does.
static void run_backward(const Tuning* t, GradMode mode, GradsReady ready) {
    GPT2* g = t->g;
    g->grad_mode = mode;
    gpt2_backward(g, g->B, g->T, 1.0f / (float)(g->B * g->T), ready, t->comm);
}

// Queues the operations of a choice, on the activations and gradients of layer 0; for CHOICE_MATMUL_SMS backward of all
// layers, with its collectives. Changes the gradients of parameters.
static void run_choice(const Tuning* t, Choice choice) {
    const GPT2* g = t->g;
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
        run_backward(t, t->mode, range_ready);
        comm_end(t->comm);
        break;
    case CHOICE_GELU_FORWARD: b->matmul_gelu_forward(a.fch_gelu, a.fch, a.ln2, p.fcw, p.fcb, N, C, 4 * C); break;
    default:
        b->matmul_gelu_backward(a.dbt4c, dp.fcprojw, dp.fcprojb, a.dbtc, a.fch_gelu, a.fch, p.fcprojw, t->mode, N,
                                4 * C, C);
    }
}

// Returns seconds of one run. The first run is a warm-up: the device works on it while the timed ones are queued.
static double seconds_of_choice(const Tuning* t, Choice choice) {
    const Backend* b = t->g->backend;
    enum { RUNS = 2 };
    run_choice(t, choice);
    b->device_timer_start();
    for (int i = 0; i < RUNS; i++) { run_choice(t, choice); }
    return b->device_timer_stop() / RUNS;
}

// Sets seconds[i] to the shortest time of variant i; skips variants whose seconds[i] is INFINITY. Variants alternate,
// so that other load on the machine slows all of them. Ranks time collectives equally often.
static void time_variants(const Tuning* t, Choice choice, double seconds[MAX_VARIANTS]) {
    const GPT2* g = t->g;
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
            const double now = seconds_of_choice(t, choice);
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
static int choose_one(const Tuning* t, Choice choice, const char* saved, bool has_tokens) {
    const GPT2* g = t->g;
    double seconds[MAX_VARIANTS];
    int count = 0;
    const int variant = saved_variant(g, choice, saved);
    const bool can_run = choice != CHOICE_MATMUL_SMS || variant >= 0 || has_tokens;
    for (int i = 0; i < MAX_VARIANTS; i++) {
        const bool is_open = can_run && (variant < 0 || i == variant) && name_of(g, choice, i);
        seconds[i] = is_open ? 0 : INFINITY;
        count += is_open;
    }
    if (count > 1) { time_variants(t, choice, seconds); }
    comm_all_reduce_host(t->comm, seconds, MAX_VARIANTS); // so that all ranks choose the same
    return fastest_variant(seconds, MAX_VARIANTS);
}

// ---------------------------------------------------------------------------------------------------------------------
// algorithms of matmuls

static void run_forward_and_backward(const Tuning* t) {
    gpt2_forward(t->g, t->g->B, t->g->T, NULL);
    run_backward(t, GRADS_SET, NULL);
    if (t->mode == GRADS_ADD) { run_backward(t, GRADS_ADD, NULL); }
}

// Queues all matmuls of a step, with GELU fused and apart, and backward's on fewer multiprocessors too. Their operands
// are those of a real step, on random tokens.
static void queue_matmuls(const Tuning* t, Optimizer* o) {
    GPT2* g = t->g;
    const Backend* b = g->backend;
    const size_t n = (size_t)g->B * (size_t)g->T;
    int* batch = b->host_alloc(gpt2_batch_ints(g) * sizeof *batch, "tokens to tune on");
    batch_random(batch, n, g->config.vocab_size, 0, 0);
    gpt2_upload(g, batch, n);
    // not watched: in the first step the device's own memory for operands in FP8 grows, and moves
    run_forward_and_backward(t);
    b->matmuls_watch();
    for (int variant = MAX_VARIANTS - 1; variant >= 0; variant--) { // the default comes last
        bool exists = variant == 0;
        for (int choice = CHOICE_GELU_FORWARD; choice <= CHOICE_GELU_BACKWARD; choice++) {
            if (!name_of(g, (Choice)choice, variant)) { continue; }
            exists = true;
            b->choose_variant((Choice)choice, variant, g->B, g->T, g->config.channels, g->config.num_heads);
        }
        if (!exists) { continue; }
        if (name_of(g, CHOICE_MATMUL_SMS, 1)) {
            b->choose_variant(CHOICE_MATMUL_SMS, 1, g->B, g->T, g->config.channels, g->config.num_heads);
            gpt2_forward(g, g->B, g->T, NULL);
            run_choice(t, CHOICE_MATMUL_SMS);
            b->choose_variant(CHOICE_MATMUL_SMS, 0, g->B, g->T, g->config.channels, g->config.num_heads);
        }
        run_forward_and_backward(t);
    }
    optimizer_queue_matmuls(o);
    b->device_sync();
    b->host_free(batch);
}

// Chooses the algorithm of each matmul: from `saved`, else from `cached`, else the fastest. Either may be NULL.
static void tune_matmuls(const Tuning* t, Optimizer* o, const Plan* p, const char* saved, const char* cached) {
    const double seconds = 5; // in all, chosen
    const Backend* b = t->g->backend;
    const bool is_first = t->comm->rank == 0, tunes = p->tune != tune_0;
    if (p->device.plain || (!tunes && !saved)) { return; }
    queue_matmuls(t, o);
    if (saved) { b->matmuls_load(saved); }
    if (cached) { b->matmuls_load(cached); }
    if (tunes && is_first) { b->matmuls_tune(seconds); }
    if (t->comm->size > 1) { // the other ranks have timed nothing
        char* lines = share_text(t->comm, is_first ? b->matmuls_save() : NULL);
        b->matmuls_load(lines);
        free(lines);
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// all choices

// Chooses the variants: from `saved`, which may be NULL, else the fastest. has_tokens: a batch is uploaded.
static void choose_variants(const Tuning* t, const char* saved, bool has_tokens) {
    GPT2* g = t->g;
    const Backend* b = g->backend;
    if (g->eot != NO_DOCUMENTS) { gpt2_embed(g, g->B, g->T, NULL); } // finds those that attention is timed with
    for (int choice = 0; choice < NUM_CHOICES; choice++) {
        const int variant = choose_one(t, (Choice)choice, saved, has_tokens);
        b->choose_variant((Choice)choice, variant, g->B, g->T, g->config.channels, g->config.num_heads);
    }
}

// Returns all that the times of the variants depend on. Asks for cuDNN's version, which opens cuDNN.
static char* cache_key(const Tuning* t, const Plan* p) {
    const GPT2* g = t->g;
    const char* key = g->backend->variants_key(g->B, g->T, g->config.channels, g->config.num_heads);
    return format("%s,%d%d%d", key, p->exact, p->has_zero, t->mode);
}

// Adds the choices to the cache, but for those of a checkpoint, which may be another GPU's.
static void cache_choices(const char* path, const Backend* b, const char* key, bool has_variants, bool has_matmuls) {
    char* lines = has_matmuls ? format("%s", "") : b->matmuls_save();
    if (!has_variants) { append_format(&lines, "%s %s\n", key, b->device_kernels()); }
    tune_cache_add(path, lines);
    free(lines);
}

void autotune(Optimizer* o, const Plan* p, Comm* comm, const char* variants, const char* matmuls) {
    GPT2* g = o->model;
    const Backend* b = g->backend;
    if (b->is_host) { return; }
    const bool is_one_batch = p->total_batch_size <= (long long)g->B * g->T * comm->size;
    const Tuning t = {.g = g, .comm = comm, .mode = is_one_batch ? GRADS_SET : GRADS_ADD};
    const bool has_cache = p->tune != tune_0 && !p->device.plain && comm->rank == 0;
    char* path = has_cache ? tune_cache_path(b->matmuls_identity()) : NULL;
    char* cached = path && p->tune != tune_anew ? tune_cache_read(path) : NULL;
    tune_matmuls(&t, o, p, matmuls, cached);
    char* key = cache_key(&t, p);
    const char* line = cached ? tune_line(cached, key, strlen(key)) : NULL;
    char* earlier = share_text(comm, line ? format("%.*s", (int)strcspn(line, "\n"), line) : NULL);
    choose_variants(&t, variants ? variants : earlier, p->tune != tune_0);
    if (path) { cache_choices(path, b, key, variants, matmuls); }
    free(path);
    free(cached);
    free(key);
    free(earlier);
}
