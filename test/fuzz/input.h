// A fuzz target's input as a file in memory, for readers that open a path, or as files of a folder.
#pragma once
#include "llmc/base/base.h"
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

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

static char folder_name[64];

static inline void remove_folder(void) {
    char* command = format("rm -rf %s", folder_name);
    if (system(command) != 0) { fprintf(stderr, "cannot remove %s\n", folder_name); }
    free(command);
}

// Returns an empty folder of this process, in memory if there is /dev/shm: writers that sync are slow on a disk. It is
// removed when the process exits.
static inline const char* input_folder(void) {
    char* folder = folder_name;
    if (!*folder) {
        snprintf(folder, sizeof folder_name, "%s/fuzz_XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(folder) || atexit(remove_folder) != 0) { fatal("%s: %s", folder, strerror(errno)); }
    }
    return folder;
}

static inline void write_input(const char* folder, const char* name, const void* data, size_t size) {
    char* path = format("%s/%s", folder, name);
    FILE* f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) { fatal("%s: %s", path, strerror(errno)); }
    free(path);
}
