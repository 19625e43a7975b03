// What a run says about itself while it runs, on rank 0 alone:
//   standard output   the step line (llm.c's columns, which scripts parse), validation losses, samples
//   standard error    notices and, on a terminal, a progress bar redrawn in place
//   metrics.jsonl     one JSON object per line, for programs; report.h makes a page of it
//   log.txt           step lines and notices again, for people
// Both files are flushed line by line and cut back to the resumed step, so that a run that was interrupted leaves the
// same records as one that was not. A file that cannot be written ends the program with an error that names it.
#pragma once
#include "outlier.h"
#include "text.h"
#include <limits.h>
#include <sys/ioctl.h>

// ---------------------------------------------------------------------------------------------------------------------
// cutting logs back

// The step that a line of a log belongs to; `before` is that of the line before.
typedef long (*LineStep)(const char* line, size_t size, long before);

// A line of metrics.jsonl that is no record belongs to no step, and so is cut.
static inline long metrics_line_step(const char* line, size_t size, long before) {
    (void)before;
    json_t* record = json_loadb(line, size, 0, NULL);
    json_t* step = json_object_get(record, "step");
    long n = json_is_integer(step) ? (long)json_integer_value(step) : LONG_MAX;
    json_decref(record);
    return n;
}

static inline long text_line_step(const char* line, size_t size, long before) {
    char number[24];
    long n = before;
    snprintf(number, sizeof number, "%.*s", (int)min_size(size, sizeof number - 1), line);
    return sscanf(number, "step %ld/", &n) == 1 ? n : before;
}

