// The squared norm of a long vector. It has a fixed number of partial sums, added in a fixed order, so that the result
// does not depend on the number of threads.
#pragma once
#include "device.h"

enum { NORM_PARTS = 1024 };

// Returns the sum of squares of x (n). Keeps four independent sums, of the quarters of x: in a single sum each addition
// would wait for the one before.
static inline double sum_of_squares(const float* x, size_t n) {
    const size_t quarter = n / 4;
    const float *x1 = x + quarter, *x2 = x1 + quarter, *x3 = x2 + quarter;
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    #pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (size_t i = 0; i < quarter; i++) {
        s0 += (double)x[i] * (double)x[i];
        s1 += (double)x1[i] * (double)x1[i];
        s2 += (double)x2[i] * (double)x2[i];
        s3 += (double)x3[i] * (double)x3[i];
    }
    for (size_t i = 4 * quarter; i < n; i++) { s0 += (double)x[i] * (double)x[i]; }
    return (s0 + s1) + (s2 + s3);
}

static inline void norm_squared(double* out, const float* x, size_t n) {
    double parts[NORM_PARTS];
    const size_t part = ceil_div(n, NORM_PARTS);
    #pragma omp parallel for
    for (int p = 0; p < NORM_PARTS; p++) {
        const size_t begin = min_size(n, (size_t)p * part), end = min_size(n, begin + part);
        parts[p] = sum_of_squares(x + begin, end - begin);
    }
    double sum = 0;
    for (int p = 0; p < NORM_PARTS; p++) { sum += parts[p]; }
    *out += sum;
}
