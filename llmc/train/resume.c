#include "resume.h"
#include "consistency.h"
#include "phases.h"
#include "../log/metrics.h"

// Ends the program if --out holds checkpoints of another run, or newer ones than --resume names: --keep would make this
// run delete them.
static void check_no_newer_checkpoints(const Config* c, long long step) {
    size_t count = 0;
    long long* steps = *c->out ? checkpoint_list(c->out, &count) : NULL;
    if (count && !path_is_entry_of(c->resume, c->out)) {
        fatal("--resume %s: --out %s holds checkpoints of another run: give another --out", c->resume, c->out);
    }
    if (count && steps[0] > step) {
        fatal("--resume %s: --out %s holds newer checkpoints, up to step %lld: give another --out, or remove the newer "
              "ones", c->resume, c->out, steps[0]);
    }
    free(steps);
}

// Returns true if a checkpoint with this state has been trained on one of the windows.
static bool was_trained_on(const SkipWindows* skip, const json_t* state) {
    Error ignored;
    SkipWindows skipped = {NULL, 0};
    const char* text = json_string_value(json_object_get(json_object_get(state, "options"), "skip_windows"));
    const json_int_t window = json_integer_value(json_object_get(state, "window"));
    if (text) { skip_windows_parse(&skipped, text, &ignored); } // on failure none were left out
    const bool was_trained = skip_windows_were_trained(skip, (uint64_t)window, &skipped);
    skip_windows_free(&skipped);
    return was_trained;
}

// Sets aside the checkpoints in --out that have been trained on a window of --skip_windows. Those that cannot be read
// are left to checkpoint_newest(). Ends the program if none would be left.
static void go_back(const Config* c, const SkipWindows* skip) {
    Error err;
    size_t count, num_trained = 0;
    if (!skip->count) { return; }
    long long* steps = checkpoint_list(c->out, &count);
    for (size_t i = 0; i < count; i++) { // steps becomes the list of these
        char* path = checkpoint_path(c->out, steps[i]);
        json_t* state = checkpoint_read_state(path, &err);
        if (state && was_trained_on(skip, state)) { steps[num_trained++] = steps[i]; }
        json_decref(state);
        free(path);
    }
    if (count && num_trained == count) {
        fatal("--skip_windows %s: each checkpoint in %s has been trained on some of these: begin again in another "
              "--out, or leave out later windows", c->skip_windows, c->out);
    }
    for (size_t i = 0; i < num_trained; i++) {
        char* path = checkpoint_path(c->out, steps[i]);
        checkpoint_set_aside(path, "rewound");
        free(path);
    }
    free(steps);
}

// Returns the checkpoint to resume from, and its state; NULL for a fresh run.
static char* find_checkpoint(TrainRun* run, json_t** state) {
    Error err;
    Config* c = run->config;
    char* path = NULL;
    SkipWindows skip;
    *state = NULL;
    if (!skip_windows_parse(&skip, c->skip_windows, &err)) { usage_error("--skip_windows %s", err.text); }
    if (!*c->resume) {
        size_t count = 0;
        free(*c->out ? checkpoint_list(c->out, &count) : NULL);
        if (count) {
            fatal("--out %s holds checkpoints of another run: continue with --resume auto, or give another --out",
                  c->out);
        }
        return NULL;
    }
    if (strcmp(c->resume, "auto")) {
        path = format("%s", c->resume);
        if (!path_is_entry_of(path, c->out)) { checkpoint_hold(path); } // of another run, which may go on
        *state = checkpoint_verify(path, &err);
        if (!*state) { fatal("--resume %s", err.text); }
        if (was_trained_on(&skip, *state)) {
            fatal("--resume %s: it has been trained on some of --skip_windows %s: give an older checkpoint, or "
                  "--resume auto", path, c->skip_windows);
        }
        check_no_newer_checkpoints(c, json_integer_value(json_object_get(*state, "step")));
    } else {
        if (!*c->out) { usage_error("--resume auto looks for checkpoints in --out, which is empty"); }
        go_back(c, &skip);
        path = checkpoint_newest(c->out, state, CHECKPOINT_CONTINUE);
        if (!path) { notice("no checkpoint in %s yet: starting afresh", c->out); }
    }
    skip_windows_free(&skip);
    return path;
}

