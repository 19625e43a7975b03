#include "resume.h"
#include "../base/file.h"
#include "consistency.h"
#include "../files/checkpoint.h"
#include "../base/json.h"

// ---------------------------------------------------------------------------------------------------------------------
// the checkpoint

// Ends the program if --out holds checkpoints of another run, or newer ones than that at `path`: --keep would make this
// run delete them.
static void check_no_newer_checkpoints(const Config* c, const char* path, long long step) {
    size_t count = 0;
    long long* steps = checkpoint_list(c->out, &count);
    if (count && !path_is_entry_of(path, c->out)) {
        fatal("--resume %s: --out %s holds checkpoints of another run: give the --out of this one, or a new one", path,
              c->out);
    }
    if (count && steps[0] > step) {
        fatal("--resume %s: --out %s holds newer checkpoints, up to step %lld: give another --out, or remove the newer "
              "ones", path, c->out, steps[0]);
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

// Verifies a checkpoint that is given by its path, and returns its state.
static json_t* open_given(const Config* c, const SkipWindows* skip, const char* path) {
    Error err;
    if (!is_directory(path)) {
        fatal("--resume %s: %s: give the folder of a checkpoint, or auto", path,
              path_exists(path) ? "a file" : "no such folder");
    }
    if (!check_no_run(path, &err)) {
        fatal("--resume %s, or continue that run by --resume auto --out %s", err.text, shell_word(trimmed_path(path)));
    }
    if (!path_is_entry_of(path, c->out)) { checkpoint_hold(path); } // of another run, which may go on
    json_t* state = checkpoint_verify(path, &err);
    if (!state) { fatal("--resume %s", err.text); }
    if (was_trained_on(skip, state)) {
        fatal("--resume %s: it has been trained on some of --skip_windows %s: give an older checkpoint, or "
              "--resume auto", path, c->skip_windows);
    }
    check_no_newer_checkpoints(c, path, json_integer_value(json_object_get(state, "step")));
    return state;
}

// Returns the checkpoint of another folder that the run in --out began from (run_write_options); NULL: none.
static char* first_checkpoint(const char* out) {
    json_t* options = run_read_options(out);
    const char* path = json_string_value(json_object_get(options, "resume"));
    char* copy = path && *path && strcmp(path, "auto") ? format("%s", path) : NULL;
    json_decref(options);
    return copy;
}

// Returns the checkpoint to resume from, and its state; NULL for a fresh run.
static char* find_checkpoint(const Config* c, const SkipWindows* skip, json_t** state) {
    char* path = NULL;
    if (!*c->resume) {
        size_t count = 0;
        free(checkpoint_list(c->out, &count));
        if (count) {
            fatal("--out %s holds checkpoints of another run: continue with --resume auto, or give another --out",
                  c->out);
        }
        return NULL;
    }
    if (strcmp(c->resume, "auto")) {
        path = format("%s", c->resume);
    } else {
        if (!*c->out) { usage_error("--resume auto looks for checkpoints in --out, which is empty"); }
        go_back(c, skip);
        path = checkpoint_newest(c->out, state, CHECKPOINT_CONTINUE);
        if (path) { return path; }
        path = first_checkpoint(c->out);
        notice("no checkpoint in %s yet: starting afresh%s%s", c->out, path ? " from " : "", path ? path : "");
    }
    if (path) { *state = open_given(c, skip, path); }
    return path;
}

// Returns the state of a checkpoint that rank 0 has verified. It is verified once on each machine.
static json_t* read_state_of_rank0(const Comm* comm, const char* path) {
    Error err;
    json_t* state = comm->local_rank == 0 ? checkpoint_verify(path, &err) : checkpoint_read_state(path, &err);
    if (!state) { fatal("%s: rank 0 sees this checkpoint; all ranks must see the same files", err.text); }
    return state;
}

// ---------------------------------------------------------------------------------------------------------------------
// options of the run being resumed

// Takes the options that a run was started with, except where this start gives others. `where` names their source in
// errors.
static void take_run_options(Config* c, const json_t* recorded, const char* where) {
    Error err;
    json_t* options = json_deep_copy(recorded);
    config_drop_start(options);
    if (!config_from_json(c, options, where, &err)) { fatal("%s", err.text); }
    json_decref(options);
}

// Takes the options of a run without a checkpoint in --out, from options.json (run_write_options).
static void take_first_options(Config* c) {
    json_t* options = strcmp(c->resume, "auto") ? NULL : run_read_options(c->out);
    if (options) { take_run_options(c, options, "options.json"); }
    json_decref(options);
}

char* resume_open(Config* c, const SkipWindows* skip, Comm* comm, json_t** state) {
    *state = NULL;
    char* path = share_text(comm, comm->rank == 0 ? find_checkpoint(c, skip, state) : NULL);
    if (!path) {
        take_first_options(c);
        return NULL;
    }
    if (!*state) { *state = read_state_of_rank0(comm, path); } // check_same_run() compares what the ranks read
    take_run_options(c, json_object_get(*state, "options"), path);
    if (!path_is_entry_of(path, c->out)) { take_first_options(c); }
    return path;
}

bool resume_check_changes(Plan* before, const json_t* options, enum dtype dtype, const json_t* state, Error* err) {
    Config old, now;
    config_defaults(&old);
    config_defaults(&now);
    if (!config_from_json(&now, options, "options", err)) { fatal("%s", err->text); }
    if (!config_from_json(&old, json_object_get(state, "options"), "state.json", err)) { return false; }
    bool ok = true;
    for (int i = 0; ok && i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || o->scope == SCOPE_START || o->scope == SCOPE_DATA) { continue; }
        char *value = option_value(o, &now), *then = option_value(o, &old);
        if (strcmp(value, then) && o->scope == SCOPE_IDENTITY) {
            ok = fail(err,
                      "--%s %s: the run being resumed has %s; changed, it would not be the same run. Leave the option "
                      "out, or begin a new run in another --out, with these weights by --init CHECKPOINT",
                      o->name, *value ? value : "\"\"", *then ? then : "\"\"");
        } else if (strcmp(value, then)) {
            notice("changed since the checkpoint: --%s %s (was %s)", o->name, *value ? value : "\"\"",
                   *then ? then : "\"\"");
        }
        free(value);
        free(then);
    }
    return ok && plan_parse(before, dtype, &old, err);
}

char* resume_command(const Config* c, bool is_recorded, bool needs_launcher) {
    const char* others = needs_launcher ? "out|resume|config|gpus" : "out|resume|config";
    char *program = shell_word(program_invocation_name), *out = shell_word(c->out),
         *from = shell_word(is_recorded ? "auto" : c->resume),
         *command = format("%s --out %s --resume %s", program, out, from);
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || config_source(c, o->name) < FROM_FILE || is_one_of(o->name, others)) { continue; }
        if (is_recorded && o->scope != SCOPE_START) { continue; }
        append_option(&command, c, o);
    }
    free(program);
    free(out);
    free(from);
    return command;
}
