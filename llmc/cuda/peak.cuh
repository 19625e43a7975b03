// What the GPU can do at most: operations per second in matrix products, and bytes per second to and from memory.
#pragma once
#include "matmul.cuh"

// TFLOP/s of dense products summed in fp32, as NVIDIA publishes them, for devices of exactly these names: a variant (a
// laptop's, a part of a GPU under MIG) is measured instead. From the white papers on the architectures (GA100, GA102,
// AD102, GH100, GB202), and from data sheets for the A10, A30, A40, A5000, L4, L40, L40S, RTX 6000, GH200, B200 and
// both NVL. Where only a figure with sparsity is given, half of it.
typedef struct {
    const char* name;
    double fp32, tf32, bf16;
} PublishedPeak;

// FP8's is twice that of bf16 on all that have it (the L40S' data sheet has 1% more).
enum { FP8_PEAK = 2 };

static const PublishedPeak PUBLISHED_PEAKS[] = {
    {"NVIDIA A100-SXM4-40GB", 19.5, 156, 312},
    {"NVIDIA A100-SXM4-80GB", 19.5, 156, 312},
    {"NVIDIA A100-PCIE-40GB", 19.5, 156, 312},
    {"NVIDIA A100 80GB PCIe", 19.5, 156, 312},
    {"NVIDIA A10", 31.2, 62.5, 125},
    {"NVIDIA A30", 10.3, 82, 165},
    {"NVIDIA A40", 37.4, 74.8, 149.7},
    {"NVIDIA RTX A5000", 27.8, 55.5, 111.1},
    {"NVIDIA RTX A6000", 38.7, 77.4, 154.8},
    {"NVIDIA GeForce RTX 3090", 35.6, 35.6, 71},
    {"NVIDIA GeForce RTX 3090 Ti", 40, 40, 80},
    {"NVIDIA L4", 30.3, 60, 121},
    {"NVIDIA L40", 90.5, 90.5, 181},
    {"NVIDIA L40S", 91.6, 183, 362},
    {"NVIDIA RTX 6000 Ada Generation", 91.1, 182.1, 364.2},
    {"NVIDIA GeForce RTX 4060 Ti", 22.1, 22.1, 44.1},
    {"NVIDIA GeForce RTX 4080", 48.7, 48.7, 97.5},
    {"NVIDIA GeForce RTX 4090", 82.6, 82.6, 165.2},
    {"NVIDIA H100 PCIe", 51.2, 378, 756},
    {"NVIDIA H100 NVL", 60, 417.5, 835.5},
    {"NVIDIA H100 80GB HBM3", 66.9, 494.7, 989.4},
    {"NVIDIA H200", 66.9, 494.7, 989.4},
    {"NVIDIA H200 NVL", 60, 417.5, 835.5},
    {"NVIDIA GH200 480GB", 66.9, 494.7, 989.4},
    {"NVIDIA B200", 75, 1125, 2250},
    {"NVIDIA GeForce RTX 5090", 104.8, 104.8, 209.5},
};

// Operations per second that are published for a GPU of this name; 0 if it is not in the table.
static inline double published_peak_flops(const char* name) {
    for (size_t i = 0; i < sizeof PUBLISHED_PEAKS / sizeof *PUBLISHED_PEAKS; i++) {
        const PublishedPeak* p = &PUBLISHED_PEAKS[i];
        if (strcmp(name, p->name) == 0) {
            const double bf16 = gpu.fp8 ? FP8_PEAK * p->bf16 : p->bf16;
            return 1e12 * (FLOATX_TYPE == CUDA_R_16BF ? bf16 : gpu.tf32 ? p->tf32 : p->fp32);
        }
    }
    return 0;
}

// ---------------------------------------------------------------------------------------------------------------------
// measuring: the shortest of a few runs, each long enough for starting and waiting to be nothing beside it

enum { PEAK_RUNS = 8, PEAK_MOST_ROWS = 16384 };
static const double PEAK_SECONDS = 5e-3;

// A measurement takes `bytes` of memory, the next one `growth` times that: whether that is out of proportion.
static inline bool is_too_much_memory(size_t bytes, size_t growth) {
    return bytes * growth > device_memory_available() / 2;
}

static inline double seconds_of_product(const Matmul* m) {
    device_sync();
    const double start = seconds_now();
    if (!cublaslt_matmul(m)) { matmul_plain(m); }
    device_sync();
    return seconds_now() - start;
}

// The matrices are zeros, which cost the least power, so that the clock stays at its highest. They grow until a product
// takes long enough.
static inline double measured_peak_flops() {
    for (size_t n = 128;; n *= 2) {
        const size_t bytes = 2 * n * n * sizeof(floatX);
        floatX* matrices = (floatX*)device_alloc(bytes, "measuring the peak of matmuls");
        Matmul m = forward_product(matrices + n * n, matrices, matrices, (int)n, (int)n, (int)n);
        if (gpu.fp8) { m.a_storage = m.b_storage = AS_E4M3; } // without scales they are 1
        double best = seconds_of_product(&m);
        for (int run = 1; run < PEAK_RUNS; run++) { best = fmin(best, seconds_of_product(&m)); }
        device_free(matrices, bytes);
        if (best >= PEAK_SECONDS || n >= PEAK_MOST_ROWS || is_too_much_memory(bytes, 4)) {
            return 2.0 * (double)n * (double)n * (double)n / best;
        }
    }
}

OP double device_peak_flops(void) {
    const double published = published_peak_flops(gpu.name);
    return published > 0 ? published : measured_peak_flops();
}

static inline double seconds_of_copy(char* to, const char* from, size_t bytes) {
    device_sync();
    const double start = seconds_now();
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, gpu.stream), "copying on the GPU");
    device_sync();
    return seconds_now() - start;
}

OP double device_copy_bandwidth(void) {
    for (size_t bytes = (size_t)1 << 20;; bytes *= 2) {
        char* memory = (char*)device_alloc(2 * bytes, "measuring the bandwidth of memory");
        double best = seconds_of_copy(memory + bytes, memory, bytes);
        for (int run = 1; run < PEAK_RUNS; run++) { best = fmin(best, seconds_of_copy(memory + bytes, memory, bytes)); }
        device_free(memory, 2 * bytes);
        if (best >= PEAK_SECONDS || is_too_much_memory(2 * bytes, 2)) { return 2.0 * (double)bytes / best; }
    }
}
