#include "test_set.h"
#include "../files/json.h"

// ---------------------------------------------------------------------------------------------------------------------
// rows

int utf8_characters(const char* text) {
    int count = 0;
    for (; *text; text++) { count += ((unsigned char)*text & 0xc0) != 0x80; }
    return count;
}

// Returns memory for element number `count` of a growing array, whose room is the next power of two.
static void* grown(void* array, size_t count, size_t size) {
    if (count & (count - 1)) { return array; }
    return realloc_or_die(array, (count ? 2 * count : 1) * size, "a test set");
}

void test_item_begin(TestReader* r, int label) {
    TestSet* s = r->set;
    s->items = grown(s->items, s->num_items, sizeof *s->items);
    s->items[s->num_items++] = (TestItem){.first = s->num_rows, .rows = 0, .label = label};
}

// Makes a row of the tokens from `begin` on, the last `scored` of which are the ending.
static bool add_row(TestReader* r, size_t begin, int scored, int characters, Error* err) {
    TestSet* s = r->set;
    const int T = r->options->T;
    TestRow row = {.begin = begin, .tokens = (int)(s->tokens.count - begin), .scored = scored,
                   .characters = characters};
    if (scored < 1) { return fail(err, "an ending has no token of its own"); }
    if (scored > T) {
        return fail(err, "an ending has %d tokens, the model reads only %d at once: give a larger --seq_len or model",
                    scored, T);
    }
    if (row.tokens > T + 1) {
        row.begin += (size_t)(row.tokens - (T + 1));
        row.tokens = T + 1;
        s->num_cut++;
    }
    s->rows = grown(s->rows, s->num_rows, sizeof *s->rows);
    s->rows[s->num_rows++] = row;
    s->items[s->num_items - 1].rows++;
    return true;
}

// Begins a row with its context; returns where it begins.
static size_t add_context(TestReader* r, const char* text, size_t bytes) {
    TokenList* tokens = &r->set->tokens;
    const size_t begin = tokens->count;
    if (!tokenizer_encode(r->options->tokenizer, text, bytes, tokens)) {
        token_list_append(tokens, r->options->tokenizer->eot);
    }
    return begin;
}

bool test_row_apart(TestReader* r, const char* context, const char* ending, Error* err) {
    const size_t begin = add_context(r, context, strlen(context));
    const size_t scored = tokenizer_encode(r->options->tokenizer, ending, strlen(ending), &r->set->tokens);
    return add_row(r, begin, (int)scored, 0, err);
}

bool test_row_together(TestReader* r, const char* context, const char* ending, int characters, Error* err) {
    TokenList* tokens = &r->set->tokens;
    size_t bytes = strlen(context);
    while (bytes && strchr(" \t\n\r\v\f", context[bytes - 1])) { bytes--; }
    const size_t begin = add_context(r, context, bytes), count = tokens->count;
    if (bytes) { tokens->count = begin; }
    char* whole = format("%s%s", context, ending);
    tokenizer_encode(r->options->tokenizer, whole, strlen(whole), tokens);
    free(whole);
    return add_row(r, begin, (int)((long long)tokens->count - (long long)count), characters, err);
}

// ---------------------------------------------------------------------------------------------------------------------
// JSON lines

// Reads the item of a line, whose form must be that of the lines before.
static bool read_line(TestReader* r, const char* line, size_t bytes, Error* err) {
    json_error_t e;
    json_t* object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &e);
    if (!object) { return fail(err, "no JSON in UTF-8: %s", e.text); }
    const TestForm* form = test_form_of(object, r->options->rules, err);
    bool ok = form != NULL;
    if (ok && r->set->form && form != r->set->form) {
        ok = fail(err, "a line of %s in a file of %s", form->name, r->set->form->name);
    }
    r->set->form = form;
    ok = ok && form->read(r, object, err);
    json_decref(object);
    return ok;
}

