#include "setup.h"
#include "autotune.h"
#include "consistency.h"
#include "../data/provenance.h"
#include "../tokenizer/tokenizer_open.h"
#include "../tokenizer/tokenizer_json.h"
#include "../eval/text.h"
#include "../base/json.h"
#include "../model/generate.h"
#include "phases.h"
#include "requests.h"
#include "resume.h"
#include "spikes.h"
#include "weights.h"
#include <sys/file.h>

// ---------------------------------------------------------------------------------------------------------------------
// phases of opening

// Locks --out: one run at a time writes into a folder. The lock ends with the process, however that ends. Rank 0 alone
// writes.
static void lock_out(TrainRun* run) {
    Error err;
    run->lock = -1;
    if (!*run->config->out || run->comm->rank > 0) { return; }
    if (!make_directories(run->config->out, &err)) { fatal("--out %s", err.text); }
    char* path = format("%s/.lock", run->config->out);
    run->lock = open(path, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (run->lock < 0) { fatal("--out %s: cannot write there: %s", path, strerror(errno)); }
    if (flock(run->lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) { fatal("--out %s: cannot lock it: %s", path, strerror(errno)); }
        fatal("--out %s: another run is writing to this folder; wait for it, or give another --out", run->config->out);
    }
    free(path);
    checkpoint_clean(run->config->out);
}

int* open_batches(const Backend* b, int B, int T) {
    return b->host_alloc(dataloader_ints(B, T) * sizeof(int), "batches of tokens");
}

void take_folder_tokenizer(Config* c, const char* folder) {
    Error err;
    if (!folder || config_source(c, "tokenizer") >= FROM_CHECKPOINT || !folder_has_tokenizer(folder)) { return; }
    if (!config_set(c, config_find("tokenizer"), folder, FROM_CHECKPOINT, &err)) { fatal("%s", err.text); }
}

bool open_tokenizer(Tokenizer* t, const Config* c, const GPT2Config* m, const char* folder) {
    Error err;
    const char* option = c->tokenizer;
    if (!strcmp(option, "none")) { return false; }
    const bool is_built_in = !*option || !strcmp(option, "gpt2") || !strcmp(option, "bytes");
    const bool is_recorded = config_source(c, "tokenizer") == FROM_CHECKPOINT && !is_built_in;
    *t = tokenizer_open(folder && is_recorded && folder_has_tokenizer(folder) ? folder : option);
    if (!tokenizer_fits(t, m, option, &err)) { fatal("%s", err.text); }
    return true;
}

int documents_eot(const Config* c, const Tokenizer* t) {
    if (!c->document_mask) { return NO_DOCUMENTS; }
    if (!t) {
        usage_error("--document_mask 1: documents begin at the tokenizer's end-of-text token, and --tokenizer is none: "
                    "give the tokenizer of the data");
    }
    return t->eot;
}

TestSet* open_test_sets(const Config* c, const Tokenizer* t, const Plan* p, int* count) {
    TestSetOptions options = p->test_sets;
    options.tokenizer = t;
    return test_sets_open(c->eval_data, &options, count);
}

TestSet* open_texts(const Config* c, const Tokenizer* t, const Plan* p, int* count) {
    const TestSetOptions options = {.tokenizer = t, .T = p->T, .vocab_size = p->shape.vocab_size};
    return text_sets_open(c->text, c->field, &options, (int)c->stride, count);
}

// Ends the program if --model is wrong, before anything else is looked for. A checkpoint or a folder brings its own.
static void require_model(const Config* c) {
    Error err;
    GPT2Config shape;
    if (*c->resume || init_folder(c) || model_parse(c->model, c->pad_vocab, &shape, &err)) { return; }
    usage_error("%s", err.text);
}

// Ends the program if there is no training data, before anything is created. Does not check a resumed run, whose
// checkpoint may name the data, nor one with --preset.
static void require_data(const Config* c) {
    Error err;
    const bool is_default = config_source(c, "train_data") == FROM_DEFAULT;
    if (*c->resume || dataset_exists("--train_data", c->train_data, &err)) { return; }
    if (!is_default) { fatal("%s", err.text); }
    fatal("there is no training data in data/ yet: `./prepare --stories 3000000 --out data/stories` writes a "
          "small corpus there; or give --train_data 'FILES'. `sh scripts/quickstart.sh` makes the corpus and trains a "
          "small model on it");
}

// Sets the number of steps and tokens of the run.
static void plan_steps(TrainRun* run) {
    Error err;
    const Config* c = run->config;
    const long long T = run->plan.T, batch = run->plan.total_batch_size;
    const long long most = 2000000000; // AdamW and the log hold the step in an int
    if (!batch_ramp_parse(c->batch_ramp, batch, (int)T, &run->batch_ramp, &err) ||
        !seq_ramp_parse(c->seq_ramp, (int)T, &run->seq_ramp, &err)) {
        usage_error("%s", err.text);
    }
    if (c->max_steps > most || c->max_steps > (1LL << 62) / batch) {
        usage_error("--max_steps %lld is too many", c->max_steps);
    }
    const long long epoch = (long long)run->train_data.num_windows * T;
    run->total_tokens = c->max_steps >= 0 ? c->max_steps * batch : epoch / batch * batch;
    if (run->total_tokens == 0 && c->max_steps < 0) {
        fatal("--train_data %s: an epoch of %lld tokens is less than --total_batch_size %lld: give --max_steps or a "
              "smaller batch", c->train_data, epoch, batch);
    }
    run->num_steps = ramp_steps(&run->batch_ramp, run->total_tokens);
    if (run->num_steps > most) {
        usage_error("%lld steps are too many: give a larger --total_batch_size", run->num_steps);
    }
}

// Ends the program if there is nothing for --document_mask to do: dataset_find() finds no end of text.
static void check_documents(TrainRun* run) {
    Error err;
    const char* data = run->config->train_data;
    const int eot = documents_eot(run->config, run->has_tokenizer ? &run->tokenizer : NULL);
    bool found;
    if (eot == NO_DOCUMENTS) { return; }
    if (!dataset_find(&run->train_data, eot, &found, &err)) { fatal("%s", err.text); }
    if (found) { return; }
    fatal("--document_mask 1: --train_data %s: no end-of-text token (%d) between documents in the first file, nor in "
          "the first and last 32768 tokens of the others: give the --tokenizer of the data, or data of several "
          "documents, or leave the option out",
          data, eot);
}

static void open_data(TrainRun* run, const char* folder) {
    Error err;
    const Config* c = run->config;
    const int T = run->plan.T, V = run->plan.shape.vocab_size;
    const TokenHeader header = token_header(c);
    if (!dataset_open(&run->train_data, "--train_data", c->train_data, header, T, V, &err)) {
        fatal("%s", err.text);
    }
    run->has_val = *c->val_data && c->val_every > 0;
    if (run->has_val && !dataset_open(&run->val_data, "--val_data", c->val_data, header, T, V, &err)) {
        fatal("%s", err.text);
    }
    run->has_tokenizer = open_tokenizer(&run->tokenizer, c, &run->plan.shape, folder);
    if (run->plan.test_sets.every > 0) {
        const Tokenizer* t = run->has_tokenizer ? &run->tokenizer : NULL;
        run->test_sets = open_test_sets(c, t, &run->plan, &run->num_test_sets);
    }
    if (!run->has_tokenizer) { notice("--tokenizer none: token ids only, so there are no samples"); }
    check_documents(run);
    plan_steps(run);
}

void check_tokenizer(const Config* c, const Tokenizer* t, const json_t* state, const char* folder) {
    const char* hash = json_string_value(json_object_get(state, "tokenizer_hash"));
    if (!hash || strtoull(hash, NULL, 16) == (t ? tokenizer_hash(t) : 0)) { return; }
    fatal("--tokenizer %s: not the tokenizer that the run in %s has been trained with: its tokens differ", c->tokenizer,
          folder);
}

void check_data_tokenizer(Dataset* d, const char* option, const Tokenizer* t, const Config* c) {
    Error err;
    if (!dataset_check_tokenizer(d, option, t, c->tokenizer, &err)) { fatal("%s", err.text); }
}

static void open_weights(TrainRun* run, const char* checkpoint, json_t* state) {
    const Config* c = run->config;
    const Backend* b = run->plan.backend;
    gpt2_alloc(&run->model);
    optimizer_alloc(&run->optimizer, &run->model, run->plan.rates.kind, run->plan.shards > 1 ? run->comm : NULL);
    run->optimizer.rounding.seed = c->stochastic_round ? mix64((uint64_t)c->seed) | 1 : 0;
    run->mailbox = b->host_alloc(sizeof *run->mailbox, "sums of a step");
    b->device_sync();
    if (checkpoint) { resume_load(run, checkpoint, state); }
    else { load_weights(&run->model, &run->optimizer, c, init_folder(c)); }
    run->state.data_hash = run->train_data.hash;
    run->state.tokenizer_hash = run->has_tokenizer ? tokenizer_hash(&run->tokenizer) : 0;
}

static void open_loaders(TrainRun* run) {
    const Config* c = run->config;
    const Backend* b = run->plan.backend;
    const int B = run->plan.B, T = run->plan.T;
    run->train_memory = open_batches(b, B, T);
    dataloader_open(&run->loader, &run->train_data, c->shuffle ? DATA_SHUFFLED : DATA_IN_ORDER, (uint64_t)c->seed,
                    &run->skip, B, run->train_memory);
    if (run->has_val) {
        run->val_memory = open_batches(b, B, T);
        evalloader_open(&run->val, &run->val_data, c->val_tokens, B, run->val_memory);
    }
}

// Returns the options of training: what other commands alone know has no place among a run's settings.
static json_t* train_options(const TrainRun* run) {
    json_t* options = plan_options(&run->plan, run->config);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (o->name && !(o->commands & TRAIN)) { json_object_del(options, o->name); }
    }
    return options;
}

