// What the processor can do at most, measured: fp32 multiply-adds from registers alone, on all threads.
#pragma once
#include "gemm.h"

static float peak_loop(long rounds, float start) {
    Vec acc[MR];
    const Vec a = start - (Vec){0}, b = a;
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) { acc[i] = a * (float)i; } // different ones, or the compiler sees that one would do
    for (long r = 0; r < rounds; r++) {
        #pragma GCC unroll 12
        for (int i = 0; i < MR; i++) { acc[i] = acc[i] * a + b; }
        __asm__ volatile("" : : : "memory");
    }
    float sum = 0;
    #pragma GCC unroll 12
    for (int i = 0; i < MR; i++) { sum += acc[i][0]; }
    return sum;
}

// Operations per second, a multiply-add being two: each thread's best of several bursts of about a millisecond, so that
// other programs on the machine make no difference, added up. Takes a few hundredths of a second.
OP double device_peak_flops(void) {
    enum { BURSTS = 24, ROUNDS = 8000 };
    double total = 0;
    #pragma omp parallel reduction(+ : total)
    {
        double best = 0;
        for (int burst = 0; burst < BURSTS; burst++) {
            const double start = seconds_now();
            const float sink = peak_loop(ROUNDS, 0.5f);
            const double flops = 2.0 * ROUNDS * MR * LANES / (seconds_now() - start);
            if (flops > best && sink == sink) { best = flops; }
        }
        total += best;
    }
    return total;
}

// More than caches hold, a piece for each thread; the best of a few rounds.
OP double device_copy_bandwidth(void) {
    enum { ROUNDS = 5 };
    const size_t piece = (size_t)1 << 20, pieces = 128, bytes = piece * pieces;
    char* memory = (char*)device_alloc(2 * bytes, "measuring the bandwidth of memory");
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
