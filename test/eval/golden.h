// What tests of scores read of test/golden/eval.
#pragma once
#include "llmc/tokenizer/tokenizer.h"
#include "llmc/base/json.h"
#include "test/check/backends.h"
#include "test/model/golden_model.h"

#define FOLDER "test/golden/eval/"

static json_t* golden(const char* name) {
    Error err;
    char* path = format(FOLDER "%s", name);
    json_t* value = json_read(path, SIZE_MAX, 0, &err);
    if (!value) { fatal("%s", err.text); }
    free(path);
    return value;
}

static Tokenizer open_tokenizer_file(void) {
    Error err;
    Tokenizer t;
    if (!tokenizer_load(&t, FOLDER "tokenizer.bin", &err)) { fatal("%s", err.text); }
    return t;
}
