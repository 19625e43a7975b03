// Shapes of GPT-2 and GPT-3 by name, and settings of whole runs by name.
#pragma once
#include "../base/base.h"
#include "config.h"

typedef struct {
    int max_seq_len;       // T up to which there are positions
    int vocab_size;        // V
    int padded_vocab_size; // Vp >= V, rows of the embedding in memory
    int num_layers;        // L
    int num_heads;         // NH
    int channels;          // C
} GPT2Config;

enum { GPT2_VOCAB = 50257, VOCAB_MULTIPLE = 128 };

// Sets the values of --preset, if one is given, for every option that the user did not set. Ends the program with a
// usage error if there is no such preset.
void preset_apply(Config* c);

// Returns the name of preset number i, from 0 on; NULL: there are no more.
const char* preset_name(int i);

// Returns Vp, the rows of the embedding in memory: a multiple of 128 lets every row of logits begin on a cache line and
// every tile of a matmul be full.
int padded_vocab(int vocab_size, bool pad);

// Fails if no model can have this shape; `where` (an option or a file) begins the message.
bool model_check(const GPT2Config* m, const char* where, Error* err);

// Reads the shape that --model names.
bool model_parse(const char* text, bool pad_vocab, GPT2Config* m, Error* err);

// Returns N, the number of trained parameters, without padding.
size_t model_parameters(const GPT2Config* m);
