// Peak speeds of the GPU: operations per second of matmuls, and bytes per second of memory.
#pragma once
#include "../base/rng.h"
#include "gpus.h"
#include "matmul.cuh"

// ---------------------------------------------------------------------------------------------------------------------
// measuring: the shortest of PEAK_RUNS runs, each long enough that launching and waiting do not count

static constexpr int PEAK_RUNS = 8, PEAK_MOST_ROWS = 16384;
static const double PEAK_SECONDS = 5e-3;

// Returns true if the next measurement, with `growth` times the memory of this one, would take more than half of what
// is available.
static inline bool is_too_much_memory(size_t bytes, size_t growth) {
    return bytes * growth > device_memory_available() / 2;
}

template <class Queue> static inline double shortest_seconds(const Queue& queue) {
    double shortest = (double)INFINITY;
    for (int run = 0; run < PEAK_RUNS; run++) {
        device_sync();
        const double start = seconds_now();
        queue();
        device_sync();
        shortest = fmin(shortest, seconds_now() - start);
    }
    return shortest;
}

// x (n) = random numbers of the standard normal distribution (Box & Muller 1958). In E4M3 if is_fp8.
static __global__ void fill_normal_kernel(floatX* x, size_t n, bool is_fp8) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) { return; }
    const uint64_t bits = rng_u64(0, RNG_TEST, i);
    const float uniform = ((float)(uint32_t)bits + 0.5f) * 0x1p-32f, turn = (float)(uint32_t)(bits >> 32) * 0x1p-32f;
    const float normal = sqrtf(-2.0f * logf(uniform)) * cosf(6.2831853f * turn);
    if (is_fp8) {
        ((uint8_t*)x)[i] = __nv_cvt_float_to_fp8(normal, __NV_SATFINITE, __NV_E4M3);
    } else {
        x[i] = to_floatX(normal);
    }
}

// The factors are random: on zeros a GPU draws less power, and its clocks are higher than in training. The matrices
// grow until a matmul takes long enough.
static inline double device_matmul_flops(void) {
    for (size_t n = 128;; n *= 2) {
        const size_t bytes = 2 * n * n * sizeof(floatX);
        floatX* matrices = (floatX*)device_alloc(bytes, "measuring the peak of matmuls");
        fill_normal_kernel<<<blocks_for(n * n, THREADS_IN_BLOCK), THREADS_IN_BLOCK, 0, gpu.stream>>>(matrices, n * n,
                                                                                                 gpu.fp8);
        cuda_launched("fill_normal");
        Matmul m = forward_matmul(matrices + n * n, matrices, matrices, (int)n, (int)n, (int)n);
        if (gpu.fp8) { m.a_storage = m.b_storage = AS_E4M3; } // no scales: they are 1
        const double best = shortest_seconds([&] { multiply(&m); });
        device_free(matrices, bytes);
        if (best >= PEAK_SECONDS || n >= PEAK_MOST_ROWS || is_too_much_memory(bytes, 4)) {
            return 2.0 * (double)n * (double)n * (double)n / best;
        }
    }
}

// The data sheet's, if gpus.h has the GPU.
static inline double device_peak_flops(void) {
    const GpuFacts* facts = gpu_named(gpu.name);
    const double published = facts ? gpu_peak_flops(facts, gpu_dtype()) : 0;
    return published > 0 ? published : device_matmul_flops();
}

static inline double device_kernel_flops(void) { return 0; } // only a CPU has a speed of one thread

static inline double device_copy_bandwidth(void) {
    for (size_t bytes = (size_t)1 << 20;; bytes *= 2) {
        char* memory = (char*)device_alloc(2 * bytes, "measuring the bandwidth of memory");
        const double best = shortest_seconds([&] { device_copy(memory + bytes, memory, bytes); });
        device_free(memory, 2 * bytes);
        if (best >= PEAK_SECONDS || is_too_much_memory(2 * bytes, 2)) { return 2.0 * (double)bytes / best; }
    }
}
