// How far one tensor is from another: the one measure that all comparisons use.
#pragma once
#include "base.h"

typedef struct {
    double error;  // |got - want| / |want|, Euclidean norms; infinite if only `want` is zero
    double worst;  // the largest |got - want| of an element, over |want| of that element + the root mean square of all
    double cosine; // of the angle between the two
} Difference;

// NaN where a number is not finite, in either of the two; so ask for `error <= bound`, which then is false.
static inline Difference compare(const double* got, const double* want, size_t n) {
    double difference = 0, got_size = 0, want_size = 0, dot = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        got_size += got[i] * got[i];
        want_size += want[i] * want[i];
        dot += got[i] * want[i];
    }
    if (!isfinite(difference) || !isfinite(want_size)) {
        const Difference none = {(double)NAN, (double)NAN, (double)NAN};
        return none;
    }
    if (want_size == 0 || got_size == 0) {
        const double apart = want_size > 0 ? 1.0 : got_size > 0 ? (double)INFINITY : 0.0;
        const Difference d = {apart, apart, apart > 0 ? 0.0 : 1.0};
        return d;
    }
    const double rms = sqrt(want_size / (double)n);
    for (size_t i = 0; i < n; i++) { worst = fmax(worst, fabs(got[i] - want[i]) / (fabs(want[i]) + rms)); }
    const Difference d = {sqrt(difference / want_size), worst, dot / sqrt(got_size * want_size)};
    return d;
}
