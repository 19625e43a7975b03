#include "../base/file.h"
#include "../base/json.h"
#include "../log/metrics.h"
#include "forecast.h"
#include <limits.h>

// ---------------------------------------------------------------------------------------------------------------------
// runs

static bool runs_append(Runs* runs, const char* where, const GPT2Config* m, double tokens, double loss, Error* err) {
    if (!(tokens >= 1 && tokens <= LAW_MOST_TOKENS)) {
        return fail(err, "%s: %g tokens are not the length of a run: leave the run out", where, tokens);
    }
    if (!(loss > 0 && isfinite(loss))) {
        return fail(err, "%s: no final validation loss: leave the run out, or train it with --val_data", where);
    }
    if (loss > log(m->vocab_size)) {
        return fail(err, "%s: its validation loss of %g is above %g, that of guessing: the run has diverged; leave it "
                    "out", where, loss, log(m->vocab_size));
    }
    if (runs->count && runs->vocab != m->vocab_size) {
        return fail(err, "%s: a vocabulary of %d tokens, but %g in the runs before: their losses cannot be compared",
                    where, m->vocab_size, runs->vocab);
    }
    if (runs->count == LAW_MOST_RUNS) { return fail(err, "%s: more than %d runs", where, LAW_MOST_RUNS); }
    const LawRun run = {forecast_size(m), tokens, loss};
    runs->vocab = m->vocab_size;
    runs->most_parameters = fmax(runs->most_parameters, run.parameters);
    runs->most_tokens = fmax(runs->most_tokens, run.tokens);
    runs->run = grown(runs->run, (size_t)runs->count, sizeof *runs->run, "the runs");
    runs->run[runs->count++] = run;
    return true;
}

// Notes the lowest loss of the text, NaN if it is not known. Fails if that of a run before is another.
static bool runs_set_floor(Runs* runs, const char* where, double floor, Error* err) {
    if (isfinite(floor) && fabs(floor - runs->floor) > 0.01 * runs->floor) {
        return fail(err, "%s: a floor of %g, but %g in the runs before: these are other texts, whose losses cannot be "
                    "compared", where, floor, runs->floor);
    }
    if (isfinite(floor)) { runs->floor = floor; }
    return true;
}

// Warns of a run with other validation data than the first one.
static void runs_check_text(Runs* runs, const char* folder, json_t* options) {
    const double tokens = record_number(options, "val_tokens");
    char* text = format("--val_data %s", record_text(options, "val_data"));
    if (isfinite(tokens)) { append_format(&text, " --val_tokens %.0f", tokens); }
    if (!runs->text) { runs->text = format("%s", text); }
    if (strcmp(text, runs->text)) {
        notice("warning: %s has %s, the first run %s: a law is that of one text", folder, text, runs->text);
    }
    free(text);
}

// Returns a number of a run's model; 0 if it is missing or out of range.
static int model_number(json_t* model, const char* key) {
    const double v = record_number(model, key);
    return v > 0 && v < INT_MAX ? (int)v : 0;
}

static bool runs_add_folder(Runs* runs, const char* folder, Error* err) {
    Run run;
    bool is_added = run_read(&run, folder, err);
    if (is_added) {
        json_t* model = json_object_get(run.config, "model");
        const GPT2Config m = {
            .num_layers = model_number(model, "L"), .num_heads = model_number(model, "NH"),
            .channels = model_number(model, "C"), .vocab_size = model_number(model, "V"),
            .max_seq_len = model_number(model, "T")};
        const char* reason = run.end ? record_text(run.end, "reason") : "killed, or still training";
        const Series* val = &run.series[RUN_VAL];
        const bool has_loss = val->count && val->at[val->count - 1].x == run.steps;
        if (strcmp(reason, "finished")) {
            is_added = fail(err, "%s: the run has not finished (%s): its schedule must end, so train on with --resume "
                            "auto, or leave it out", folder, reason);
        } else {
            is_added = model_check(&m, folder, err) &&
                       runs_append(runs, folder, &m, series_last(&run.series[RUN_TOKENS]),
                                   has_loss ? series_last(val) : NAN, err) &&
                       runs_set_floor(runs, folder, run.floor, err);
            if (is_added) { runs_check_text(runs, folder, json_object_get(run.config, "options")); }
        }
    }
    run_free(&run);
    return is_added;
}

static bool runs_add_table(Runs* runs, const char* path, Error* err) {
    size_t size;
    int row = 0;
    bool is_good = true;
    char* text = read_file(path, &size, err);
    if (!text) { return false; }
    for (char *rest = text, *line; is_good && (line = strsep(&rest, "\n")) != NULL;) {
        GPT2Config m;
        char model[128], last[32] = "-"; // no floor
        double tokens, loss, floor = NAN;
        char* where = format("%s, line %d", path, ++row);
        int end = 0; // of the loss
        const int fields = sscanf(line, "%127s %lf %lf%n %31s", model, &tokens, &loss, &end, last);
        const bool is_head = row == 1 && fields == 1, is_blank = fields == EOF;
        const bool is_whole = fields >= 3 && (!line[end] || strchr(" \t\r", line[end])) && // not "3,2"
                              (!strcmp(last, "-") || number_parse(last, -DBL_MAX, DBL_MAX, &floor));
        is_good = is_head || is_blank ||
                  ((is_whole || fail(err, "%s: not a model, tokens, loss and the like", where)) &&
                   model_parse(model, false, &m, err) && runs_append(runs, where, &m, tokens, loss, err) &&
                   runs_set_floor(runs, where, floor, err));
        free(where);
    }
    free(text);
    return is_good;
}

bool runs_add(Runs* runs, const char* path, Error* err) {
    const bool is_file = path_exists(path) && !is_directory(path);
    return is_file ? runs_add_table(runs, path, err) : runs_add_folder(runs, path, err);
}

// ---------------------------------------------------------------------------------------------------------------------
// --budget

bool budget_parse(const char* text, Budget* budget, Error* err) {
    char *copy = format("%s", text), *rest = copy, *kind, *amount;
    *budget = (Budget){0};
    part_next(&rest, &kind, &amount);
    const bool ok = !rest && (!strcmp(kind, "tokens") ? number_parse(amount, 1, LAW_MOST_TOKENS, &budget->tokens)
                                                      : !strcmp(kind, "flops") &&
                                                            number_parse(amount, 1, LAW_MOST_FLOPS, &budget->flops));
    free(copy);
    return ok || fail(err, "--budget '%s': give tokens:1e10 or flops:1e19", text);
}
