// The CPU as a device: its storage types, threads and memory. Device memory is host memory, and work is done at once:
// copies are memcpy(), and device_sync() does nothing.
#pragma once
#include "../base/file.h"
#include "../model/backend.h"
#include "../base/host_memory.h"
#include "../base/rounding.h"
#include "../base/threads.h"
#include "choices.h"
#include <sched.h>
#include <sys/mman.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __SSE2__
#include <immintrin.h>
#endif

// ---------------------------------------------------------------------------------------------------------------------
// storage types

// The storage type that this object is compiled for.
#ifndef FLOATX
#define FLOATX fp32
#endif
#define NUMBER_OF_fp32 1
#define NUMBER_OF_bf16 2
#define NUMBER_OF_fp16 3
#define FLOATX_IS(type) (JOIN(NUMBER_OF_, FLOATX) == NUMBER_OF_##type)
// The level of instructions that this object is compiled for (processor.h).
#ifndef LEVEL
#define LEVEL generic
#endif

typedef float fp32;
typedef struct {
    uint16_t bits;
} bf16;
typedef struct {
    uint16_t bits;
} fp16;

static inline float fp32_to_float(fp32 x) { return x; }
static inline fp32 fp32_from_float(float x) { return x; }
static inline float bf16_to_float(bf16 x) { return bf16_value(x.bits); }
static inline bf16 bf16_from_float(float f) {
    const bf16 x = {bf16_nearest(f)};
    return x;
}
static inline float fp16_to_float(fp16 x) {
#ifdef __aarch64__ // by an instruction; in vector code gcc 12 has none for the other direction
    __fp16 half;
    memcpy(&half, &x, sizeof half);
    return (float)half;
#else
    return fp16_value(x.bits);
#endif
}
static inline fp16 fp16_from_float(float f) {
    const fp16 x = {fp16_nearest(f)};
    return x;
}

struct Stored {
    FLOATX value;
};
static inline float to_float(Stored x) { return JOIN(FLOATX, _to_float)(x.value); }
static inline Stored to_stored(float x) {
    const Stored stored = {JOIN(FLOATX, _from_float)(x)};
    return stored;
}

// Stores x at out, and at rest, unless it is NULL, what this rounding took from x.
static inline void store_with_rest(Stored* out, Stored* rest, float x) {
    *out = to_stored(x);
    if (rest) { *rest = to_stored(x - to_float(*out)); }
}

// Returns p + i; NULL if p is NULL.
static inline Stored* stored_or_null(const Stored* p, size_t i) { return p ? (Stored*)p + i : NULL; }

// Returns a master rounded at random to a number of the storage type: element i of the parameters, by an update.
static inline float rounded_at_random(float master, uint64_t seed, int step, size_t i) {
    return JOIN(FLOATX, _stochastic)(master, rounding_random(seed, step, i));
}

enum { LINE_BYTES = 64, LINE = LINE_BYTES / sizeof(Stored) }; // of a cache line; elements in it

// to (n) = x. gcc makes eight instructions of to_stored() in bf16, for which there is one. It flushes subnormal floats,
// as arithmetic here does (flush_denormals). Not in epilogues of matmuls, but with AMX: dev/cpu.md.
static inline __attribute__((always_inline)) void store_floats(Stored* to, const float* x, size_t n) {
#if FLOATX_IS(bf16) && defined(__AVX512BF16__)
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        _mm256_storeu_si256((__m256i*)(to + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
    }
    const __mmask16 rest = (__mmask16)((1u << (n - i)) - 1); // the instruction here too: NaN has the same bits
    if (i < n) {
        const __m512 v = _mm512_maskz_loadu_ps(rest, x + i);
        _mm256_mask_storeu_epi16(to + i, rest, (__m256i)_mm512_cvtneps_pbh(v));
    }
#else
    #pragma omp simd
    for (size_t i = 0; i < n; i++) { to[i] = to_stored(x[i]); }
#endif
}

// ---------------------------------------------------------------------------------------------------------------------
// state

typedef enum { KERNELS_FAST, KERNELS_PLAIN } Kernels;

typedef struct {
    Kernels kernels;
    bool fused;      // fast kernels: bias and GELU in the matmul, addition and layernorm in one pass
    bool flash;      // fast kernels: attention in blocks of queries and keys
    int threads;     // in use
    int all_threads; // OpenMP's choice, as it was before cpu_open() set another; 0: not asked for yet
    Choices choices;
    double timer; // when device_timer_start() was called
} Cpu;

extern Cpu cpu; // defined in train_gpt2.c, one for all backends of the CPU

static inline const char* device_identity(void) { return ""; }
static inline int device_threads(void) { return cpu.threads; }
static inline const char* device_kernels(void) { return cpu.kernels == KERNELS_PLAIN ? "plain" : STRING(LEVEL); }

static inline void device_timer_start(void) { cpu.timer = seconds_now(); }
static inline double device_timer_stop(void) { return seconds_now() - cpu.timer; }

// Makes arithmetic of this thread take denormals for zero, and return zero in place of them.
static inline void flush_denormals(void) {
#ifdef __SSE__
    _mm_setcsr(_mm_getcsr() | 0x8040); // FTZ and DAZ
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr | 1 << 24)); // FZ
#endif
}

