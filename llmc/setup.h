// How a training run comes to be: options and checkpoint into settings that fit together, then data, memory, weights
// and logs. Everything that can be refused is refused here, before the model is allocated or a log is touched.
#pragma once
#include "agreement.h"
#include "checkpoint.h"
#include "choose.h"
#include "evalloader.h"
#include "generate.h"
#include "mfu.h"
#include "schedule.h"
#include "settings.h"
#include <signal.h>
#include <sys/file.h>

// The next micro-batch to ask for: the step it belongs to begins after `tokens` tokens, at window `window`.
typedef struct {
    long long tokens, row;
    uint64_t window;
} Cursor;

typedef struct {
    Config* config;
    Comm* comm;
    GPT2 model;
    Tokenizer tokenizer;
    Dataset train_data, val_data;
    DataLoader loader;
    EvalLoader val;
    int *train_memory, *val_memory; // of the loaders' batches
    bool has_val, resumed;
    bool stops; // SIGINT or SIGTERM came to one of the ranks
    BatchRamp ramp;
    long long num_steps, total_tokens; // that the run will have made and seen at its end
    TrainState state;
    Cursor cursor;
    Logger log;
    double peak_flops; // of one process
    int lock;          // file descriptor of out/.lock, -1 without --out
} TrainRun;

// ---------------------------------------------------------------------------------------------------------------------
// phases of opening

// Only one run at a time writes into a folder; the lock goes with the process, however it ends. The first process alone
// writes.
static inline void lock_out(TrainRun* run) {
    Error err;
    run->lock = -1;
    if (!*run->config->out || run->comm->rank > 0) { return; }
    if (!make_directories(run->config->out, &err)) { fatal("--out %s", err.text); }
    char* path = format("%s/.lock", run->config->out);
    run->lock = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (run->lock < 0) { fatal("--out %s: cannot write there: %s", path, strerror(errno)); }
    if (flock(run->lock, LOCK_EX | LOCK_NB) != 0) {
        fatal("--out %s: another run is writing to this folder; wait for it, or give another --out", run->config->out);
    }
    free(path);
    checkpoint_clean(run->config->out);
}

// Whether `path` names something that stands in `folder`.
static inline bool stands_in(const char* path, const char* folder) {
    char *above = format("%s/..", path), *a = realpath(above, NULL), *b = realpath(folder, NULL);
    const bool same = a && b && !strcmp(a, b);
    free(above);
    free(a);
    free(b);
    return same;
}

// Going on from a checkpoint of another run, or from an older one, would in time delete those that are in --out.
static inline void check_nothing_ahead(const Config* c, long long step) {
    size_t count = 0;
    long long* steps = *c->out ? checkpoint_list(c->out, &count) : NULL;
    if (count && !stands_in(c->resume, c->out)) {
        fatal("--resume %s: --out %s holds checkpoints of another run: give another --out", c->resume, c->out);
    }
    if (count && steps[0] > step) {
        fatal(
            "--resume %s: --out %s holds checkpoints up to step %lld, ahead of it: give another --out, or remove those",
            c->resume, c->out, steps[0]);
    }
    free(steps);
}

// The checkpoint to go on from and its state, NULL for a fresh run.
static inline char* find_checkpoint(TrainRun* run, json_t** state) {
    Error err;
    Config* c = run->config;
    char* path = NULL;
    *state = NULL;
    if (!*c->resume) {
        size_t count = 0;
        free(*c->out ? checkpoint_list(c->out, &count) : NULL);
        if (count) {
            fatal("--out %s holds checkpoints of another run: go on with --resume auto, or give another --out", c->out);
        }
        return NULL;
    }
    if (strcmp(c->resume, "auto")) {
        path = format("%s", c->resume);
        *state = checkpoint_verify(path, &err);
        if (!*state) { fatal("--resume %s", err.text); }
        check_nothing_ahead(c, json_integer_value(json_object_get(*state, "step")));
    } else {
        if (!*c->out) { usage_error("--resume auto looks for checkpoints in --out, which is empty"); }
        path = checkpoint_newest(c->out, state);
        if (!path) { notice("no checkpoint in %s yet: starting afresh", c->out); return NULL; }
    }
    return path;
}

