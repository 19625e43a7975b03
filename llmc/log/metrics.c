#include "metrics.h"
#include "../base/file.h"
#include "../base/json.h"

// Adds a point, or replaces the one of the same x.
static void series_add(Series* s, double x, double y) {
    if (s->count && s->at[s->count - 1].x == x) { s->count--; }
    if (s->count == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        s->at = realloc_or_die(s->at, s->room * sizeof s->at[0], "the points of a chart");
    }
    s->at[s->count].x = x;
    s->at[s->count].y = y;
    s->count++;
}

double record_number(json_t* record, const char* key) {
    json_t* v = json_object_get(record, key);
    return json_is_number(v) ? fmax(-1e30, fmin(1e30, json_number_value(v))) : NAN;
}

const char* record_text(json_t* record, const char* key) {
    const char* text = json_string_value(json_object_get(record, key));
    return text ? text : "";
}

static bool has_kind(json_t* record, const char* kind) { return !strcmp(record_text(record, "kind"), kind); }

static void replace_json(json_t** place, json_t* with) {
    json_incref(with);
    json_decref(*place);
    *place = with;
}

static void run_add_train(Run* run, double step, json_t* record) {
    static const struct { int series; const char* key; } fields[] = {
        {RUN_LOSS, "loss"}, {RUN_NORM, "norm"}, {RUN_LR, "lr"}, {RUN_SPEED, "tok_s"}, {RUN_TOKENS, "tokens"},
        {RUN_MFU, "mfu"}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        double v = record_number(record, fields[i].key);
        if (isfinite(v)) { series_add(&run->series[fields[i].series], step, v); }
    }
    double ms = record_number(record, "ms");
    run->steps = fmax(run->steps, step);
    if (isfinite(ms)) { series_add(&run->series[RUN_SECONDS], step, run_total_seconds(run) + ms / 1000.0); }
}

// Removes from an array the records after `step`, but for starts and ends of the program.
static void drop_records(json_t* records, double step) {
    for (size_t i = json_array_size(records); i-- > 0;) {
        json_t* record = json_array_get(records, i);
        const bool is_of_program = has_kind(record, "config") || has_kind(record, "end");
        if (!is_of_program && record_number(record, "step") > step) { json_array_remove(records, i); }
    }
}

// Forgets what came after `step`: a start goes on from there, and does the steps again. Its record gets "lost_steps"
// and "lost_ms".
static void run_go_back(Run* run, double step, json_t* config) {
    const size_t steps = run->series[RUN_SECONDS].count;
    const double seconds = run_total_seconds(run);
    for (int i = 0; i < RUN_SERIES; i++) {
        Series* s = &run->series[i];
        while (s->count && s->at[s->count - 1].x > step) { s->count--; }
    }
    const size_t lost = steps - run->series[RUN_SECONDS].count;
    if (lost) {
        json_object_set_new(config, "lost_steps", json_real((double)lost));
        json_object_set_new(config, "lost_ms", json_real(1000 * (seconds - run_total_seconds(run))));
    }
    run->steps = fmin(run->steps, step);
    drop_records(run->events, step);
    drop_records(run->samples, step);
    drop_records(run->scores, step);
    drop_records(run->vals, step);
}

// Returns true if the options of two starts say that they validate on the same windows of the same files.
static bool have_one_validation(json_t* a, json_t* b) {
    static const char* const options[] = {"val_data", "val_tokens", "seq_len"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        json_t *of_a = json_object_get(a, options[i]), *of_b = json_object_get(b, options[i]);
        if (of_a && of_b && !json_equal(of_a, of_b)) { return false; }
    }
    return true;
}

// Appends a record, or replaces the last one if that is of the same step.
static void add_of_step(json_t* records, json_t* record) {
    const size_t count = json_array_size(records);
    const double last = record_number(json_array_get(records, count - 1), "step"); // NaN if there is none
    if (last == record_number(record, "step")) { json_array_remove(records, count - 1); }
    json_array_append(records, record);
}

// Takes a validation, with the options of the start that did it.
static void run_add_val(Run* run, double step, double loss, json_t* record) {
    json_object_set(record, "options", json_object_get(run->config, "options"));
    add_of_step(run->vals, record);
    series_add(&run->series[RUN_VAL], step, loss);
}

