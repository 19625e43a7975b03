// What tests of scores read of test/golden/eval.
#pragma once
#include "llmc/eval/test_set.h"
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

// Expects that a set is refused with these words; returns the whole message.
static Error expect_set_refused(const char* path, const TestSetOptions* options, const char* words) {
    Error err = {.text = ""};
    TestSet s;
    if (test_set_open(&s, path, NULL, options, &err)) { TEST_FAIL("read, not refused: %s", words); }
    else if (!strstr(err.text, words)) { TEST_FAIL("no \"%s\" in: %s", words, err.text); }
    return err;
}
