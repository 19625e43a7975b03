#include "outlier.h"

double outlier_update(OutlierDetector* d, double value) {
    if (!isfinite(value)) { return NAN; }
    bool full = d->count == OUTLIER_WINDOW;
    if (full) { memmove(d->values, d->values + 1, (OUTLIER_WINDOW - 1) * sizeof d->values[0]); }
    else { d->count++; }
    d->values[d->count - 1] = value;
    if (!full) { return NAN; }
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < OUTLIER_WINDOW; i++) { sum += d->values[i] - value; }
    double mean = value + sum / OUTLIER_WINDOW;
    for (int i = 0; i < OUTLIER_WINDOW; i++) { squares += (d->values[i] - mean) * (d->values[i] - mean); }
    return squares == 0.0 ? 0.0 : (value - mean) / sqrt(squares / OUTLIER_WINDOW);
}

bool outlier_import(OutlierDetector* d, const double* values, size_t count, Error* err) {
    if (count > OUTLIER_WINDOW) { return fail(err, "%zu values for a z-score window of %d", count, OUTLIER_WINDOW); }
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) { return fail(err, "value %zu of a z-score window is not finite", i); }
    }
    memset(d, 0, sizeof *d);
    memcpy(d->values, values, count * sizeof values[0]);
    d->count = count;
    return true;
}
