// Allocates tensors of a CPU backend, also in memory that detects accesses beyond them.
#pragma once
#include "test/check/backends.h"
#include <sys/mman.h>

// Returns zeroed memory for n elements, which a CPU's backend takes as device memory; free() frees it.
static inline Stored* stored_alloc(const Backend* b, size_t n) { return alloc_or_die(n, b->element_bytes, "a test"); }

enum { PAGE = 4096 };

// Returns `bytes` of memory, all 0xff (NaN in all types); an access beyond their end is a segmentation fault.
// guarded_free() frees them.
static inline void* guarded_alloc(size_t bytes) {
    const size_t room = round_up(max_size(bytes, 1), PAGE);
    char* p = mmap(NULL, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + room, PAGE, PROT_NONE) != 0) { fatal("a test's memory: %s", strerror(errno)); }
    memset(p, 0xff, room);
    return p + room - bytes;
}

static inline void guarded_free(void* p, size_t bytes) {
    const size_t room = round_up(max_size(bytes, 1), PAGE);
    munmap((char*)p + bytes - room, room + PAGE);
}

// Returns true if the bytes before p on its page are as guarded_alloc() left them.
static inline bool untouched_before(const void* p) {
    const unsigned char* c = p;
    while ((uintptr_t)c % PAGE != 0) {
        if (*--c != 0xff) { return false; }
    }
    return true;
}
