#include "test_set.h"
#include "../base/file.h"
#include "../base/json.h"
#include "../options/options.h"
#include "core.h"
#include "python_random.h"
#include "rows.h"

// ---------------------------------------------------------------------------------------------------------------------
// rules

// Reads a part of --eval_rules, and copies what it keeps.
static bool rules_part_parse(TestSetOptions* o, const char* name, const char* value) {
    enum { MAX_SHOTS = 1000 };
    static const char* const rules[] = {"llm.c", "lm-eval", NULL};
    const int rule = value ? -1 : choice_find(rules, name);
    long long shots;
    if (rule >= 0) { o->rules = rules[rule]; return true; }
    if (!strcmp(name, "limit")) { return count_parse(value, 1, &o->limit); }
    if (!strcmp(name, "every")) { return count_parse(value, 0, &o->every); }
    if (!strcmp(name, "shots")) {
        const bool ok = count_parse(value, 0, &shots) && shots <= MAX_SHOTS;
        if (ok) { o->shots = (int)shots; }
        return ok;
    }
    if (strcmp(name, "examples") || !value || !*value) { return false; }
    o->examples = format("%s", value);
    return true;
}

bool eval_rules_parse(TestSetOptions* o, const char* text, Error* err) {
    char *copy = format("%s", text), *rest = copy, *name, *value;
    bool ok = true;
    o->rules = "llm.c";
    o->shots = 0;
    o->examples = NULL;
    o->limit = 0;
    o->every = -1;
    while (ok && part_next(&rest, &name, &value)) { ok = rules_part_parse(o, name, value); }
    free(copy);
    if (ok && o->examples && o->shots == 0) {
        return fail(err, "--eval_rules '%s': examples:FILE has no effect without shots:N", text);
    }
    return ok || fail(err, "--eval_rules '%s': give llm.c or lm-eval, shots:N (at most 1000), examples:FILE, limit:N, "
                      "every:N, or several, such as lm-eval,shots:5", text);
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON lines

// The items of a file.
typedef struct {
    ItemText* items;
    long long* lines; // where they stand
    size_t count;
    const TestForm* form;
} ItemTexts;

static void texts_free(ItemTexts* t) {
    for (size_t i = 0; i < t->count; i++) { item_text_free(&t->items[i]); }
    free(t->items);
    free(t->lines);
    memset(t, 0, sizeof *t);
}

// Reads the item of a line. The form must be that of the lines before, if there are any.
static bool read_line(ItemTexts* t, ItemText* item, const char* line, size_t bytes, const char* rules, Error* err) {
    json_error_t e;
    if (bytes > MAX_LINE_BYTES) { return fail(err, "a line of more than %d MiB", MAX_LINE_BYTES >> 20); }
    json_t* object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!object) { return fail(err, "no JSON in UTF-8: %s", e.text); }
    const bool is_task = t->form && !t->form->members[0]; // of CORE, whose list has said the form
    const TestForm* form = is_task ? t->form : test_form_of(object, rules, err);
    bool ok = form != NULL;
    if (ok && t->form && form != t->form) { ok = fail(err, "a line of %s in a file of %s", form->name, t->form->name); }
    if (ok) { t->form = form; }
    ok = ok && form->read(item, object, err);
    json_decref(object);
    return ok;
}

// Reads the items of JSON lines, at most `limit` (0: all). texts_free() frees them, also after a failure.
static bool read_lines(ItemTexts* t, const char* path, const char* text, size_t size, const char* rules, size_t limit,
                       Error* err) {
    const char* end = text + size;
    long long number = 1;
    for (const char *line = text, *next; line < end && (!limit || t->count < limit); line = next, number++) {
        const char* newline = memchr(line, '\n', (size_t)(end - line));
        const size_t bytes = (size_t)((newline ? newline : end) - line), n = t->count;
        next = line + bytes + 1;
        Error reason;
        if (strspn(line, " \t\r") >= bytes) { continue; }
        t->items = grown(t->items, n, sizeof *t->items, "a test set");
        t->lines = grown(t->lines, n, sizeof *t->lines, "a test set");
        t->items[n] = (ItemText){.count = 0};
        t->lines[n] = number;
        t->count++;
        if (!read_line(t, &t->items[n], line, bytes, rules, &reason)) {
            return fail(err, "%s:%lld: %s", path, number, reason.text);
        }
    }
    return t->count > 0 || fail(err, "%s has no items", path);
}

