#include "logger.h"
#include "../base/file.h"
#include "../base/json.h"

// Steps that a resumed run does again are dropped from the event files of earlier starts; the files stay as they are.
static bool open_events(Logger* l, int step, Error* err) {
    if (!l->options.has_tensorboard) { return true; }
    char* folder = format("%s/tensorboard", l->options.folder);
    const bool ok = events_open(&l->events, folder, step + 1, err);
    free(folder);
    return ok;
}

// Appends `text` as a line, and sends it to the file.
static void put_line(FILE* f, const char* text) {
    if (f) { fprintf(f, "%s\n", text); fflush(f); }
}

// Returns the line of a record {"kind", "step", members...}; the caller frees it. Takes over `members`.
static char* record_text_of(const char* kind, int step, json_t* members) {
    json_t* record = json_pack("{s:s, s:i}", "kind", kind, "step", step);
    if (members) { json_object_update(record, members); }
    char* text = members ? json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (!text) { fatal("cannot make a %s record of metrics.jsonl: text not UTF-8", kind); }
    json_decref(record);
    json_decref(members);
    return text;
}

// Closes a log and sets it to NULL. Fails if it was not written, or if there is another file, or none, in its place.
static bool close_log(FILE** log, const char* path, Error* err) {
    struct stat ours, there;
    FILE* f = *log;
    *log = NULL;
    if (!f) { return true; }
    const bool is_there = fstat(fileno(f), &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
                          ours.st_dev == there.st_dev;
    if (!close_synced(f, path, err)) { return false; }
    return is_there || fail(err, "%s: it was removed or replaced during the run, which wrote to the removed one", path);
}

// Opens a log at its end. If the run is resumed, ends a last line there that a kill has torn.
static FILE* open_log_file(const char* path, bool is_resumed, Error* err) {
    FILE* f = fopen(path, "a+");
    if (!f) { fail_system(err, path, "write"); }
    if (f && is_resumed && fseek(f, -1, SEEK_END) == 0 && fgetc(f) != '\n') {
        fseek(f, 0, SEEK_END); // between reading and writing
        fputc('\n', f);
    }
    return f;
}

static bool empty_log(FILE* f, const char* path, Error* err) {
    return ftruncate(fileno(f), 0) == 0 || fail_system(err, path, "empty");
}

// Fails if something else than a file of this type is in the place of a log: the target of a symbolic link would be
// overwritten, and a named pipe would keep the run waiting.
static bool check_place(const char* path, mode_t type, Error* err) {
    struct stat there;
    if (lstat(path, &there) != 0) { return errno == ENOENT || fail_system(err, path, "look at it"); }
    if ((there.st_mode & S_IFMT) == type) { return true; }
    return fail(err, "%s: not a %s%s: remove it, or give another --out", path,
                type == S_IFDIR ? "folder" : "regular file", S_ISLNK(there.st_mode) ? " but a symbolic link" : "");
}

static bool check_places(const Logger* l, Error* err) {
    char* events = format("%s/tensorboard", l->options.folder);
    const bool ok = check_place(l->metrics_path, S_IFREG, err) && check_place(l->text_path, S_IFREG, err) &&
                    (!l->options.has_tensorboard || check_place(events, S_IFDIR, err));
    free(events);
    return ok;
}

bool logger_open(Logger* l, const LoggerOptions* options, Error* err) {
    memset(l, 0, sizeof *l);
    l->options = *options;
    if (options->rank != 0) { return true; }
    l->bar = isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    l->print_every = logger_print_every(l);
    if (!options->folder) { return true; }
    if (!make_directories(options->folder, err)) { return false; }
    l->metrics_path = format("%s/metrics.jsonl", options->folder);
    l->text_path = format("%s/log.txt", options->folder);
    const bool is_resumed = options->resume_step >= 0;
    l->metrics = check_places(l, err) ? open_log_file(l->metrics_path, is_resumed, err) : NULL;
    l->text = l->metrics ? open_log_file(l->text_path, is_resumed, err) : NULL;
    const bool are_open = l->text && open_events(l, options->resume_step, err);
    // an earlier run's logs are lost only when all files are open
    const bool ok = are_open && (is_resumed || (empty_log(l->metrics, l->metrics_path, err) &&
                                                empty_log(l->text, l->text_path, err)));
    Error second;
    if (!ok) { logger_close(l, &second); }
    return ok;
}

// Appends a line to a log that a run does not go on without.
static void put_line_or_die(FILE* f, const char* path, const char* text) {
    put_line(f, text);
    if (f && ferror(f)) {
        fatal("%s: cannot write: %s; make room, then go on with --resume auto", path, strerror(errno));
    }
}

static void write_log_line(Logger* l, const char* text) { put_line_or_die(l->text, l->text_path, text); }

void logger_notice(Logger* l, const char* fmt, ...) {
    if (l->options.rank != 0) { return; }
    va_list args;
    va_start(args, fmt);
    char* text = format_list(fmt, args);
    va_end(args);
    make_printable(text);
    notice("%s", text);
    write_log_line(l, text);
    logger_draw_bar(l);
    free(text);
}

// Writes to standard output. If that fails, a run goes on without it: its reader may be gone, as `tee` after a Ctrl-C.
static void print_text(Logger* l, const char* text, size_t size) {
    if (write_stream(STDOUT_FILENO, text, size)) { return; }
    const int error = errno;
    drop_standard_output();
    logger_notice(l, "warning: standard output: cannot write: %s; the run goes on without it%s%s", strerror(error),
                  l->text ? ", and logs to " : "", l->text ? l->options.folder : "");
}

// Prints a result.
static void print_line(Logger* l, const char* text) {
    char* line = format("%s\n", text);
    logger_erase_bar(l);
    print_text(l, line, strlen(line));
    free(line);
}

// Prints a result that also stands in log.txt.
static void logger_line(Logger* l, const char* text) {
    print_line(l, text);
    write_log_line(l, text);
    logger_draw_bar(l);
}

// Appends a record {"kind", "step", members...} to metrics.jsonl. Takes over `members`.
static void logger_record(Logger* l, const char* kind, int step, json_t* members) {
    if (!l->metrics) {
        json_decref(members);
        return;
    }
    char* text = record_text_of(kind, step, members);
    put_line_or_die(l->metrics, l->metrics_path, text);
    free(text);
}

// Shows the configuration as a block of code among TensorBoard's texts.
static void event_config(Logger* l, int step, const json_t* members) {
    char* json = l->events.file ? json_dumps(members, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    if (!json) { return; }
    char* text = format("```\n%s\n```", json);
    events_text(&l->events, step, "config", text, strlen(text));
    free(text);
    free(json);
}

void logger_config(Logger* l, int step, json_t* members) {
    char date[32];
    time_t now = time(NULL);
    struct tm local;
    if (!localtime_r(&now, &local) || !strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S%z", &local)) { date[0] = 0; }
    json_object_set_new(members, "date", json_string(date));
    event_config(l, step, members);
    logger_record(l, "config", step, members);
}

// Writes a z-score as a field of the step line to `out` of 40 bytes; an empty field if it is not shown.
static const char* z_field(char* out, double z, bool is_shown) {
    if (is_shown) { snprintf(out, 40, " (%+.2fz)|", plain_nan(z)); }
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

// Writes the step to metrics.jsonl and to the event file, without the numbers that do not exist.
static void write_step_record(Logger* l, const StepRecord* r) {
    json_t* tok_s = isfinite(l->tok_s) ? json_integer(llround(l->tok_s)) : json_null();
    json_t* record = json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tokens", (json_int_t)r->tokens, "loss",
                               json_float(r->loss), "norm", json_float(r->norm), "lr", json_float(r->lr), "ms",
                               json_float(r->ms), "tok_s", tok_s, "mfu", json_float(r->mfu), "loss_z",
                               json_float(r->loss_z), "norm_z", json_float(r->norm_z));
    const struct {
        const char *key, *tag; // in metrics.jsonl, in the event file
        double value;
    } optional[] = {{"loss_scale", "train/loss_scale", r->loss_scale > 0 ? r->loss_scale : NAN},
                    {"embedding_lr", "train/embedding_lr", r->embedding_lr},
                    {"matrix_lr", "train/matrix_lr", r->matrix_lr},
                    {"momentum", "train/momentum", r->momentum}};
    enum { ALWAYS = 6, OPTIONAL = sizeof optional / sizeof *optional };
    const char* tags[ALWAYS + OPTIONAL] = {"train/loss", "train/norm",  "train/lr",
                                           "speed/ms",   "speed/tok_s", "speed/mfu"};
    double values[ALWAYS + OPTIONAL] = {r->loss, r->norm, r->lr, r->ms, l->tok_s, r->mfu};
    for (int i = 0; i < OPTIONAL; i++) {
        tags[ALWAYS + i] = optional[i].tag;
        values[ALWAYS + i] = optional[i].value;
        if (!isnan(optional[i].value)) { json_object_set_new(record, optional[i].key, json_float(optional[i].value)); }
    }
    logger_record(l, "train", r->step, record);
    events_scalars(&l->events, r->step, ALWAYS + OPTIONAL, tags, values);
}

void logger_step(Logger* l, const StepRecord* r) {
    if (l->options.rank != 0) { return; }
    double speed = (double)r->step_tokens / fmax(r->ms, 1e-6) * 1000.0;
    if (l->steps == 0) {
        l->tok_s = speed;
        l->after_first = seconds_now();
        l->first_tokens = r->tokens;
    } else {
        l->total_ms += r->ms;
        l->ema = 0.95 * l->ema + 0.05 * speed;
        l->tok_s = l->ema / (1.0 - pow(0.95, l->steps));
    }
    const bool is_printed = l->steps == 0 || r->step % l->print_every == 0 || r->step == l->options.max_steps;
    l->steps++;
    l->last = *r;
    const int width = logger_width(STDOUT_FILENO);
    char *line = logger_step_line(l, r, 0), *shown = logger_step_line(l, r, width);
    if (is_printed) { print_line(l, shown); }
    write_log_line(l, line);
    logger_draw_bar(l);
    free(shown);
    free(line);
    write_step_record(l, r);
}

void logger_val(Logger* l, int step, double loss) {
    if (l->options.rank != 0) { return; }
    char* line = format("val loss %f", plain_nan(loss));
    logger_line(l, line);
    free(line);
    logger_record(l, "val", step, json_pack("{s:o}", "loss", json_float(loss)));
    events_scalars(&l->events, step, 1, (const char* const[]){"val/loss"}, &loss);
}

void logger_sample(Logger* l, int step, const char* text, size_t size) {
    if (l->options.rank != 0) { return; }
    size_t shown_size = size;
    char* shown = isatty(STDOUT_FILENO) ? clean_text(text, size, is_printable, &shown_size) : NULL;
    print_line(l, "generating:\n---");
    print_text(l, shown ? shown : text, shown_size);
    print_text(l, "\n---\n", 5);
    free(shown);
    logger_draw_bar(l);
    json_t* clean = json_text(text, size);
    events_text(&l->events, step, "sample", json_string_value(clean), json_string_length(clean));
    logger_record(l, "sample", step, json_pack("{s:o}", "text", clean));
}

void logger_ranks(Logger* l, int step, const double* seconds, int n) {
    if (l->options.rank != 0) { return; }
    int slowest = 0;
    for (int i = 1; i < n; i++) { slowest = seconds[i] > seconds[slowest] ? i : slowest; }
    double* sorted = alloc_or_die((size_t)n, sizeof *sorted, "times of ranks");
    memcpy(sorted, seconds, (size_t)n * sizeof *sorted);
    sort_doubles(sorted, (size_t)n);
    const double median = sorted[(n - 1) / 2], ms = 1e3 * seconds[slowest];
    free(sorted);
    const double slowdown = ms / (1e3 * median);
    if (slowdown >= 1.1 && ms - 1e3 * median >= 1) { // less is noise of the system (both chosen)
        logger_notice(l, "step %d: rank %d is the slowest: it computed for %.2f ms, %.2f times the median", step,
                      slowest, ms, slowdown);
    }
    logger_record(l, "ranks", step, json_pack("{s:i, s:o, s:o}", "slowest", slowest, "ms", json_float(ms), "slowdown",
                                              json_float(slowdown)));
    events_scalars(&l->events, step, 1, (const char* const[]){"speed/slowdown"}, &slowdown);
}

void logger_save(Logger* l, int step, const char* path) {
    logger_notice(l, "saved step %d to %s", step, path);
    logger_record(l, "save", step, json_pack("{s:o}", "path", json_text(path, strlen(path))));
}

void logger_skip(Logger* l, int step, const char* what, double z) {
    if (isfinite(z)) { logger_notice(l, "skipping update due to %s z-score of %f", what, z); }
    else { logger_notice(l, "skipping update: %s is not finite", what); }
    logger_record(l, "skip", step, json_pack("{s:s, s:o}", "what", what, "z", json_float(z)));
}

void logger_overflow(Logger* l, int step, double scale, double next_scale) {
    logger_notice(l, "step %d: the gradient overflowed with a loss scale of %.9g: skipping its update; the scale is "
                  "now %.9g", step, scale, next_scale);
    logger_record(l, "skip", step, json_pack("{s:s, s:o}", "what", "overflow", "loss_scale", json_float(scale)));
}

void logger_eval(Logger* l, int step, const char* name, const char* rules, int correct, int total) {
    if (l->options.rank != 0) { return; }
    double accuracy = total > 0 ? (double)correct / total : NAN;
    char* line = format("%s: %d/%d = %f", name, correct, total, accuracy);
    logger_line(l, line);
    free(line);
    json_t* clean = json_text(name, strlen(name));
    char* tag = format("eval/%s", json_string_value(clean));
    logger_record(l, "eval", step, json_pack("{s:o, s:s, s:i, s:i, s:o}", "name", clean, "rules", rules, "correct",
                                             correct, "total", total, "accuracy", json_float(accuracy)));
    events_scalars(&l->events, step, 1, (const char* const[]){tag}, &accuracy);
    free(tag);
}

static void log_mean_time(Logger* l) {
    if (l->steps < 2) { return; }
    char* line = format("total average iteration time: %f ms", l->total_ms / (l->steps - 1));
    logger_erase_bar(l);
    l->bar = false;
    logger_line(l, line);
    free(line);
}

bool logger_sync(Logger* l, Error* err) {
    FILE* const files[] = {l->metrics, l->text};
    const char* const paths[] = {l->metrics_path, l->text_path};
    for (int i = 0; i < 2; i++) {
        if (files[i] && (fflush(files[i]) != 0 || fsync(fileno(files[i])) != 0)) {
            return fail_system(err, paths[i], "write");
        }
    }
    return true;
}

void logger_end(Logger* l, int step, const char* reason, const char* words) {
    if (l->options.rank != 0 || l->has_ended) { return; }
    l->has_ended = true;
    if (strcmp(reason, "error")) { log_mean_time(l); }
    char *line = format("ended after step %d: %s%s%s", step, reason, *words ? ": " : "", words),
         *record = record_text_of("end", step, json_pack("{s:s, s:o}", "reason", reason, "words",
                                                         json_text(words, strlen(words))));
    put_line(l->text, line);
    put_line(l->metrics, record);
    free(line);
    free(record);
}

bool logger_close(Logger* l, Error* err) {
    Error second;
    if (!l->has_ended) { log_mean_time(l); }
    bool ok = close_log(&l->metrics, l->metrics_path, err);
    ok = close_log(&l->text, l->text_path, ok ? err : &second) && ok;
    ok = events_close(&l->events, ok ? err : &second) && ok;
    free(l->metrics_path);
    free(l->text_path);
    memset(l, 0, sizeof *l);
    return ok;
}
