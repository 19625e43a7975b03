// Options into settings that fit together: the shape, the micro-batch, what fits into memory. Everything that can be
// refused is refused here or in setup.h, before the model is allocated or a log is touched.
#pragma once
#include "config.h"
#include "dataloader.h"
#include "huggingface.h"
#include <limits.h>

static inline Keep keep_of(const Config* c) {
    return !strcmp(c->recompute, "all") ? RECOMPUTE_ALL : !strcmp(c->recompute, "gelu") ? RECOMPUTE_GELU : KEEP_ALL;
}

static inline DeviceOptions device_options(const Config* c, int index, bool of_rank) {
    const DeviceOptions options = {index,
                                   of_rank,
                                   (int)c->threads,
                                   !strcmp(c->kernels, "plain"),
                                   c->fused != 0,
                                   c->flash != 0,
                                   !strcmp(c->dtype, "tf32"),
                                   !strcmp(c->dtype, "fp8"),
                                   c->graph != 0,
                                   is_one_of(c->kernels, "flash|cudnn") ? c->kernels : NULL};
    return options;
}

static inline void device_open_at(const Config* c, int index, bool of_rank) {
    const DeviceOptions options = device_options(c, index, of_rank);
    device_open(&options);
}
static inline void device_open_for(const Config* c) { device_open_at(c, (int)c->device, false); }

// Of several processes on a machine each takes a GPU of its own, by its rank there, unless --device says which.
static inline void device_open_for_rank(const Config* c, const Comm* comm) {
    if (comm->size == 1 || config_source(c, "device") > FROM_DEFAULT) { device_open_for(c); }
    else { device_open_at(c, comm->local_rank, true); }
}

// Lets --model say what the model is, where weights have decided it.
static inline void name_shape(Config* c, const GPT2Config* m) {
    Error err;
    GPT2Config named;
    if (model_parse(c->model, c->pad_vocab, &named, &err) && !memcmp(&named, m, sizeof named)) { return; }
    c->model =
        format("L=%d,H=%d,C=%d,T=%d,V=%d", m->num_layers, m->num_heads, m->channels, m->max_seq_len, m->vocab_size);
}

// The shape: that of the folder weights come from, else --model.
static inline bool shape_from_config(Config* c, const char* folder, GPT2Config* m, Error* err) {
    GPT2Config named;
    if (!folder) { return model_parse(c->model, c->pad_vocab, m, err); }
    if (!hf_load_config(folder, c->pad_vocab, m, err)) { fatal("%s", err->text); }
    if (config_source(c, "model") < FROM_FILE) {
        name_shape(c, m);
        return true;
    }
    if (!model_parse(c->model, c->pad_vocab, &named, err)) { return false; }
    if (!memcmp(&named, m, sizeof named)) { return true; }
    return fail(err,
                "--model %s is not the model in %s, which is L=%d,H=%d,C=%d,T=%d,V=%d: leave --model out, or give "
                "another folder",
                c->model, folder, m->num_layers, m->num_heads, m->channels, m->max_seq_len, m->vocab_size);
}

static inline bool resolve_seq_len(Config* c, const GPT2Config* m, Error* err) {
    if (c->seq_len == 0) { c->seq_len = m->max_seq_len; }
    if (c->seq_len <= m->max_seq_len) { return true; }
    return fail(err, "--seq_len %lld: the model has only %d positions; give at most that, or a --model with a larger T",
                c->seq_len, m->max_seq_len);
}

// Host memory that a run takes: batches, and buffers to read and write weights.
static inline size_t run_host_bytes(const GPT2* g) {
    const size_t tokens = dataloader_ints(g->B, g->T) * sizeof(int);
    const size_t files = 2 * tensors_largest(&g->params_table) * sizeof(float);
    return 2 * tokens + files + ((size_t)16 << 20);
}

