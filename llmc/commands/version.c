#include "version.h"
#include "../base/release.h"
#include "../train/backends.h"
#include <jansson.h>

// Set by the Makefile.
#ifndef BUILD_LIBRARIES
#define BUILD_LIBRARIES ""
#define BUILD_GPU_LIBRARIES ""
#endif

void print_version(void) {
    const Backend* list[MAX_BACKENDS];
    const int count = list_backends(list);
    print_release();
    printf("backends:");
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
