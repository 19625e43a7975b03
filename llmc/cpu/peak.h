// Measures the processor: peak operations per second of matmuls, and bytes per second of a copy.
#pragma once
#include "tile.h"

// Bursts of about a millisecond each. The best one counts, so that other programs do not disturb the result.
enum { PEAK_BURSTS = 8, PEAK_ROUNDS = 100000 };

// Runs tile_peak in all threads and adds up their best bursts. Takes a hundredth of a second.
static inline double device_peak_flops(void) {
    double total = 0;
    #pragma omp parallel reduction(+ : total)
    {
        double best = 0;
        for (int burst = 0; burst < PEAK_BURSTS; burst++) {
            long rounds = PEAK_ROUNDS;
            double flops;
            const double start = seconds_now();
            __asm__ volatile("" : "+r"(rounds)); // keeps the compiler from moving the work out of the timing
            const float result = tile_peak(rounds, &flops);
            __asm__ volatile("" : : "m"(result));
            best = fmax(best, flops / (seconds_now() - start));
        }
        total += best;
    }
    return total;
}

enum { TILE_DEPTH = DEPTH < 384 ? DEPTH : 384 }; // both operands fit into an L1 cache

// Multiplies `tiles` tiles by the loop of gemm.h, their operands in the caches; returns operations per second. The
// operands use all their bits: zeros take less power, and a processor may multiply them at a higher clock.
static inline double tile_flops(int tiles) {
    enum { PANELS = 2 };
    const size_t size_a = panel_size(MR, TILE_DEPTH), size_b = panel_size(NR, TILE_DEPTH);
    Packed *a = thread_scratch((size_a + PANELS * size_b) * sizeof(Packed)), *b = a + size_a;
    Stored numbers[NR * TILE_DEPTH];
    float c[MR * NR] __attribute__((aligned(64)));
    Ahead nothing = {.lines = 0};
    for (uint32_t i = 0; i < NR * TILE_DEPTH; i++) { numbers[i] = to_stored((float)(int)(i * 2654435761u) * 0x1p-31f); }
    pack_a(a, numbers, 1, MR, MR, TILE_DEPTH);
    for (int i = 0; i < PANELS; i++) { pack_b(b + (size_t)i * size_b, numbers, NR, 1, TILE_DEPTH, NR); }
    tile_begin();
    const double start = seconds_now();
    for (int t = 0; t < tiles; t++) {
        tile_matmul(c, NR, TILE_SET, a, b + (size_t)(t % PANELS) * size_b, TILE_DEPTH, &nothing);
        __asm__ volatile("" : : "r"(c) : "memory"); // keeps the compiler from dropping the matmul
    }
    return 2.0 * tiles * MR * NR * TILE_DEPTH / (seconds_now() - start);
}

// The speed of tiles that all threads sustain, without packing or waiting for memory: the ceiling of a matmul.
static inline double device_matmul_flops(void) {
    double total = 0;
    #pragma omp parallel reduction(+ : total)
    {
        const double tiles_per_second = tile_flops(64) / (2.0 * MR * NR * TILE_DEPTH);
        total += tile_flops(1 + (int)(0.2 * tiles_per_second));
    }
    return total;
}

// In one thread, the best of a few short turns. backends.c compares levels by it.
static inline double device_kernel_flops(void) {
    double best = 0;
    for (int turn = 0; turn < 6; turn++) { best = fmax(best, tile_flops(64)); }
    return best;
}

// Copies 128 MiB, more than most caches hold, with all threads; the best of a few rounds counts.
static inline double device_copy_bandwidth(void) {
    enum { ROUNDS = 5 };
    const size_t piece = (size_t)1 << 20, pieces = 128, bytes = piece * pieces;
    char* memory = device_alloc(2 * bytes, "measuring the bandwidth of memory");
    double best = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        const double start = seconds_now();
        #pragma omp parallel for
        for (size_t i = 0; i < pieces; i++) { memcpy(memory + bytes + i * piece, memory + i * piece, piece); }
        best = fmin(best, seconds_now() - start);
    }
    device_free(memory, 2 * bytes);
    return 2.0 * (double)bytes / best;
}