static bool read_lines(TestReader* r, const char* text, size_t size, Error* err) {
    const char* end = text + size;
    const size_t limit = (size_t)r->options->limit;
    long long number = 1;
    if (!r->options->tokenizer) { return fail(err, "%s is text, which needs a --tokenizer", r->set->path); }
    for (const char *line = text, *next; line < end && (!limit || r->set->num_items < limit); line = next, number++) {
        const char* newline = memchr(line, '\n', (size_t)(end - line));
        const size_t bytes = (size_t)((newline ? newline : end) - line);
        next = line + bytes + 1;
        Error reason;
        if (strspn(line, " \t\r") >= bytes || read_line(r, line, bytes, &reason)) { continue; }
        return fail(err, "%s:%lld: %s", r->set->path, number, reason.text);
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// llm.c's .bin

// A reader of uint16 that remembers when they end.
typedef struct {
    const unsigned char *at, *end;
    bool has_ended;
} Words;

static int next_word(Words* w) {
    if (w->end - w->at < 2) { w->has_ended = true; return 0; }
    const int word = w->at[0] | w->at[1] << 8;
    w->at += 2;
    return word;
}

// Appends `count` tokens of the file to the set's.
static bool read_tokens(TestReader* r, Words* w, int count, Error* err) {
    for (int i = 0; i < count; i++) {
        const int id = next_word(w);
        if (w->has_ended) { return fail(err, "the file ends inside of it"); }
        if (id >= r->options->vocab_size) {
            return fail(err, "token %d, and the model has only %d", id, r->options->vocab_size);
        }
        token_list_append(&r->set->tokens, id);
    }
    return true;
}

static bool read_bin_item(TestReader* r, Words* w, Error* err) {
    TokenList* tokens = &r->set->tokens;
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
    test_item_begin(r, label);
    const size_t shared = tokens->count;
    if (!read_tokens(r, w, context, err)) { return false; }
    for (int i = 0; i < endings; i++) {
        const size_t row = i ? tokens->count : shared;
        for (size_t t = 0; i && t < (size_t)context; t++) { token_list_append(tokens, tokens->ids[shared + t]); }
        const int scored = next_word(w);
        if (!read_tokens(r, w, scored, err) || !add_row(r, row, scored, 0, err)) { return false; }
    }
    if (w->at - begin != bytes) { return fail(err, "it has %td bytes, and says %d", w->at - begin, bytes); }
    return true;
}

static bool read_bin(TestReader* r, const unsigned char* file, size_t size, Error* err) {
    int32_t header[4];
    Error reason;
    TestSet* s = r->set;
    Words words = {.at = file + TEST_SET_HEADER, .end = file + size};
    memcpy(header, file, sizeof header);
    if (header[1] != 1) { return fail(err, "%s: version %d, not 1", s->path, header[1]); }
    s->form = test_form_bin();
    for (int i = 0; i < header[2] && (!r->options->limit || i < r->options->limit); i++) {
        if (!read_bin_item(r, &words, &reason)) { return fail(err, "%s: item %d: %s", s->path, i, reason.text); }
    }
    if (!r->options->limit && words.at != words.end) {
        return fail(err, "%s: %td bytes behind its last item", s->path, words.end - words.at);
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// files

// Names the sets, so that each has a name of its own.
static void name_sets(TestSet* sets, int count) {
    for (int i = 0; i < count; i++) {
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

bool test_set_open(TestSet* s, const char* path, const TestSetOptions* options, Error* err) {
    size_t size;
    TestReader reader = {.set = s, .options = options};
    memset(s, 0, sizeof *s);
    s->path = path;
    s->tokens = token_list();
    char* file = read_file(path, &size, err);
    if (!file) { return false; }
    bool ok = is_bin(file, size) ? read_bin(&reader, (const unsigned char*)file, size, err)
                                 : read_lines(&reader, file, size, err);
    free(file);
    if (ok && s->num_items == 0) { ok = fail(err, "%s has no items", path); }
    if (!ok) { test_set_free(s); }
    return ok;
}

void test_set_free(TestSet* s) {
    token_list_free(&s->tokens);
    free(s->rows);
    free(s->items);
    free(s->name);
    s->rows = NULL;
    s->items = NULL;
    s->name = NULL;
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

TestSet* test_sets_open(const char* files, const TestSetOptions* options, int* count) {
    static const char separators[] = ", \t\n";
    Error err;
    TestSet* sets = NULL;
    *count = 0;
    for (const char *p = files + strspn(files, separators); *p; p += strspn(p, separators)) {
        const size_t bytes = strcspn(p, separators);
        char* path = format("%.*s", (int)bytes, p);
        sets = realloc_or_die(sets, ((size_t)*count + 1) * sizeof *sets, "test sets");
        TestSet* s = &sets[(*count)++];
        if (!test_set_open(s, path, options, &err)) { fatal("--eval_data: %s", err.text); }
        notice("%s: %zu items of %s, by %s", path, s->num_items, s->form->name, s->form->convention);
        if (s->num_cut) {
            notice("%s: %zu of %zu rows are longer than %d tokens: their contexts lose the first ones", path,
                   s->num_cut, s->num_rows, options->T + 1);
        }
        p += bytes;
    }
    name_sets(sets, *count);
    return sets;
}

void test_sets_close(TestSet* sets, int count) {
    for (int i = 0; i < count; i++) {
        free((char*)sets[i].path);
        test_set_free(&sets[i]);
    }
    free(sets);
}
