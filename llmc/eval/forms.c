#include "forms.h"
#include "test_set.h"

// ---------------------------------------------------------------------------------------------------------------------
// members of a line

// Returns a member's text; NULL and an Error if it has none.
static const char* text_of(const json_t* line, const char* member, Error* err) {
    const char* text = json_string_value(json_object_get(line, member));
    if (!text) { fail(err, "member \"%s\" is missing, or no text", member); }
    return text;
}

// Returns a member's array, of one to MAX_ENDINGS texts; NULL and an Error if it is none.
static const json_t* texts_of(const json_t* line, const char* member, Error* err) {
    const json_t* texts = json_object_get(line, member);
    const size_t count = json_array_size(texts);
    bool ok = count >= 1 && count <= MAX_ENDINGS;
    for (size_t i = 0; ok && i < count; i++) { ok = json_is_string(json_array_get(texts, i)); }
    if (!ok) { fail(err, "member \"%s\" is missing, or no list of 1 to %d texts", member, MAX_ENDINGS); }
    return ok ? texts : NULL;
}

static const char* text_at(const json_t* texts, size_t i) { return json_string_value(json_array_get(texts, i)); }

// Reads a label: a number, which some files write as a text. The first ending has the label `first`.
static bool label_of(const json_t* line, const char* member, int first, size_t endings, int* label, Error* err) {
    const json_t* value = json_object_get(line, member);
    const char* text = json_string_value(value);
    char* end = NULL;
    const long long number = text ? strtoll(text, &end, 10) : json_integer_value(value);
    if (text ? !*text || *end : !json_is_integer(value)) {
        return fail(err, "member \"%s\" is missing, or no number: the file must have labels", member);
    }
    if (number < first || number >= first + (long long)endings) {
        return fail(err, "\"%s\" is %lld, but the endings are %d to %lld", member, number, first,
                    first + (long long)endings - 1);
    }
    *label = (int)(number - first);
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// HellaSwag

static bool read_hellaswag(TestReader* r, const json_t* line, Error* err) {
    int label;
    const char* context = text_of(line, "ctx", err);
    const json_t* endings = context ? texts_of(line, "endings", err) : NULL;
    const size_t count = json_array_size(endings);
    if (!endings || !label_of(line, "label", 0, count, &label, err)) { return false; }
    test_item_begin(r, label);
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++) {
        char* ending = format(" %s", text_at(endings, i));
        ok = test_row_apart(r, context, ending, err);
        free(ending);
    }
    return ok;
}

// Replaces every `from` by `to`, which is not longer, from left to right.
static void replace_all(char* text, const char* from, const char* to) {
    char* out = text;
    const size_t bytes = strlen(from);
    while (*text) {
        const bool found = !strncmp(text, from, bytes);
        if (!found) { *out++ = *text++; continue; }
        for (const char* c = to; *c; c++) { *out++ = *c; }
        text += bytes;
    }
    *out = 0;
}

// Removes what stands in brackets on one line, and the brackets: re.sub("\\[.*?\\]", "").
static void remove_brackets(char* text) {
    char* out = text;
    while (*text) {
        const size_t bytes = *text == '[' ? strcspn(text, "]\n") : 0;
        if (bytes && text[bytes] == ']') { text += bytes + 1; }
        else { *out++ = *text++; }
    }
    *out = 0;
}

// Cleans a text in place, as lm-evaluation-harness does for HellaSwag; returns where it then begins.
static char* clean_wikihow(char* text) {
    static const char spaces[] = " \t\n\r\v\f";
    text += strspn(text, spaces);
    size_t bytes = strlen(text);
    while (bytes && strchr(spaces, text[bytes - 1])) { bytes--; }
    text[bytes] = 0;
    replace_all(text, " [title]", ". ");
    remove_brackets(text);
    replace_all(text, "  ", " ");
    return text;
}

// Python's capitalize(), for ASCII alone: the first letter becomes a capital, all others small.
static void capitalize(char* text) {
    for (char* c = text; *c; c++) {
        if (c == text && *c >= 'a' && *c <= 'z') { *c = (char)(*c - 'a' + 'A'); }
        if (c != text && *c >= 'A' && *c <= 'Z') { *c = (char)(*c - 'A' + 'a'); }
    }
}

// Adds a row of lm-evaluation-harness: a space stands before the choice.
static bool add_choice(TestReader* r, const char* context, const char* choice, Error* err) {
    char* ending = format(" %s", choice);
    const bool ok = test_row_together(r, context, ending, utf8_characters(choice), err);
    free(ending);
    return ok;
}

