#include "version.h"
#include "../train/backends.h"
#include <jansson.h>

#define PROGRAM_VERSION "2.0"

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

// Set by the Makefile.
#ifndef BUILD_COMMIT
#define BUILD_COMMIT "unknown commit"
#endif
#ifndef BUILD_LIBRARIES
#define BUILD_LIBRARIES ""
#define BUILD_GPU_LIBRARIES ""
#endif

void print_version(void) {
    const Backend* list[MAX_BACKENDS];
    const int count = list_backends(list);
    printf("gpt2.c " PROGRAM_VERSION " (" BUILD_COMMIT ")\ncompiler: " COMPILER "\nbackends:");
    for (int i = 0; i < count; i++) {
        printf(" %s_%s%s%s", list[i]->device, list[i]->storage, list[i]->level ? "_" : "",
               list[i]->level ? list[i]->level : "");
    }
    printf("\nlibraries: jansson " JANSSON_VERSION);
#ifdef _OPENMP
    printf(", OpenMP %d", _OPENMP);
#endif
    puts(program_has_gpu() ? BUILD_LIBRARIES BUILD_GPU_LIBRARIES : BUILD_LIBRARIES);
}
