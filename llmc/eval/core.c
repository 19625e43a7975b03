#include "core.h"

// ---------------------------------------------------------------------------------------------------------------------
// core.yaml

// A reader of lines.
typedef struct {
    const char *path, *at;
    int line; // number of the last one
} Lines;

static bool ATTR_PRINTF(3, 4) fail_at(Error* err, const Lines* l, const char* fmt, ...) {
    va_list args;
    char reason[256];
    va_start(args, fmt);
    vsnprintf(reason, sizeof reason, fmt, args);
    va_end(args);
    return fail(err, "%s:%d: %s", l->path, l->line, reason);
}

// Copies the next line, without white space at its end; false at the end of the text. The caller frees it.
static bool next_yaml_line(Lines* l, char** line) {
    if (!*l->at) { return false; }
    const size_t bytes = strcspn(l->at, "\n");
    *line = format("%.*s", (int)bytes, l->at);
    for (size_t n = bytes; n && strchr(" \t\r", (*line)[n - 1]); n--) { (*line)[n - 1] = 0; }
    l->at += bytes + (l->at[bytes] == '\n');
    l->line++;
    return true;
}

// Returns true if nothing, or a comment, follows.
static bool is_end(const char* text) { return !text[strspn(text, " ")] || text[strspn(text, " ")] == '#'; }

// Reads a scalar into `out`, as long as `text`; false if it is none of those that are known.
static bool read_scalar(char* out, const char* text) {
    static const char codes[] = "n\nt\tr\r\\\\\"\"//";
    const char quote = *text;
    if (quote != '"' && quote != '\'') {
        static const char indicators[] = "[]{}&*!|>%@`,?#-";
        const char *comment = strstr(text, " #"), *end = comment ? comment : text + strlen(text);
        while (end > text && end[-1] == ' ') { end--; }
        memcpy(out, text, (size_t)(end - text));
        out[end - text] = 0;
        return *out && !strchr(indicators, *out) && !strstr(out, ": ") && end[-1] != ':';
    }
    for (text++; *text; text++) {
        if (*text == quote && quote == '\'' && text[1] == quote) { text++; }
        else if (*text == quote) { *out = 0; return is_end(text + 1); }
        else if (quote == '"' && *text == '\\') {
            const char* code = *++text ? strchr(codes, *text) : NULL;
            while (code && (code - codes) % 2) { code = strchr(code + 1, *text); }
            if (!code) { return false; }
            *out++ = code[1];
            continue;
        }
        *out++ = *text;
    }
    return false;
}

static bool set_text(char** field, const char* value, const char* key, const Lines* l, Error* err) {
    char* text = alloc_or_die(strlen(value) + 1, 1, "a task of CORE");
    const bool ok = !*field && read_scalar(text, value);
    if (!ok) { fail_at(err, l, *field ? "\"%s\" is there twice" : "\"%s\" is no text that can be read here", key); }
    if (ok) { *field = text; }
    else { free(text); }
    return ok;
}

// Sets a member of a task from a line "key: value".
static bool set_member(TestTask* task, const char* folder, const char* pair, const Lines* l, Error* err) {
    const size_t n = strcspn(pair, ":");
    const char* value = pair[n] ? pair + n + 1 + strspn(pair + n + 1, " ") : "";
    char *key = format("%.*s", (int)n, pair), *text = NULL;
    bool ok = pair[n] == ':' && (pair[n + 1] == ' ' || !pair[n + 1]);
    if (!ok) { fail_at(err, l, "no \"key: value\""); }
    else if (!strcmp(key, "label")) { ok = set_text(&task->name, value, key, l, err); }
    else if (!strcmp(key, "continuation_delimiter")) { ok = set_text(&task->delimiter, value, key, l, err); }
    else if (!strcmp(key, "dataset_uri")) {
        ok = !task->path || fail_at(err, l, "\"%s\" is there twice", key);
        ok = ok && set_text(&text, value, key, l, err);
        if (ok) { task->path = format("%s/eval_data/%s", folder, text); }
    } else if (!strcmp(key, "icl_task_type")) {
        ok = set_text(&text, value, key, l, err);
        task->form = ok ? test_form_core(text) : NULL;
        if (ok && !task->form) {
            ok = fail_at(err, l, "\"%s\" is multiple_choice, schema or language_modeling, not %s", key, text);
        }
    } else if (!strcmp(key, "num_fewshot")) {
        int end = 0;
        ok = (sscanf(value, "[ %5d ]%n", &task->shots, &end) == 1 && end && is_end(value + end) && task->shots >= 0) ||
             fail_at(err, l, "\"%s\" is one number in brackets, such as [10], not %s", key, value);
    } else if (strcmp(key, "has_categories")) {
        ok = fail_at(err, l, "key \"%s\" is not known", key);
    }
    free(text);
    free(key);
    return ok;
}