// Returns the first record of metrics.jsonl and of the report: options, model, device.
static json_t* config_record(const TrainRun* run) {
    const GPT2Config* m = &run->model.config;
    json_t* record = json_pack("{s:o, s:{s:s, s:I, s:i, s:i, s:i, s:i, s:i}, s:s, s:s}", "options",
                               train_options(run), "model", "name", run->plan.model, "parameters",
                               (json_int_t)model_parameters(m), "L", m->num_layers, "NH", m->num_heads, "C",
                               m->channels, "T", run->plan.T, "V", m->vocab_size, "device",
                               run->plan.backend->device_name(), "program", "gpt2.c");
    const double floor_loss = run->has_val ? corpus_floor(&run->val_data) : NAN;
    if (record && isfinite(floor_loss)) { json_object_set_new(record, "floor", json_real(floor_loss)); }
    return record;
}

static void print_heading(TrainRun* run) {
    const Plan* p = &run->plan;
    const Backend* b = p->backend;
    const GPT2Config* m = &p->shape;
    const LossScale* scale = &run->state.loss_scale;
    char threads[32] = "", processes[48] = "", peak[48] = "";
    notice("%s: %zu parameters, L=%d H=%d C=%d T=%d V=%d (%d in memory)", p->model, model_parameters(m), m->num_layers,
           m->num_heads, m->channels, p->T, m->vocab_size, m->padded_vocab_size);
    const int count = b->device_threads();
    if (count) { snprintf(threads, sizeof threads, ", %d thread%s", count, plural((uint64_t)count)); }
    if (run->comm->size > 1) {
        snprintf(processes, sizeof processes, "%d processes by %s, each: ", run->comm->size, run->comm->engine->name);
    }
    if (run->peak_flops > 0) { snprintf(peak, sizeof peak, ", a peak of %.4g TFLOP/s", run->peak_flops / 1e12); }
    notice("%s%s%s, %s%s, %s kernels%s; %.1f MiB of memory", processes, b->device_name(), threads,
           dtype_names[p->dtype], residual_note(b), b->device_kernels(), peak, in_mib(plan_bytes(p)));
    const long long micro_batches = p->total_batch_size / ((long long)p->B * p->T * run->comm->size);
    notice("%llu training tokens in %d file%s; %lld step%s of %lld tokens, %lld micro-batch%s of %d x %d",
           (unsigned long long)run->train_data.num_tokens, run->train_data.num_files,
           plural((uint64_t)run->train_data.num_files), run->num_steps, plural((uint64_t)run->num_steps),
           p->total_batch_size, micro_batches, micro_batches == 1 ? "" : "es", p->B, p->T);
    if (loss_scale_is_on(scale)) {
        notice("loss scale %.9g%s", scale->scale, scale->is_dynamic ? ", dynamic" : "");
    }
    if (run->resumed) {
        logger_notice(&run->log, "resumed after step %lld, %lld tokens", run->state.step, run->state.tokens);
    }
}

