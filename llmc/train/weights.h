// Initial weights: random ones, or those of a folder or file (files/model_file.h).
#pragma once
#include "plan.h"
#include <jansson.h>

// Returns the folder or file of --init; NULL if it is "random".
const char* init_folder(const Config* c);

// Draws initial weights. Each is a function of the seed and of the element's place in its tensor alone, so it is the
// same for every device, dtype, padding and number of ranks. Of p: seed, zero_init_out. Padding rows stay
// zero. o: the model's optimizer, NULL if the model is not trained.
void init_weights(GPT2* g, Optimizer* o, const Plan* p);

// Loads the plan's weights from a folder or file, or draws random ones. o: the model's optimizer, NULL if the model is
// not trained. Checksums of a checkpoint are verified. Failure ends the program.
void load_weights(GPT2* g, Optimizer* o, const Plan* p);

// Returns state.json of a folder that is a checkpoint of ours, which the caller releases with json_decref(); NULL for
// any other folder, for none (NULL), and for a checkpoint of version 2.0, which has no checksums of its files. Ends the
// program if it is damaged.
json_t* folder_state(const char* folder);