// Removes from a log what came after `step`, and a torn last line. A log that does not exist stays so.
static inline bool cut_log(const char* path, long step, LineStep line_step, Error* err) {
    size_t size, used = 0, n;
    if (!path_exists(path)) { return true; }
    char* text = read_file(path, &size, err);
    if (!text) { return false; }
    const char *at = text, *line;
    for (long now = 0; (line = next_line(&at, text + size, &n)) != NULL;) {
        now = line_step(line, n, now);
        if (now > step) { continue; }
        memmove(text + used, line, n + 1);
        used += n + 1;
    }
    bool ok = write_file_atomically(path, text, used, err);
    free(text);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// the logger

typedef struct {
    const char* folder;    // receives metrics.jsonl and log.txt; NULL: neither is written
    const char* precision; // named in the step line: fp32, tf32, bf16, fp8
    int rank;              // ranks other than 0 write nothing: every call returns at once
    int max_steps;         // updates that the run will have made at its end
    int resume_step;       // updates made before this start; -1: a fresh run, which replaces the logs
    double price;          // of the machines, per hour; 0: not shown
} LoggerOptions;

// One update. Not-a-number stands for what is unknown.
typedef struct {
    int step;               // updates made, this one included
    size_t tokens;          // seen by the run so far, on all ranks
    size_t step_tokens;     // of these, in this update
    double loss, norm, lr;
    double loss_z, norm_z;  // of outlier_update
    double ms;              // time of the update
    double mfu;             // model FLOPs utilization, as a fraction of 1
} StepRecord;

typedef struct {
    LoggerOptions options;
    char *metrics_path, *text_path;
    FILE *metrics, *text;   // NULL without a folder
    bool bar;
    double start, after_first; // seconds_now() at the start, and after the first update
    int steps;              // updates in this start
    double total_ms;        // over all of them but the first, which warms up
    double ema, tok_s;      // tokens per second, smoothed; before and after the correction of its bias
    StepRecord last;
} Logger;

// Opens the logs, cut back to the resumed step or empty. Strings in `options` must outlive the logger.
static inline bool logger_open(Logger* l, const LoggerOptions* options, Error* err) {
    memset(l, 0, sizeof *l);
    l->options = *options;
    l->start = seconds_now();
    if (options->rank != 0) { return true; }
    l->bar = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    if (!options->folder) { return true; }
    if (!make_directories(options->folder, err)) { return false; }
    l->metrics_path = format("%s/metrics.jsonl", options->folder);
    l->text_path = format("%s/log.txt", options->folder);
    bool fresh = options->resume_step < 0;
    bool ok = fresh || (cut_log(l->metrics_path, options->resume_step, metrics_line_step, err) &&
                        cut_log(l->text_path, options->resume_step, text_line_step, err));
    if (ok && !(l->metrics = fopen(l->metrics_path, fresh ? "w" : "a"))) {
        ok = fail(err, "%s: cannot write: %s", l->metrics_path, strerror(errno));
    }
    if (ok && !(l->text = fopen(l->text_path, fresh ? "w" : "a"))) {
        ok = fail(err, "%s: cannot write: %s", l->text_path, strerror(errno));
    }
    if (ok) { return true; }
    if (l->metrics) { fclose(l->metrics); }
    free(l->metrics_path);
    free(l->text_path);
    memset(l, 0, sizeof *l);
    return false;
}

// The bar as it stands at time `now`, at most `width` - 1 characters (the last column would wrap on some terminals).
static inline void logger_bar_text(const Logger* l, double now, int width, char* out, size_t size) {
    char speed[32], eta[32], tail[256];
    int steps = l->options.max_steps;
    double done = steps > 0 ? fmin(1.0, (double)l->last.step / steps) : 0.0, elapsed = now - l->start;
    double left = l->steps > 1 ? (now - l->after_first) / (l->steps - 1) * (steps - l->last.step) : NAN;
    int n = snprintf(tail, sizeof tail, " %3.0f%% | step %d/%d | loss %.4f | %s tok/s | ETA %s", floor(100.0 * done),
                     l->last.step, steps, l->last.loss, si_text(speed, l->tok_s), duration_text(eta, left));
    double hourly = l->options.price;
    if (hourly > 0.0) {
        double spent = hourly * elapsed / 3600.0, total = spent + hourly * left / 3600.0;
        n += snprintf(tail + n, sizeof tail - (size_t)n, " | $%.2f", spent);
        if (left >= 0.0) { snprintf(tail + n, sizeof tail - (size_t)n, " of $%.2f", total); }
    }
    int room = width - 1 - (int)strlen(tail) - 2, cells = room > 40 ? 40 : room;
    if (cells < 8) { snprintf(out, size, "%.*s", width > 2 ? width - 1 : 1, tail + 1); return; }
    char cell[41];
    for (int i = 0; i < cells; i++) { cell[i] = i < (int)(done * cells) ? '=' : i == (int)(done * cells) ? '>' : ' '; }
    snprintf(out, size, "[%.*s]%s", cells, cell, tail);
}

static inline void logger_draw_bar(const Logger* l) {
    char text[512];
    struct winsize window;
    if (!l->bar || l->steps == 0) { return; }
    int width = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
    logger_bar_text(l, seconds_now(), width, text, sizeof text);
    fprintf(stderr, "\r%s\033[K", text);
    fflush(stderr);
}

// To be called before something is written to standard output. Notices and errors erase the bar by themselves.
static inline void logger_erase_bar(const Logger* l) {
    if (l->bar) { fputs("\r\033[K", stderr); fflush(stderr); }
}

static inline void logger_flush(FILE* f, const char* path) {
    if (fflush(f) == 0 && !ferror(f)) { return; }
    fatal("%s: cannot write: %s; make room, then go on with --resume auto", path, strerror(errno));
}

// A line on `to` (standard output for results, standard error for notices) and in log.txt.
static inline void logger_line(Logger* l, FILE* to, const char* text) {
    if (to == stderr) { notice("%s", text); }
    else { logger_erase_bar(l); fprintf(to, "%s\n", text); logger_flush(to, "standard output"); }
    if (l->text) { fprintf(l->text, "%s\n", text); logger_flush(l->text, l->text_path); }
    logger_draw_bar(l);
}

// A notice that also stands in log.txt.
static inline void ATTR_PRINTF(2, 3) logger_notice(Logger* l, const char* fmt, ...) {
    if (l->options.rank != 0) { return; }
    char* text;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) { fatal("out of memory for a notice"); }
    va_end(args);
    logger_line(l, stderr, text);
    free(text);
}

// Appends a record {"kind", "step", members...} to metrics.jsonl. Takes over `members`.
static inline void logger_record(Logger* l, const char* kind, int step, json_t* members) {
    if (l->metrics) {
        json_t* record = json_pack("{s:s, s:i}", "kind", kind, "step", step);
        char* text = NULL;
        if (members && record && json_object_update(record, members) == 0) {
            text = json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9));
        }
        if (!text) { fatal("%s: cannot make a %s record: no memory, or text not UTF-8", l->metrics_path, kind); }
        fprintf(l->metrics, "%s\n", text);
        logger_flush(l->metrics, l->metrics_path);
        free(text);
        json_decref(record);
    }
    json_decref(members);
}

