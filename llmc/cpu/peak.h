// Measures the processor: peak operations per second of matmuls, and bytes per second of a copy.
#pragma once
#include "tile.h"

// Bursts of about a millisecond each. The best one counts, so that other programs do not disturb the result.
enum { PEAK_BURSTS = 24, PEAK_ROUNDS = 100000 };

// Runs tile_peak in all threads and adds up their best bursts. Takes a few hundredths of a second.
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

static inline double device_matmul_flops(void) { return device_peak_flops(); }

// Times tiles of the depth of gemm.h with operands from the caches, in one thread. backends.c compares levels by it.
static inline double device_kernel_flops(void) {
    enum { DEEP = 384, PANELS = 4, TILES = 64, TURNS = 6 };
    const size_t a = panel_size(MR, DEEP), b = panel_size(NR, DEEP);
    Packed* packed = thread_scratch((a + PANELS * b) * sizeof(Packed));
    float c[MR * NR] __attribute__((aligned(64)));
    memset(packed, 0, (a + PANELS * b) * sizeof(Packed));
    double best = 0;
    tile_begin();
    for (int turn = 0; turn < TURNS; turn++) {
        const double start = seconds_now();
        for (int t = 0; t < TILES; t++) {
            tile_matmul(c, NR, TILE_SET, packed, packed + a + (size_t)(t % PANELS) * b, DEEP);
            __asm__ volatile("" : : "r"(c) : "memory"); // keeps the compiler from dropping the matmul
        }
        best = fmax(best, 2.0 * TILES * MR * NR * DEEP / (seconds_now() - start));
    }
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
