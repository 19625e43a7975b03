#include "../base/file.h"
#include "commands.h"
#include "../train/plan.h"
#include "tokenize.h"
#include "../tokenizer/tokenizer_open.h"
#include "../tokenizer/tokenizer_json.h"
#include "../files/checkpoint.h"
#include "describe.h"
#include "../base/json.h"
#include "../log/metrics.h"
#include <sys/file.h>

// Begins a line of the summary, under `title`; an empty one continues the line above.
static void title(const char* name) { printf("%-12s", name); }

// ---------------------------------------------------------------------------------------------------------------------
// what metrics.jsonl tells

static void print_model(const Run* run) {
    char parameters[32];
    json_t *model = json_object_get(run->config, "model"), *options = json_object_get(run->config, "options");
    title("model");
    print_result("%s, %s parameters, %s on %s\n", record_text(model, "name"),
                 si_text(parameters, record_number(model, "parameters")), record_text(options, "dtype"),
                 record_text(run->config, "device"));
}

// Prints the options of training that differ from their defaults, as on a command line.
static void print_options(const Run* run, const char* folder) {
    Error err;
    Config used, defaults;
    config_defaults(&used);
    config_defaults(&defaults);
    if (!config_from_json(&used, json_object_get(run->config, "options"), folder, &err)) {
        notice("warning: %s", err.text);
    }
    title("options");
    int column = 0;
    for (int i = 0; i < NUM_ROWS; i++) {
        const Option* o = &CONFIG_OPTIONS[i];
        if (!o->name || !(o->commands & TRAIN)) { continue; }
        char *text = NULL, *usual = NULL;
        append_option(&text, &used, o);
        append_option(&usual, &defaults, o);
        if (strcmp(text, usual)) {
            const int width = (int)strlen(text);
            if (column && column + width > 100) { column = 0; printf("\n"); title(""); }
            print_result("%s ", text + 1); // without the space before it
            column += width;
        }
        free(text);
        free(usual);
    }
    printf("\n");
}

static int count_events(const Run* run, const char* kind, double* last_step) {
    int count = 0;
    size_t i;
    json_t* event;
    json_array_foreach(run->events, i, event) {
        if (strcmp(record_text(event, "kind"), kind)) { continue; }
        *last_step = record_number(event, "step");
        count++;
    }
    return count;
}

// Returns the steps of a run by its options. NaN or -1: they do not say, as with --batch_ramp.
static double planned_steps(const Run* run) {
    json_t* options = json_object_get(run->config, "options");
    return *record_text(options, "batch_ramp") ? -1 : record_number(options, "max_steps");
}

static void print_progress(const Run* run) {
    char text[32], last[32];
    double lost_steps = 0, lost_ms = 0, step = 0;
    size_t i;
    json_t* start;
    json_array_foreach(run->starts, i, start) {
        lost_steps += fmax(0, record_number(start, "lost_steps")); // fmax passes over a NaN
        lost_ms += fmax(0, record_number(start, "lost_ms"));
    }
    title("steps");
    printf("%.0f", run->steps);
    const double most = planned_steps(run);
    if (most >= 0) { printf(" of %.0f", most); }
    printf(", %s tokens\n", value_text(text, series_last(&run->series[RUN_TOKENS])));
    title("time");
    printf("%s in these steps", duration_text(text, run_total_seconds(run)));
    if (lost_steps > 0) {
        printf(", %s in %.0f steps lost to restarts", duration_text(text, lost_ms / 1000), lost_steps);
    }
    printf("; %s tok/s at the end\n", value_text(last, series_last(&run->series[RUN_SPEED])));
    json_array_foreach(run->starts, i, start) {
        title(i ? "" : "started");
        printf("%s", record_text(start, "date"));
        if (i) { printf(", resumed at step %.0f", record_number(start, "step")); }
        printf("\n");
    }
    const int skipped = count_events(run, "skip", &step);
    title("skipped");
    if (skipped) { printf("%d updates, the last at step %.0f\n", skipped, step); }
    else { printf("none\n"); }
}

