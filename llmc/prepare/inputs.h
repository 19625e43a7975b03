// The names of the input files of ./prepare.
//
// A name on the command line is a file; a folder, which stands for the files in it at any depth whose names end in
// .txt, .jsonl, .ndjson or .parquet, or one of these with .gz or .zst behind it; or a pattern with *, ? or [...], for a
// shell that has not replaced it. The files of a folder or a pattern come in the order of their names, as bytes.
#pragma once
#include "../base/base.h"

// Replaces the folders and patterns among the `count` words by the names of their files. Returns all names, and sets
// `count` to their number; each name and the list are the caller's to free. Ends the program with a usage error if a
// folder or a pattern has no file.
char** inputs_expand(char** words, size_t* count);

// Returns true if a name, without .gz or .zst, has this ending.
bool name_ends_with(const char* name, const char* ending);
