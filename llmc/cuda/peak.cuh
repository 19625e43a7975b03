// What the GPU can do at most: operations per second in matrix products, and bytes per second to and from memory.
#pragma once
#include "matmul.cuh"

// TFLOP/s of dense products summed in fp32, as NVIDIA publishes them: data sheets for A30, A10, L4, L40, L40S, H100 NVL,
// H200 NVL and B200, the white papers on the architectures (GA100, GA102, AD102, GH100, GB202) for the others. Where
// only the figure with sparsity is given, half of it.
typedef struct {
    const char* name; // found in the device's name, as a word
    double fp32, tf32, bf16;
} PublishedPeak;

// Of two that fit the first counts.
static const PublishedPeak PUBLISHED_PEAKS[] = {
    {"A100", 19.5, 156, 312},
    {"A30", 10.3, 82, 165},
    {"A40", 37.4, 74.8, 149.7},
    {"A10", 31.2, 62.5, 125},
    {"RTX A6000", 38.7, 77.4, 154.8},
    {"RTX 3090 Ti", 40, 40, 80},
    {"RTX 3090", 35.6, 35.6, 71},
    {"RTX 3080 Ti", 34.1, 34.1, 68.2},
    {"L4", 30.3, 60, 121},
    {"L40", 90.5, 90.5, 181},
    {"L40S", 91.6, 183, 362},
    {"RTX 6000 Ada", 91.1, 182.1, 364.2},
    {"RTX 4090", 82.6, 82.6, 165.2},
    {"RTX 4080 SUPER", 52.2, 52.2, 104.4},
    {"RTX 4080", 48.7, 48.7, 97.5},
    {"RTX 4060 Ti", 22.1, 22.1, 44.1},
    {"H100 PCIe", 51.2, 378, 756},
    {"H100 NVL", 60, 417.5, 835.5},
    {"H100", 66.9, 494.7, 989.4},
    {"H200 NVL", 60, 417.5, 835.5},
    {"H200", 66.9, 494.7, 989.4},
    {"GH200", 66.9, 494.7, 989.4},
    {"B200", 75, 1125, 2250},
    {"RTX 5090", 104.8, 104.8, 209.5},
};

static inline bool is_word_of(const char* name, const char* word) {
    for (const char* at = strstr(name, word); at; at = strstr(at + 1, word)) {
        const char before = at == name ? ' ' : at[-1], after = at[strlen(word)];
        const bool begins = before == ' ', ends = after == 0 || after == ' ' || after == '-';
        if (begins && ends) { return true; }
    }
    return false;
}

// Operations per second that are published for a GPU of this name; 0 if it is not in the table.
static inline double published_peak_flops(const char* name) {
    for (size_t i = 0; i < sizeof PUBLISHED_PEAKS / sizeof *PUBLISHED_PEAKS; i++) {
        const PublishedPeak* p = &PUBLISHED_PEAKS[i];
        if (is_word_of(name, p->name)) {
            return 1e12 * (sizeof(floatX) == sizeof(bf16) ? p->bf16 : cuda.tf32 ? p->tf32 : p->fp32);
        }
    }
    return 0;
}

// ---------------------------------------------------------------------------------------------------------------------
// measuring: the shortest of a few runs, each of a few milliseconds, beside which starting and waiting are nothing

enum { PEAK_RUNS = 8 };
static constexpr double PEAK_SECONDS = 5e-3;

static inline double seconds_of_product(const Matmul* m) {
    device_sync();
    const double start = seconds_now();
    multiply(m);
    device_sync();
    return seconds_now() - start;
}

// The matrices are zeros, which cost the least power, so that the clock stays at its highest. They grow until a product
// takes long enough, or half of the free memory.
static inline double measured_peak_flops() {
    for (size_t n = 128;; n *= 2) {
        const size_t bytes = n * n * sizeof(floatX);
        floatX* matrix = (floatX*)device_alloc(2 * bytes, "measuring the peak of matmuls");
        const Matmul m = forward_product(matrix + n * n, matrix, matrix, (int)n, (int)n, (int)n);
        double best = seconds_of_product(&m); // and makes the plan
        for (int run = 0; run < PEAK_RUNS; run++) { best = fmin(best, seconds_of_product(&m)); }
        device_free(matrix, 2 * bytes);
        const bool is_last = best >= PEAK_SECONDS || n >= 16384 || 4 * 2 * bytes > device_memory_available() / 2;
        if (is_last) { return 2.0 * (double)n * (double)n * (double)n / best; }
    }
}

OP double device_peak_flops(void) {
    const double published = published_peak_flops(cuda.name);
    return published > 0 ? published : measured_peak_flops();
}

// Bytes read and written per second while memory is copied on the GPU.
static inline double device_copy_bandwidth() {
    for (size_t bytes = (size_t)1 << 20;; bytes *= 2) {
        char* memory = (char*)device_alloc(2 * bytes, "measuring the bandwidth of memory");
        double best = INFINITY;
        for (int run = 0; run < PEAK_RUNS; run++) {
            device_sync();
            const double start = seconds_now();
            cuda_check(cudaMemcpyAsync(memory + bytes, memory, bytes, cudaMemcpyDeviceToDevice, cuda.stream), "copying");
            device_sync();
            best = fmin(best, seconds_now() - start);
        }
        device_free(memory, 2 * bytes);
        const bool is_last = best >= PEAK_SECONDS || 2 * 2 * bytes > device_memory_available() / 2;
        if (is_last) { return 2.0 * (double)bytes / best; }
    }
}