// A start of the program, fresh or resumed at `step`. Takes over `members`: "options": {name: value}, "model": {"name",
// "parameters", "L", "NH", "C", "T", "V"}, "device", "program", and "floor" where the lowest reachable loss is known.
static inline void logger_config(Logger* l, int step, json_t* members) {
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    if (!localtime_r(&now, &local) || !strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S%z", &local)) { date[0] = 0; }
    json_object_set_new(members, "date", json_string(date));
    logger_record(l, "config", step, members);
}

// An update: the step line, its record, and the bar. Tokens per second are a running average (0.95), its bias towards
// the start at 0 taken out, that leaves out the first update of this start.
static inline void logger_step(Logger* l, const StepRecord* r) {
    if (l->options.rank != 0) { return; }
    double speed = (double)r->step_tokens / fmax(r->ms, 1e-6) * 1000.0;
    if (l->steps == 0) {
        l->tok_s = speed;
        l->after_first = seconds_now();
    } else {
        l->total_ms += r->ms;
        l->ema = 0.95 * l->ema + 0.05 * speed;
        l->tok_s = l->ema / (1.0 - pow(0.95, l->steps));
    }
    l->steps++;
    l->last = *r;
    char loss_z[32], norm_z[32];
    char* line = format("step %4d/%d | loss %7.6f (%sz)| norm %6.4f (%sz)| lr %.2e | %.2f ms | %.1f%% %s MFU | "
                        "%.0f tok/s", r->step, l->options.max_steps, plain_nan(r->loss), z_text(loss_z, r->loss_z),
                        plain_nan(r->norm), z_text(norm_z, r->norm_z), r->lr, r->ms, plain_nan(100.0 * r->mfu),
                        l->options.precision, l->tok_s);
    logger_line(l, stdout, line);
    free(line);
    json_t* tok_s = isfinite(l->tok_s) ? json_integer(llround(l->tok_s)) : json_null();
    logger_record(l, "train", r->step,
                  json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tokens", (json_int_t)r->tokens, "loss",
                            json_float(r->loss), "norm", json_float(r->norm), "lr", json_float(r->lr), "ms",
                            json_float(r->ms), "tok_s", tok_s, "mfu", json_float(r->mfu), "loss_z",
                            json_float(r->loss_z), "norm_z", json_float(r->norm_z)));
}

// The validation loss after `step` updates.
static inline void logger_val(Logger* l, int step, double loss) {
    if (l->options.rank != 0) { return; }
    char* line = format("val loss %f", loss);
    logger_line(l, stdout, line);
    free(line);
    logger_record(l, "val", step, json_pack("{s:o}", "loss", json_float(loss)));
}

// A text made by the model after `step` updates: any bytes.
static inline void logger_sample(Logger* l, int step, const char* text, size_t size) {
    if (l->options.rank != 0) { return; }
    logger_erase_bar(l);
    printf("generating:\n---\n");
    put_text(stdout, text, size);
    printf("\n---\n");
    logger_flush(stdout, "standard output");
    logger_draw_bar(l);
    logger_record(l, "sample", step, json_pack("{s:o}", "text", json_text(text, size)));
}

// A checkpoint now stands at `path`.
static inline void logger_save(Logger* l, int step, const char* path) {
    logger_notice(l, "saved step %d to %s", step, path);
    if (l->options.rank != 0) { return; }
    logger_record(l, "save", step, json_pack("{s:o}", "path", json_text(path, strlen(path))));
}

// The update was left out because `what` ("loss" or "grad") was an outlier.
static inline void logger_skip(Logger* l, int step, const char* what, double z) {
    logger_notice(l, "skipping update due to %s z-score of %f", what, z);
    if (l->options.rank != 0) { return; }
    logger_record(l, "skip", step, json_pack("{s:s, s:o}", "what", what, "z", json_float(z)));
}

// The result of a test set, "HellaSwag" for instance: `correct` of `total` answers.
static inline void logger_eval(Logger* l, int step, const char* name, int correct, int total) {
    if (l->options.rank != 0) { return; }
    double accuracy = total > 0 ? (double)correct / total : NAN;
    char* line = format("%s: %d/%d = %f", name, correct, total, accuracy);
    logger_line(l, stdout, line);
    free(line);
    logger_record(l, "eval", step, json_pack("{s:s, s:i, s:i, s:o}", "name", name, "correct", correct, "total", total,
                                             "accuracy", json_float(accuracy)));
}

// The mean time of an update, if more than the first was made, and the end of the logs.
static inline bool logger_close(Logger* l, Error* err) {
    if (l->steps > 1) {
        char* line = format("total average iteration time: %f ms", l->total_ms / (l->steps - 1));
        logger_erase_bar(l);
        l->bar = false;
        logger_line(l, stdout, line);
        free(line);
    }
    bool ok = !l->metrics || close_synced(l->metrics, l->metrics_path, err);
    if (l->text && ok) { ok = close_synced(l->text, l->text_path, err); }
    else if (l->text) { fclose(l->text); }
    free(l->metrics_path);
    free(l->text_path);
    memset(l, 0, sizeof *l);
    return ok;
}
