// A stream that writes to memory, in place of open_memstream(): glibc's loses text without an error where memory ends.
#pragma once
#include "base.h"

BEGIN_C

// Opens a stream and sets *text to what is written to it, with a 0 behind it, and *size to its bytes; both are complete
// after close_text_stream(). The caller frees *text. Never returns NULL: out of memory ends the program with a message
// that names `what`.
FILE* open_text_stream(char** text, size_t* size, const char* what);

// Closes it. Out of memory, now or at an earlier write, ends the program.
void close_text_stream(FILE* f, const char* what);

END_C