// The checkpoint that the first process has found, and its state, for all; its options are put under those of this
// start.
static inline char* open_checkpoint(TrainRun* run, json_t** state) {
    Error err;
    Config* c = run->config;
    *state = NULL;
    char* path = run->comm->rank == 0 ? find_checkpoint(run, state) : NULL;
    path = share_text(run->comm, path);
    if (!path) { return NULL; }
    if (!*state) { // once on each machine; whether it is the same one, check_same_run asks
        *state = run->comm->local_rank == 0 ? checkpoint_verify(path, &err) : checkpoint_read_state(path, &err);
    }
    if (!*state) { fatal("%s: the first process sees this checkpoint; all must see the same files", err.text); }
    json_t* options = json_deep_copy(json_object_get(*state, "options"));
    for (int i = 0; i < NUM_ROWS; i++) {
        const char* name = CONFIG_OPTIONS[i].name;
        if (name && option_is_of_this_start(name)) { json_object_del(options, name); }
    }
    if (!config_from_json(c, options, path, &err)) { fatal("%s", err.text); }
    json_decref(options);
    return path;
}

// The text at object.key of a checkpoint's state.json; NULL if there is none to be read. The caller frees it.
static inline char* folder_choice(const char* folder, const char* object, const char* key) {
    char* path = format("%s/state.json", folder);
    json_t* state = path_exists(path) ? json_load_file(path, 0, NULL) : NULL;
    const char* text = json_string_value(json_object_get(json_object_get(state, object), key));
    char* copy = text ? format("%s", text) : NULL;
    json_decref(state);
    free(path);
    return copy;
}

// What the run that --resume goes on with has in state.json at object.key, by the newest of its checkpoints that says;
// NULL if none does.
static inline const char* saved_choice(const Config* c, const char* object, const char* key) {
    if (strcmp(c->resume, "auto")) { return *c->resume ? folder_choice(c->resume, object, key) : NULL; }
    size_t count = 0;
    char* text = NULL;
    long long* steps = checkpoint_list(c->out, &count);
    for (size_t i = 0; i < count && !text; i++) {
        char* folder = format("%s/step_%08lld", c->out, steps[i]);
        text = folder_choice(folder, object, key);
        free(folder);
    }
    free(steps);
    return text;
}

static inline int* open_batches(int B, int T) {
    return (int*)host_alloc(dataloader_ints(B, T) * sizeof(int), "batches of tokens");
}

static inline void open_data(TrainRun* run) {
    Error err;
    const Config* c = run->config;
    const int T = (int)c->seq_len, V = run->model.config.vocab_size;
    if (!dataset_open(&run->train_data, "--train_data", c->train_data, T, V, &err)) { fatal("%s", err.text); }
    run->has_val = *c->val_data && c->val_every > 0;
    if (run->has_val && !dataset_open(&run->val_data, "--val_data", c->val_data, T, V, &err)) { fatal("%s", err.text); }
    run->tokenizer = tokenizer_open(c->tokenizer);
    if (!tokenizer_fits(&run->tokenizer, &run->model.config, c->tokenizer, &err)) { fatal("%s", err.text); }
    if (!ramp_parse(c->batch_ramp, c->total_batch_size, T, &run->ramp, &err)) { usage_error("%s", err.text); }
    const long long epoch = (long long)run->train_data.num_windows * T;
    if (c->max_steps > 2000000000 || c->max_steps > (1LL << 62) / c->total_batch_size) {
        usage_error("--max_steps %lld is too many", c->max_steps);
    }
    run->total_tokens =
        c->max_steps >= 0 ? c->max_steps * c->total_batch_size : epoch / c->total_batch_size * c->total_batch_size;
    if (run->total_tokens == 0 && c->max_steps < 0) {
        fatal("--train_data %s: an epoch of %lld tokens is less than --total_batch_size %lld: give --max_steps or a "
              "smaller batch",
              c->train_data, epoch, c->total_batch_size);
    }
    run->num_steps = ramp_steps(&run->ramp, run->total_tokens);
    if (run->num_steps > 2000000000) {
        usage_error("%lld steps are too many: give a larger --total_batch_size", run->num_steps);
    }
}

