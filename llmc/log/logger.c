#include "logger.h"
#include "../files/json.h"
#include <limits.h>
#include <sys/ioctl.h>

// ---------------------------------------------------------------------------------------------------------------------
// cutting logs back

// Returns the step that a line of a log belongs to; `before` is that of the line before.
typedef long (*LineStep)(const char* line, size_t size, long before);

// A line of metrics.jsonl that is no record belongs to no step, and so is cut.
static long metrics_line_step(const char* line, size_t size, long before) {
    (void)before;
    json_t* record = json_loadb(line, size, 0, NULL);
    json_t* step = json_object_get(record, "step");
    long n = json_is_integer(step) ? (long)json_integer_value(step) : LONG_MAX;
    json_decref(record);
    return n;
}

static long text_line_step(const char* line, size_t size, long before) {
    char number[24];
    long n = before;
    snprintf(number, sizeof number, "%.*s", (int)min_size(size, sizeof number - 1), line);
    return sscanf(number, "step %ld/", &n) == 1 ? n : before;
}

// Removes from a log what came after `step`, and a torn last line. A log that does not exist stays so.
static bool cut_log(const char* path, long step, LineStep line_step, Error* err) {
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

bool logger_open(Logger* l, const LoggerOptions* options, Error* err) {
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

void logger_bar_text(const Logger* l, double now, int width, char* out, size_t size) {
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

// Returns the columns of a terminal; 0 if `fd` is none.
static int terminal_width(int fd) {
    struct winsize window;
    if (!isatty(fd)) { return 0; }
    return ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : 80;
}

void logger_draw_bar(const Logger* l) {
    char text[512];
    if (!l->bar || l->steps == 0) { return; }
    logger_bar_text(l, seconds_now(), terminal_width(STDERR_FILENO), text, sizeof text);
    fprintf(stderr, "\r%s\033[K", text);
    fflush(stderr);
}

void logger_erase_bar(const Logger* l) {
    if (l->bar) { fputs("\r\033[K", stderr); fflush(stderr); }
}

static void logger_flush(FILE* f, const char* path) {
    if (fflush(f) == 0 && !ferror(f)) { return; }
    fatal("%s: cannot write: %s; make room, then go on with --resume auto", path, strerror(errno));
}

static void write_log_line(Logger* l, const char* text) {
    if (l->text) { fprintf(l->text, "%s\n", text); logger_flush(l->text, l->text_path); }
}

// Prints a result.
static void print_line(Logger* l, const char* text) {
    logger_erase_bar(l);
    printf("%s\n", text);
    logger_flush(stdout, "standard output");
}

// Prints a result that also stands in log.txt.
static void logger_line(Logger* l, const char* text) {
    print_line(l, text);
    write_log_line(l, text);
    logger_draw_bar(l);
}

void logger_notice(Logger* l, const char* fmt, ...) {
    if (l->options.rank != 0) { return; }
    char* text;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) { fatal("out of memory for a notice"); }
    va_end(args);
    notice("%s", text);
    write_log_line(l, text);
    logger_draw_bar(l);
    free(text);
}

// Appends a record {"kind", "step", members...} to metrics.jsonl. Takes over `members`.
static void logger_record(Logger* l, const char* kind, int step, json_t* members) {
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

void logger_config(Logger* l, int step, json_t* members) {
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    if (!localtime_r(&now, &local) || !strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S%z", &local)) { date[0] = 0; }
    json_object_set_new(members, "date", json_string(date));
    logger_record(l, "config", step, members);
}

// Writes a z-score as a field of the step line to `out` of 40 bytes; an empty field if it is not shown.
static const char* z_field(char* out, double z, bool is_shown) {
    char text[32];
    if (is_shown) { snprintf(out, 40, " (%sz)|", z_text(text, z)); }
    else { strcpy(out, " |"); }
    return out;
}

char* logger_step_line(const Logger* l, const StepRecord* r, int width) {
    enum { WITH_Z, WITH_MFU, WITH_MS, LEAST };
    const bool on_terminal = width > 0;
    char* line = NULL;
    for (int fields = WITH_Z; fields <= LEAST; fields++) {
        char loss_z[40], norm_z[40], ms[40] = "", mfu[64] = "";
        const bool has_z = fields <= WITH_Z, has_mfu = isfinite(r->mfu);
        if (fields <= WITH_MS) { snprintf(ms, sizeof ms, "%.2f ms | ", r->ms); }
        if (fields <= WITH_MFU && (has_mfu || !on_terminal)) {
            snprintf(mfu, sizeof mfu, "%.1f%% %s MFU | ", has_mfu ? 100.0 * r->mfu : -100.0, l->options.precision);
        }
        free(line);
        line = format("step %4d/%d | loss %7.6f%s norm %6.4f%s lr %.2e | %s%s%.0f tok/s", r->step, l->options.max_steps,
                      plain_nan(r->loss), z_field(loss_z, r->loss_z, has_z && !(on_terminal && isnan(r->loss_z))),
                      plain_nan(r->norm), z_field(norm_z, r->norm_z, has_z && !(on_terminal && isnan(r->norm_z))),
                      r->lr, ms, mfu, l->tok_s);
        if (!on_terminal || (int)strlen(line) < width) { return line; }
    }
    line[width > 1 ? width - 1 : 1] = 0;
    return line;
}

void logger_step(Logger* l, const StepRecord* r) {
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
    const int width = terminal_width(STDOUT_FILENO);
    char *line = logger_step_line(l, r, 0), *shown = logger_step_line(l, r, width);
    print_line(l, shown);
    write_log_line(l, line);
    logger_draw_bar(l);
    free(shown);
    free(line);
    json_t* tok_s = isfinite(l->tok_s) ? json_integer(llround(l->tok_s)) : json_null();
    logger_record(l, "train", r->step,
                  json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tokens", (json_int_t)r->tokens, "loss",
                            json_float(r->loss), "norm", json_float(r->norm), "lr", json_float(r->lr), "ms",
                            json_float(r->ms), "tok_s", tok_s, "mfu", json_float(r->mfu), "loss_z",
                            json_float(r->loss_z), "norm_z", json_float(r->norm_z)));
}

void logger_val(Logger* l, int step, double loss) {
    if (l->options.rank != 0) { return; }
    char* line = format("val loss %f", loss);
    logger_line(l, line);
    free(line);
    logger_record(l, "val", step, json_pack("{s:o}", "loss", json_float(loss)));
}

void logger_sample(Logger* l, int step, const char* text, size_t size) {
    if (l->options.rank != 0) { return; }
    logger_erase_bar(l);
    printf("generating:\n---\n");
    put_text(stdout, text, size);
    printf("\n---\n");
    logger_flush(stdout, "standard output");
    logger_draw_bar(l);
    logger_record(l, "sample", step, json_pack("{s:o}", "text", json_text(text, size)));
}

void logger_save(Logger* l, int step, const char* path) {
    logger_notice(l, "saved step %d to %s", step, path);
    if (l->options.rank != 0) { return; }
    logger_record(l, "save", step, json_pack("{s:o}", "path", json_text(path, strlen(path))));
}

void logger_skip(Logger* l, int step, const char* what, double z) {
    logger_notice(l, "skipping update due to %s z-score of %f", what, z);
    if (l->options.rank != 0) { return; }
    logger_record(l, "skip", step, json_pack("{s:s, s:o}", "what", what, "z", json_float(z)));
}

void logger_eval(Logger* l, int step, const char* name, int correct, int total) {
    if (l->options.rank != 0) { return; }
    double accuracy = total > 0 ? (double)correct / total : NAN;
    char* line = format("%s: %d/%d = %f", name, correct, total, accuracy);
    logger_line(l, line);
    free(line);
    logger_record(l, "eval", step, json_pack("{s:s, s:i, s:i, s:o}", "name", name, "correct", correct, "total", total,
                                             "accuracy", json_float(accuracy)));
}

bool logger_close(Logger* l, Error* err) {
    if (l->steps > 1) {
        char* line = format("total average iteration time: %f ms", l->total_ms / (l->steps - 1));
        logger_erase_bar(l);
        l->bar = false;
        logger_line(l, line);
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