// Ends the program if a run has a value of an option that is gone, and would go on as another run without it.
static void refuse_removed_options(const json_t* recorded, const char* where) {
    const json_t* interval = json_object_get(recorded, "loss_scale_every");
    const char* option = json_is_true(json_object_get(recorded, "ramp_lr")) ? "ramp_lr"
                         : json_is_integer(interval) && json_integer_value(interval) != 2000 ? "loss_scale_every"
                                                                                             : NULL;
    if (option) {
        fatal("%s: the run has --%s, which this program no longer has: continue it with the version that began it, or "
              "begin a new run with its weights: --init CHECKPOINT, in another --out", where, option);
    }
}

// Takes the options that a run was started with, except where this start gives others. `where` names their source in
// errors.
static void take_run_options(Config* c, const json_t* recorded, const char* where) {
    Error err;
    refuse_removed_options(recorded, where);
    json_t* options = json_deep_copy(recorded);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (o->name && o->scope == SCOPE_START) { json_object_del(options, o->name); }
    }
    if (!config_from_json(c, options, where, &err)) { fatal("%s", err.text); }
    json_decref(options);
}

// Takes the options of a run without a checkpoint, from options.json (run_write_options).
static void take_first_options(Config* c) {
    json_t* options = strcmp(c->resume, "auto") ? NULL : run_read_options(c->out);
    if (options) { take_run_options(c, options, "options.json"); }
    json_decref(options);
}

// Returns the state of a checkpoint that rank 0 has verified. It is verified once on each machine.
static json_t* read_state_of_rank0(const TrainRun* run, const char* path) {
    Error err;
    const bool verifies = run->comm->rank > 0 && run->comm->local_rank == 0;
    json_t* state = verifies ? checkpoint_verify(path, &err) : checkpoint_read_state(path, &err);
    if (!state) { fatal("%s: rank 0 sees this checkpoint; all ranks must see the same files", err.text); }
    return state;
}

char* resume_open(TrainRun* run, json_t** state) {
    Config* c = run->config;
    *state = NULL;
    char* path = run->comm->rank == 0 ? find_checkpoint(run, state) : NULL;
    path = share_text(run->comm, path);
    if (!path) {
        take_first_options(c);
        return NULL;
    }
    if (!*state) { *state = read_state_of_rank0(run, path); } // check_same_run() compares what the ranks read
    take_run_options(c, json_object_get(*state, "options"), path);
    return path;
}

void resume_check_data(const TrainRun* run, const char* checkpoint, json_t* state) {
    const char* hash = json_string_value(json_object_get(state, "data_hash"));
    if (!checkpoint || (hash && strtoull(hash, NULL, 16) == run->train_data.hash)) { return; }
    fatal("--train_data %s: not the data that the run in %s has been trained on (names, sizes or tokens differ); give "
          "the same data, or begin a new run with --init %s",
          run->config->train_data, checkpoint, checkpoint);
}

// Returns true if the last record of metrics.jsonl says that the run finished at this step. A kill may have prevented
// it.
static bool logs_have_end(const char* out, long long step) {
    Error err;
    Run logs;
    const bool has_end = run_read(&logs, out, &err) && !strcmp(record_text(logs.end, "reason"), "finished") &&
                         record_number(logs.end, "step") == (double)step;
    run_free(&logs);
    return has_end;
}

bool resume_is_finished(TrainRun* run, const char* checkpoint, const json_t* state) {
    const char* out = run->config->out;
    TrainState* s = &run->state;
    if (!checkpoint) { return false; }
    s->step = json_integer_value(json_object_get(state, "step"));
    s->pending = state_pending(state);
    train_drop_pending(run);
    if (!train_is_complete(run)) { return false; }
    const bool has_logs = run->comm->rank == 0 && path_is_entry_of(checkpoint, out);
    return comm_min_host(run->comm, !has_logs || logs_have_end(out, s->step)) != 0;
}

