// The model of test/golden/gpt2 (dev/golden/gpt2.py), which is never trained.
#pragma once
#include "llmc/files/model_file.h"
#include "llmc/model/gpt2.h"

enum { GOLDEN_POSITIONS = 19 };

// Opens it on a backend whose device is open, for one sequence; gpt2_free() frees it.
static inline GPT2 open_golden(const Backend* b) {
    static const char folder[] = "test/golden/gpt2";
    Error err;
    GPT2Config shape;
    GPT2 g;
    if (!hf_load_config(folder, true, &shape, &err)) { fatal("%s", err.text); }
    gpt2_layout(&g, b, &shape, 1, GOLDEN_POSITIONS, FORWARD_ONLY, 1);
    gpt2_alloc(&g);
    if (!model_file_load(&g, NULL, folder, &err)) { fatal("%s", err.text); }
    return g;
}