// ---------------------------------------------------------------------------------------------------------------------
// examples

static bool have_same_heading(const ItemText* a, const ItemText* b) {
    return a->heading && b->heading ? !strcmp(a->heading, b->heading) : a->heading == b->heading;
}

// Chooses the first items with the heading of an item, but not itself; returns how many, at most `count`.
static int choose_first(const ItemText** chosen, int count, const ItemTexts* from, const ItemText* item) {
    int found = 0;
    for (size_t i = 0; i < from->count && found < count; i++) {
        const ItemText* other = &from->items[i];
        if (other != item && have_same_heading(other, item)) { chosen[found++] = other; }
    }
    return found;
}

// Chooses examples as CORE does: item i of n has random.Random(1234 + i).sample(the others, count).
static int choose_random(const ItemText** chosen, int count, const ItemTexts* from, size_t item) {
    count = (int)min_size((size_t)count, from->count - 1);
    size_t* numbers = alloc_or_die((size_t)count + 1, sizeof *numbers, "examples");
    PythonRandom random = python_random((uint32_t)(1234 + item));
    python_sample(&random, numbers, from->count - 1, (size_t)count);
    for (int i = 0; i < count; i++) { chosen[i] = &from->items[numbers[i] + (numbers[i] >= item)]; }
    free(numbers);
    return count;
}

// Brings the items into the order of random.Random(1337).shuffle().
static void shuffle_texts(ItemTexts* t) {
    size_t* order = alloc_or_die(t->count, sizeof *order, "the order of a task");
    const ItemTexts old = *t;
    PythonRandom random = python_random(1337);
    t->items = alloc_or_die(t->count, sizeof *t->items, "a task");
    t->lines = alloc_or_die(t->count, sizeof *t->lines, "a task");
    for (size_t i = 0; i < t->count; i++) { order[i] = i; }
    python_shuffle(&random, order, t->count);
    for (size_t i = 0; i < t->count; i++) { t->items[i] = old.items[order[i]], t->lines[i] = old.lines[order[i]]; }
    free(old.items);
    free(old.lines);
    free(order);
}

