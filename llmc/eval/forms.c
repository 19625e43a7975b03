#include "forms.h"
#include "../base/file.h"

// ---------------------------------------------------------------------------------------------------------------------
// items as text

// Adds an ending, whose text is copied, and its context, which the item then owns.
static void item_text_add(ItemText* item, char* context, const char* ending) {
    const size_t n = (size_t)item->count++;
    item->contexts = grown(item->contexts, n, sizeof *item->contexts, "an item of a test set");
    item->endings = grown(item->endings, n, sizeof *item->endings, "an item of a test set");
    item->contexts[n] = context;
    item->endings[n] = format("%s", ending);
}

void item_text_free(ItemText* item) {
    for (int i = 0; i < item->count; i++) {
        free(item->contexts[i]);
        free(item->endings[i]);
    }
    free(item->contexts);
    free(item->endings);
    free(item->heading);
    memset(item, 0, sizeof *item);
}

// ---------------------------------------------------------------------------------------------------------------------
// members of a line

static const char SPACES[] = " \t\n\r\v\f";

size_t trimmed_length(const char* text) {
    size_t bytes = strlen(text);
    while (bytes && strchr(SPACES, text[bytes - 1])) { bytes--; }
    return bytes;
}

// Returns a member's text; NULL and an Error if it has none.
static const char* text_of(const json_t* line, const char* member, Error* err) {
    const char* text = json_string_value(json_object_get(line, member));
    if (!text) { fail(err, "member \"%s\" is missing, or no text", member); }
    return text;
}

// The same for an ending, which must not be empty.
static const char* ending_of(const json_t* line, const char* member, Error* err) {
    const char* text = text_of(line, member, err);
    if (text && !*text) { fail(err, "member \"%s\" is empty", member); }
    return text && *text ? text : NULL;
}

static const char* text_at(const json_t* texts, size_t i) { return json_string_value(json_array_get(texts, i)); }

// Returns a member's array, of one to MAX_ENDINGS texts that are not empty; NULL and an Error if it is none.
static const json_t* texts_of(const json_t* line, const char* member, Error* err) {
    const json_t* texts = json_object_get(line, member);
    const size_t count = json_array_size(texts);
    bool ok = count >= 1 && count <= MAX_ENDINGS;
    for (size_t i = 0; ok && i < count; i++) { ok = text_at(texts, i) != NULL; }
    if (!ok) { fail(err, "member \"%s\" is missing, or no list of 1 to %d texts", member, MAX_ENDINGS); }
    for (size_t i = 0; ok && i < count; i++) {
        ok = *text_at(texts, i) || fail(err, "member \"%s\": text %zu is empty", member, i + 1);
    }
    return ok ? texts : NULL;
}

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

// Returns a copy of a text without white space at both ends, which the caller frees.
static char* stripped(const char* text) {
    text += strspn(text, SPACES);
    return format("%.*s", (int)trimmed_length(text), text);
}

// ---------------------------------------------------------------------------------------------------------------------
// HellaSwag

