// Finds outliers among losses and norms: z-scores over a moving window (llm.c, outlier_detector.h).
#pragma once
#include "base.h"

enum { OUTLIER_WINDOW = 128 };

// The last finite values, oldest first. They are the whole state.
typedef struct {
    double values[OUTLIER_WINDOW];
    size_t count;
} OutlierDetector;

// Adds `value` and returns its z-score: how many standard deviations it lies above the mean of the window, in which it
// is included (as in llm.c). Returns NaN for the first OUTLIER_WINDOW values. Returns NaN for a value that is not
// finite, and does not add it. Both sums are computed anew in each call, relative to `value`: rounding errors do not
// accumulate, and equal values give exactly 0.
double outlier_update(OutlierDetector* d, double value);
