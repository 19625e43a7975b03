// The squared norm of a long vector: a fixed number of partial sums, added in order, whatever the number of threads.
#pragma once
#include "device.h"
#include "../ops.h"

enum { NORM_PARTS = 1024 };

OP void norm_squared(double* out, const float* x, size_t n) {
    double parts[NORM_PARTS];
    const size_t part = ceil_div(n, NORM_PARTS);
    #pragma omp parallel for
    for (int p = 0; p < NORM_PARTS; p++) {
        const size_t begin = min_size(n, (size_t)p * part), end = min_size(n, begin + part);
        double sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (size_t i = begin; i < end; i++) { sum += (double)x[i] * (double)x[i]; }
        parts[p] = sum;
    }
    *out = 0;
    for (int p = 0; p < NORM_PARTS; p++) { *out += parts[p]; }
}