// Sets threads and kernels; switches `fused` and `flash` on. threads 0: OpenMP's choice (OMP_NUM_THREADS, or one for
// each processor that this process may use).
static inline void cpu_open(int threads, Kernels kernels) {
    cpu.kernels = kernels;
    cpu.fused = cpu.flash = true;
    cpu.choices = choices_here();
    if (cpu.all_threads == 0) { cpu.all_threads = max_threads(); }
    cpu.threads = threads > 0 ? threads : cpu.all_threads;
    use_threads(cpu.threads);
#ifndef _OPENMP
    if (threads > 1) { fatal("--threads %d: this program was built without OpenMP", threads); }
#endif
    // Flushes denormals to zero: moments that decay end as denormals, whose arithmetic is far slower. With libgomp the
    // flags are each thread's own; with libomp a region has those of the thread that begins it.
    flush_denormals();
    #pragma omp parallel
    flush_denormals();
}

// A barrier of a parallel region: waits until all of its threads have come here, which *arrived (0 at first) counts.
// OpenMP's own barrier puts a thread to sleep after 45 us (threads.h), and to wake it takes 0.3 ms on some virtual
// machines. Here it stays awake, but lets other programs have its processor. Measured: dev/cpu.md
static inline void wait_awake(int* arrived) {
#ifdef _OPENMP
    enum { SPINS = 1000 };
    const int threads = omp_get_num_threads();
    __atomic_fetch_add(arrived, 1, __ATOMIC_RELEASE);
    for (int turn = 0; __atomic_load_n(arrived, __ATOMIC_ACQUIRE) < threads; turn++) {
        if (turn >= SPINS) { sched_yield(); }
    }
#else
    (void)arrived;
#endif
}

static inline bool device_exists(void) { return true; }
static inline const char* device_lacks(const DeviceOptions* o) {
    (void)o;
    return NULL;
}

static inline void device_open(const DeviceOptions* o) {
    if (o->attention && !strcmp(o->attention, "cudnn")) {
        usage_error("--attention cudnn: cuDNN is for GPUs; give auto, flash or plain");
    }
    cpu_open(o->threads, o->plain ? KERNELS_PLAIN : KERNELS_FAST);
    cpu.fused = o->fused;
    cpu.flash = o->flash;
}

// ---------------------------------------------------------------------------------------------------------------------
// memory

// Bytes that a thread zeroes at a time. Threads get contiguous shares, the same as in static loops over the memory: a
// page lies on the NUMA node of the thread that touched it first.
enum { MEMORY_PIECE = 1 << 20 };

// Page-aligned, in huge pages if the system offers them. plan_check_memory() has made sure that it fits.
static inline void* device_alloc(size_t bytes, const char* what) {
    enum { PAGE = 4096 };
    void* p = mmap(NULL, max_size(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) { fatal("out of memory: %zu bytes for %s", bytes, what); }
    madvise(p, bytes, MADV_HUGEPAGE);
    #pragma omp parallel for if (bytes > MEMORY_PIECE)
    for (size_t i = 0; i < bytes; i += PAGE) { ((volatile char*)p)[i] = 0; }
    return p;
}
static inline void device_free(void* p, size_t bytes) {
    if (p) { munmap(p, max_size(bytes, 1)); }
}

enum { MORE_THAN_CACHES = 1 << 25 }; // bytes; chosen

// Orders streaming stores of this thread before what other threads read later.
static inline void past_caches_end(void) {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

// Zeroes by streaming stores, which bypass the caches: nothing is read before it is overwritten, and nothing evicted.
static inline void zero_past_caches(char* p, size_t bytes) {
#ifdef __SSE2__
    const size_t head = min_size(bytes, (size_t)(-(uintptr_t)p % LINE_BYTES));
    memset(p, 0, head);
    for (p += head, bytes -= head; bytes >= LINE_BYTES; p += LINE_BYTES, bytes -= LINE_BYTES) {
        for (int i = 0; i < LINE_BYTES; i += 16) { _mm_stream_si128((__m128i*)(p + i), _mm_setzero_si128()); }
    }
    past_caches_end();
#endif
    memset(p, 0, bytes);
}

// Returns true if these bytes are whole cache lines.
static inline bool is_whole_lines(const void* p, size_t bytes) { return ((uintptr_t)p | bytes) % LINE_BYTES == 0; }

// Copies a line past the caches where the processor can, so that it is not fetched first: for results that will have
// left the caches when they are read. `to` is 64-byte aligned. The caller calls past_caches_end() afterwards.
static inline void copy_line_past_caches(void* to, const void* from) {
#if defined(__AVX512F__)
    _mm512_stream_si512(to, _mm512_loadu_si512(from));
#elif defined(__SSE2__)
    for (int i = 0; i < 4; i++) { _mm_stream_si128((__m128i*)to + i, _mm_loadu_si128((const __m128i*)from + i)); }
#else
    memcpy(to, from, LINE_BYTES);
#endif
}

static inline void copy_past_caches(void* to, const void* from, size_t bytes) { // whole lines, in the same way
    for (size_t i = 0; i < bytes; i += LINE_BYTES) { copy_line_past_caches((char*)to + i, (const char*)from + i); }
}

// to (n) = x in the same way; `to` takes whole lines.
static inline void store_past_caches(Stored* to, const float* x, int n) {
    for (int i = 0; i < n; i += LINE, to += LINE, x += LINE) {
#if FLOATX_IS(bf16) && defined(__AVX512BF16__)
        _mm512_stream_si512((void*)to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x)));
#else
        Stored line[LINE];
        store_floats(line, x, LINE);
        copy_line_past_caches(to, line);
#endif
    }
}

