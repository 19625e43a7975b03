// A library for LD_PRELOAD: allocation number FAULT_ALLOC of the process fails, or none. Writes the number of all
// allocations to the file FAULT_COUNT, if that is set, at the end.
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

// glibc's own names: dlsym() would allocate.
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* p, size_t size);

static atomic_long calls;
static long fails_at;

__attribute__((constructor)) static void begin(void) {
    const char* at = getenv("FAULT_ALLOC");
    fails_at = at ? atol(at) : 0;
    atomic_store(&calls, 0);
}

__attribute__((destructor)) static void end(void) {
    const char* path = getenv("FAULT_COUNT");
    const long count = atomic_load(&calls);
    FILE* f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%ld\n", count);
        fclose(f);
    }
}

static int is_failing(void) {
    if (atomic_fetch_add(&calls, 1) + 1 != fails_at) { return 0; }
    errno = ENOMEM;
    return 1;
}

void* malloc(size_t size) { return is_failing() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return is_failing() ? NULL : __libc_calloc(count, size); }
void* realloc(void* p, size_t size) { return is_failing() ? NULL : __libc_realloc(p, size); }
