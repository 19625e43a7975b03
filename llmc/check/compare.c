#include "compare.h"
#include "../model/stored.h"

Difference compare(const double* got, const double* want, size_t n) {
    double difference = 0, largest = 0, got_size = 0, want_size = 0, dot = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double square = (got[i] - want[i]) * (got[i] - want[i]);
        difference += square;
        largest = fmax(largest, square);
        got_size += got[i] * got[i];
        want_size += want[i] * want[i];
        dot += got[i] * want[i];
    }
    if (!isfinite(difference) || !isfinite(want_size)) {
        return (Difference){(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    }
    if (want_size == 0 || got_size == 0) {
        const double apart = want_size > 0 ? 1.0 : got_size > 0 ? (double)INFINITY : 0.0;
        return (Difference){apart, apart, apart, apart > 0 ? 0.0 : 1.0};
    }
    const double rms = sqrt(want_size / (double)n);
    for (size_t i = 0; i < n; i++) { worst = fmax(worst, fabs(got[i] - want[i]) / (fabs(want[i]) + rms)); }
    return (Difference){sqrt(difference / want_size), worst, sqrt(fmax(0, difference - largest) / want_size),
                        dot / sqrt(got_size * want_size)};
}

// Compares one layer's tensor, minus `from` unless that is NULL. qkvb is compared as a whole: the true gradient of its
// key third is zero, since a constant added to all scores of a query changes nothing. The computed one is rounding
// error, small only beside the rest of qkvb.
static Difference compare_layer(const float* got, const float* want, const float* from, const Tensor* t, int layer) {
    const size_t n = t->used_rows * t->cols, at = tensor_at(t, layer);
    double* values = alloc_or_die(2 * n, sizeof *values, t->name);
    for (size_t i = 0; i < n; i++) {
        const double start = from ? from[at + i] : 0.0;
        values[i] = got[at + i] - start;
        values[n + i] = want[at + i] - start;
    }
    const Difference d = compare(values, values + n, n);
    free(values);
    return d;
}

Difference compare_layers(const float* got, const float* want, const float* from, const Tensor* t) {
    Difference farthest = compare_layer(got, want, from, t, 0);
    for (int l = 1; l < t->layers && !isnan(farthest.error); l++) {
        const Difference d = compare_layer(got, want, from, t, l);
        const double rest = fmax(farthest.rest, d.rest);
        if (!(d.error <= farthest.error)) { farthest = d; }
        if (!isnan(farthest.error)) { farthest.rest = rest; }
    }
    return farthest;
}

// ---------------------------------------------------------------------------------------------------------------------
// bounds

static const Bounds BOUNDS[] = {
    //       exact stored matmul rounded logits twice linear muon loss norm gradient change
    {dtype_fp32, 1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 0, 0, 1e-5, 1e-5, 1e-5, 1e-5, 1e-4},
    {dtype_tf32, 1e-5, 1e-5, 2e-3, 2e-3, 2e-3, 0, 0, 8e-3, 1e-4, 5e-3, 1e-2, 1e-2},
    {dtype_bf16, 1e-5, 2e-3, 1e-4, 1e-2, 1e-2, 3e-3, 0, 3e-2, 1e-3, 2e-2, 4.4e-2, 8e-2},
    {dtype_fp16, 1e-5, 2.5e-4, 1e-4, 1.25e-3, 1.25e-3, 0, 0, 3.75e-3, 1.25e-4, 2.5e-3, 1.1e-2, 1.25e-2},
    {dtype_fp8, 1e-5, 2e-3, 1e-4, 1e-2, 1e-2, 3e-3, 8e-2, 3e-2, 2e-3, 3e-2, 2.5e-1, 7e-1},
};

// The bound of an element, as a multiple of its tensor's bound. Rounding stays below it: the largest of 10^8 normal
// numbers is below 6 standard deviations. One wrong element in a million hardly changes the tensor's error, but exceeds
// this bound. 16 is chosen, not measured.
enum { ELEMENT_FACTOR = 16 };

const Bounds* bounds_of(enum dtype dtype) {
    for (size_t i = 0; i < sizeof BOUNDS / sizeof *BOUNDS; i++) {
        if (BOUNDS[i].dtype == dtype) { return &BOUNDS[i]; }
    }
    fatal("check knows no bounds for --dtype %s", dtype_names[dtype]);
}

double op_bound(const Bounds* b, const Backend* device, const char* op, Elem elem) {
    const bool rounds_sums = residual_is_bf16(device);
    const bool classifies = strstr(op, "classifier") != NULL;
    const bool multiplies = classifies || strstr(op, "matmul") || strstr(op, "attention");
    if (elem == ELEM_RESIDUAL) { return rounds_sums ? b->stored : b->exact; }
    if (rounds_sums && !strcmp(op, "residual_layernorm_forward")) { return b->twice; }
    if (!strcmp(op, "muon_update")) { return b->muon; }
    if (!multiplies) { return elem == ELEM_STORED ? b->stored : b->exact; }
    if (b->linear > 0 && strstr(op, "matmul")) { return strstr(op, "forward") ? b->linear / 2 : b->linear; }
    return elem == ELEM_STORED ? b->rounded : classifies ? b->logits : b->matmul;
}

double change_error(const Bounds* b, const Difference* d) {
    return b->dtype == dtype_fp32 || b->dtype == dtype_tf32 ? d->error : d->rest;
}

double element_bound(double bound) { return ELEMENT_FACTOR * bound; }

bool is_within(const Difference* d, double bound) {
    return d->error <= bound && d->worst <= element_bound(bound);
}