static inline void device_zero(void* p, size_t bytes) {
    #pragma omp parallel for if (bytes > MEMORY_PIECE)
    for (size_t i = 0; i < bytes; i += MEMORY_PIECE) {
        char* piece = (char*)p + i;
        const size_t size = min_size(MEMORY_PIECE, bytes - i);
        if (bytes > MORE_THAN_CACHES) { zero_past_caches(piece, size); }
        else { memset(piece, 0, size); }
    }
}
static inline void device_copy(void* to, const void* from, size_t bytes) { memcpy(to, from, bytes); }
static inline void device_copy_in(void* device, const void* host, size_t bytes) { memcpy(device, host, bytes); }
static inline void device_copy_out(void* host, const void* device, size_t bytes) { memcpy(host, device, bytes); }
static inline void device_upload(void* device, const void* host, size_t bytes) { memcpy(device, host, bytes); }
static inline void device_send(void* device, const void* host, size_t bytes) { memcpy(device, host, bytes); }
static inline void device_fetch(void* host, const void* device, size_t bytes) { memcpy(host, device, bytes); }
static inline void device_sync(void) {}
// A CPU streams state only to test what a GPU does.
static inline void* state_alloc(size_t bytes, const char* what) { return device_alloc(bytes, what); }
static inline void state_free(void* p, size_t bytes) { device_free(p, bytes); }
static inline void state_in(int slot, void* device, const void* host, size_t bytes) {
    (void)slot;
    memcpy(device, host, bytes);
}
static inline void state_out(int slot, void* host, const void* device, size_t bytes) {
    (void)slot;
    if (bytes) { memcpy(host, device, bytes); }
}
static inline void state_sync(void) {}
static inline void device_range_push(const char* name, int layer) { (void)name, (void)layer; }
static inline void device_range_pop(void) {}
static inline void device_replay(Recording** recording, const char* name, Work work, const void* arguments,
                                 size_t bytes) {
    (void)recording, (void)name, (void)bytes;
    work(arguments);
}
static inline void device_forget(Recording** recording) { (void)recording; }

typedef struct {
    void* memory;
    size_t bytes;
} Scratch;

static inline void* scratch_grow(Scratch* s, size_t bytes, const char* what) {
    if (bytes > s->bytes) {
        device_free(s->memory, s->bytes);
        s->memory = device_alloc(bytes, what);
        s->bytes = bytes;
    }
    return s->memory;
}

// Returns at least `bytes` of scratch memory of this thread, aligned to a cache line: for packed operands and
// intermediate tiles of one operation. It is allocated once and grown; the thread's next call returns the same memory.
static inline void* thread_scratch(size_t bytes) {
    static __thread Scratch scratch;
    return scratch_grow(&scratch, bytes, "scratch of a thread");
}

// Returns memory for `count` elements of `size` bytes, aligned to a cache line, at memory + *used, and advances *used.
// If `memory` is NULL, only advances *used.
static inline void* scratch_part(char* memory, size_t* used, size_t count, size_t size) {
    const size_t at = *used;
    *used += round_up(count * size, LINE_BYTES);
    return memory ? memory + at : NULL;
}

// thread_scratch(), but one memory for all threads: `shared_scratch` of an operation, and `weight_scratch` of a matmul
// within it. Called outside of parallel regions.
static inline void* shared_scratch(size_t bytes) {
    static Scratch scratch;
    return scratch_grow(&scratch, bytes, "scratch of an operation");
}
static inline void* weight_scratch(size_t bytes) {
    static Scratch scratch;
    return scratch_grow(&scratch, bytes, "packed matrices");
}

static inline void* host_alloc(size_t bytes, const char* what) { return alloc_or_die(bytes, 1, what); }
static inline void host_free(void* p) { free(p); }
static inline size_t device_memory_available(void) { return host_memory_available(); }
static inline size_t device_memory_usable(size_t total) {
    const size_t system = (size_t)512 << 20; // left to the system and other programs; chosen, not measured
    return total - min_size(total, system);
}

// The processor's name as in /proc/cpuinfo.
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
