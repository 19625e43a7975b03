#include "tokenizer_open.h"
#include "../base/file.h"
#include "tokenizer_json.h"

// Returns true if a file begins as a JSON object does.
static bool begins_as_json(const char* path) {
    Error err;
    FILE* f = fopen_regular(path, &err);
    int c = ' ';
    while (f && (c == ' ' || c == '\n' || c == '\r' || c == '\t')) { c = getc(f); }
    if (f) { fclose(f); }
    return c == '{';
}

bool is_tokenizer_file(const char* path) {
    Error err;
    uint32_t magic;
    return (read_begin(path, &magic, sizeof magic, &err) && magic == TOKENIZER_MAGIC) || begins_as_json(path);
}

bool tokenizer_read(Tokenizer* t, const char* path, Error* err) {
    if (is_directory(path)) { return tokenizer_read_folder(t, path, err); }
    return begins_as_json(path) ? tokenizer_read_json(t, path, err) : tokenizer_load(t, path, err);
}

Tokenizer tokenizer_open(const char* option) {
    if (!*option || strcmp(option, "gpt2") == 0) { return tokenizer_builtin(); }
    if (strcmp(option, "bytes") == 0) { return tokenizer_bytes(); }
    Tokenizer t;
    Error err;
    if (!tokenizer_read(&t, option, &err)) {
        if (path_exists(option)) { fatal("%s", err.text); }
        fatal("--tokenizer is gpt2, bytes, a file or a folder: %s", err.text);
    }
    return t;
}
