#include "setup.h"
#include "autotune.h"
#include "consistency.h"
#include "open_plan.h"
#include "requests.h"
#include "restore.h"
#include "../data/provenance.h"

// ---------------------------------------------------------------------------------------------------------------------
// data

// Ends the program unless data and tokenizer fit together, are the same on all ranks, and are what the run has used.
static void check_data(TrainRun* run, Comm* comm) {
    const Start* start = &run->start;
    const char* name = run->plan->tokenizer.option;
    Dataset *train = &run->position.data, *val = run->phases.has_val ? &run->phases.val_data : NULL;
    const uint64_t sets = test_sets_hash(run->phases.test_sets, run->phases.num_test_sets);
    check_same_data(comm, train->hash, val ? val->hash : 0, sets);
    restore_check_data(start, train->hash);
    check_tokenizer(name, run->tokenizer, run->plan->weights, !start->checkpoint);
    check_data_tokenizer(train, "--train_data", run->tokenizer, name);
    if (val) { check_data_tokenizer(val, "--val_data", run->tokenizer, name); }
    if (val && val->hash == train->hash) { notice("warning: --val_data is the data that the run is trained on"); }
}

// Says that most of a new model's vocabulary serves for nothing, as with --tokenizer bytes and no V in --model.
static void check_vocabulary(const TrainRun* run) {
    const int used = run->tokenizer ? run->tokenizer->vocab_size : 0, all = run->plan->shape.vocab_size;
    if (!used || all < 2 * used || run->plan->weights) { return; }
    GPT2Config fitting = run->plan->shape;
    fitting.vocab_size = used;
    char* shape = shape_text(&fitting);
    notice("warning: the tokenizer has %d tokens, the model's vocabulary %d: --model %s saves memory and time", used,
           all, shape);
    free(shape);
}

static void open_data(TrainRun* run, Comm* comm) {
    run->tokenizer = open_tokenizer(&run->plan->tokenizer, &run->plan->shape);
    check_vocabulary(run);
    position_open(&run->position, run->plan, comm, run->tokenizer, &run->start.begin);
    phases_open(&run->phases, run->plan, run->position.length.steps, run->tokenizer);
    if (!run->tokenizer) { notice("--tokenizer none: token ids only, so there are no samples"); }
    check_data(run, comm);
}

bool train_is_complete(const TrainRun* run) {
    return run->step >= run->position.length.steps && !phases_are_pending(&run->phases);
}

// ---------------------------------------------------------------------------------------------------------------------
// logs

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
    const double floor_loss = run->phases.has_val ? corpus_floor(&run->phases.val_data) : NAN;
    if (record && isfinite(floor_loss)) { json_object_set_new(record, "floor", json_real(floor_loss)); }
    return record;
}

// Prints the line about the device.
static void print_device(const TrainRun* run) {
    const Plan* p = run->plan;
    const Backend* b = p->backend;
    const Comm* comm = run->ranks.comm;
    const PlanMemory memory = plan_memory(p);
    const int threads = b->device_threads();
    char* text = NULL;
    if (comm->size > 1) { append_format(&text, "%d processes by %s, each: ", comm->size, comm->engine->name); }
    append_format(&text, "%s", b->device_name());
    if (threads) { append_format(&text, ", %d thread%s", threads, plural((uint64_t)threads)); }
    append_format(&text, ", %s%s, %s kernels", dtype_names[p->dtype], residual_note(b), b->device_kernels());
    if (run->peak_flops > 0) { append_format(&text, ", a peak of %.4g TFLOP/s", run->peak_flops / 1e12); }
    append_format(&text, "; ");
    if (p->place == STATE_IN_HOST) {
        append_format(&text, "%.1f MiB of state in host memory, ", in_mib(memory.state));
    }
    notice("%s%.1f MiB of memory", text, in_mib(memory.device));
    free(text);
}

static void print_heading(TrainRun* run) {
    const Plan* p = run->plan;
    const GPT2Config* m = &p->shape;
    const Dataset* data = &run->position.data;
    const long long steps = run->position.length.steps;
    const LossScale* scale = &run->numerics.loss_scale;
    notice("%s: %zu parameters, L=%d H=%d C=%d T=%d V=%d (%d in memory)", p->model, model_parameters(m), m->num_layers,
           m->num_heads, m->channels, p->T, m->vocab_size, m->padded_vocab_size);
    print_device(run);
    const long long micro_batches = p->total_batch_size / ((long long)p->B * p->T * run->ranks.comm->size);
    const double epochs = (double)run->position.length.tokens / (double)data->num_tokens;
    notice("%llu training tokens in %d file%s; %lld step%s of %s%lld tokens (%.*g epochs), "
           "%lld micro-batch%s of %d x %d", (unsigned long long)data->num_tokens, data->num_files,
           plural((uint64_t)data->num_files), steps, plural((uint64_t)steps),
           p->batch_ramp.start ? "up to " : "", p->total_batch_size,
           epochs < 999.5 ? 3 : 6, epochs, micro_batches, micro_batches == 1 ? "" : "es", p->B, p->T);
    const double full_steps = position_steps(&run->position, run->step).steps; // in a batch ramp fewer than `steps`
    if (steps && (double)p->schedule.warmup_steps > full_steps) {
        notice("warning: --warmup_steps %lld: the rate never reaches --lr in %.6g %sstep%s", p->schedule.warmup_steps,
               full_steps, p->batch_ramp.start ? "full " : "", full_steps == 1 ? "" : "s");
    }
    if (loss_scale_is_on(scale)) {
        notice("loss scale %.9g%s", scale->scale, scale->is_dynamic ? ", dynamic" : "");
    }
    if (run->start.checkpoint) {
        logger_notice(&run->log, "resumed after step %lld, %lld tokens", run->step, run->position.tokens);
    }
}