static void print_losses(const Run* run) {
    char text[32], best[32];
    const Series *loss = &run->series[RUN_LOSS], *val = &run->series[RUN_VAL];
    title("loss");
    printf("%s, smoothed", value_text(text, series_last(&run->series[RUN_SMOOTH])));
    if (loss->count) { printf("; last %s", value_text(text, series_last(loss))); }
    printf("\n");
    title("val loss");
    if (val->count) {
        printf("%s at step %.0f", value_text(text, series_last(val)), val->at[val->count - 1].x);
        if (isfinite(run->best_val)) {
            printf(", the best %s at step %.0f", value_text(best, run->best_val), run->best_step);
        }
        printf("\n");
    } else {
        printf("none\n");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// what the folder tells

// Returns the bytes of the files that every checkpoint has.
static double folder_bytes(const char* folder) {
    double bytes = 0;
    for (int i = 0; i < NUM_CHECKPOINT_FILES; i++) {
        struct stat s;
        char* path = format("%s/%s", folder, CHECKPOINT_FILES[i]);
        if (stat(path, &s) == 0) { bytes += (double)s.st_size; }
        free(path);
    }
    return bytes;
}

// Verifies a checkpoint while its run, which may go on, cannot remove it. Returns its state.json, a new reference; NULL
// if it is damaged or, with `was_removed`, if the run has removed it before.
static json_t* verify_held(const char* path, bool* was_removed, Error* err) {
    const int lock = checkpoint_hold(path);
    *was_removed = lock < 0;
    json_t* state = *was_removed ? NULL : checkpoint_verify(path, err);
    if (lock >= 0) { close(lock); }
    return state;
}

// Prints each checkpoint and whether it is whole; returns false if one is not. Leaves out those that the run removes
// meanwhile.
static bool print_checkpoints(const char* folder) {
    size_t count = 0, printed = 0;
    bool is_whole = true, was_removed;
    long long* steps = checkpoint_list(folder, &count);
    title("checkpoints");
    for (size_t i = 0; i < count; i++) {
        Error err;
        char* path = checkpoint_path(folder, steps[i]);
        json_t* state = verify_held(path, &was_removed, &err);
        if (!was_removed) {
            if (printed++) { title(""); }
            printf("step_%08lld  ", steps[i]);
            if (state) { printf("whole, %.1f MiB\n", folder_bytes(path) / 1048576); }
            else { print_result("%s\n", err.text); }
            is_whole = is_whole && state;
            fflush(stdout); // to verify the next may take long
        }
        json_decref(state);
        free(path);
    }
    if (!printed) { printf("none\n"); }
    free(steps);
    return is_whole;
}

// Returns true if a process trains in this folder now. (A run that starts while the lock is tried fails to get it; it
// takes microseconds.)
static bool is_training(const char* folder) {
    char* path = format("%s/.lock", folder);
    const int lock = open(path, O_RDONLY | O_CLOEXEC);
    const bool is_held = lock >= 0 && flock(lock, LOCK_SH | LOCK_NB) != 0;
    if (lock >= 0) { close(lock); }
    free(path);
    return is_held;
}

static void print_end(const Run* run, const char* folder) {
    const double most = planned_steps(run);
    const char* words = record_text(run->end, "words");
    title("ended");
    if (is_training(folder)) { printf("not yet: it is training\n"); }
    else if (run->end) { print_result("%s%s%s\n", record_text(run->end, "reason"), *words ? ": " : "", words); }
    else if (most >= 0 && run->steps >= most) { printf("after its last step\n"); }
    else { printf("not recorded: it was killed, or lost its machine; --resume auto continues it\n"); }
}

static bool print_run(const char* folder, Error* err) {
    Run run;
    if (!run_read(&run, folder, err)) { return false; }
    title("run");
    print_result("%s\n", folder);
    print_model(&run);
    print_options(&run, folder);
    print_progress(&run);
    print_losses(&run);
    const bool is_whole = print_checkpoints(folder);
    print_end(&run, folder);
    run_free(&run);
    return is_whole;
}

// Verifies a checkpoint that is given by its own name.
static bool print_checkpoint(const char* folder, Error* err) {
    bool was_removed;
    json_t* state = verify_held(folder, &was_removed, err);
    if (was_removed) { fatal("info %s: its run has removed it meanwhile", folder); }
    if (!state) { return false; }
    print_result("%s: a checkpoint, whole, %.1f MiB\n", folder, folder_bytes(folder) / 1048576);
    json_decref(state);
    return true;
}

// Describes a file or folder and verifies it. Returns false if it is damaged, with the reason unless that is printed
// already.
static bool print_path(const char* path, const Config* c, Error* err) {
    err->text[0] = 0;
    if (!path_exists(path)) { fatal("info %s: no such file or folder", path); }
    if (!is_directory(path)) {
        return can_describe(path) ? describe(path)
             : is_tokenizer_file(path) ? tokenizer_print_info(path, err)
             : describe_tokens(path, token_header(c), err);
    }
    if (folder_has(path, "metrics.jsonl")) { return print_run(path, err); }
    if (folder_has(path, "state.json")) { return print_checkpoint(path, err); }
    if (folder_has(path, "config.json")) { return describe(path); }
    if (folder_has_tokenizer(path)) { return tokenizer_print_info(path, err); }
    fatal("info %s: the folder of neither a run, a checkpoint, a model nor a tokenizer", path);
}

int run_info_command(const Config* c) {
    for (int i = 0; i < NUM_ROWS; i++) {
        const char* name = CONFIG_OPTIONS[i].name;
        if (!name || is_one_of(name, "data_format|config") || config_source(c, name) < FROM_COMMAND_LINE) { continue; }
        usage_error("--%s has no effect on info %s: leave it out", name, c->args[0]);
    }
    bool is_whole = true;
    for (int i = 0; i < c->num_args; i++) {
        Error err;
        printf("%s", i ? "\n" : "");
        if (print_path(c->args[i], c, &err)) { continue; }
        if (*err.text) { notice("error: %s", err.text); }
        is_whole = false;
    }
    return is_whole ? EXIT_DONE : EXIT_CHECK_FAILED;
}