// Makes the rows of the first `limit` items, with examples out of `from`.
static bool make_rows(RowMaker* m, const ItemTexts* texts, const ItemTexts* from, const TestTask* task, size_t limit,
                      Error* err) {
    const int shots = task ? task->shots : m->options->shots;
    const ItemText** examples = alloc_or_die((size_t)shots + 1, sizeof *examples, "examples");
    bool ok = true;
    for (size_t i = 0; ok && i < limit; i++) {
        const ItemText* item = &texts->items[i];
        const int count = task ? choose_random(examples, shots, from, i) : choose_first(examples, shots, from, item);
        Error reason;
        ok = task || count == shots ||
             fail(&reason, "there %s only %d example%s for it, shots: of --eval_rules is %d",
                  count == 1 ? "is" : "are", count, plural((uint64_t)count), shots);
        ok = ok && row_add_item(m, item, examples, count, &reason);
        if (!ok) { fail(err, "%s:%lld: %s", m->set->path, texts->lines[i], reason.text); }
    }
    free(examples);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// sets of JSON lines

static bool read_example_file(ItemTexts* t, const TestSetOptions* o, const TestForm* form, Error* err) {
    size_t size;
    char* file = read_file(o->examples, &size, err);
    if (!file) { return false; }
    const bool ok = read_lines(t, o->examples, file, size, o->rules, 0, err);
    free(file);
    return ok && (t->form == form || fail(err, "--eval_rules examples:%s: items of %s, in front of %s", o->examples,
                                          t->form->name, form->name));
}

// Reads a set of lines; `task` is NULL, or that of CORE.
static bool read_text_set(RowMaker* m, const TestTask* task, const char* file, size_t size, Error* err) {
    TestSet* s = m->set;
    const TestSetOptions* o = m->options;
    // examples from the set itself leave out the item that they stand in front of
    const bool has_file = !task && o->shots && o->examples && *o->examples && !is_same_file(o->examples, s->path);
    ItemTexts texts = {.form = task ? task->form : NULL}, examples = {.form = NULL};
    if (!o->tokenizer) { return fail(err, "%s is text, which needs a --tokenizer", s->path); }
    const bool reads_all = task || (o->shots && !has_file);
    bool ok = read_lines(&texts, s->path, file, size, o->rules, reads_all ? 0 : (size_t)o->limit, err);
    s->form = texts.form;
    if (ok && task) { // of a limited task, the examples are among the items that are scored
        shuffle_texts(&texts);
        while (o->limit && texts.count > (size_t)o->limit) { item_text_free(&texts.items[--texts.count]); }
    }
    if (ok && has_file) { ok = read_example_file(&examples, o, texts.form, err); }
    const size_t limit = o->limit ? min_size((size_t)o->limit, texts.count) : texts.count;
    ok = ok && make_rows(m, &texts, has_file ? &examples : &texts, task, limit, err);
    texts_free(&texts);
    texts_free(&examples);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// llm.c's .bin

// A reader of uint16 that remembers when they end.
typedef struct {
    const unsigned char *at, *end;
    bool has_ended;
} WordReader;

static int next_word(WordReader* w) {
    if (w->end - w->at < 2) { w->has_ended = true; return 0; }
    const int word = w->at[0] | w->at[1] << 8;
    w->at += 2;
    return word;
}

// Appends `count` tokens of the file to the set's.
static bool read_tokens(RowMaker* m, WordReader* w, int count, Error* err) {
    const Tokenizer* t = m->options->tokenizer;
    const int most = t ? t->vocab_size : m->options->vocab_size; // a tokenizer has at most as many as the model
    for (int i = 0; i < count; i++) {
        const int id = next_word(w);
        if (w->has_ended) { return fail(err, "the file ends inside of it"); }
        if (id >= most) { return fail(err, "token %d, and the %s has only %d", id, t ? "tokenizer" : "model", most); }
        token_list_append(&m->set->tokens, id);
    }
    return true;
}

static bool read_bin_item(RowMaker* m, WordReader* w, Error* err) {
    TokenList* tokens = &m->set->tokens;
    const unsigned char* begin = w->at;
    const int delimiter = next_word(w), bytes = next_word(w);
    next_word(w); // the index
    const int label = next_word(w), endings = next_word(w), context = next_word(w);
    if (w->has_ended) { return fail(err, "the file ends before it"); }
    if (delimiter != TEST_SET_DELIMITER) { return fail(err, "it does not begin with %d", TEST_SET_DELIMITER); }
    if (endings < 1 || endings > MAX_ENDINGS || label >= endings) {
        return fail(err, "label %d of %d endings", label, endings);
    }
    if (context < 1) { return fail(err, "it has no context"); }
    row_item_begin(m->set, label);
    const size_t shared = tokens->count;
    if (!read_tokens(m, w, context, err)) { return false; }
    for (int i = 0; i < endings; i++) {
        const size_t row = i ? tokens->count : shared;
        for (size_t t = 0; i && t < (size_t)context; t++) { token_list_append(tokens, tokens->ids[shared + t]); }
        const int scored = next_word(w);
        if (!read_tokens(m, w, scored, err) || !row_add(m, row, scored, 0, m->options->T + 1, err)) { return false; }
    }
    if (w->at - begin != bytes) { return fail(err, "it has %td bytes, and says %d", w->at - begin, bytes); }
    return true;
}

static bool read_bin(RowMaker* m, const unsigned char* file, size_t size, Error* err) {
    int32_t header[4];
    Error reason;
    TestSet* s = m->set;
    WordReader words = {.at = file + TEST_SET_HEADER, .end = file + size};
    memcpy(header, file, sizeof header);
    if (header[1] != 1) { return fail(err, "%s: version %d, not 1", s->path, header[1]); }
    s->form = test_form_bin(s->path);
    if (m->options->shots) {
        return fail(err, "--eval_rules shots:%d: %s has tokens, not text", m->options->shots, s->path);
    }
    for (int i = 0; i < header[2] && (!m->options->limit || i < m->options->limit); i++) {
        if (!read_bin_item(m, &words, &reason)) { return fail(err, "%s: item %d: %s", s->path, i, reason.text); }
    }
    if (!m->options->limit && words.at != words.end) {
        return fail(err, "%s: %td bytes behind its last item", s->path, words.end - words.at);
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// files

// Names the sets, so that each has a name of its own.
static void name_sets(TestSet* sets, int count) {
    for (int i = 0; i < count; i++) {
        if (sets[i].name) { continue; }
        bool is_alone = true;
        for (int j = 0; j < count; j++) {
            is_alone = is_alone && (j == i || strcmp(sets[j].form->name, sets[i].form->name));
        }
        sets[i].name = is_alone ? format("%s", sets[i].form->name) : format("%s %s", sets[i].form->name, sets[i].path);
    }
}

static bool is_bin(const char* file, size_t size) {
    int32_t magic = 0;
    if (size >= TEST_SET_HEADER) { memcpy(&magic, file, sizeof magic); }
    return magic == TEST_SET_MAGIC;
}

bool test_set_open(TestSet* s, const char* path, const TestTask* task, const TestSetOptions* options, Error* err) {
    size_t size;
    RowMaker maker = {.set = s, .options = options, .delimiter = task ? task->delimiter : " "};
    memset(s, 0, sizeof *s);
    s->tokens = token_list();
    s->baseline = task ? task->baseline : NAN;
    char* file = read_file(path, &size, err);
    if (!file) { return false; }
    s->path = format("%s", path);
    bool ok = !task && is_bin(file, size) ? read_bin(&maker, (const unsigned char*)file, size, err)
                                          : read_text_set(&maker, task, file, size, err);
    free(file);
    if (ok && s->num_items == 0) { ok = fail(err, "%s has no items", path); }
    if (ok) {
        const int shots = task ? task->shots : options->shots;
        s->convention = format("%s; %d example%s in front", s->form->convention, shots, plural((uint64_t)shots));
        s->published = shots ? NULL : s->form->published;
        s->name = task ? format("%s", task->name) : NULL;
    } else {
        test_set_free(s);
    }
    return ok;
}

void test_set_free(TestSet* s) {
    token_list_free(&s->tokens);
    free(s->rows);
    free(s->items);
    free(s->name);
    free(s->path);
    free(s->convention);
    memset(s, 0, sizeof *s);
}

static uint64_t test_set_hash(const TestSet* s, uint64_t seed) {
    uint64_t hash = hash64(s->tokens.ids, s->tokens.count * sizeof *s->tokens.ids, seed + s->num_items);
    for (size_t i = 0; i < s->num_rows; i++) {
        const int row[2] = {s->rows[i].tokens, s->rows[i].scored};
        hash = hash64(row, sizeof row, hash);
    }
    for (size_t i = 0; i < s->num_items; i++) { hash = hash64(&s->items[i].label, sizeof(int), hash); }
    return hash;
}

uint64_t test_sets_hash(const TestSet* sets, int count) {
    uint64_t hash = 0;
    for (int i = 0; i < count; i++) { hash = test_set_hash(&sets[i], hash); }
    return hash;
}

// Appends a set, of a file or of a task.
static TestSet* add_set(TestSet* sets, int* count, const char* path, const TestTask* task,
                        const TestSetOptions* options) {
    Error err;
    sets = realloc_or_die(sets, ((size_t)*count + 1) * sizeof *sets, "test sets");
    TestSet* s = &sets[(*count)++];
    if (!test_set_open(s, path, task, options, &err)) {
        fatal("--eval_data: %s%s", err.text, task ? "; a folder is read as that of CORE, eval_bundle" : "");
    }
    notice("%s: %zu item%s of %s, by %s", path, s->num_items, plural(s->num_items),
           task ? task->name : s->form->name, s->convention);
    if (s->num_cut) {
        notice("%s: %zu of %zu rows are longer than the model reads: their contexts lose the first tokens", path,
               s->num_cut, s->num_rows);
    }
    return sets;
}

TestSet* test_sets_open(const char* files, const TestSetOptions* options, int* count) {
    Error err;
    glob_t found;
    TestSet* sets = NULL;
    bool has_core = false;
    *count = 0;
    if (!*files) { return NULL; }
    if (!find_option_paths(&found, "--eval_data", files, "data/fetch.sh downloads test sets", &err)) {
        fatal("%s", err.text);
    }
    for (size_t k = 0; k < found.gl_pathc; k++) {
        const char* path = found.gl_pathv[k];
        if (is_directory(path)) {
            if (has_core) { usage_error("--eval_data: two folders of CORE; score them one after the other"); }
            has_core = true;
            for (int i = 0; i < CORE_TASKS; i++) {
                char* items = format("%s/eval_data/%s.jsonl", path, CORE[i].file);
                sets = add_set(sets, count, items, &CORE[i], options);
                free(items);
            }
        } else {
            sets = add_set(sets, count, path, NULL, options);
        }
    }
    globfree(&found);
    name_sets(sets, *count);
    return sets;
}

void test_sets_close(TestSet* sets, int count) {
    for (int i = 0; i < count; i++) { test_set_free(&sets[i]); }
    free(sets);
}
