// The device is the host: memory, threads, the storage types, and what the processor can do.
#pragma once
#include "../device.h"
#include "../host_memory.h"
#include "../rounding.h"
#include <sys/mman.h>
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
static inline float bf16_to_float(bf16 x) { return bf16_value(x.bits); }
static inline bf16 bf16_from_float(float f) {
    const bf16 x = {bf16_nearest(f)};
    return x;
}

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
enum { DEVICE_IS_HOST = 1 };

OP int device_threads(void) { return cpu.threads; }

// threads = 0 leaves the number to OpenMP (OMP_NUM_THREADS, or one for each processor this process may use).
static inline void cpu_open(int threads, Kernels kernels) {
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

OP void device_open(const DeviceOptions* o) {
    if (o->index > 0) { usage_error("--device %d: this program trains on the CPU", o->index); }
    if (!o->fused || !o->flash) { usage_error("--fused 0 and --flash 0 are for GPUs; on the CPU give --kernels plain"); }
    cpu_open(o->threads, o->plain ? KERNELS_PLAIN : KERNELS_FAST);
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

// Zeroed, page-aligned, in huge pages where the system offers them. The caller made sure that it fits (check_memory in
// settings.h).
OP void* device_alloc(size_t bytes, const char* what) {
    void* p = mmap(NULL, max_size(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) { fatal("out of memory: %zu bytes for %s", bytes, what); }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}
OP void device_free(void* p, size_t bytes) {
    if (p) { munmap(p, max_size(bytes, 1)); }
}
OP void device_zero(void* p, size_t bytes) {
    const size_t piece = 1 << 20;
    #pragma omp parallel for
    for (size_t i = 0; i < ceil_div(bytes, piece); i++) {
        memset((char*)p + i * piece, 0, min_size(piece, bytes - i * piece));
    }
}
OP void device_copy_in(void* device, const void* host, size_t bytes) { memcpy(device, host, bytes); }
OP void device_copy_out(void* host, const void* device, size_t bytes) { memcpy(host, device, bytes); }
OP void device_upload(void* device, const void* host, size_t bytes) { memcpy(device, host, bytes); }
OP void device_send(void* device, const void* host, size_t bytes) { memcpy(device, host, bytes); }
OP void device_fetch(void* host, const void* device, size_t bytes) { memcpy(host, device, bytes); }
OP void device_sync(void) {}
OP void device_range_push(const char* name, int layer) { (void)name, (void)layer; }
OP void device_range_pop(void) {}

OP void* host_alloc(size_t bytes, const char* what) { return alloc_or_die(bytes, 1, what); }
OP void host_free(void* p) { free(p); }
OP size_t device_memory_available(void) { return host_memory_available(); }

// The processor's name as the system gives it; it goes into logs and reports.
OP const char* device_name(void) {
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
