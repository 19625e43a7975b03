#include "rows.h"

void row_item_begin(TestSet* s, int label) {
    s->items = grown(s->items, s->num_items, sizeof *s->items, "a test set");
    s->items[s->num_items++] = (TestItem){.first = s->num_rows, .rows = 0, .label = label};
}

void row_append(TestSet* s, TestRow row) {
    s->rows = grown(s->rows, s->num_rows, sizeof *s->rows, "a test set");
    s->rows[s->num_rows++] = row;
    s->items[s->num_items - 1].rows++;
}

bool row_add(RowMaker* m, size_t begin, long long scored, int characters, int longest, Error* err) {
    TestSet* s = m->set;
    const size_t count = s->tokens.count - begin;
    if (scored < 1) { return fail(err, "an ending has no token of its own"); }
    if (scored > longest - 1) {
        return fail(err, "an ending has %lld tokens, the model reads only %d at once: give a larger --seq_len or model",
                    scored, longest - 1);
    }
    const int tokens = (int)min_size(count, (size_t)longest);
    s->num_cut += count > (size_t)longest;
    row_append(s, (TestRow){.begin = begin + (count - (size_t)tokens), .tokens = tokens, .scored = (int)scored,
                            .characters = characters});
    return true;
}

// Appends the tokens of a text to the set's; returns how many.
static size_t encode(const RowMaker* m, const char* text) {
    return tokenizer_encode(m->options->tokenizer, text, strlen(text), &m->set->tokens);
}

// ---------------------------------------------------------------------------------------------------------------------
// llm.c's and lm-evaluation-harness' rules

// Begins a row with its context, an empty one with the end-of-text token; returns where it begins.
static size_t add_context(RowMaker* m, const char* text) {
    const size_t begin = m->set->tokens.count;
    if (!encode(m, text)) { token_list_append(&m->set->tokens, m->options->tokenizer->eot); }
    return begin;
}

static bool add_row_apart(RowMaker* m, const char* context, const char* ending, Error* err) {
    const size_t begin = add_context(m, context), scored = encode(m, ending);
    return row_add(m, begin, (long long)scored, 0, m->options->T + 1, err);
}

// Spaces at the context's end go to the ending.
static bool add_row_together(RowMaker* m, const char* context, const char* ending, int characters, Error* err) {
    TokenList* tokens = &m->set->tokens;
    const size_t bytes = trimmed_length(context);
    char *alone = format("%.*s", (int)bytes, context), *whole = format("%s%s", context, ending);
    const size_t begin = add_context(m, alone), count = tokens->count;
    if (bytes) { tokens->count = begin; }
    encode(m, whole);
    free(alone);
    free(whole);
    return row_add(m, begin, (long long)tokens->count - (long long)count, characters, m->options->T + 1, err);
}

// ---------------------------------------------------------------------------------------------------------------------
// CORE's rules

// Appends the tokens of a prompt behind the end-of-text token; returns where they begin.
static size_t add_prompt(const RowMaker* m, const char* text) {
    const size_t begin = m->set->tokens.count;
    token_list_append(&m->set->tokens, m->options->tokenizer->eot);
    encode(m, text);
    return begin;
}

// Returns the number of tokens that all prompts begin with or, if `from_end`, end with. Prompt i lies between begin[i]
// and begin[i + 1].
static size_t common_tokens(const int* ids, const size_t* begin, int count, bool from_end) {
    size_t n = 0, least = begin[1] - begin[0];
    for (int i = 1; i < count; i++) { least = min_size(least, begin[i + 1] - begin[i]); }
    for (; n < least; n++) {
        for (int i = 1; i < count; i++) {
            const bool is_same = from_end ? ids[begin[i + 1] - 1 - n] == ids[begin[1] - 1 - n]
                                          : ids[begin[i] + n] == ids[begin[0] + n];
            if (!is_same) { return n; }
        }
    }
    return n;
}

