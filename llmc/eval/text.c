#include "text.h"
#include "../base/file.h"
#include "rows.h"
#include "../prepare/documents.h"

static const TestForm ROLLING = {.name = "text", .norm = AS_TEXT,
    .convention = "lm-eval's rolling windows: each token once, the end-of-text token in front of each document"};
static const TestForm SLIDING = {.name = "text", .norm = AS_TEXT,
    .convention = "transformers' sliding windows: the first token of each document is not scored"};

// Adds the window of the tokens from `begin` up to, not including, `end`, whose last `scored` count.
static void add_window(TestSet* s, const Tokenizer* t, size_t begin, size_t end, size_t scored) {
    if (scored == 0) { return; }
    row_item_begin(s, 0);
    row_append(s, (TestRow){.begin = begin, .tokens = (int)(end - begin), .scored = (int)scored});
    for (size_t i = end - scored; i < end; i++) {
        size_t bytes = 0;
        tokenizer_token(t, s->tokens.ids[i], &bytes);
        s->bytes += bytes;
    }
}

// Cuts a document, from its end-of-text token at `begin` up to `end`.
static void cut_document(TestSet* s, const Tokenizer* t, size_t begin, size_t end, size_t T, size_t stride) {
    if (stride == 0) {
        for (size_t scored = begin + 1, next; scored < end; scored = next) {
            next = min_size(scored + T, end);
            add_window(s, t, max_size(begin, next - min_size(next, T + 1)), next, next - scored);
        }
        return;
    }
    size_t scored = begin + 1; // the first token that no window had
    for (size_t at = begin + 1; scored < end; at += stride) {
        const size_t next = min_size(at + T, end);
        add_window(s, t, at, next, min_size(next - scored, next - at - 1));
        scored = next;
    }
}

// Cuts the documents of s->tokens, each of which begins with an end-of-text token, into windows.
static void cut_documents(TestSet* s, const Tokenizer* t, int T, int stride) {
    const TokenList* tokens = &s->tokens;
    for (size_t begin = 0, end; begin < tokens->count; begin = end) {
        end = begin + 1;
        while (end < tokens->count && tokens->ids[end] != t->eot) { end++; }
        cut_document(s, t, begin, end, (size_t)T, (size_t)stride);
    }
}

static bool append_tokens(void* context, Chunk* chunk) {
    TokenList* tokens = context;
    for (size_t i = 0; i < chunk->tokens.count; i++) { token_list_append(tokens, chunk->tokens.ids[i]); }
    return true;
}

// Reads a text; `path` is then the set's.
static void open_text(TestSet* s, char* path, const char* field, const TestSetOptions* options, int stride) {
    char* inputs[] = {path};
    const PrepareOptions reading = {.split = "none", .format = format_auto, .field = field,
                                    .inputs = inputs, .num_inputs = 1,
                                    .sources = {{.name = path, .weight = 1, .end_input = 1}}, .num_sources = 1};
    InputState start = input_begin(&reading);
    *s = (TestSet){.path = path, .form = stride ? &SLIDING : &ROLLING, .name = format("%s", path),
                   .tokens = token_list(), .baseline = NAN};
    if (!options->tokenizer) { fatal("--text %s is text, which needs a --tokenizer", path); }
    encode_input(&reading, options->tokenizer, &start, append_tokens, &s->tokens);
    cut_documents(s, options->tokenizer, options->T, stride);
    if (!s->num_rows) { fatal("--text %s: there is nothing to score in it", path); }
    s->convention = stride ? format("%s; context %d, stride %d", s->form->convention, options->T, stride)
                           : format("%s; context %d", s->form->convention, options->T);
}

TestSet* text_sets_open(const char* files, const char* field, const TestSetOptions* options, int stride, int* count) {
    Error err;
    glob_t found;
    *count = 0;
    if (!*files) { return NULL; }
    if (!find_option_paths(&found, "--text", files, "name files of text", &err)) { fatal("%s", err.text); }
    TestSet* sets = alloc_or_die(found.gl_pathc, sizeof *sets, "texts");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        open_text(&sets[i], format("%s", found.gl_pathv[i]), field, options, stride);
    }
    *count = (int)found.gl_pathc;
    globfree(&found);
    return sets;
}
