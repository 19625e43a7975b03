// Any bytes as a test set, as JSON lines and as llm.c's .bin: they are refused, or become rows that a model can read.
#include "llmc/eval/test_set.h"
#include "test/fuzz/input.h"

enum { T = 24, V = 257 };

// Reads a file as a set or, if a form is given, as a task of CORE.
static void read_set(char* path, const Tokenizer* t, const char* rules, int shots, const TestForm* form) {
    Error err;
    TestSet s;
    const TestSetOptions options = {.tokenizer = t, .T = T, .vocab_size = V, .rules = rules, .shots = shots};
    const TestTask task = {.name = "task", .delimiter = "\n", .shots = shots, .form = form};
    if (!test_set_open(&s, path, form ? &task : NULL, &options, &err)) { return; }
    for (size_t i = 0; i < s.num_rows; i++) {
        const TestRow* row = &s.rows[i];
        if (row->scored < 1 || row->scored >= row->tokens || row->tokens > T + 1) { abort(); }
        for (int k = 0; k < row->tokens; k++) {
            if (s.tokens.ids[row->begin + (size_t)k] < 0 || s.tokens.ids[row->begin + (size_t)k] >= V) { abort(); }
        }
    }
    for (size_t i = 0; i < s.num_items; i++) {
        const TestItem* item = &s.items[i];
        if (item->label >= item->rows || item->first + (size_t)item->rows > s.num_rows) { abort(); }
    }
    test_set_free(&s);
}

// Every second input gets the header of a .bin.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const int32_t words[3] = {TEST_SET_MAGIC, 1, (int32_t)(size / 16)};
    const size_t header = size > 0 && data[0] % 2 ? TEST_SET_HEADER : 0;
    uint8_t* file = alloc_or_die(header + size + 1, 1, "a set");
    if (header) { memcpy(file, words, sizeof words); }
    if (size) { memcpy(file + header, data, size); }
    char* path = (char*)input_file(file, header + size);
    Tokenizer t = tokenizer_bytes();
    read_set(path, &t, "llm.c", 0, NULL);
    read_set(path, &t, "lm-eval", 1, NULL);
    read_set(path, &t, "llm.c", 2, &CORE_FORMS[CORE_CHOICE]);
    read_set(path, &t, "llm.c", 1, &CORE_FORMS[CORE_SCHEMA]);
    read_set(path, &t, "llm.c", 2, &CORE_FORMS[CORE_LANGUAGE]);
    tokenizer_free(&t);
    free(file);
    return 0;
}
