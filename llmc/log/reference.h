// Published validation losses, to draw beside those of a run on the same data.
#pragma once
#include "metrics.h"

// Losses that a run can be compared with: it has the same kind of validation data, GPT-2's tokens and about as many
// parameters. Each part may be missing.
typedef struct {
    const char* level_name;
    double level;           // a loss; NaN: none
    const char* curve_name;
    const Point* curve;     // tokens trained on, and loss
    size_t count;
} Reference;

// Returns what is published for such a run: by the name of its --val_data as data/fetch.sh makes them, --tokenizer and
// the number of parameters.
Reference run_reference(const Run* run);