// Device memory that the model and its surroundings will take, with a margin for what is small.
static inline size_t run_bytes(const GPT2* g, const Config* c) {
    const size_t cache = c->sample_every > 0 ? g->kv_size * sizeof(floatX) : 0;
    const GPT2Config* m = &g->config;
    const size_t ops =
        operations_bytes(&g->params_table, g->keep != FORWARD_ONLY, g->B, g->T, m->channels, m->num_heads);
    const size_t host = DEVICE_IS_HOST ? run_host_bytes(g) : 0, margin = (size_t)48 << 20;
    return gpt2_bytes(g) + cache + ops + host + margin;
}

// The processes that share masters and moments, if --zero says so.
static inline Comm* sharers_of(const Config* c, Comm* comm) { return strcmp(c->zero, "1") ? NULL : comm; }

// Memory of the device for this process: of a host, its part.
static inline size_t memory_for(const Comm* comm) {
    return device_memory_available() / (DEVICE_IS_HOST ? (size_t)comm->local_size : 1);
}

// Micro-batches are not made larger than this by themselves: a step gains no speed from it.
enum { MAX_BATCH = 1024 };

// The largest B up to `most` whose run fits into `available` bytes; 0: none. A larger batch never takes less.
static inline int largest_batch(const Config* c, const GPT2Config* m, long long most, int T, Keep keep,
                                Comm* sharers, size_t available) {
    GPT2 g;
    long long fits = 0, too_many = min_size((size_t)most, (size_t)(INT_MAX / T)) + 1;
    while (too_many - fits > 1) {
        const long long B = (fits + too_many) / 2;
        gpt2_layout(&g, m, (int)B, T, keep);
        gpt2_share(&g, sharers);
        if (run_bytes(&g, c) <= available) { fits = B; }
        else { too_many = B; }
    }
    return (int)fits;
}

// The largest batch of at most B that divides `windows` sequences evenly among micro-batches.
static inline int dividing_batch(int B, long long windows) {
    while (B > 0 && windows % B) { B--; }
    return B;
}

// What --batch_size auto takes of the memory there is, where there is least: of a host's not all, because others take
// some while it runs.
static inline size_t memory_for_auto(Comm* comm) {
    const size_t available = memory_for(comm);
    return comm_least(comm, DEVICE_IS_HOST ? available - available / 8 : available);
}

// Appends which numbers of processes would do, up to `most`.
static inline void ranks_that_divide(long long total, long long micro, int most, char* text, size_t size) {
    const char* between = ", or start ";
    bool any = false;
    for (int n = 1; n <= most && strlen(text) + 32 < size; n++) {
        if (total % (micro * n)) { continue; }
        snprintf(text + strlen(text), size - strlen(text), "%s%d", between, n);
        between = ", ";
        any = true;
    }
    if (any) { snprintf(text + strlen(text), size - strlen(text), " processes"); }
}

static inline bool resolve_batch(Config* c, const GPT2Config* m, Comm* comm, Error* err) {
    const int ranks = comm->size;
    const long long T = c->seq_len;
    if (c->batch_size == 0 && c->total_batch_size && c->total_batch_size < T * ranks) {
        return fail(err, "--total_batch_size %lld is less than one sequence of --seq_len %lld on each of %d processes",
                    c->total_batch_size, T, ranks);
    }
    if (c->batch_size == 0) {
        const long long windows = c->total_batch_size ? c->total_batch_size / T / ranks : 64;
        const long long most = (long long)min_size((size_t)windows, MAX_BATCH);
        const int fits = largest_batch(c, m, most, (int)T, keep_of(c), sharers_of(c, comm), memory_for_auto(comm));
        c->batch_size = dividing_batch(fits, windows);
        if (!c->batch_size) {
            return fail(err, "--batch_size auto: not even one sequence of %lld tokens fits into memory", T);
        }
        notice("batch_size %lld fits", c->batch_size);
    }
    if (c->batch_size * T > INT_MAX) {
        return fail(err, "--batch_size %lld of %lld tokens is more than a micro-batch can hold: give at most %lld",
                    c->batch_size, T, INT_MAX / T);
    }
    const long long micro = c->batch_size * T * ranks;
    if (c->total_batch_size == 0) { c->total_batch_size = micro; }
    if (c->total_batch_size % micro == 0) { return true; }
    const long long below = c->total_batch_size / micro * micro;
    long long B = c->batch_size; // the largest smaller micro-batch that would do
    while (B > 1 && c->total_batch_size % (B * T * ranks)) { B--; }
    char other[160] = "";
    if (c->total_batch_size % (B * T * ranks) == 0) { snprintf(other, sizeof other, ", or --batch_size %lld", B); }
    if (ranks > 1) { ranks_that_divide(c->total_batch_size, c->batch_size * T, 2 * ranks, other, sizeof other); }
    return fail(err,
                "--total_batch_size %lld is not a multiple of batch_size * seq_len * processes = %lld * %lld * %d = "
                "%lld: give %lld%s%.0lld%s",
                c->total_batch_size, c->batch_size, T, ranks, micro, below ? below : micro, below ? " or " : "",
                below ? below + micro : 0, other);
}

