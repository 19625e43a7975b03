// `info FILE` of a token file.
#pragma once
#include "../data/token_formats.h"

// Reads a token file (token_formats.h) whole and prints its format, the number of its tokens, the range of their ids,
// how many of them end a text, and if its checksum is right. `data_format` is that of --data_format. Fails if it is no
// token file, or damaged.
bool describe_tokens(const char* path, TokenHeader header, Error* err);
