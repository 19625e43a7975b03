// The device is the host: memory, threads, the storage types, and what the processor can do.
#pragma once
#include "../base.h"
#include <sys/mman.h>
#include <sys/resource.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __SSE__
#include <xmmintrin.h>
#endif

// ---------------------------------------------------------------------------------------------------------------------
// storage types: a kernel reads and writes floatX through to_float() and to_floatX() alone

typedef float fp32;
typedef struct {
    uint16_t bits;
} bf16; // the upper half of a float: 8 bits of exponent, 7 of mantissa

static inline float fp32_to_float(fp32 x) { return x; }
static inline fp32 fp32_from_float(float x) { return x; }
static inline float bf16_to_float(bf16 x) {
    uint32_t bits = (uint32_t)x.bits << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline bf16 bf16_from_float(float f) { // to nearest, ties to even; NaN stays NaN
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bf16 x;
    x.bits = (uint16_t)((f != f) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    return x;
}

#ifndef FLOATX
#define FLOATX fp32
#endif
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STRING_(a) #a
#define STRING(a) STRING_(a)
typedef FLOATX floatX;
static inline float to_float(floatX x) { return JOIN(FLOATX, _to_float)(x); }
static inline floatX to_floatX(float x) { return JOIN(FLOATX, _from_float)(x); }

// ---------------------------------------------------------------------------------------------------------------------
// state

typedef enum { KERNELS_FAST, KERNELS_PLAIN } Kernels;

typedef struct {
    Kernels kernels;
    int threads;
} Cpu;

extern Cpu cpu; // defined in train_gpt2.c, one for all storage types

#define DEVICE_NAME "cpu"

static inline int device_threads(void) { return cpu.threads; }

// threads = 0 leaves the number to OpenMP (OMP_NUM_THREADS, or one for each processor this process may use).
static inline void device_open(int threads, Kernels kernels) {
    cpu.kernels = kernels;
    cpu.threads = 1;
#ifdef _OPENMP
    if (threads > 0) { omp_set_num_threads(threads); }
    cpu.threads = omp_get_max_threads();
#else
    if (threads > 1) { fatal("--threads %d: this program was built without OpenMP", threads); }
#endif
#ifdef __SSE__
    // Moments that decay towards zero end as denormals, which cost a hundred times a normal number: flush them.
    #pragma omp parallel
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

// Zeroed, page-aligned, in huge pages where the system offers them. The caller made sure that it fits (check_memory in
// setup.h).
static inline void* device_alloc(size_t bytes, const char* what) {
    void* p = mmap(NULL, max_size(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) { fatal("out of memory: %zu bytes for %s", bytes, what); }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}
static inline void device_free(void* p, size_t bytes) {
    if (p) { munmap(p, max_size(bytes, 1)); }
}
static inline void device_zero(void* p, size_t bytes) {
    const size_t piece = 1 << 20;
    #pragma omp parallel for
    for (size_t i = 0; i < ceil_div(bytes, piece); i++) {
        memset((char*)p + i * piece, 0, min_size(piece, bytes - i * piece));
    }
}
static inline void device_copy_in(void* device, const void* host, size_t bytes) { memcpy(device, host, bytes); }
static inline void device_copy_out(void* host, const void* device, size_t bytes) { memcpy(host, device, bytes); }
static inline void device_sync(void) {}

// Host memory that batches are copied from; pinned, on a GPU.
static inline void* host_alloc(size_t bytes, const char* what) { return alloc_or_die(bytes, 1, what); }
static inline void host_free(void* p) { free(p); }

// One number out of a small file of /proc or /sys; `fallback` if it is not there or says "max".
static inline size_t number_in_file(const char* path, const char* key, size_t unit, size_t fallback) {
    Error err;
    char* text = path_exists(path) ? read_file(path, NULL, &err) : NULL;
    const char* at = text ? strstr(text, key) : NULL;
    char* end = NULL;
    unsigned long long value = at ? strtoull(at + strlen(key), &end, 10) : 0;
    size_t result = at && end != at + strlen(key) ? (size_t)value * unit : fallback;
    free(text);
    return result;
}

// Bytes that can be allocated: the least of what the system has free, what the container allows and the process's
// limits. malloc and mmap promise more than that and the process is killed later, so this is asked before.
static inline size_t device_memory_available(void) {
    size_t bytes = number_in_file("/proc/meminfo", "MemAvailable:", 1024, SIZE_MAX);
    size_t limit = number_in_file("/sys/fs/cgroup/memory.max", "", 1, SIZE_MAX);
    size_t used = number_in_file("/sys/fs/cgroup/memory.current", "", 1, 0);
    if (limit == SIZE_MAX) {
        limit = number_in_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "", 1, SIZE_MAX);
        used = number_in_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "", 1, 0);
    }
    // files that were read count as used, but make way
    used -= min_size(used, number_in_file("/sys/fs/cgroup/memory.stat", "\ninactive_file ", 1, 0));
    if (limit != SIZE_MAX) { bytes = min_size(bytes, limit > used ? limit - used : 0); }
    const int resources[2] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 2; i++) {
        struct rlimit r;
        if (getrlimit(resources[i], &r) == 0 && r.rlim_cur != RLIM_INFINITY) {
            bytes = min_size(bytes, (size_t)r.rlim_cur);
        }
    }
    return bytes;
}

// The processor's name as the system gives it; it goes into logs and reports.
static inline const char* device_name(void) {
    static char name[128];
    if (name[0]) { return name; }
    snprintf(name, sizeof name, "unknown processor");
    Error err;
    char* text = read_file("/proc/cpuinfo", NULL, &err);
    const char* at = text ? strstr(text, "model name") : NULL;
    if (at && (at = strchr(at, ':'))) { snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 2, "\n"), at + 2); }
    free(text);
    return name;
}
