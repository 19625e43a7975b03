// The few things every file needs: errors, memory, whole files, small strings, a hash.
//
// Two kinds of failure, two conventions:
//   * what cannot be continued from ends the program: fatal() (exit 1) or usage_error() (exit 2);
//   * what the caller may recover from (a damaged checkpoint: take the one before) returns false and fills an Error.
// Every message names the file, option or tensor and says what to do about it.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_RUNTIME = 1, EXIT_USAGE = 2, EXIT_CHECK_FAILED = 3, EXIT_NONFINITE = 4 };

#define ATTR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ATTR_NORETURN __attribute__((noreturn))

// The text of an error that the caller may recover from.
typedef struct {
    char text[1024];
} Error;

// Fills `err` and returns false, so that `return fail(err, ...)` reads well.
static inline bool ATTR_PRINTF(2, 3) fail(Error* err, const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, args);
    va_end(args);
    return false;
}

static inline void ATTR_NORETURN ATTR_PRINTF(2, 0) vdie(int code, const char* fmt, va_list args) {
    fflush(stdout);
    fputs("error: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    exit(code);
}

// Ends the program with a run-time error (exit code 1).
static inline void ATTR_NORETURN ATTR_PRINTF(1, 2) fatal(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vdie(EXIT_RUNTIME, fmt, args);
}

// Ends the program because of how it was called (exit code 2).
static inline void ATTR_NORETURN ATTR_PRINTF(1, 2) usage_error(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vdie(EXIT_USAGE, fmt, args);
}

// A line for the user on standard error: standard output carries results only.
static inline void ATTR_PRINTF(1, 2) notice(const char* fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fflush(stdout);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

// Zeroed host memory; `what` names its purpose in the error message.
static inline void* alloc_or_die(size_t count, size_t size, const char* what) {
    void* p = calloc(count ? count : 1, size);
    if (!p) { fatal("out of memory: %zu bytes for %s", count * size, what); }
    return p;
}

static inline void* realloc_or_die(void* p, size_t bytes, const char* what) {
    void* q = realloc(p, bytes ? bytes : 1);
    if (!q) { fatal("out of memory: %zu bytes for %s", bytes, what); }
    return q;
}

// printf into fresh memory, which the caller frees.
static inline char* ATTR_PRINTF(1, 2) format(const char* fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char* s = (char*)alloc_or_die((size_t)n + 1, 1, "a string");
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    return s;
}

// ---------------------------------------------------------------------------------------------------------------------
// numbers

static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t max_size(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }
static inline size_t round_up(size_t a, size_t b) { return ceil_div(a, b) * b; }

// Seconds on a clock that never jumps.
static inline double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// A bijection of 64-bit integers that leaves no visible pattern (the finalizer of splitmix64: Steele et al. 2014,
// "Fast splittable pseudorandom number generators").
static inline uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// A 64-bit checksum against damage, not against an adversary: four lanes of multiply and rotate over 8-byte words, so
// that it runs at memory speed. Continue over several ranges by passing the last result as `seed`.
static inline uint64_t hash64(const void* data, size_t bytes, uint64_t seed) {
    const unsigned char* p = (const unsigned char*)data;
    uint64_t lane[4], word, h = seed ^ (bytes * 0x9e3779b97f4a7c15ull);
    for (int i = 0; i < 4; i++) { lane[i] = mix64(seed + (uint64_t)i + 1); }
    for (; bytes >= 32; bytes -= 32, p += 32) {
        for (int i = 0; i < 4; i++) {
            memcpy(&word, p + 8 * i, 8);
            lane[i] = (lane[i] ^ word) * 0x9fb21c651e98df25ull;
            lane[i] ^= lane[i] >> 29;
        }
    }
    for (int i = 0; i < 4; i++) { h = mix64(h ^ lane[i]); }
    for (; bytes > 0; bytes -= min_size(bytes, 8), p += 8) {
        word = 0;
        memcpy(&word, p, min_size(bytes, 8));
        h = mix64(h ^ word) + 0x9e3779b97f4a7c15ull;
        if (bytes <= 8) { break; }
    }
    return h;
}

// ---------------------------------------------------------------------------------------------------------------------
// files

static inline bool path_exists(const char* path) { return access(path, F_OK) == 0; }

static inline bool is_directory(const char* path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

// Makes a folder and the folders above it.
static inline bool make_directories(const char* path, Error* err) {
    char* p = format("%s", path);
    bool ok = true;
    for (char* c = p + 1; ok; c++) {
        if (*c != '/' && *c != 0) { continue; }
        char end = *c;
        *c = 0;
        if (mkdir(p, 0777) != 0 && !is_directory(p)) { ok = fail(err, "%s: cannot make the folder: %s", p, strerror(errno)); }
        *c = end;
        if (end == 0) { break; }
    }
    free(p);
    return ok;
}

// The whole of a file in fresh memory with a 0 behind it; `size` may be NULL. NULL on failure.
static inline char* read_file(const char* path, size_t* size, Error* err) {
    FILE* f = fopen(path, "rb");
    if (!f) { fail(err, "%s: cannot open: %s", path, strerror(errno)); return NULL; }
    size_t used = 0, room = 1 << 16;
    char* text = (char*)alloc_or_die(room, 1, path);
    for (size_t n; (n = fread(text + used, 1, room - 1 - used, f)) > 0;) {
        used += n;
        if (room - 1 - used == 0) { text = (char*)realloc_or_die(text, room *= 2, path); }
    }
    bool ok = !ferror(f);
    int error = errno;
    fclose(f);
    if (!ok) { fail(err, "%s: cannot read: %s", path, strerror(error)); free(text); return NULL; }
    text[used] = 0;
    if (size) { *size = used; }
    return text;
}

// Makes a finished rename or creation in the folder of `path` survive a power cut.
static inline bool sync_parent(const char* path, Error* err) {
    char* folder = format("%s", path);
    char* slash = strrchr(folder, '/');
    if (slash) { slash[slash == folder] = 0; }
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY);
    bool ok = fd >= 0 && fsync(fd) == 0;
    if (!ok) { fail(err, "%s: cannot sync the folder: %s", folder, strerror(errno)); }
    if (fd >= 0) { close(fd); }
    free(folder);
    return ok;
}

// Flushes, syncs and closes; false if any write to `f` failed on the way (a full disk shows here at the latest).
static inline bool close_synced(FILE* f, const char* path, Error* err) {
    bool ok = fflush(f) == 0 && !ferror(f) && fsync(fileno(f)) == 0;
    int error = errno;
    if (fclose(f) != 0 && ok) { ok = false; error = errno; }
    return ok ? true : fail(err, "%s: cannot write: %s", path, strerror(error));
}