// Logs the algorithms that NCCL may use: whether a run repeats its bits depends on them.
static void log_nccl(TrainRun* run) {
    const Comm* comm = run->comm;
    if (comm->algorithms) { logger_notice(&run->log, "NCCL_ALGO=%s", comm->algorithms); }
}

// Logs an error that ends the program.
static void log_error(void* train_run, const char* message) {
    TrainRun* run = train_run;
    logger_end(&run->log, (int)run->state.step, "error", message);
}

static void open_log(TrainRun* run) {
    Error err;
    const Config* c = run->config;
    const LoggerOptions options = {.folder = *c->out ? c->out : NULL,
                                   .precision = dtype_names[run->plan.dtype],
                                   .rank = run->comm->rank,
                                   .max_steps = (int)run->num_steps,
                                   .resume_step = run->resumed ? (int)run->state.step : -1,
                                   .print_every = c->print_every,
                                   .has_tensorboard = c->tensorboard};
    if (!logger_open(&run->log, &options, &err)) { fatal("--out %s", err.text); }
    on_fatal(log_error, run);
    logger_config(&run->log, (int)run->state.step, config_record(run));
    print_heading(run);
    log_nccl(run);
}

TrainRun* train_open(Config* c, const Backend* b, enum dtype dtype, Comm* comm) {
    Error err;
    TrainRun* run = alloc_or_die(1, sizeof *run, "the run"); // it must not move: loaders know its address
    run->config = c;
    run->comm = comm;
    preset_apply(c);
    require_model(c);
    require_data(c);
    lock_out(run);
    json_t* state;
    char* checkpoint = resume_open(run, &state);
    const char* folder = checkpoint ? checkpoint : init_folder(c);
    take_folder_tokenizer(c, checkpoint ? NULL : folder);
    check_same_run(comm, c, state);
    if (!config_check_needs(c, TRAIN, &err)) { usage_error("%s", err.text); }
    open_device(b, c, dtype, comm);
    if (!plan_make(&run->plan, b, dtype, c, folder, comm, &err)) { usage_error("%s", err.text); }
    if (state && !plan_check_changes(&run->plan, c, state, &err)) { usage_error("%s", err.text); }
    if (!skip_windows_parse(&run->skip, c->skip_windows, &err)) { usage_error("--skip_windows %s", err.text); }
    resume_loss_scale(run, checkpoint, NULL);
    open_data(run, folder);
    check_same_data(comm, run->train_data.hash, run->has_val ? run->val_data.hash : 0,
                    test_sets_hash(run->test_sets, run->num_test_sets));
    resume_check_data(run, checkpoint, state);
    check_tokenizer(c, run->has_tokenizer ? &run->tokenizer : NULL, state, checkpoint);
    if (run->has_tokenizer) { check_data_tokenizer(&run->train_data, "--train_data", &run->tokenizer, c); }
    if (run->has_tokenizer && run->has_val) { check_data_tokenizer(&run->val_data, "--val_data", &run->tokenizer, c); }
    run->was_finished = run->resumed = resume_is_finished(run, checkpoint, state);
    if (run->was_finished) {
        free(checkpoint);
        json_decref(state);
        return run;
    }
    if (!plan_check_memory(&run->plan, comm, &err)) { fatal("%s", err.text); }
    comm_barrier(comm); // no rank allocates before all have checked the free memory
    plan_layout(&run->plan, &run->model);
    run->model.eot = documents_eot(c, run->has_tokenizer ? &run->tokenizer : NULL);
    open_weights(run, checkpoint, state);
    check_same_weights(&run->model, comm);
    char* matmuls = state_matmuls(state, b);
    autotune(&run->optimizer, c, comm, state_kernels(state, b), matmuls);
    free(matmuls);
    open_loaders(run);
    train_drop_pending(run);
    run->peak_flops = device_is_emulated(b) ? 0 : b->device_peak_flops();
    requests_take_stops(c->max_time); // before the heading, which shows that the run has begun
    open_log(run);
    resume_record_options(run);
    if (run->resumed && *c->out && comm->rank == 0) { // a kill may have come between a save and this
        const KeepRule keep = keep_rule(&run->plan, &run->state);
        checkpoint_rotate(c->out, run->state.step, &keep);
    }
    if (state) { resume_warn_of_lr_jump(run, state); }
    free(checkpoint);
    json_decref(state);
    return run;
}

// Closes logs, loaders and model.
static void close_training(TrainRun* run) {
    Error err;
    const Backend* b = run->plan.backend;
    on_fatal(NULL, NULL);
    saver_close(&run->saver);
    if (!logger_close(&run->log, &err)) { fatal("%s", err.text); }
    dataloader_close(&run->loader);
    if (run->has_val) {
        evalloader_close(&run->val);
        b->host_free(run->val_memory);
    }
    b->host_free(run->train_memory);
    tokenizer_files_free(&run->tokenizer_files);
    b->host_free(run->mailbox);
    optimizer_free(&run->optimizer);
    gpt2_free(&run->model);
}

int train_close(TrainRun* run) {
    if (!run->was_finished) { close_training(run); }
    dataset_close(&run->train_data);
    if (run->has_val) { dataset_close(&run->val_data); }
    test_sets_close(run->test_sets, run->num_test_sets);
    if (run->has_tokenizer) { tokenizer_free(&run->tokenizer); }
    if (run->lock >= 0) { close(run->lock); }
    skip_windows_free(&run->skip);
    free(run);
    return EXIT_DONE;
}
