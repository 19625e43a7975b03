// The input files of ./prepare: their formats and checksums.
#pragma once
#include "prepare_options.h"
#include <jansson.h>

typedef enum { FORMAT_TEXT, FORMAT_JSONL, FORMAT_PARQUET } InputFormat;

// Returns the format of a file, by --format or, if that is auto, by its first bytes and its name. `path` is "-" for
// standard input. Ends the program if it cannot be read.
InputFormat input_format(const PrepareOptions* o, const char* path);

// Returns true if a file of text is checked to be one (stream_check_text()): --format does not say so.
bool is_text_checked(const PrepareOptions* o);

// Reads a whole input file and returns {"name", "bytes", "hash"}, a new reference; NULL if its name is not UTF-8. Ends
// the program if the file is missing, not a regular file, no text where it should be, needs a library that this program
// was built without, or is a Parquet file without the column of --field.
json_t* describe_input(const PrepareOptions* o, const char* path);
