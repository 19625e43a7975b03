// Describes and verifies a model: a file of weights (safetensors, llm.c's model or GGUF, known by its first bytes), or
// a Hugging Face folder. Also token files.
#pragma once
#include "../data/shard.h"

// Returns true if a file is one of these files.
bool can_describe(const char* path);

// Prints the format, shape, types and tensors, reads every number, and compares the file with checkpoint.b2sums beside
// it, if there is one. Returns false, after a message, if the file is damaged or has numbers that are not finite.
bool describe(const char* path);

// Reads a token file (shard.h) whole and prints its format, the number of its tokens, the range of their ids,
// how many of them end a text, and if its checksum is right. `header`: of --data_format. Fails if it is no token file,
// or damaged.
bool describe_tokens(const char* path, TokenHeader header, Error* err);
