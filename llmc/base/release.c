#include "release.h"
#include <stdio.h>

#define PROGRAM_VERSION "2.1-dev"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

// The Makefile defines it in a git repository.
#ifndef BUILD_COMMIT
#define BUILD_COMMIT ""
#endif

void print_release(void) {
    static const char archived[] = "$Format:%h$"; // `git archive` puts its commit here (.gitattributes)
    const char* outside = archived[0] == '$' ? "unknown commit" : archived;
    printf("gpt2.c " PROGRAM_VERSION " (%s)\ncompiler: " COMPILER "\n", *BUILD_COMMIT ? BUILD_COMMIT : outside);
}