static bool is_complete(TestTask* task, const Lines* l, Error* err) {
    if (!task->delimiter) { task->delimiter = format(" "); }
    const char* missing = !task->name ? "label" : !task->path ? "dataset_uri" : !task->form ? "icl_task_type"
                          : task->shots < 0 ? "num_fewshot" : NULL;
    return !missing || fail_at(err, l, "the task that ends here has no \"%s\"", missing);
}

bool core_read_yaml(CoreList* list, const char* folder, const char* path, const char* text, Error* err) {
    Lines l = {.path = path, .at = text};
    bool ok = true, is_open = false; // the list has begun
    *list = (CoreList){.tasks = NULL};
    for (char* line; ok && next_yaml_line(&l, &line); free(line)) {
        const size_t indent = strspn(line, " ");
        const char* pair = line + indent;
        const bool begins = pair[0] == '-' && (pair[1] == ' ' || !pair[1]);
        TestTask* last = list->count ? &list->tasks[list->count - 1] : NULL;
        if (is_end(line) || (!is_open && !strcmp(line, "---"))) { continue; }
        if (!is_open) {
            is_open = !strncmp(line, "icl_tasks:", 10) && is_end(line + 10);
            ok = is_open || fail_at(err, &l, "the list does not begin with \"icl_tasks:\"");
            continue;
        }
        if (begins) {
            ok = !last || is_complete(last, &l, err);
            list->tasks = realloc_or_die(list->tasks, (size_t)(list->count + 1) * sizeof *last, "tasks of CORE");
            last = &list->tasks[list->count++];
            *last = (TestTask){.shots = -1};
            pair += 1 + strspn(pair + 1, " ");
            if (is_end(pair)) { continue; }
        } else if (!last || indent < 2) {
            ok = fail_at(err, &l, "neither \"- \" nor a member of a task");
        }
        ok = ok && set_member(last, folder, pair, &l, err);
    }
    if (ok && !list->count) { ok = fail(err, "%s has no tasks", path); }
    ok = ok && is_complete(&list->tasks[list->count - 1], &l, err);
    if (!ok) { core_list_free(list); }
    return ok;
}

void core_list_free(CoreList* list) {
    for (int i = 0; i < list->count; i++) {
        free(list->tasks[i].name);
        free(list->tasks[i].path);
        free(list->tasks[i].delimiter);
    }
    free(list->tasks);
    *list = (CoreList){.tasks = NULL};
}

// ---------------------------------------------------------------------------------------------------------------------
// eval_meta_data.csv

// Reads the next field into `out`, as long as the text. Sets *ends_row; counts lines.
static bool next_field(Lines* l, char* out, bool* ends_row, Error* err) {
    const bool is_quoted = *l->at == '"';
    l->at += is_quoted;
    for (; *l->at; *out++ = *l->at++) {
        if (is_quoted && *l->at == '"') {
            l->at++;
            if (*l->at != '"') { break; }
        } else if (!is_quoted && strchr(",\r\n", *l->at)) {
            break;
        }
        l->line += *l->at == '\n';
    }
    *out = 0;
    l->at += *l->at == '\r';
    *ends_row = *l->at != ',';
    if (*l->at && !strchr(",\n", *l->at)) { return fail_at(err, l, "text behind a quotation mark"); }
    if (is_quoted && l->at[-1] != '"' && l->at[-1] != '\r') {
        return fail_at(err, l, "a quotation mark is not closed");
    }
    l->line += *l->at == '\n';
    l->at += *l->at != 0;
    return true;
}

