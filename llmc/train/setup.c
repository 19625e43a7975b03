#include "setup.h"
#include "autotune.h"
#include "consistency.h"
#include "../data/provenance.h"
#include "../tokenizer/tokenizer_open.h"
#include "../base/json.h"
#include "../model/generate.h"
#include "phases.h"
#include "requests.h"
#include "restore.h"
#include "weights.h"

// ---------------------------------------------------------------------------------------------------------------------
// phases of opening

int* open_batches(const Backend* b, int B, int T) {
    return b->host_alloc(dataloader_ints(B, T) * sizeof(int), "batches of tokens");
}

bool open_tokenizer(Tokenizer* t, const TokenizerPlan* plan, const GPT2Config* m) {
    Error err;
    if (!strcmp(plan->option, "none")) { return false; }
    *t = tokenizer_open(plan->path);
    if (!tokenizer_fits(t, m, plan->option, &err)) { fatal("%s", err.text); }
    return true;
}

int documents_eot(const DataPlan* data, const Tokenizer* t) {
    if (!data->masks_documents) { return NO_DOCUMENTS; }
    if (!t) {
        usage_error("--document_mask 1: documents begin at the tokenizer's end-of-text token, and --tokenizer is none: "
                    "give the tokenizer of the data");
    }
    return t->eot;
}

TestSet* open_test_sets(const PhasePlan* p, const Tokenizer* t, int* count) {
    TestSetOptions options = p->test_sets;
    options.tokenizer = t;
    return test_sets_open(p->eval_data, &options, count);
}

// Sets the number of steps and tokens of the run.
static void count_steps(TrainRun* run) {
    const Plan* p = run->plan;
    const long long batch = p->total_batch_size, most = 2000000000; // AdamW and the log hold the step in an int
    if (p->max_steps > most || p->max_steps > (1LL << 62) / batch) {
        usage_error("--max_steps %lld is too many", p->max_steps);
    }
    const long long epoch = (long long)run->train_data.num_windows * p->T;
    run->total_tokens = p->max_steps >= 0 ? p->max_steps * batch : epoch / batch * batch;
    if (run->total_tokens == 0 && p->max_steps < 0) {
        fatal("--train_data %s: an epoch of %lld tokens is less than --total_batch_size %lld: give --max_steps or a "
              "smaller batch", p->data.train, epoch, batch);
    }
    run->num_steps = ramp_steps(&p->batch_ramp, run->total_tokens);
    if (run->num_steps > most) {
        usage_error("%lld steps are too many: give a larger --total_batch_size", run->num_steps);
    }
}

// Ends the program if there is nothing for --document_mask to do: dataset_find() finds no end of text.
static void check_documents(TrainRun* run) {
    Error err;
    const char* data = run->plan->data.train;
    const int eot = documents_eot(&run->plan->data, run->has_tokenizer ? &run->tokenizer : NULL);
    bool found;
    if (eot == NO_DOCUMENTS) { return; }
    if (!dataset_find(&run->train_data, eot, &found, &err)) { fatal("%s", err.text); }
    if (found) { return; }
    fatal("--document_mask 1: --train_data %s: no end-of-text token (%d) between documents in the first file, nor in "
          "the first and last 32768 tokens of the others: give the --tokenizer of the data, or data of several "
          "documents, or leave the option out",
          data, eot);
}

static void open_data(TrainRun* run) {
    Error err;
    const Plan* p = run->plan;
    const DataPlan* d = &p->data;
    if (!dataset_open(&run->train_data, "--train_data", d->train, d->header, p->T, p->shape.vocab_size, &err)) {
        fatal("%s", err.text);
    }
    run->has_val = *d->val && p->phases.val_every > 0;
    if (run->has_val &&
        !dataset_open(&run->val_data, "--val_data", d->val, d->header, p->T, p->shape.vocab_size, &err)) {
        fatal("%s", err.text);
    }
    run->has_tokenizer = open_tokenizer(&run->tokenizer, &p->tokenizer, &p->shape);
    if (p->phases.test_sets.every > 0) {
        const Tokenizer* t = run->has_tokenizer ? &run->tokenizer : NULL;
        run->test_sets = open_test_sets(&p->phases, t, &run->num_test_sets);
    }
    if (!run->has_tokenizer) { notice("--tokenizer none: token ids only, so there are no samples"); }
    check_documents(run);
    count_steps(run);
}

void check_tokenizer(const char* option, const Tokenizer* t, const json_t* state, const char* folder) {
    const char* hash = json_string_value(json_object_get(state, "tokenizer_hash"));
    if (!hash || strtoull(hash, NULL, 16) == (t ? tokenizer_hash(t) : 0)) { return; }
    fatal("--tokenizer %s: not the tokenizer that the run in %s has been trained with: its tokens differ", option,
          folder);
}

void check_data_tokenizer(Dataset* d, const char* option, const Tokenizer* t, const char* name) {
    Error err;
    if (!dataset_check_tokenizer(d, option, t, name, &err)) { fatal("%s", err.text); }
}