void resume_loss_scale(TrainRun* run, const char* checkpoint, json_t* state) {
    Error err;
    const Config* c = run->config;
    const bool is_fp16 = run->plan.dtype == dtype_fp16;
    if (!loss_scale_parse(&run->state.loss_scale, c->loss_scale, is_fp16, &err)) {
        usage_error("%s", err.text);
    }
    const json_t* saved = json_object_get(state, "loss_scale");
    const char* option = json_string_value(json_object_get(json_object_get(state, "options"), "loss_scale"));
    if (!saved || !option || strcmp(option, c->loss_scale)) { return; }
    if (!loss_scale_from_json(&run->state.loss_scale, saved, &err)) { fatal("%s: %s", checkpoint, err.text); }
}

// Forgets the checkpoint with the lowest validation loss if --out does not have it.
static void forget_missing_best(TrainRun* run) {
    TrainState* s = &run->state;
    char* path = checkpoint_path(run->config->out, s->best_step);
    if (comm_min_host(run->comm, run->comm->rank > 0 || path_exists(path)) == 0) { // rank 0 decides
        s->best_step = 0;
        s->best_loss = 0;
    }
    free(path);
}

void resume_load(TrainRun* run, const char* checkpoint, json_t* state) {
    Error err;
    if (!checkpoint_load(&run->optimizer, &run->state, checkpoint, state, &err)) { fatal("%s", err.text); }
    forget_missing_best(run);
    resume_loss_scale(run, checkpoint, state);
    run->resumed = true;
}

void resume_warn_of_lr_jump(const TrainRun* run, json_t* state) {
    static const char* const groups[NUM_GROUPS] = {
        [GROUP_EMBEDDING] = " of embeddings", [GROUP_MATRIX] = " of matrices", [GROUP_VECTOR] = " of vectors"};
    Error err;
    Config old;
    Rates rates;
    config_defaults(&old);
    if (!config_from_json(&old, json_object_get(state, "options"), "state.json", &err) ||
        !rates_parse(&rates, &old, &err)) {
        fatal("%s", err.text);
    }
    const long long batch = old.total_batch_size ? old.total_batch_size : run->plan.total_batch_size;
    const double step = (double)run->state.step;
    const double steps = old.max_steps >= 0 ? (double)old.max_steps : (double)run->total_tokens / (double)batch;
    if (run->batch_ramp.start || *old.batch_ramp) { return; }
    const double* lr = run->plan.rates.lr;
    const bool is_one = lr[0] == lr[1] && lr[0] == lr[2] && rates.lr[0] == rates.lr[1] && rates.lr[0] == rates.lr[2];
    for (int g = 0; g < (is_one ? 1 : NUM_GROUPS); g++) {
        const double before = schedule_rate(&old, rates.lr[g], step, steps);
        const double now = schedule_rate(run->config, lr[g], step, (double)run->num_steps);
        if (fabs(now - before) <= 0.02 * before) { continue; }
        notice("warning: the learning rate%s goes from %.2e to %.2e at this resumption, because its options changed "
               "(%.0f steps then, %lld now)", is_one ? "" : groups[g], before, now, steps, run->num_steps);
    }
}

// The run's options are in its checkpoint, or in options.json, unless this start changed them and saved nothing.
char* resume_command(const TrainRun* run) {
    const Config* c = run->config;
    const bool is_recorded = !run->resumed || run->state.step > run->first_step;
    char *program = shell_word(program_invocation_name), *out = shell_word(c->out),
         *from = shell_word(is_recorded ? "auto" : c->resume),
         *command = format("%s --out %s --resume %s", program, out, from);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || config_source(c, o->name) < FROM_FILE || is_one_of(o->name, "out|resume|config")) { continue; }
        if (is_recorded && o->scope != SCOPE_START) { continue; }
        char *value = config_value(c, o), *word = shell_word(value),
             *longer = format("%s --%s %s", command, o->name, word);
        free(value);
        free(word);
        free(command);
        command = longer;
    }
    free(program);
    free(out);
    free(from);
    return command;
}

void resume_record_options(const TrainRun* run) {
    Error err;
    const Config* c = run->config;
    if (run->resumed || !*c->out || c->save_every == 0 || run->comm->rank > 0) { return; }
    json_t* options = plan_options(&run->plan, c);
    if (!run_write_options(c->out, options, &err)) { fatal("--out %s", err.text); }
    json_decref(options);
}
