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