static bool read_hellaswag(ItemText* item, const json_t* line, Error* err) {
    const char* context = text_of(line, "ctx", err);
    const json_t* endings = context ? texts_of(line, "endings", err) : NULL;
    const size_t count = json_array_size(endings);
    for (size_t i = 0; i < count; i++) { item_text_add(item, format("%s", context), text_at(endings, i)); }
    return endings && label_of(line, "label", 0, count, &item->label, err);
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

// Returns a text cleaned as lm-evaluation-harness does for HellaSwag; the caller frees it.
static char* clean_wikihow(const char* raw) {
    char* text = stripped(raw);
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

static bool read_hellaswag_harness(ItemText* item, const json_t* line, Error* err) {
    const char *activity = text_of(line, "activity_label", err), *a = activity ? text_of(line, "ctx_a", err) : NULL,
               *b = a ? text_of(line, "ctx_b", err) : NULL;
    const json_t* endings = b ? texts_of(line, "endings", err) : NULL;
    const size_t count = json_array_size(endings);
    if (!endings || !label_of(line, "label", 0, count, &item->label, err)) { return false; }
    char* second = format("%s", b);
    capitalize(second);
    char* context = format("%s: %s %s", activity, a, second);
    for (size_t i = 0; i < count; i++) {
        char* ending = clean_wikihow(text_at(endings, i));
        item_text_add(item, clean_wikihow(context), ending);
        free(ending);
    }
    free(context);
    free(second);
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// questions with choices, by lm-evaluation-harness' rules

typedef struct {
    const char *stem, *text[MAX_ENDINGS];
    size_t count;
    int label;
} Question;

// Reads the choices of {"text": [], "label": []} or of [{"text", "label"}], and which one has the label `key`.
static bool read_choices_of(Question* q, const json_t* choices, const char* key, Error* err) {
    const json_t *texts = json_object_get(choices, "text"), *labels = json_object_get(choices, "label");
    const bool is_list = json_is_array(choices);
    q->count = json_array_size(is_list ? choices : texts);
    q->label = -1;
    if (q->count < 1 || q->count > MAX_ENDINGS) {
        return fail(err, "member \"choices\" is missing, or has not 1 to %d texts with labels", MAX_ENDINGS);
    }
    for (size_t i = 0; i < q->count; i++) {
        const json_t* pair = json_array_get(choices, i);
        const char* name = json_string_value(is_list ? json_object_get(pair, "label") : json_array_get(labels, i));
        q->text[i] = is_list ? json_string_value(json_object_get(pair, "text")) : text_at(texts, i);
        if (!q->text[i] || !*q->text[i] || !name) {
            return fail(err, "member \"choices\": choice %zu has no text or no label", i + 1);
        }
        if (!strcmp(name, key)) { q->label = (int)i; }
    }
    return q->label >= 0 || fail(err, "\"answerKey\" is \"%s\", which is the label of no choice", key);
}

// Reads a question as AllenAI's files have it, or as Hugging Face's, whose `stem` is a text.
static bool read_keyed_question(Question* q, const json_t* line, const char* stem, Error* err) {
    const char* key = text_of(line, "answerKey", err);
    const json_t *question = json_object_get(line, stem), *owner = json_is_object(question) ? question : line;
    if (!key) { return false; }
    q->stem = owner == question ? text_of(question, "stem", err) : text_of(line, stem, err);
    return q->stem && read_choices_of(q, json_object_get(owner, "choices"), key, err);
}

// Makes an item whose endings are the texts of the choices.
static bool add_texts(ItemText* item, const Question* q, const char* form) {
    for (size_t i = 0; i < q->count; i++) {
        char* context = format("%s%s%s", form, q->stem, *form ? "\nAnswer:" : "");
        item_text_add(item, context, q->text[i]);
    }
    item->label = q->label;
    return true;
}

// Makes an item that lists the choices, and whose endings are their letters.
static bool add_letters(ItemText* item, const Question* q, const char* form) {
    char *stem = stripped(q->stem), *list = format("%s%s\n", form, stem);
    for (size_t i = 0; i < q->count; i++) { append_format(&list, "%c. %s\n", (int)('A' + i), q->text[i]); }
    for (size_t i = 0; i < q->count; i++) {
        const char letter[2] = {(char)('A' + i), 0};
        item_text_add(item, format("%sAnswer:", list), letter);
    }
    free(list);
    free(stem);
    item->label = q->label;
    return true;
}

static bool read_arc(ItemText* item, const json_t* line, Error* err) {
    Question q;
    return read_keyed_question(&q, line, "question", err) && add_texts(item, &q, "Question: ");
}

static bool read_openbookqa(ItemText* item, const json_t* line, Error* err) {
    Question q;
    return read_keyed_question(&q, line, "question_stem", err) && add_texts(item, &q, "");
}

static bool read_commonsenseqa(ItemText* item, const json_t* line, Error* err) {
    Question q;
    return read_keyed_question(&q, line, "question", err) &&
           (q.count <= 26 || fail(err, "member \"choices\" has more choices than there are letters")) &&
           add_letters(item, &q, "Question: ");
}

static bool read_piqa(ItemText* item, const json_t* line, Error* err) {
    Question q = {.stem = text_of(line, "goal", err), .count = 2};
    q.text[0] = q.stem ? ending_of(line, "sol1", err) : NULL;
    q.text[1] = q.text[0] ? ending_of(line, "sol2", err) : NULL;
    return q.text[1] && label_of(line, "label", 0, 2, &q.label, err) && add_texts(item, &q, "Question: ");
}

// The answer is a letter, or a number from 0 on. The choices are a list, or members "A", "B", ...
static bool read_mmlu(ItemText* item, const json_t* line, Error* err) {
    static const char* const letters[] = {"A", "B", "C", "D", "E", "F", "G", "H", "I", "J"};
    enum { MAX_LETTERS = sizeof letters / sizeof *letters };
    Question q = {.stem = text_of(line, "question", err)};
    const json_t* list = json_object_get(line, "choices");
    if (!q.stem || (list && !texts_of(line, "choices", err))) { return false; }
    if (json_array_size(list) > MAX_LETTERS) { return fail(err, "member \"choices\" has more than %d", MAX_LETTERS); }
    for (q.count = 0; q.count < MAX_LETTERS; q.count++) {
        q.text[q.count] = text_at(list, q.count);
        const bool has_more = list ? q.text[q.count] != NULL : q.count < 2 || json_object_get(line, letters[q.count]);
        if (!has_more) { break; }
        if (!list && !(q.text[q.count] = ending_of(line, letters[q.count], err))) { return false; }
    }
    const char *answer = json_string_value(json_object_get(line, "answer")),
               *subject = json_string_value(json_object_get(line, "subject"));
    q.label = answer && answer[0] && !answer[1] ? *answer - 'A' : -1;
    if (!answer && !label_of(line, "answer", 0, q.count, &q.label, err)) { return false; }
    if (q.label < 0 || q.label >= (int)q.count) {
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): texts_of() wants at least one
        return fail(err, "\"answer\" is \"%s\", but the choices are A to %s", answer, letters[q.count - 1]);
    }
    if (subject) {
        item->heading = format("The following are multiple choice questions (with answers) about %s.\n\n", subject);
        for (char* c = item->heading; *c; c++) { *c = (char)(*c == '_' ? ' ' : *c); }
    }
    return add_letters(item, &q, "");
}

// The answer is a truth value, or SuperGLUE's "label", 0 or 1.
static bool read_boolq(ItemText* item, const json_t* line, Error* err) {
    const json_t *answer = json_object_get(line, "answer"), *truth = answer ? answer : json_object_get(line, "label");
    const char *passage = text_of(line, "passage", err), *question = passage ? text_of(line, "question", err) : NULL;
    if (!question) { return false; }
    if (json_is_boolean(truth)) { item->label = json_is_true(truth); }
    else if (!label_of(line, answer ? "answer" : "label", 0, 2, &item->label, err)) { return false; }
    for (int i = 0; i < 2; i++) {
        item_text_add(item, format("%s\nQuestion: %s?\nAnswer:", passage, question), i ? "yes" : "no");
    }
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// WinoGrande and LAMBADA, by lm-evaluation-harness' rules

static bool read_winogrande(ItemText* item, const json_t* line, Error* err) {
    static const char* const names[] = {"option1", "option2"};
    const char *sentence = text_of(line, "sentence", err), *gap = sentence ? strchr(sentence, '_') : NULL;
    if (!sentence || !label_of(line, "answer", 1, 2, &item->label, err)) { return false; }
    if (!gap) { return fail(err, "\"sentence\" has no _"); }
    char* rest = stripped(gap + 1);
    bool ok = *rest || fail(err, "\"sentence\" ends with its _");
    for (int i = 0; ok && i < 2; i++) {
        const char* option = ending_of(line, names[i], err);
        ok = option != NULL;
        if (ok) { item_text_add(item, format("%.*s%s", (int)(gap - sentence), sentence, option), rest); }
    }
    free(rest);
    return ok;
}

static bool read_lambada(ItemText* item, const json_t* line, Error* err) {
    const char *text = text_of(line, "text", err), *space = text ? strrchr(text, ' ') : NULL;
    if (!text) { return false; }
    if (!space) { return fail(err, "\"text\" is one word: there is nothing to predict it from"); }
    if (!space[1]) { return fail(err, "\"text\" ends with a space, not with the word to predict"); }
    item_text_add(item, format("%.*s", (int)(space - text), text), space + 1);
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// llm-foundry's forms

static bool read_choices(ItemText* item, const json_t* line, Error* err) {
    const char* query = text_of(line, "query", err);
    const json_t* choices = query ? texts_of(line, "choices", err) : NULL;
    const size_t count = json_array_size(choices);
    for (size_t i = 0; i < count; i++) { item_text_add(item, format("%s", query), text_at(choices, i)); }
    return choices && label_of(line, "gold", 0, count, &item->label, err);
}

static bool read_schema(ItemText* item, const json_t* line, Error* err) {
    const char* continuation = ending_of(line, "continuation", err);
    const json_t* contexts = continuation ? texts_of(line, "context_options", err) : NULL;
    const size_t count = json_array_size(contexts);
    for (size_t i = 0; i < count; i++) { item_text_add(item, format("%s", text_at(contexts, i)), continuation); }
    return contexts && label_of(line, "gold", 0, count, &item->label, err);
}

// The spaces at the context's end are dropped: one stands before the continuation already.
static bool read_continuation(ItemText* item, const json_t* line, Error* err) {
    const char* text = text_of(line, "context", err);
    const char* continuation = text ? ending_of(line, "continuation", err) : NULL;
    if (!continuation) { return false; }
    char* context = format("%.*s", (int)trimmed_length(text), text);
    continuation += strspn(continuation, " ");
    item_text_add(item, context, continuation);
    return *continuation || fail(err, "member \"continuation\" has only spaces");
}

// CORE trims the context at both ends, and leaves the continuation as it is.
static bool read_core_continuation(ItemText* item, const json_t* line, Error* err) {
    const char* text = text_of(line, "context", err);
    const char* continuation = text ? ending_of(line, "continuation", err) : NULL;
    if (continuation) { item_text_add(item, stripped(text), continuation); }
    return continuation != NULL;
}

// ---------------------------------------------------------------------------------------------------------------------
// all forms

#define LLMC_RULES "llm.c's rules: context and ending tokenized apart, lowest loss per token"
#define HARNESS_CHOICE "lm-eval's rules: context and ending tokenized together, lowest loss per character"
#define HARNESS_LETTER "lm-eval's rules: the choices are listed, lowest loss of a letter"

static const TestForm FORMS[] = {
    {.name = "HellaSwag", .rules = "llm.c", .members = {"ctx", "endings"}, .norm = BY_TOKEN, .rows = ROWS_APART,
     .convention = LLMC_RULES,
     .published = "OpenAI's 124M 0.2955, 355M 0.3752, 774M 0.4320, 1558M 0.4893; "
                  "GPT-3's 125M 0.337, 350M 0.436, 760M 0.510, 1.3B 0.547 (llm.c)",
     .read = read_hellaswag},
    {.name = "HellaSwag", .rules = "lm-eval", .members = {"ctx", "endings"}, .norm = BY_CHARACTER,
     .convention = HARNESS_CHOICE, .published = "OpenAI's 124M 0.3114, 1558M 0.5089 (llm.c's comments, by lm-eval)",
     .read = read_hellaswag_harness},
    {.name = "BoolQ", .members = {"passage", "question"}, .norm = BY_SUM,
     .convention = "lm-eval's rules: passage and question, lowest sum of losses of \"no\" and \"yes\"",
     .read = read_boolq},
    {.name = "OpenBookQA", .members = {"question_stem", "choices"}, .norm = BY_CHARACTER,
     .convention = HARNESS_CHOICE, .read = read_openbookqa},
    {.name = "CommonsenseQA", .members = {"question", "question_concept"}, .norm = BY_SUM,
     .convention = HARNESS_LETTER, .read = read_commonsenseqa},
    {.name = "MMLU", .members = {"question", "answer"}, .norm = BY_SUM, .convention = HARNESS_LETTER,
     .read = read_mmlu},
    {.name = "PIQA", .members = {"goal", "sol1"}, .norm = BY_CHARACTER, .convention = HARNESS_CHOICE,
     .published = "OpenAI's 124M 0.625, 355M 0.664, 1558M 0.708 (third parties, by lm-eval)", .read = read_piqa},
    {.name = "ARC", .members = {"question", "answerKey"}, .norm = BY_CHARACTER, .convention = HARNESS_CHOICE,
     .published = "ARC-Easy: OpenAI's 124M 0.395, 355M 0.436; by the sum 0.438, 0.492 (third parties, by lm-eval)",
     .read = read_arc},
    {.name = "WinoGrande", .members = {"sentence", "option1"}, .norm = BY_SUM,
     .convention = "lm-eval's rules: the sentence behind the option, lowest sum of losses",
     .published = "OpenAI's 124M 0.516, 355M 0.531, 1558M 0.594 (third parties, by lm-eval)",
     .read = read_winogrande},
    {.name = "LAMBADA", .members = {"text", "text"}, .norm = AS_FORESEEN,
     .convention = "lm-eval's rules: each token of the last word must be the likeliest",
     .published = "OpenAI's 124M 0.3256, perplexity 40.06; 1558M 0.5121, 10.63 (by lm-eval; the paper's are of cleaned "
                  "text)",
     .read = read_lambada},
    {.name = "multiple choice", .members = {"query", "choices"}, .norm = BY_TOKEN,
     .convention = "llm-foundry's form: a space between query and choice, lowest loss per token",
     .read = read_choices},
    {.name = "schema", .members = {"context_options", "continuation"}, .norm = BY_TOKEN,
     .convention = "llm-foundry's form: a space between context and continuation, lowest loss per token "
                   "of the continuation",
     .read = read_schema},
    {.name = "continuation", .members = {"context", "continuation"}, .norm = AS_FORESEEN,
     .convention = "llm-foundry's form: a space between context and continuation, each token of the "
                   "continuation must be the likeliest",
     .read = read_continuation},
};

const TestForm CORE_FORMS[CORE_KINDS] = {
    [CORE_CHOICE] = {.name = "multiple_choice", .norm = BY_TOKEN, .rows = ROWS_PREFIX,
     .convention = "CORE's rules: lowest loss per token behind what all prompts begin with", .read = read_choices},
    [CORE_SCHEMA] = {.name = "schema", .norm = BY_TOKEN, .rows = ROWS_SUFFIX,
     .convention = "CORE's rules: lowest loss per token of what all prompts end with", .read = read_schema},
    [CORE_LANGUAGE] = {.name = "language_modeling", .norm = AS_FORESEEN, .rows = ROWS_WHOLE,
     .convention = "CORE's rules: each token of the continuation must be the likeliest",
     .read = read_core_continuation},
};

// Returns true if a line has a member, itself or in its "question".
static bool has_member(const json_t* line, const char* member) {
    return json_object_get(line, member) || json_object_get(json_object_get(line, "question"), member);
}

const TestForm* test_form_of(const json_t* line, const char* rules, Error* err) {
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        const TestForm* f = &FORMS[i];
        if (has_member(line, f->members[0]) && has_member(line, f->members[1]) &&
            (!f->rules || !strcmp(f->rules, rules))) {
            return f;
        }
    }
    fail(err, "its members are those of no known test set: HellaSwag has \"ctx\" and \"endings\", for instance");
    return NULL;
}

const TestForm* test_form_bin(const char* path) {
    static const TestForm mmlu = {.name = "MMLU", .norm = BY_TOKEN, .rows = ROWS_APART, .convention = LLMC_RULES};
    return strstr(path_name(path), "mmlu") ? &mmlu : &FORMS[0];
}