// Adds the rows of a choice. A prompt that others continue keeps its last token as its own: each row has a loss.
static bool add_compared_rows(RowMaker* m, char* const* prompts, int count, bool by_suffix, Error* err) {
    const TokenList* tokens = &m->set->tokens;
    size_t begin[MAX_ENDINGS + 1] = {0}, least = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        begin[i] = add_prompt(m, prompts[i]);
        begin[i + 1] = tokens->count;
        least = min_size(least, begin[i + 1] - begin[i]);
    }
    const size_t common = min_size(common_tokens(tokens->ids, begin, count, by_suffix), least - 1),
                 end = tokens->count;
    bool ok = true;
    for (int i = 0; ok && i < count; i++) { // row_add() takes the tokens up to the end of the list
        m->set->tokens.count = begin[i + 1];
        const size_t scored = by_suffix ? common : begin[i + 1] - begin[i] - common;
        ok = row_add(m, begin[i], (long long)scored, 0, m->options->T, err);
    }
    m->set->tokens.count = end;
    return ok;
}

// Adds the row of a continuation: `context` is the prompt up to it.
static bool add_whole_row(RowMaker* m, const char* context, const char* prompt, Error* err) {
    char* alone = format("%.*s", (int)trimmed_length(context), context);
    const size_t begin = add_prompt(m, alone), count = m->set->tokens.count - begin;
    m->set->tokens.count = begin;
    add_prompt(m, prompt);
    free(alone);
    return row_add(m, begin, (long long)(m->set->tokens.count - begin) - (long long)count, 0, m->options->T, err);
}

static bool add_core_item(RowMaker* m, const ItemText* item, char* const* contexts, Error* err) {
    char* prompts[MAX_ENDINGS];
    for (int i = 0; i < item->count; i++) {
        prompts[i] = format("%s%s%s", contexts[i], m->delimiter, item->endings[i]);
    }
    const TestRowRule rule = m->set->form->rows;
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): an item has at least one context
    char* before = format("%s%s", contexts[0], m->delimiter);
    const bool ok = rule == ROWS_WHOLE ? add_whole_row(m, before, prompts[0], err)
                                       : add_compared_rows(m, prompts, item->count, rule == ROWS_SUFFIX, err);
    free(before);
    for (int i = 0; i < item->count; i++) { free(prompts[i]); }
    return ok;
}

// ---------------------------------------------------------------------------------------------------------------------
// items

// Returns the text in front of an item: its heading and examples. The caller frees it.
static char* text_before(const RowMaker* m, const ItemText* item, const ItemText* const* examples, int count) {
    char* text = format("%s", item->heading ? item->heading : "");
    for (int i = 0; i < count; i++) {
        const int k = examples[i]->label;
        append_format(&text, "%s%s%s\n\n", examples[i]->contexts[k], m->delimiter, examples[i]->endings[k]);
    }
    return text;
}

bool row_add_item(RowMaker* m, const ItemText* item, const ItemText* const* examples, int count, Error* err) {
    const TestRowRule rule = m->set->form->rows;
    char *before = text_before(m, item, examples, count), *contexts[MAX_ENDINGS];
    bool ok = true;
    row_item_begin(m->set, item->label);
    for (int i = 0; i < item->count; i++) { contexts[i] = format("%s%s", before, item->contexts[i]); }
    if (rule != ROWS_TOGETHER && rule != ROWS_APART) { ok = add_core_item(m, item, contexts, err); }
    else {
        for (int i = 0; ok && i < item->count; i++) {
            char* ending = format("%s%s", m->delimiter, item->endings[i]);
            ok = rule == ROWS_APART ? add_row_apart(m, contexts[i], ending, err)
                                    : add_row_together(m, contexts[i], ending, utf8_characters(item->endings[i]), err);
            free(ending);
        }
    }
    for (int i = 0; i < item->count; i++) { free(contexts[i]); }
    free(before);
    return ok;
}
