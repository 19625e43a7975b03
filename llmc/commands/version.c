#include "commands.h"
#include "../base/release.h"
#include "../train/backends.h"
#include <jansson.h>

// Libraries for GPUs, of which the build leaves out what it does not find (Makefile).
static const char gpu_libraries[] = ", cuBLASLt"
#ifdef HAS_NCCL
                                    ", NCCL"
#endif
#ifdef HAS_CUDNN
                                    ", cuDNN"
#endif
    ;

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
    printf("%s\n", program_has_gpu() ? gpu_libraries : "");
}
