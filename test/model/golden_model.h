// The model of test/golden/gpt2 (dev/golden/gpt2.py), which is never trained.
#pragma once
#include "llmc/files/model_file.h"
#include "llmc/model/gpt2.h"

enum { GOLDEN_POSITIONS = 19 };

// Opens the model of a folder on a backend whose device is open, for up to B rows of T tokens; gpt2_free() frees it.
static inline GPT2 open_golden_model(const char* folder, const Backend* b, int B, int T) {
    Error err;
    GPT2Config shape;
    GPT2 g;
    if (!hf_load_config(folder, true, &shape, &err)) { fatal("%s", err.text); }
    gpt2_layout(&g, b, &shape, B, T, FORWARD_ONLY, 1);
    gpt2_alloc(&g);
    if (!model_file_load(&g, NULL, folder, &err)) { fatal("%s", err.text); }
    return g;
}

// Opens that of test/golden/gpt2 for one sequence.
static inline GPT2 open_golden(const Backend* b) {
    return open_golden_model("test/golden/gpt2", b, 1, GOLDEN_POSITIONS);
}