static void run_add_record(Run* run, json_t* record) {
    double step = record_number(record, "step"), loss = record_number(record, "loss");
    if (!isfinite(step)) { return; }
    bool event = has_kind(record, "save") || has_kind(record, "skip");
    if (has_kind(record, "train")) {
        run_add_train(run, step, record);
        event = !isfinite(loss);
    } else if (has_kind(record, "val")) {
        if (isfinite(loss)) { run_add_val(run, step, loss, record); }
    } else if (has_kind(record, "config")) {
        run->floor = record_number(record, "floor");
        run_go_back(run, step, record);
        event = run->config != NULL || step > 0.0;
        replace_json(&run->config, record);
        replace_json(&run->end, NULL);
        json_array_append(run->starts, record);
    } else if (has_kind(record, "sample")) {
        add_of_step(run->samples, record);
    } else if (has_kind(record, "eval")) {
        json_array_append(run->scores, record);
    } else if (has_kind(record, "end")) {
        replace_json(&run->end, record);
        event = true;
    }
    if (event) { json_array_append(run->events, record); }
}

// Smooths the loss: the mean of those around each, over a twenty-fifth of the run (chosen), but over fewer at its
// start, where the loss falls fast.
static void run_smooth(Run* run) {
    const Series* loss = &run->series[RUN_LOSS];
    double* sum = alloc_or_die(loss->count + 1, sizeof *sum, "the smoothed loss"); // of the losses before i
    for (size_t i = 0; i < loss->count; i++) { sum[i + 1] = sum[i] + loss->at[i].y; }
    for (size_t i = 0; i < loss->count; i++) {
        size_t reach = min_size(loss->count / 50, i / 4), begin = i - reach, end = min_size(i + reach + 1, loss->count);
        series_add(&run->series[RUN_SMOOTH], loss->at[i].x, (sum[end] - sum[begin]) / (double)(end - begin));
    }
    free(sum);
}

// Finds the lowest loss of the last validations that were all on the same data.
static void run_find_best(Run* run) {
    const size_t count = json_array_size(run->vals);
    json_t* last = json_object_get(json_array_get(run->vals, count - 1), "options");
    for (size_t i = count; i-- > 0;) {
        json_t* val = json_array_get(run->vals, i);
        if (!have_one_validation(json_object_get(val, "options"), last)) { break; }
        if (record_number(val, "loss") > run->best_val) { continue; }
        run->best_val = record_number(val, "loss");
        run->best_step = record_number(val, "step");
    }
}

// Returns what scores that can be compared have in common: the set, whose rules, the examples, and the questions. The
// caller frees it.
static char* eval_heading(json_t* score) {
    const char *rules = record_text(score, "rules"), *colon = strchr(rules, ':'), *examples = strstr(rules, "; ");
    char* text = format("%s", record_text(score, "name"));
    if (colon) { append_format(&text, ", %.*s", (int)(colon - rules), rules); }
    if (examples && strncmp(examples, "; 0 ", 4) != 0) { append_format(&text, ", %s", examples + strlen("; ")); }
    const double total = record_number(score, "total");
    if (isfinite(total)) { append_format(&text, ", %.0f questions", total); }
    return text;
}

static void run_find_evals(Run* run) {
    size_t i;
    json_t* score;
    json_array_foreach(run->scores, i, score) {
        char* heading = eval_heading(score);
        json_object_set(run->evals, heading, score);
        free(heading);
    }
}

bool run_read(Run* run, const char* folder, Error* err) {
    memset(run, 0, sizeof *run);
    run->best_val = run->floor = NAN;
    run->starts = json_array();
    run->samples = json_array();
    run->events = json_array();
    run->scores = json_array();
    run->vals = json_array();
    run->evals = json_object();
    run->name = trimmed_path(folder);
    size_t size, n;
    char* path = format("%s/metrics.jsonl", folder);
    char* text = read_file(path, &size, err);
    if (!text && !path_exists(path)) { fail(err, "%s: no such file: give the folder of a run", path); }
    free(path);
    if (!text) { return false; }
    const char *at = text, *line;
    while ((line = next_line(&at, text + size, &n)) != NULL) {
        json_t* record = json_loadb(line, n, 0, NULL);
        if (json_is_object(record)) { run_add_record(run, record); }
        json_decref(record);
    }
    free(text);
    run_find_evals(run);
    run_smooth(run);
    run_find_best(run);
    return true;
}

void run_free(Run* run) {
    for (int i = 0; i < RUN_SERIES; i++) { free(run->series[i].at); }
    json_decref(run->config);
    json_decref(run->vals);
    json_decref(run->end);
    json_decref(run->starts);
    json_decref(run->samples);
    json_decref(run->events);
    json_decref(run->scores);
    json_decref(run->evals);
    free(run->name);
}

double run_total_seconds(const Run* run) {
    const Series* s = &run->series[RUN_SECONDS];
    return s->count ? series_last(s) : 0;
}

double series_last(const Series* s) { return s->count ? s->at[s->count - 1].y : NAN; }