// Initial weights are functions of the seed and of each element's place in its tensor: the same for every device,
// dtype, padding and number of processes. Padded rows stay zero.
static inline void init_weights(GPT2* g, uint64_t seed, double wpe_std) {
    const bool direct = DEVICE_IS_HOST && gpt2_is_whole(g, g->masters);
    float* buffer = (float*)alloc_or_die(direct ? 0 : tensors_largest(&g->params_table), sizeof *buffer,
                                         "initial weights");
    for (int i = 0; i < g->params_table.count; i++) {
        const Tensor* t = &g->params_table.row[i];
        const double residual =
            0.02 / sqrt(2.0 * g->config.num_layers); // 2L additions to the stream (Radford et al. 2019)
        const float std = (float)(t->init == INIT_NORMAL ? 0.02 : t->init == INIT_RESIDUAL ? residual : wpe_std);
        const size_t n = t->used_rows * t->cols;
        for (int l = 0; l < t->layers; l++) {
            const uint64_t stream = RNG_INIT + ((uint64_t)(i + 1) << 32) + ((uint64_t)l << 8);
            const bool normal = t->init != INIT_ZERO && t->init != INIT_ONE;
            float* to = direct ? g->masters + tensor_at(t, l) : buffer;
            #pragma omp parallel for
            for (size_t j = 0; j < n; j++) {
                to[j] = normal ? std * rng_normal(seed, stream, j) : t->init == INIT_ONE ? 1.0f : 0.0f;
            }
            if (!direct) { gpt2_put(g, g->masters, tensor_at(t, l), to, n); }
        }
    }
    free(buffer);
    gpt2_masters_changed(g);
}

// The data must be those that the run being resumed has been trained on.
static inline void check_data(const TrainRun* run, const char* checkpoint, json_t* state) {
    const char* hash = json_string_value(json_object_get(state, "data_hash"));
    if (!checkpoint || (hash && strtoull(hash, NULL, 16) == run->train_data.hash)) { return; }
    fatal("--train_data %s: not the data that the run in %s has been trained on (names, sizes or tokens differ); give "
          "those, or begin a new run with --init %s",
          run->config->train_data, checkpoint, checkpoint);
}

// The state of a folder that is a checkpoint of ours; NULL for one that only Hugging Face knows.
static inline json_t* folder_state(const char* folder) {
    Error err;
    char* file = format("%s/state.json", folder);
    json_t* state = path_exists(file) ? checkpoint_read_state(folder, &err) : NULL;
    if (!state && path_exists(file)) { fatal("%s", err.text); }
    free(file);
    return state;
}

// Weights from a Hugging Face folder (NULL: random ones). If it is a checkpoint of ours its checksums are verified.
static inline void load_weights(GPT2* g, const Config* c, const char* folder) {
    Error err;
    if (!folder) { init_weights(g, (uint64_t)c->seed, c->wpe_std); return; }
    json_t* state = folder_state(folder);
    if (state && !checkpoint_verify_file(folder, "model.safetensors", state, &err)) { fatal("%s", err.text); }
    json_decref(state);
    if (!hf_load_weights(g, folder, &err)) { fatal("%s", err.text); }
}

static inline void open_weights(TrainRun* run, const char* checkpoint, json_t* state) {
    Error err;
    const Config* c = run->config;
    gpt2_alloc(&run->model);
    run->resumed = checkpoint != NULL;
    if (!checkpoint) { load_weights(&run->model, c, strcmp(c->init, "random") ? c->init : NULL); }
    else if (!checkpoint_load(&run->model, &run->state, checkpoint, state, &err)) { fatal("%s", err.text); }
    run->state.data_hash = run->train_data.hash;
}

static inline void open_loaders(TrainRun* run) {
    const Config* c = run->config;
    const int B = run->model.B, T = run->model.T;
    run->train_memory = open_batches(B, T);
    dataloader_open(&run->loader, &run->train_data, c->shuffle ? DATA_SHUFFLED : DATA_IN_ORDER, (uint64_t)c->seed, B,
                    run->train_memory);
    if (run->has_val) {
        run->val_memory = open_batches(B, T);
        evalloader_open(&run->val, &run->val_data, c->val_tokens, B, run->val_memory);
    }
    run->cursor.tokens = run->state.tokens;
    run->cursor.window = run->state.window;
    run->cursor.row = (long long)B * run->comm->rank;
}

// The floor of a corpus whose entropy is known, from the file that prepare left beside its shards; NAN if there is
// none.
static inline double corpus_floor(const Dataset* data) {
    char* path = format("%s", data->files[0].path);
    const size_t n = strlen(path), tail = strlen("_000000.bin");
    double floor_loss = NAN;
    if (n > tail) {
        path[n - tail] = 0;
        char* json = format("%s.json", path);
        json_t* value = path_exists(json) ? json_load_file(json, 0, NULL) : NULL;
        if (json_is_number(json_object_get(value, "floor"))) {
            floor_loss = json_number_value(json_object_get(value, "floor"));
        }
        json_decref(value);
        free(json);
    }
    free(path);
    return floor_loss;
}

