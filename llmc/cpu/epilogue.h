// The epilogues of linear layers, which gemm.h calls with each finished row of sums: bias, GELU, its derivative.
// They work on lines: as many numbers as a cache line of Stored holds. A row's last line may have fewer.
#pragma once
#include "device.h"
#include "gelu.h"
#include "tile.h"

// Arguments of the epilogues: each uses some of them; the others are 0.
typedef struct {
    Stored* out;
    Stored* pre;                           // the input of GELU
    bool out_past_caches, pre_past_caches; // store them by streaming stores, where rows have whole cache lines; not by
                                           // finish_store_scaled()
    const Stored* bias;                    // may be NULL
    const float* scales;                   // row n of the result is multiplied by scales[n]
    float* dweight;
    bool dweight_past_caches;              // as the two above; not by finish_add()
    size_t columns;                        // of the matmul
} MatmulResult;

// to (n) = x, n at most LINE. past_caches: `to` is a whole cache line.
static inline __attribute__((always_inline)) void store_line(Stored* to, const float* x, int n, bool past_caches) {
    if (past_caches) { store_past_caches(to, x, n); }
    else if (STORES_BY_INSTRUCTION) { store_floats(to, x, (size_t)n); }
    else {
        #pragma omp simd
        for (int i = 0; i < n; i++) { to[i] = to_stored(x[i]); }
    }
}

// Rounds x (LINE) as store_line() does.
static inline __attribute__((always_inline)) void round_line(float x[LINE]) {
    if (STORES_BY_INSTRUCTION) {
        Stored stored[LINE];
        store_floats(stored, x, LINE);
        for (int i = 0; i < LINE; i += LANES) { *(Vec*)(x + i) = vec_load(stored + i); }
    } else {
        #pragma omp simd
        for (int i = 0; i < LINE; i++) { x[i] = to_float(to_stored(x[i])); }
    }
}

// x (LINE) = sums (n) + bias (n), then zeros; bias may be NULL.
static inline __attribute__((always_inline)) void add_bias(float x[LINE], const float* sums, const Stored* bias,
                                                           int n) {
    for (int i = n; i < LINE; i++) { x[i] = 0; }
    if (bias) {
        #pragma omp simd
        for (int i = 0; i < n; i++) { x[i] = sums[i] + to_float(bias[i]); }
    } else {
        for (int i = 0; i < n; i++) { x[i] = sums[i]; }
    }
}

// row (cols) = sums + bias. bias may be NULL. past_caches: as in MatmulResult.
static inline void store_row(Stored* row, const float* sums, const Stored* bias, int cols, bool past_caches) {
    float x[LINE];
    int c = 0;
    past_caches = past_caches && is_whole_lines(row, (size_t)cols * sizeof *row);
    for (; c + LINE <= cols; c += LINE) {
        add_bias(x, sums + c, bias ? bias + c : NULL, LINE);
        store_line(row + c, x, LINE, past_caches);
    }
    if (c < cols) {
        add_bias(x, sums + c, bias ? bias + c : NULL, cols - c);
        store_line(row + c, x, cols - c, false);
    }
}

static inline void finish_store(const void* result, size_t row, size_t col, const float* sums, int cols) {
    const MatmulResult* r = result;
    store_row(r->out + row * r->columns + col, sums, r->bias ? r->bias + col : NULL, cols, r->out_past_caches);
}

static inline void finish_store_scaled(const void* result, size_t row, size_t col, const float* sums, int cols) {
    const MatmulResult* r = result;
    Stored* out = r->out + row * r->columns + col;
    const float scale = r->scales[row];
    for (int c = 0; c < cols; c++) { out[c] = to_stored(sums[c] * scale); }
}

// n elements, at most LINE, of a row: pre = sums + bias, out = gelu(pre).
static inline __attribute__((always_inline)) void gelu_part(Stored* out, Stored* pre, const float* sums,
                                                            const Stored* bias, int n, bool out_past_caches,
                                                            bool pre_past_caches) {
    float x[LINE], y[LINE];
    add_bias(x, sums, bias, n);
    round_line(x);
    gelu_line(y, x);
    store_line(pre, x, n, pre_past_caches);
    store_line(out, y, n, out_past_caches);
}

static inline void finish_gelu(const void* result, size_t row, size_t col, const float* sums, int cols) {
    const MatmulResult* r = result;
    Stored *out = r->out + row * r->columns + col, *pre = r->pre + row * r->columns + col;
    const Stored* bias = r->bias + col;
    const size_t bytes = (size_t)cols * sizeof *out;
    const bool out_past_caches = r->out_past_caches && is_whole_lines(out, bytes);
    const bool pre_past_caches = r->pre_past_caches && is_whole_lines(pre, bytes);
    int c = 0;
    for (; c + LINE <= cols; c += LINE) {
        gelu_part(out + c, pre + c, sums + c, bias + c, LINE, out_past_caches, pre_past_caches);
    }
    if (c < cols) { gelu_part(out + c, pre + c, sums + c, bias + c, cols - c, false, false); }
}

// n elements, at most LINE, of a row: dinp = sums * gelu'(pre).
static inline __attribute__((always_inline)) void gelu_backward_part(Stored* dinp, const Stored* pre,
                                                                     const float* sums, int n, bool past_caches) {
    float dout[LINE], x[LINE], y[LINE];
    add_bias(dout, sums, NULL, n);
    round_line(dout); // as if it were stored
    gelu_backward_line(y, dout, line_floats(x, pre, n));
    store_line(dinp, y, n, past_caches);
}

static inline void finish_gelu_backward(const void* result, size_t row, size_t col, const float* sums, int cols) {
    const MatmulResult* r = result;
    Stored* dinp = r->out + row * r->columns + col;
    const Stored* pre = r->pre + row * r->columns + col;
    const bool past_caches = r->out_past_caches && is_whole_lines(dinp, (size_t)cols * sizeof *dinp);
    int c = 0;
    for (; c + LINE <= cols; c += LINE) { gelu_backward_part(dinp + c, pre + c, sums + c, LINE, past_caches); }
    if (c < cols) { gelu_backward_part(dinp + c, pre + c, sums + c, cols - c, false); }
}

// Returns true if the gradient of a weight (OC,C) is stored past the caches: it is set, and a model with such weights
// has more gradients than caches hold when they are read. A sixteenth of these: chosen.
static inline bool is_gradient_streamed(GradMode mode, int C, int OC) {
    return mode == GRADS_SET && (size_t)OC * (size_t)C * sizeof(float) > MORE_THAN_CACHES / 16;
}

// dweight (n) = sums
static inline void set_weight_gradient(float* dweight, const float* sums, int n, bool past_caches) {
    const size_t bytes = (size_t)n * sizeof *dweight;
    if (past_caches && is_whole_lines(dweight, bytes)) { copy_past_caches(dweight, sums, bytes); }
    else { memcpy(dweight, sums, bytes); }
}

static inline void finish_set(const void* result, size_t row, size_t col, const float* sums, int cols) {
    const MatmulResult* r = result;
    set_weight_gradient(r->dweight + row * r->columns + col, sums, cols, r->dweight_past_caches);
}

static inline void finish_add(const void* result, size_t row, size_t col, const float* sums, int cols) {
    const MatmulResult* r = result;
    float* dweight = r->dweight + row * r->columns + col;
    for (int c = 0; c < cols; c++) { dweight[c] += sums[c]; }
}