// Refuses a run that would not fit, with its plan and what would help.
static inline bool check_memory(const GPT2* g, const Config* c, const Comm* comm, Error* err) {
    const size_t need = run_bytes(g, c), available = memory_for(comm);
    const size_t host_need = run_host_bytes(g), host_available = host_memory_available();
    if (!DEVICE_IS_HOST && host_need > host_available) {
        return fail(err, "not enough memory beside the GPU's: %.1f MiB are needed, %.1f MiB are available",
                    (double)host_need / 1048576, (double)host_available / 1048576);
    }
    if (need <= available) { return true; }
    MemoryLine line[MEMORY_LINES];
    gpt2_memory(g, line);
    for (int i = 0; i < MEMORY_LINES; i++) {
        if (line[i].bytes >> 20) { notice("  %-28s %10.1f MiB", line[i].what, (double)line[i].bytes / 1048576); }
    }
    const bool training = g->keep != FORWARD_ONLY;
    const int most = training ? largest_batch(c, &g->config, g->B, g->T, g->keep, g->sharers, available) : 0;
    const int fits = dividing_batch(most, g->B);
    char advice[64] = "a smaller model";
    if (fits && fits < g->B) { snprintf(advice, sizeof advice, "--batch_size %d", fits); }
    return fail(err, "not enough memory%s: %.1f MiB are needed, %.1f MiB are available; give %s%s",
                DEVICE_IS_HOST ? "" : " on the GPU", (double)need / 1048576, (double)available / 1048576, advice,
                !training || g->keep == RECOMPUTE_ALL ? "" : ", or --recompute all");
}

// Options that a resumed run takes from this start alone, not from the checkpoint.
static inline bool option_is_of_this_start(const char* name) {
    return is_one_of(name, "resume|out|config|init|threads|device|gpus|connect_timeout|comm_timeout|price|preset");
}

// Prints which options differ from the checkpoint's, and refuses those that would make it another run.
static inline bool check_changes(const Config* c, json_t* state, Error* err) {
    Config old;
    config_defaults(&old);
    if (!config_from_json(&old, json_object_get(state, "options"), "state.json", err)) { return false; }
    bool ok = true;
    for (int i = 0; ok && i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || option_is_of_this_start(o->name)) { continue; }
        char *now = config_value(c, o), *then = config_value(&old, o);
        if (strcmp(now, then)) {
            if (is_one_of(o->name, "seq_len|seed|shuffle|overfit|tokenizer")) {
                ok = fail(err,
                          "--%s %s: the run being resumed has %s, and would not be the same run; begin a new one in "
                          "another --out",
                          o->name, now, then);
            } else if (!is_one_of(o->name, "train_data|val_data")) {
                notice("changed since the checkpoint: --%s %s (was %s)", o->name, now, then);
            }
        }
        free(now);
        free(then);
    }
    return ok;
}