bool core_read_baseline(double* baseline, const char* label, const char* path, const char* text, Error* err) {
    Lines l = {.path = path, .at = text, .line = 1};
    int names = -1, numbers = -1, column = 0, row = 0;
    bool ok = true, is_found = false, is_mine = false;
    char* field = alloc_or_die(strlen(text) + 1, 1, path);
    while (ok && *l.at && !is_found) {
        bool ends_row;
        const int line = l.line;
        ok = next_field(&l, field, &ends_row, err);
        if (!ok) { break; }
        if (row == 0 && !strcmp(field, "Eval Task")) { names = column; }
        if (row == 0 && !strcmp(field, "Random baseline")) { numbers = column; }
        if (row > 0 && column == names) { is_mine = !strcmp(field, label); }
        if (row > 0 && column == numbers && is_mine) {
            char* end;
            *baseline = strtod(field, &end) / 100;
            is_found = *field && !*end && *baseline >= 0 && *baseline < 1;
            ok = is_found || fail(err, "%s:%d: \"Random baseline\" of %s is not 0 to 100: %.40s", path, line, label,
                                  field);
        }
        column = ends_row ? 0 : column + 1;
        is_mine = is_mine && !ends_row;
        row += ends_row;
        if (ok && row == 1 && ends_row && (names < 0 || numbers < names)) {
            ok = fail(err, "%s: no columns \"Eval Task\" and, behind it, \"Random baseline\"", path);
        }
    }
    free(field);
    return ok && (is_found || fail(err, "%s: no row of \"%s\"", path, label));
}

bool core_list_read(CoreList* list, const char* folder, Error* err) {
    size_t size;
    char *yaml_path = format("%s/core.yaml", folder), *csv_path = format("%s/eval_meta_data.csv", folder);
    char *yaml = read_file(yaml_path, &size, err), *csv = yaml ? read_file(csv_path, &size, err) : NULL;
    bool ok = csv && core_read_yaml(list, folder, yaml_path, yaml, err);
    for (int i = 0; ok && i < list->count; i++) {
        ok = core_read_baseline(&list->tasks[i].baseline, list->tasks[i].name, csv_path, csv, err);
        if (!ok) { core_list_free(list); }
    }
    free(csv);
    free(yaml);
    free(csv_path);
    free(yaml_path);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// the score

double core_score(const TestSet* sets, const TestScore* scores, int count, double* standard_error, int* tasks) {
    double sum = 0, variance = 0;
    *tasks = 0;
    for (int i = 0; i < count; i++) {
        if (isnan(sets[i].baseline)) { continue; }
        const double scale = 1 - sets[i].baseline,
                     error = test_standard_error(scores[i].correct, scores[i].total) / scale;
        sum += (test_accuracy(scores[i].correct, scores[i].total) - sets[i].baseline) / scale;
        variance += error * error;
        ++*tasks;
    }
    *standard_error = sqrt(variance) / *tasks;
    return *tasks ? sum / *tasks : NAN;
}

void core_print(const TestSet* sets, const TestScore* scores, int count) {
    int tasks;
    double error;
    const double core = core_score(sets, scores, count, &error, &tasks);
    if (!tasks) { return; }
    printf("CORE: %f\n  standard error %.4f; the mean of %d centered accuracies%s\n", core, error, tasks,
           tasks == 22 ? "" : "; published ones are of 22 tasks");
    printf("  published: OpenAI's 124M 0.1139, 355M 0.1849, 774M 0.2146, 1558M 0.2565 (nanochat)\n");
}