static void open_weights(TrainRun* run) {
    const Backend* b = run->plan->backend;
    gpt2_alloc(&run->model);
    optimizer_alloc(&run->optimizer, &run->model, run->plan->rates.kind, run->plan->shards > 1 ? run->comm : NULL);
    run->optimizer.rounding.seed = run->plan->rounds_at_random ? mix64(run->plan->seed) | 1 : 0;
    run->mailbox = b->host_alloc(sizeof *run->mailbox, "sums of a step");
    b->device_sync();
    if (run->start.checkpoint) { restore_run(run); }
    else { load_weights(&run->model, &run->optimizer, run->plan); }
    run->state.data_hash = run->train_data.hash;
    run->state.tokenizer_hash = run->has_tokenizer ? tokenizer_hash(&run->tokenizer) : 0;
}

static void open_loaders(TrainRun* run) {
    const DataPlan* d = &run->plan->data;
    const Backend* b = run->plan->backend;
    const int B = run->plan->B, T = run->plan->T;
    run->train_memory = open_batches(b, B, T);
    dataloader_open(&run->loader, &run->train_data, d->shuffles ? DATA_SHUFFLED : DATA_IN_ORDER,
                    run->plan->seed, &d->skip, B, run->train_memory);
    if (run->has_val) {
        run->val_memory = open_batches(b, B, T);
        evalloader_open(&run->val, &run->val_data, d->val_tokens, B, run->val_memory);
    }
}

// Returns the options of training: what other commands alone know has no place among a run's settings.
static json_t* train_options(const TrainRun* run) {
    json_t* options = json_copy(run->start.options);
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
                               train_options(run), "model", "name", run->plan->model, "parameters",
                               (json_int_t)model_parameters(m), "L", m->num_layers, "NH", m->num_heads, "C",
                               m->channels, "T", run->plan->T, "V", m->vocab_size, "device",
                               run->plan->backend->device_name(), "program", "gpt2.c");
    const double floor_loss = run->has_val ? corpus_floor(&run->val_data) : NAN;
    if (record && isfinite(floor_loss)) { json_object_set_new(record, "floor", json_real(floor_loss)); }
    return record;
}

static void print_heading(TrainRun* run) {
    const Plan* p = run->plan;
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
    const Plan* p = run->plan;
    const LoggerOptions options = {.folder = *p->save.out ? p->save.out : NULL,
                                   .precision = dtype_names[run->plan->dtype],
                                   .rank = run->comm->rank,
                                   .max_steps = (int)run->num_steps,
                                   .resume_step = run->resumed ? (int)run->state.step : -1,
                                   .print_every = p->print_every,
                                   .has_tensorboard = p->has_tensorboard};
    if (!logger_open(&run->log, &options, &err)) { fatal("--out %s", err.text); }
    on_fatal(log_error, run);
    logger_config(&run->log, (int)run->state.step, config_record(run));
    print_heading(run);
    log_nccl(run);
}

// Makes the choices of autotune(), and measures the device's peak.
static void tune(TrainRun* run) {
    const Backend* b = run->plan->backend;
    char* matmuls = state_matmuls(run->start.state, b);
    autotune(&run->optimizer, run->plan, run->comm, state_kernels(run->start.state, b), matmuls);
    free(matmuls);
    run->peak_flops = device_is_emulated(b) ? 0 : b->device_peak_flops();
}

// Removes the checkpoints that --keep does not keep: a kill may have come between a save and this.
static void rotate_after_kill(const TrainRun* run) {
    const char* out = run->plan->save.out;
    if (!run->resumed || !*out || run->comm->rank > 0) { return; }
    const KeepRule keep = keep_rule(run->plan, &run->state);
    checkpoint_rotate(out, run->state.step, &keep);
}

TrainRun* train_open(Start start, Comm* comm) {
    Error err;
    TrainRun* run = alloc_or_die(1, sizeof *run, "the run"); // it must not move: loaders know its address
    run->start = start;
    run->plan = &run->start.plan;
    run->comm = comm;
    run->state.loss_scale = run->plan->loss_scale;
    open_data(run);
    check_same_data(comm, run->train_data.hash, run->has_val ? run->val_data.hash : 0,
                    test_sets_hash(run->test_sets, run->num_test_sets));
    restore_check_data(run);
    const char* tokenizer = run->plan->tokenizer.option;
    check_tokenizer(tokenizer, run->has_tokenizer ? &run->tokenizer : NULL, start.state, start.checkpoint);
    if (run->has_tokenizer) { check_data_tokenizer(&run->train_data, "--train_data", &run->tokenizer, tokenizer); }
    if (run->has_tokenizer && run->has_val) {
        check_data_tokenizer(&run->val_data, "--val_data", &run->tokenizer, tokenizer);
    }
    run->was_finished = run->resumed = restore_is_finished(run);
    if (run->was_finished) { return run; }
    if (!plan_check_memory(run->plan, comm, &err)) { fatal("%s", err.text); }
    comm_barrier(comm); // no rank allocates before all have checked the free memory
    plan_layout(run->plan, &run->model);
    run->model.eot = documents_eot(&run->plan->data, run->has_tokenizer ? &run->tokenizer : NULL);
    open_weights(run);
    check_same_weights(&run->model, comm);
    tune(run);
    open_loaders(run);
    train_drop_pending(run);
    requests_take_stops(run->plan->max_hours); // before the heading, which shows that the run has begun
    open_log(run);
    restore_record_options(run);
    rotate_after_kill(run);
    if (run->resumed) { restore_warn_of_lr_jump(run); }
    return run;
}

// Closes logs, loaders and model.
static void close_training(TrainRun* run) {
    Error err;
    const Backend* b = run->plan->backend;
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
    start_free(&run->start);
    free(run);
    return EXIT_DONE;
}
