// The input files of ./prepare: their names, formats and checksums.
//
// A name on the command line is a file; a folder, which stands for the files in it at any depth whose names end in
// .txt, .jsonl, .ndjson or .parquet, or one of these with .gz or .zst behind it; or a pattern with *, ? or [...], for a
// shell that has not replaced it. The files of a folder or a pattern come in the order of their names, as bytes.
#pragma once
#include "prepare_options.h"
#include <jansson.h>

typedef enum { FORMAT_TEXT, FORMAT_JSONL, FORMAT_PARQUET } InputFormat;

// Replaces the folders and patterns among the `count` words by the names of their files. Returns all names, and sets
// `count` to their number; each name and the list are the caller's to free. Ends the program with a usage error if a
// folder or a pattern has no file.
char** inputs_expand(char** words, size_t* count);

// Returns the format of a file, by --format or, if that is auto, by its first bytes and its name. `path` is "-" for
// standard input. Ends the program if it cannot be read.
InputFormat input_format(const PrepareOptions* o, const char* path);

// Reads a whole input file and returns {"name", "bytes", "hash"}, a new reference; NULL if its name is not UTF-8. Ends
// the program if the file is missing, not a regular file, needs a library that this program was built without, or is a
// Parquet file without the column of --field.
json_t* describe_input(const PrepareOptions* o, const char* path);
