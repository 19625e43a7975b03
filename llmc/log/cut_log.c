#include "cut_log.h"
#include "../base/json.h"
#include "metrics.h"
#include <limits.h>

// Returns the step that a line of a log belongs to; `before` is that of the line before. Records of phases that are
// done `again` belong to the next step.
typedef long (*LineStep)(const char* line, size_t size, long before, Phases again);

// A line of metrics.jsonl that is no record belongs to no step, and so is cut.
static long metrics_line_step(const char* line, size_t size, long before, Phases again) {
    (void)before;
    json_t* record = json_loadb(line, size, 0, NULL);
    json_t* step = json_object_get(record, "step");
    const char* kind = record_text(record, "kind");
    const bool is_again = (again.val && !strcmp(kind, "val")) || (again.eval && !strcmp(kind, "eval")) ||
                          (again.sample && !strcmp(kind, "sample"));
    long n = json_is_integer(step) ? (long)json_integer_value(step) : LONG_MAX;
    if (is_again && n < LONG_MAX) { n++; }
    json_decref(record);
    return n;
}

// "step 7/100 | ..." is the line of a step. Others, such as "step 7: ...", are notices: they belong to the line before.
static long text_line_step(const char* line, size_t size, long before, Phases again) {
    (void)again;
    char number[24];
    long n;
    int end = 0; // set if the / is there
    snprintf(number, sizeof number, "%.*s", (int)min_size(size, sizeof number - 1), line);
    return sscanf(number, "step %ld/%n", &n, &end) == 1 && end ? n : before;
}

// Removes from a log what came after `step`, and a torn last line. A log that does not exist stays so.
static bool cut_log(const char* path, long step, Phases again, LineStep line_step, Error* err) {
    size_t size, used = 0, n;
    if (!path_exists(path)) { return true; }
    char* text = read_file(path, &size, err);
    if (!text) { return false; }
    const char *at = text, *line;
    for (long now = 0; (line = next_line(&at, text + size, &n)) != NULL;) {
        now = line_step(line, n, now, again);
        if (now > step) { continue; }
        memmove(text + used, line, n + 1);
        used += n + 1;
    }
    bool ok = write_file_atomically(path, text, used, err);
    free(text);
    return ok;
}

static int clamped(json_int_t n) { return n < 0 ? 0 : n > INT_MAX ? INT_MAX : (int)n; }

// Counts the updates after `step` in metrics.jsonl.
static bool count_lost(const char* path, long step, LostSteps* lost, Error* err) {
    size_t size, n;
    long long steps = 0;
    memset(lost, 0, sizeof *lost);
    if (!path_exists(path)) { return true; }
    char* text = read_file(path, &size, err);
    if (!text) { return false; }
    for (const char *at = text, *line; (line = next_line(&at, text + size, &n)) != NULL;) {
        json_t *record = json_loadb(line, n, 0, NULL), *ms = json_object_get(record, "ms");
        const bool is_train = !strcmp(record_text(record, "kind"), "train"); // others have ms too
        if (json_integer_value(json_object_get(record, "step")) > step) {
            steps += is_train + clamped(json_integer_value(json_object_get(record, "lost_steps")));
            lost->ms += (is_train ? json_number_value(ms) : 0) + json_number_value(json_object_get(record, "lost_ms"));
        }
        json_decref(record);
    }
    lost->steps = clamped(steps);
    free(text);
    return true;
}

bool cut_logs(const char* metrics_path, const char* text_path, long step, Phases again, LostSteps* lost, Error* err) {
    return count_lost(metrics_path, step, lost, err) && cut_log(metrics_path, step, again, metrics_line_step, err) &&
           cut_log(text_path, step, again, text_line_step, err);
}
