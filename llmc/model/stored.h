// Elements of weights, activations and the residual stream, seen from outside a backend: conversions by the name of its
// storage type, and by the size of a Residual. Inside a backend the types are known when it is compiled.
#pragma once
#include "backend.h"
#include "../base/rounding.h"

static inline bool stores_16_bits(const Backend* b) { return b->element_bytes == sizeof(uint16_t); }
static inline bool stores_fp16(const Backend* b) { return stores_16_bits(b) && b->storage[0] == 'f'; } // not "bf16"

// Return element i of an array in host memory, and set it to the nearest of the storage type.
static inline float stored_get(const Backend* b, const void* x, size_t i) {
    if (!stores_16_bits(b)) { return ((const float*)x)[i]; }
    const uint16_t bits = ((const uint16_t*)x)[i];
    return stores_fp16(b) ? fp16_value(bits) : bf16_value(bits);
}

static inline void stored_put(const Backend* b, void* x, size_t i, float value) {
    if (!stores_16_bits(b)) { ((float*)x)[i] = value; }
    else { ((uint16_t*)x)[i] = stores_fp16(b) ? fp16_nearest(value) : bf16_nearest(value); }
}

// Returns the value rounded to the storage type.
static inline float as_stored(const Backend* b, float value) {
    if (!stores_16_bits(b)) { return value; }
    return stores_fp16(b) ? fp16_value(fp16_nearest(value)) : bf16_value(bf16_nearest(value));
}

// For the residual stream, whose elements of 16 bits are bf16 (backend.h).
static inline bool residual_is_bf16(const Backend* b) { return b->residual_bytes == sizeof(uint16_t); }

static inline float residual_get(const Backend* b, const void* x, size_t i) {
    return residual_is_bf16(b) ? bf16_value(((const uint16_t*)x)[i]) : ((const float*)x)[i];
}

static inline void residual_put(const Backend* b, void* x, size_t i, float value) {
    if (residual_is_bf16(b)) { ((uint16_t*)x)[i] = bf16_nearest(value); }
    else { ((float*)x)[i] = value; }
}

static inline float as_residual(const Backend* b, float value) {
    return residual_is_bf16(b) ? bf16_value(bf16_nearest(value)) : value;
}