static inline void open_log(TrainRun* run) {
    Error err;
    const Config* c = run->config;
    const GPT2Config* m = &run->model.config;
    const LoggerOptions options = {*c->out ? c->out : NULL, c->dtype, run->comm->rank, (int)run->num_steps,
                                   run->resumed ? (int)run->state.step : -1, c->price};
    if (!logger_open(&run->log, &options, &err)) { fatal("--out %s", err.text); }
    json_t* record = json_pack("{s:o, s:{s:s, s:I, s:i, s:i, s:i, s:i, s:i}, s:s, s:s}", "options", config_to_json(c),
                               "model", "name", c->model, "parameters", (json_int_t)model_parameters(m), "L",
                               m->num_layers, "NH", m->num_heads, "C", m->channels, "T", run->model.T, "V",
                               m->vocab_size, "device", device_name(), "program", "gpt2.c");
    const double floor_loss = run->has_val ? corpus_floor(&run->val_data) : NAN;
    if (record && isfinite(floor_loss)) { json_object_set_new(record, "floor", json_real(floor_loss)); }
    logger_config(&run->log, (int)run->state.step, record);
    notice("%s: %zu parameters, L=%d H=%d C=%d T=%d V=%d (%d in memory)", c->model, model_parameters(m), m->num_layers,
           m->num_heads, m->channels, run->model.T, m->vocab_size, m->padded_vocab_size);
    char threads[32] = "";
    if (device_threads()) { snprintf(threads, sizeof threads, ", %d threads", device_threads()); }
    notice("%s%s, %s, %s kernels, a peak of %.4g TFLOP/s; %.1f MiB of memory", device_name(), threads, c->dtype,
           device_kernels(), run->peak_flops / 1e12, (double)run_bytes(&run->model, c) / 1048576);
    notice("%llu training tokens in %d files; %lld steps of %lld tokens, %lld micro-batches of %d x %d",
           (unsigned long long)run->train_data.num_tokens, run->train_data.num_files, run->num_steps,
           c->total_batch_size, c->total_batch_size / ((long long)run->model.B * run->model.T * run->comm->size),
           run->model.B, run->model.T);
    if (run->resumed) { notice("resumed after step %lld, %lld tokens", run->state.step, run->state.tokens); }
}

static inline TrainRun* train_open(Config* c, Comm* comm) {
    Error err;
    GPT2Config shape;
    TrainRun* run = (TrainRun*)alloc_or_die(1, sizeof *run, "the run"); // it must not move: loaders know its address
    run->config = c;
    run->comm = comm;
    preset_apply(c);
    if (*c->resume && config_source(c, "init") >= FROM_FILE) {
        usage_error("--init begins a run and --resume goes on with one: give one of them");
    }
    lock_out(run);
    json_t* state;
    char* checkpoint = open_checkpoint(run, &state);
    const char* folder = checkpoint ? checkpoint : strcmp(c->init, "random") ? c->init : NULL;
    check_same_run(comm, c, state);
    open_devices(comm, c);
    if (!shape_from_config(c, folder, &shape, &err) || !resolve_seq_len(c, &shape, &err) ||
        !resolve_batch(c, &shape, comm, &err)) {
        usage_error("%s", err.text);
    }
    if (state && !check_changes(c, state, &err)) { usage_error("%s", err.text); }
    gpt2_layout(&run->model, &shape, (int)c->batch_size, (int)c->seq_len, keep_of(c));
    gpt2_share(&run->model, sharers_of(c, comm));
    open_data(run);
    check_same_data(comm, run->train_data.hash, run->has_val ? run->val_data.hash : 0);
    check_data(run, checkpoint, state);
    if (!check_memory(&run->model, c, comm, &err)) { fatal("%s", err.text); }
    comm_barrier(comm); // all have asked what there is before one takes it
    open_weights(run, checkpoint, state);
    check_same_weights(&run->model, comm);
    choose_kernels(&run->model, comm, state_kernels(state));
    open_loaders(run);
    run->peak_flops = device_peak_flops();
    open_log(run);
    free(checkpoint);
    json_decref(state);
    return run;
}

static inline int train_close(TrainRun* run) {
    Error err;
    if (!logger_close(&run->log, &err)) { fatal("%s", err.text); }
    dataloader_close(&run->loader);
    dataset_close(&run->train_data);
    if (run->has_val) {
        evalloader_close(&run->val);
        dataset_close(&run->val_data);
        host_free(run->val_memory);
    }
    host_free(run->train_memory);
    tokenizer_free(&run->tokenizer);
    gpt2_free(&run->model);
    if (run->lock >= 0) { close(run->lock); }
    free(run);
    return EXIT_DONE;
}
