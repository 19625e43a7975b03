// Weights in 8 bits, for inference: each row of a weight is integers from -127 to 127 times a scale of its own, the
// largest magnitude in the row / 127. Rounding errs by at most half a scale. Activations stay as they are stored.
//
// Generation is limited by reading the weights, which then take a quarter of the bytes of fp32. The integers are made
// when a weight is first used, and found by its address, until params_changed(); the stored weights stay beside them,
// for the embedding.
#pragma once
#include "few_rows.h"
#include "../tensors.h"

typedef struct {
    const Stored* weight;
    int8_t* rows; // (OC,C)
    float* scale; // (OC)
    int C, OC;
} Int8Weight;

static struct {
    Int8Weight* entry;
    size_t count;
} int8_weights;

static inline size_t int8_weight_bytes(int C, int OC) { return (size_t)OC * (sizeof(float) + (size_t)C); }

// Returns the bytes of a model's weights in 8 bits; 0 if they are not used.
static inline size_t int8_weights_bytes(const TensorTable* params) {
    size_t bytes = 0;
    for (int i = 0; cpu.int8 && i < params->count; i++) {
        const Tensor* t = &params->row[i];
        if (!tensor_is_operand(t)) { continue; }
        bytes += (size_t)t->layers * int8_weight_bytes((int)t->cols, (int)t->rows);
    }
    return bytes;
}

static inline void int8_weights_forget(void) {
    for (size_t i = 0; i < int8_weights.count; i++) {
        device_free(int8_weights.entry[i].scale, int8_weight_bytes(int8_weights.entry[i].C, int8_weights.entry[i].OC));
    }
    int8_weights.count = 0;
}

static inline void int8_round_row(int8_t* row, float* scale, const Stored* x, int C) {
    float largest = 0;
    for (int c = 0; c < C; c++) { largest = fmaxf(largest, fabsf(to_float(x[c]))); }
    *scale = largest / 127;
    const float steps = *scale > 0 ? 1 / *scale : 0;
    for (int c = 0; c < C; c++) { row[c] = (int8_t)lrintf(to_float(x[c]) * steps); }
}

static inline const Int8Weight* int8_weight(const Stored* weight, int C, int OC) {
    for (size_t i = 0; i < int8_weights.count; i++) {
        const Int8Weight* w = &int8_weights.entry[i];
        if (w->weight == weight && w->C == C && w->OC == OC) { return w; }
    }
    int8_weights.entry = realloc_or_die(int8_weights.entry, (int8_weights.count + 1) * sizeof *int8_weights.entry,
                                        "weights in 8 bits");
    Int8Weight* w = &int8_weights.entry[int8_weights.count++];
    *w = (Int8Weight){.weight = weight, .C = C, .OC = OC};
    w->scale = device_alloc(int8_weight_bytes(C, OC), "weights in 8 bits");
    w->rows = (int8_t*)(w->scale + OC);
    #pragma omp parallel for
    for (int o = 0; o < OC; o++) { int8_round_row(w->rows + (size_t)o * C, &w->scale[o], weight + (size_t)o * C, C); }
    return w;
}

static inline void matmul_int8_plain(Stored* out, const Stored* inp, const Int8Weight* w, const Stored* bias, int N,
                                     int C, int OC) {
    #pragma omp parallel for
    for (int o = 0; o < OC; o++) {
        for (int n = 0; n < N; n++) {
            float sum = 0;
            for (int c = 0; c < C; c++) { sum += to_float(inp[(size_t)n * C + c]) * w->rows[(size_t)o * C + c]; }
            out[(size_t)n * OC + o] = to_stored(sum * w->scale[o] + (bias ? to_float(bias[o]) : 0));
        }
    }
}

// out (N,OC) = inp (N,C) @ the weight in 8 bits (OC,C)^T + bias (OC). Many rows are done FEW_ROWS at a time.
static inline void matmul_int8(Stored* out, const Stored* inp, const Stored* weight, const Stored* bias, int N, int C,
                               int OC) {
    const Int8Weight* w = int8_weight(weight, C, OC);
    if (cpu.kernels == KERNELS_PLAIN) {
        matmul_int8_plain(out, inp, w, bias, N, C, OC);
        return;
    }
    for (int n = 0; n < N; n += FEW_ROWS) {
        matmul_few_rows_int8_t(out + (size_t)n * OC, inp + (size_t)n * C, w->rows, w->scale, bias,
                               min_int(FEW_ROWS, N - n), C, OC);
    }
}
