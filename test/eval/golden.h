// What tests of scores read of test/golden/eval.
#pragma once
#include "llmc/tokenizer/tokenizer.h"
#include "llmc/files/model_file.h"
#include "llmc/base/json.h"
#include "test/check/backends.h"

#define FOLDER "test/golden/eval/"

static json_t* golden(const char* name) {
    Error err;
    char* path = format(FOLDER "%s", name);
    json_t* value = json_read(path, SIZE_MAX, 0, &err);
    if (!value) { fatal("%s", err.text); }
    free(path);
    return value;
}

// Opens the model of a folder for up to B rows of T tokens.
static GPT2 open_golden_model(const char* folder, const Backend* b, int B, int T) {
    Error err;
    GPT2Config shape;
    GPT2 g;
    if (!hf_load_config(folder, true, &shape, &err)) { fatal("%s", err.text); }
    gpt2_layout(&g, b, &shape, B, T, FORWARD_ONLY, 1);
    gpt2_alloc(&g);
    if (!model_file_load(&g, NULL, folder, &err)) { fatal("%s", err.text); }
    return g;
}

static Tokenizer open_tokenizer_file(void) {
    Error err;
    Tokenizer t;
    if (!tokenizer_load(&t, FOLDER "tokenizer.bin", &err)) { fatal("%s", err.text); }
    return t;
}