static bool read_hellaswag_harness(TestReader* r, const json_t* line, Error* err) {
    int label;
    const char *activity = text_of(line, "activity_label", err), *a = activity ? text_of(line, "ctx_a", err) : NULL,
               *b = a ? text_of(line, "ctx_b", err) : NULL;
    const json_t* endings = b ? texts_of(line, "endings", err) : NULL;
    const size_t count = json_array_size(endings);
    if (!endings || !label_of(line, "label", 0, count, &label, err)) { return false; }
    char* second = format("%s", b);
    capitalize(second);
    char* joined = format("%s: %s %s", activity, a, second);
    const char* context = clean_wikihow(joined);
    bool ok = true;
    test_item_begin(r, label);
    for (size_t i = 0; ok && i < count; i++) {
        char* ending = format("%s", text_at(endings, i));
        ok = add_choice(r, context, clean_wikihow(ending), err);
        free(ending);
    }
    free(joined);
    free(second);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// other sets, by lm-evaluation-harness' rules

// Adds an item of a question and its choices.
static bool add_question(TestReader* r, const char* question, const char* const* choices, size_t count, int label,
                         Error* err) {
    char* context = format("Question: %s\nAnswer:", question);
    bool ok = true;
    test_item_begin(r, label);
    for (size_t i = 0; ok && i < count; i++) { ok = add_choice(r, context, choices[i], err); }
    free(context);
    return ok;
}

static bool read_piqa(TestReader* r, const json_t* line, Error* err) {
    int label;
    const char *goal = text_of(line, "goal", err), *choices[2];
    choices[0] = goal ? text_of(line, "sol1", err) : NULL;
    choices[1] = choices[0] ? text_of(line, "sol2", err) : NULL;
    return choices[1] && label_of(line, "label", 0, 2, &label, err) && add_question(r, goal, choices, 2, label, err);
}

// Reads a question of ARC. Both forms of its choices become a list of texts and one of labels.
static bool read_arc(TestReader* r, const json_t* line, Error* err) {
    const char *key = text_of(line, "answerKey", err), *choices[MAX_ENDINGS];
    const json_t *question = json_object_get(line, "question"), *pairs = json_object_get(question, "choices"),
                 *lists = json_object_get(line, "choices"), *texts = json_object_get(lists, "text"),
                 *labels = json_object_get(lists, "label");
    const char* stem = json_string_value(pairs ? json_object_get(question, "stem") : question);
    const size_t count = json_array_size(pairs ? pairs : texts);
    int label = -1;
    if (!key) { return false; }
    if (!stem || count < 1 || count > MAX_ENDINGS) {
        return fail(err, "members \"question\" and \"choices\" are not those of ARC");
    }
    for (size_t i = 0; i < count; i++) {
        const json_t* pair = json_array_get(pairs, i);
        const char* name = json_string_value(pairs ? json_object_get(pair, "label") : json_array_get(labels, i));
        choices[i] = pairs ? json_string_value(json_object_get(pair, "text")) : text_at(texts, i);
        if (!choices[i] || !name) { return fail(err, "choice %zu has no text or no label", i + 1); }
        if (!strcmp(name, key)) { label = (int)i; }
    }
    if (label < 0) { return fail(err, "\"answerKey\" is \"%s\", which is the label of no choice", key); }
    return add_question(r, stem, choices, count, label, err);
}

static bool read_winogrande(TestReader* r, const json_t* line, Error* err) {
    static const char* const names[] = {"option1", "option2"};
    static const char spaces[] = " \t\n\r\v\f";
    int label;
    const char *sentence = text_of(line, "sentence", err), *gap = sentence ? strchr(sentence, '_') : NULL;
    if (!sentence || !label_of(line, "answer", 1, 2, &label, err)) { return false; }
    if (!gap) { return fail(err, "\"sentence\" has no _"); }
    char* rest = format("%s", gap + 1 + strspn(gap + 1, spaces));
    for (size_t n = strlen(rest); n && strchr(spaces, rest[n - 1]); n--) { rest[n - 1] = 0; }
    bool ok = true;
    test_item_begin(r, label);
    for (int i = 0; ok && i < 2; i++) {
        const char* option = text_of(line, names[i], err);
        char* context = format("%.*s%s", (int)(gap - sentence), sentence, option ? option : "");
        ok = option && add_choice(r, context, rest, err);
        free(context);
    }
    free(rest);
    return ok;
}

static bool read_lambada(TestReader* r, const json_t* line, Error* err) {
    const char *text = text_of(line, "text", err), *space = text ? strrchr(text, ' ') : NULL;
    if (!text) { return false; }
    if (!space) { return fail(err, "\"text\" is one word: there is none to foresee"); }
    char* context = format("%.*s", (int)(space - text), text);
    test_item_begin(r, 0);
    const bool ok = add_choice(r, context, space + 1, err);
    free(context);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// llm-foundry's forms

static bool read_choices(TestReader* r, const json_t* line, Error* err) {
    int label;
    const char* query = text_of(line, "query", err);
    const json_t* choices = query ? texts_of(line, "choices", err) : NULL;
    const size_t count = json_array_size(choices);
    if (!choices || !label_of(line, "gold", 0, count, &label, err)) { return false; }
    bool ok = true;
    test_item_begin(r, label);
    for (size_t i = 0; ok && i < count; i++) { ok = add_choice(r, query, text_at(choices, i), err); }
    return ok;
}

static bool read_schema(TestReader* r, const json_t* line, Error* err) {
    int label;
    const char* continuation = text_of(line, "continuation", err);
    const json_t* contexts = continuation ? texts_of(line, "context_options", err) : NULL;
    const size_t count = json_array_size(contexts);
    if (!contexts || !label_of(line, "gold", 0, count, &label, err)) { return false; }
    bool ok = true;
    test_item_begin(r, label);
    for (size_t i = 0; ok && i < count; i++) { ok = add_choice(r, text_at(contexts, i), continuation, err); }
    return ok;
}

// The spaces at the context's end are dropped: one stands before the continuation already.
static bool read_continuation(TestReader* r, const json_t* line, Error* err) {
    const char *text = text_of(line, "context", err), *continuation = text ? text_of(line, "continuation", err) : NULL;
    if (!continuation) { return false; }
    char* context = format("%s", text);
    for (size_t n = strlen(context); n && strchr(" \t\n\r\v\f", context[n - 1]); n--) { context[n - 1] = 0; }
    test_item_begin(r, 0);
    const bool ok = add_choice(r, context, continuation + strspn(continuation, " "), err);
    free(context);
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// all forms

#define HARNESS_CHOICE "lm-eval's rules: context and ending tokenized together, lowest loss per character"

static const TestForm FORMS[] = {
    {.name = "HellaSwag", .rules = "llm.c", .members = {"ctx", "endings"}, .norm = BY_TOKEN,
     .convention = "llm.c's rules: context and ending tokenized apart, lowest loss per token",
     .published = "OpenAI's 124M 0.2955, 350M 0.3752, 774M 0.4320, 1558M 0.4893; "
                  "GPT-3's 125M 0.337, 350M 0.436, 760M 0.510, 1.3B 0.547 (llm.c)",
     .read = read_hellaswag},
    {.name = "HellaSwag", .rules = "lm-eval", .members = {"ctx", "endings"}, .norm = BY_CHARACTER,
     .convention = HARNESS_CHOICE, .published = "OpenAI's 124M 0.3114, 1558M 0.5089 (llm.c's comments, by lm-eval)",
     .read = read_hellaswag_harness},
    {.name = "PIQA", .members = {"goal", "sol1"}, .norm = BY_CHARACTER, .convention = HARNESS_CHOICE,
     .published = "OpenAI's 124M 0.625, 350M 0.664, 1558M 0.708 (third parties, by lm-eval)", .read = read_piqa},
    {.name = "ARC", .members = {"question", "answerKey"}, .norm = BY_CHARACTER, .convention = HARNESS_CHOICE,
     .published = "ARC-Easy: OpenAI's 124M 0.395, 350M 0.436; by the sum 0.438, 0.492 (third parties, by lm-eval)",
     .read = read_arc},
    {.name = "WinoGrande", .members = {"sentence", "option1"}, .norm = BY_SUM,
     .convention = "lm-eval's rules: the sentence behind the option, lowest sum of losses",
     .published = "OpenAI's 124M 0.516, 350M 0.531, 1558M 0.594 (third parties, by lm-eval)",
     .read = read_winogrande},
    {.name = "LAMBADA", .members = {"text", "text"}, .norm = AS_FORESEEN,
     .convention = "lm-eval's rules: each token of the last word must be the likeliest",
     .published = "OpenAI's 124M 0.3256, perplexity 40.06; 1558M 0.5121, 10.63 (by lm-eval; the paper's are of cleaned "
                  "text)",
     .read = read_lambada},
    {.name = "multiple choice", .members = {"query", "choices"}, .norm = BY_TOKEN,
     .convention = "llm-foundry's form: a space between query and choice, no examples, lowest loss per token",
     .read = read_choices},
    {.name = "schema", .members = {"context_options", "continuation"}, .norm = BY_TOKEN,
     .convention = "llm-foundry's form: a space between context and continuation, no examples, lowest loss per token "
                   "of the continuation",
     .read = read_schema},
    {.name = "continuation", .members = {"context", "continuation"}, .norm = AS_FORESEEN,
     .convention = "llm-foundry's form: a space between context and continuation, no examples, each token of the "
                   "continuation must be the likeliest",
     .read = read_continuation},
};

const TestForm* test_form_of(const json_t* line, const char* rules, Error* err) {
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        const TestForm* f = &FORMS[i];
        if (json_object_get(line, f->members[0]) && json_object_get(line, f->members[1]) &&
            (!f->rules || !strcmp(f->rules, rules))) {
            return f;
        }
    }
    fail(err, "its members are those of no known test set: HellaSwag has \"ctx\" and \"endings\", for instance");
    return NULL;
}

const TestForm* test_form_bin(void) { return &FORMS[0]; }
