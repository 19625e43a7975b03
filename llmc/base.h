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
// Functions that CUDA kernels call too.
#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

#define ATTR_NORETURN __attribute__((noreturn))
// One copy of the machine code, wherever it is called: in several, a compiler may fuse different multiply-adds, and a
// result would depend on where it was computed.
#ifdef __clang__
#define ATTR_ONE_COPY __attribute__((noinline))
#else
#define ATTR_ONE_COPY __attribute__((noinline, noclone))
#endif

// The rank of this process among several that train together, for messages alone: notices are those of the first,
// errors name the others. One variable for all object files of a program, set by main.
__attribute__((weak)) int process_rank;

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

// What is wrong on the first process is mostly wrong on all: the others wait, for their launcher to end them, before
// they say the same. Less than a second: after that they are missed by processes that have nothing to say.
static inline void let_first_speak(void) {
    if (process_rank > 0) { usleep(500000); }
}

// What every line on standard error begins with: the erasure of a progress bar that a terminal may show there.
static inline void begin_line(void) {
    fflush(stdout);
    if (isatty(STDERR_FILENO)) { fputs("\r\033[K", stderr); }
}

static inline void ATTR_NORETURN ATTR_PRINTF(2, 0) vdie(int code, const char* fmt, va_list args) {
    let_first_speak();
    begin_line();
    if (process_rank > 0) { fprintf(stderr, "rank %d: ", process_rank); }
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

// A line for the user on standard error, from the first process: standard output carries results only.
static inline void ATTR_PRINTF(1, 2) notice(const char* fmt, ...) {
    va_list args;
    if (process_rank > 0) { return; }
    va_start(args, fmt);
    begin_line();
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

static inline HOST_DEVICE float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline HOST_DEVICE uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline int min_int(int a, int b) { return a < b ? a : b; }
static inline int max_int(int a, int b) { return a > b ? a : b; }
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
static inline HOST_DEVICE uint64_t mix64(uint64_t x) {
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
// text

// The bytes of the well-formed UTF-8 character (RFC 3629) at text < end, and its code point; 0 if there is none.
static inline size_t utf8_decode(const void* text, const void* end, uint32_t* code_point) {
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char* p = (const unsigned char*)text;
    if (*p < 0x80) { *code_point = *p; return 1; }
    size_t bytes = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
    if (*p < 0xc2 || *p > 0xf4 || (size_t)((const unsigned char*)end - p) < bytes) { return 0; }
    uint32_t c = *p & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((p[i] & 0xc0) != 0x80) { return 0; }
        c = c << 6 | (p[i] & 0x3f);
    }
    *code_point = c;
    bool surrogate = c >= 0xd800 && c <= 0xdfff;
    return c < least[bytes] || c > 0x10ffff || surrogate ? 0 : bytes;
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
    for (char* c = p + (*p != 0); ok; c++) {
        if (*c != '/' && *c != 0) { continue; }
        char end = *c;
        *c = 0;
        if (mkdir(p, 0777) != 0 && !is_directory(p)) {
            ok = fail(err, "%s: cannot make the folder: %s", p, strerror(errno));
        }
        *c = end;
        if (end == 0) { break; }
    }
    free(p);
    return ok;
}

// All that is left of `f` in fresh memory with a 0 behind it; `name` is for messages, `size` may be NULL. NULL on
// failure.
static inline char* read_stream(FILE* f, const char* name, size_t* size, Error* err) {
    size_t used = 0, room = 1 << 16;
    char* text = (char*)alloc_or_die(room, 1, name);
    for (size_t n; (n = fread(text + used, 1, room - 1 - used, f)) > 0;) {
        used += n;
        if (room - 1 - used == 0) { text = (char*)realloc_or_die(text, room *= 2, name); }
    }
    if (ferror(f)) { fail(err, "%s: cannot read: %s", name, strerror(errno)); free(text); return NULL; }
    text[used] = 0;
    if (size) { *size = used; }
    return text;
}

// The whole of a file, as read_stream; on failure a size of 0.
static inline char* read_file(const char* path, size_t* size, Error* err) {
    FILE* f = fopen(path, "rb");
    if (size) { *size = 0; }
    if (!f) { fail(err, "%s: cannot open: %s", path, strerror(errno)); return NULL; }
    char* text = read_stream(f, path, size, err);
    fclose(f);
    return text;
}

// Reads exactly `bytes` at `offset`; `path` is for messages. Several threads may read from one descriptor.
static inline bool read_exactly(int fd, const char* path, void* out, size_t bytes, size_t offset, Error* err) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char*)out + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) { continue; }
        if (n < 0) { return fail(err, "%s: cannot read: %s", path, strerror(errno)); }
        if (n == 0) { return fail(err, "%s: the file was cut short while it was open: make it again", path); }
        done += (size_t)n;
    }
    return true;
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

// Replaces the file in one step: whoever reads it meanwhile, or after a power cut, sees the old text or the new one.
static inline bool write_file_atomically(const char* path, const char* text, size_t size, Error* err) {
    const char* slash = strrchr(path, '/');
    int folder = slash ? (int)(slash + 1 - path) : 0;
    char* temporary = format("%.*s.tmp-%s", folder, path, path + folder);
    FILE* f = fopen(temporary, "wb");
    bool ok = f || fail(err, "%s: cannot write: %s", temporary, strerror(errno));
    if (f) {
        fwrite(text, 1, size, f);
        ok = close_synced(f, temporary, err);
    }
    if (ok && rename(temporary, path) != 0) { ok = fail(err, "%s: cannot replace: %s", path, strerror(errno)); }
    if (f && !ok) { unlink(temporary); }
    free(temporary);
    return ok && sync_parent(path, err);
}
