// Loops over the backends that a test is linked with and that this machine can run. If the processor has AVX512_BF16
// but no AMX, the Makefile links AMX with its tiles emulated (test/amx).
//
//   EACH_BACKEND(b) { ... }            loops over all; a test can take fewer sizes on an (emulated) GPU, where
//                                      !b->is_host
//   EACH_CPU_BACKEND(b) { ... }        loops over those whose memory is the host's
//   EACH_BF16_RESIDUAL(b) { ... }      loops over those with a residual stream in bf16, which the others leave out:
//                                      they differ in RESIDUAL_FUNCTIONS only
//   EACH_CPU_AND_BF16_RESIDUAL(b) ...  loops over the CPU's, and over one with a residual stream in bf16
//
// Inside the loop test_case is the backend's name, with which every failure's message begins. Do not leave the loop by
// `break` or `return`: test_case would keep the name.
#pragma once
#include "llmc/train/backends.h"
#include "llmc/model/stored.h"
#include "test/test.h"

extern const Backend cpu_fp32_generic; // its plain loops are the reference

static const DeviceOptions FAST = {.fused = true, .flash = true}, UNFUSED = {.fused = false, .flash = false},
                           PLAIN = {.plain = true};

// Returns the largest relative error of rounding to the storage type, where it is normal.
static inline double unit_roundoff(const Backend* b) {
    return !stores_16_bits(b) ? 0x1p-24 : stores_fp16(b) ? 0x1p-11 : 0x1p-8;
}

static inline bool runs_here(const Backend* b) {
    return b->is_host ? find_cpu_backend(dtype_of_storage(b), (enum cpu)choice_find(cpu_names, b->level)) == b
                      : b->device_exists();
}

typedef enum { ALL_BACKENDS, CPU_BACKENDS, BF16_RESIDUALS, CPU_AND_BF16_RESIDUAL } TestedBackends;

// Lists the linked backends that can run, in the order of llmc/train/backends.c. Returns their number. None ends the
// program: a test that computes nothing would pass.
static inline int list_tested_backends(TestedBackends which, const Backend* list[MAX_BACKENDS]) {
    const Backend *linked[MAX_BACKENDS], *residual = NULL; // residual: the first with a residual stream in bf16
    const int count = list_backends(linked);
    int runnable = 0;
    for (int i = 0; i < count; i++) {
        const Backend* b = linked[i];
        if (!runs_here(b) || (which != ALL_BACKENDS && which != BF16_RESIDUALS && !b->is_host)) { continue; }
        if (!residual) { residual = b->with_bf16_residual; }
        if (which == BF16_RESIDUALS) { b = b->with_bf16_residual; }
        if (b) { list[runnable++] = b; }
    }
    if (which == CPU_AND_BF16_RESIDUAL && residual && runnable < MAX_BACKENDS) { list[runnable++] = residual; }
    if (!runnable) { fatal("no backend of this test runs here"); }
    return runnable;
}

// Returns the backend behind `last` (NULL: the first), opened with its fast kernels and all threads; NULL at the end.
static inline const Backend* next_backend(const Backend* last, TestedBackends which) {
    static char name[96];
    const Backend* list[MAX_BACKENDS];
    const int count = list_tested_backends(which, list);
    int i = 0;
    while (last && i < count && list[i++] != last) {}
    test_case = NULL;
    if (i == count) { return NULL; }
    const Backend* b = list[i];
    snprintf(name, sizeof name, "%s %s%s%s%s", b->device, b->storage, b->level ? " " : "", b->level ? b->level : "",
             residual_note(b));
    test_case = name;
    b->device_open(&FAST);
    return b;
}

#define EACH_TESTED(b, which) for (const Backend* b = next_backend(NULL, which); b; b = next_backend(b, which))
#define EACH_BACKEND(b) EACH_TESTED(b, ALL_BACKENDS)
#define EACH_CPU_BACKEND(b) EACH_TESTED(b, CPU_BACKENDS)
#define EACH_BF16_RESIDUAL(b) EACH_TESTED(b, BF16_RESIDUALS)
#define EACH_CPU_AND_BF16_RESIDUAL(b) EACH_TESTED(b, CPU_AND_BF16_RESIDUAL)

// Returns the options with this number of threads; without OpenMP, unchanged.
static inline DeviceOptions with_threads(DeviceOptions options, int threads) {
#ifdef _OPENMP
    options.threads = threads;
#else
    (void)threads;
#endif
    return options;
}

// fp16 has the kernels of bf16 and fp32, but for the conversions: expensive tests take one of its levels.
static inline bool is_another_fp16(const Backend* b) {
    return stores_fp16(b) && b != find_cpu_backend(dtype_fp16, cpu_auto);
}
