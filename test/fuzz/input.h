// A fuzz target's input as a file in memory, for readers that open a path.
#pragma once
#include "llmc/base.h"
#include <sys/mman.h>

static inline int input_fd(void) {
    static int fd = -1;
    if (fd < 0) { fd = memfd_create("input", 0); }
    return fd;
}

// Returns the path of a file that holds these bytes, until the next call.
static inline const char* input_file(const uint8_t* data, size_t size) {
    static char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", input_fd());
    if (ftruncate(input_fd(), 0) != 0 || pwrite(input_fd(), data, size, 0) != (ssize_t)size) {
        fatal("%s: %s", path, strerror(errno));
    }
    return path;
}
