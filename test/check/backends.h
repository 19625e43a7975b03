// Loops over the backends that a test is linked with and that this machine can run. If the processor has AVX512_BF16
// but no AMX, the Makefile links AMX with its tiles emulated (test/amx).
//
//   EACH_BACKEND(b) { ... }       loops over all; a test can take fewer sizes on an (emulated) GPU, where !b->is_host
//   EACH_CPU_BACKEND(b) { ... }   loops over those whose memory is the host's
//
// Inside the loop test_case is the backend's name, with which every failure's message begins. Do not leave the loop by
// `break` or `return`: test_case would keep the name.
#pragma once
#include "llmc/backends.h"
#include "llmc/rounding.h"
#include "test/test.h"

extern const Backend cpu_fp32_generic; // its plain loops are the reference

static const DeviceOptions FAST = {.fused = true, .flash = true}, UNFUSED = {.fused = false, .flash = false},
                           PLAIN = {.plain = true};

static inline bool runs_here(const Backend* b) {
    return b->is_host ? find_cpu_backend(b->storage, b->level) == b : b->device_exists();
}

// Lists the linked backends that can run, in the order of llmc/backends.c. Returns their number.
static inline int list_tested_backends(const Backend* list[MAX_BACKENDS]) {
    const Backend* linked[MAX_BACKENDS];
    const int count = list_backends(linked);
    int runnable = 0;
    for (int i = 0; i < count; i++) {
        if (runs_here(linked[i])) { list[runnable++] = linked[i]; }
    }
    return runnable;
}

// Returns the backend behind `last` (NULL: the first), opened with its fast kernels and all threads; NULL at the end.
static inline const Backend* next_backend(const Backend* last, bool only_cpu) {
    static char name[64];
    const Backend* list[MAX_BACKENDS];
    const int count = list_tested_backends(list);
    int i = 0;
    while (last && i < count && list[i++] != last) {}
    while (i < count && only_cpu && !list[i]->is_host) { i++; }
    test_case = NULL;
    if (i == count) { return NULL; }
    const Backend* b = list[i];
    snprintf(name, sizeof name, "%s %s%s%s", b->device, b->storage, b->level ? " " : "", b->level ? b->level : "");
    test_case = name;
    b->device_open(&FAST);
    return b;
}

#define EACH_BACKEND(b) for (const Backend* b = next_backend(NULL, false); b; b = next_backend(b, false))
#define EACH_CPU_BACKEND(b) for (const Backend* b = next_backend(NULL, true); b; b = next_backend(b, true))

// Returns the options with this number of threads; without OpenMP, unchanged.
static inline DeviceOptions with_threads(DeviceOptions options, int threads) {
#ifdef _OPENMP
    options.threads = threads;
#else
    (void)threads;
#endif
    return options;
}

static inline bool stores_bf16(const Backend* b) { return b->element_bytes == sizeof(uint16_t); }

// The largest relative error of rounding to the storage type.
static inline double unit_roundoff(const Backend* b) { return stores_bf16(b) ? 0x1p-8 : 0x1p-24; }

// Returns the value rounded to the storage type.
static inline float as_stored(const Backend* b, float value) {
    return stores_bf16(b) ? bf16_value(bf16_nearest(value)) : value;
}