// Logs an error that ends the program.
static void log_error(void* train_run, const char* message) {
    TrainRun* run = train_run;
    logger_end(&run->log, (int)run->step, "error", message);
}

static void open_log(TrainRun* run) {
    Error err;
    const Plan* p = run->plan;
    const LoggerOptions options = {.folder = *p->save.out ? p->save.out : NULL,
                                   .precision = dtype_names[p->dtype],
                                   .rank = run->ranks.comm->rank,
                                   .max_steps = (int)run->position.length.steps,
                                   .max_tokens = (size_t)run->position.length.tokens,
                                   .resume_step = run->start.checkpoint ? (int)run->step : -1,
                                   .has_tensorboard = p->has_tensorboard};
    if (!logger_open(&run->log, &options, &err)) { fatal("--out %s", err.text); }
    on_fatal(log_error, run);
    logger_config(&run->log, (int)run->step, config_record(run));
    print_heading(run);
    const char* nccl = p->nccl_algorithms; // on which it depends whether a run repeats its bits
    if (nccl) { logger_notice(&run->log, "NCCL_ALGO=%s", nccl); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the run

// Allocates model and optimizer. Returns the state to begin at, whose weights and moments they have.
static TrainState open_weights(TrainRun* run, Comm* comm) {
    Error err;
    const Plan* p = run->plan;
    const Backend* b = p->backend;
    if (p->shards == 1 && (b->is_host || p->rates.kind == OPTIMIZER_MUON)) { check_equal_kernels(comm, b); }
    if (!plan_check_memory(p, comm, &err)) { fatal("%s", err.text); }
    plan_layout(p, &run->model);
    run->model.eot = documents_eot(&p->data, run->tokenizer);
    gpt2_alloc(&run->model);
    optimizer_alloc(&run->optimizer, &run->model, p->rates.kind, p->place, p->shards > 1 ? comm : NULL);
    run->optimizer.rounding.seed = p->rounds_at_random ? mix64(p->seed) | 1 : 0;
    b->device_sync();
    const TrainState s = restore_state(&run->optimizer, &run->start, comm);
    check_same_weights(&run->model, comm);
    return s;
}

// Makes the choices of autotune(), and measures the device's peak.
static void tune(TrainRun* run, Comm* comm) {
    const Backend* b = run->plan->backend;
    char* matmuls = state_matmuls(run->start.state, b);
    autotune(&run->optimizer, run->plan, comm, state_kernels(run->start.state, b), matmuls);
    free(matmuls);
    run->peak_flops = device_is_emulated(b) ? 0 : b->device_peak_flops();
}

// Lets the parts of the run begin at a state.
static void begin_at(TrainRun* run, const TrainState* s) {
    run->step = run->first_step = s->step;
    run->updates = s->updates;
    run->numerics = s->numerics;
    position_begin(&run->position, s->tokens, s->window);
    phases_begin(&run->phases, &run->model, &run->ranks, &run->log);
}

TrainRun* train_open(Start start, Comm* comm) {
    TrainRun* run = alloc_or_die(1, sizeof *run, "the run"); // it must not move: loaders know its address
    run->start = start;
    run->plan = &run->start.plan;
    ranks_open(&run->ranks, comm, run->plan->backend);
    open_data(run, comm);
    if (run->start.checkpoint) {
        const TrainState* begin = &run->start.begin;
        run->step = begin->step;
        phases_resume(&run->phases, begin->step, begin->pending);
        run->was_finished = train_is_complete(run) && restore_logs_have_end(&run->start, comm, begin->step);
    }
    if (run->was_finished) { return run; }
    const TrainState state = open_weights(run, comm);
    tune(run, comm);
    begin_at(run, &state);
    // before the heading, which shows that the run has begun
    requests_take_stops(run->plan->max_hours, "stopping, and saving what is not saved yet");
    open_log(run);
    saving_open(&run->saving, &run->start, &state, run->tokenizer, &run->log, comm->rank);
    if (!train_is_complete(run)) { restore_warn_of_lr_jump(&run->start, &run->position, run->step); }
    return run;
}

int train_close(TrainRun* run) {
    Error err;
    on_fatal(NULL, NULL);
    saving_close(&run->saving);
    if (!run->was_finished && !logger_close(&run->log, &err)) { fatal("%s", err.text); }
    position_close(&run->position);
    phases_close(&run->phases);
    ranks_close(&run->ranks, run->plan->backend);
    if (!run->was_finished) {
        optimizer_free(&run->optimizer);
        gpt2_free(&run->model);
    }
    close_tokenizer(run->tokenizer);
    start_free(&run->start);
    free(run);
    return EXIT_DONE;
}
