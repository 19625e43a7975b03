// What the processor can do at most, measured: fp32 multiply-adds from registers alone, on all threads.
#pragma once
#include "gemm.h"

static float peak_loop(long rounds, float start) {
    Vec acc[MR] = {{0}};
    const Vec a = {start}, b = {start};
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

// Operations per second, a multiply-add being two; takes a few hundredths of a second.
static inline double device_peak_flops(void) {
    const long rounds = 200000;
    double best = 0;
    float sink = 0;
    for (int repeat = 0; repeat < 5; repeat++) { // the best, since others may be using the machine
        const double start = seconds_now();
        #pragma omp parallel reduction(+ : sink)
        sink += peak_loop(rounds, 0.5f);
        const double flops = 2.0 * (double)rounds * MR * LANES * cpu.threads / (seconds_now() - start);
        if (flops > best && sink > 0) { best = flops; }
    }
    return best;
}
