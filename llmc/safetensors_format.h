// Safetensors, the file format of Hugging Face models (https://github.com/huggingface/safetensors): its types.
// safetensors.h reads it, safetensors_write.h writes it.
//
//   8 bytes    n, the length of the header, uint64
//   n bytes    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
//              "__metadata__": {"key": "value", ...}}, padded with spaces
//   the rest   the tensors' elements, row by row, without holes or overlaps; offsets count from here
//
// All numbers are little-endian, as are the processors that this program runs on.
#pragma once
#include "base.h"
#include <jansson.h>

enum { SAFETENSORS_MAX_DIMS = 8, SAFETENSORS_MAX_HEADER = 100 * 1000 * 1000 };

// IEEE 754 binary16 to float. Only normal floats enter the arithmetic, for the processor may flush denormal ones.
static inline float half_to_float(uint16_t half) {
    uint32_t exponent = half >> 10 & 31, mantissa = half & 1023, bits;
    float f;
    if (exponent == 0) {
        f = (float)mantissa * 0x1p-24f;
        return half >> 15 ? -f : f;
    }
    exponent = exponent == 31 ? 255 : exponent + (127 - 15);
    bits = (uint32_t)(half >> 15) << 31 | exponent << 23 | mantissa << 13;
    memcpy(&f, &bits, sizeof f);
    return f;
}

// Conversions of n elements.
static inline void float_from_f32(float* out, const void* in, size_t n) { memcpy(out, in, n * sizeof *out); }
static inline void float_from_f16(float* out, const void* in, size_t n) {
    for (size_t i = 0; i < n; i++) { out[i] = half_to_float(((const uint16_t*)in)[i]); }
}
static inline void float_from_bf16(float* out, const void* in, size_t n) { // the upper half of a float
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)((const uint16_t*)in)[i] << 16;
        memcpy(&out[i], &bits, sizeof bits);
    }
}
static inline void float_from_f64(float* out, const void* in, size_t n) {
    for (size_t i = 0; i < n; i++) { out[i] = (float)((const double*)in)[i]; }
}

typedef struct {
    const char* name;
    size_t bytes;                                           // of an element
    void (*to_float)(float* out, const void* in, size_t n); // NULL for those that no weights are stored in
} SafeTensorType;

static const SafeTensorType safetensor_types[] = {
    {"F32", 4, float_from_f32}, {"F16", 2, float_from_f16}, {"BF16", 2, float_from_bf16}, {"F64", 8, float_from_f64},
    {"I64", 8, NULL}, {"I32", 4, NULL}, {"I16", 2, NULL}, {"I8", 1, NULL}, {"U64", 8, NULL}, {"U32", 4, NULL},
    {"U16", 2, NULL}, {"U8", 1, NULL}, {"BOOL", 1, NULL}, {"C64", 8, NULL}, {"F8_E4M3", 1, NULL}, {"F8_E5M2", 1, NULL},
    {"F8_E8M0", 1, NULL}, {"F8_E4M3FNUZ", 1, NULL}, {"F8_E5M2FNUZ", 1, NULL},
};

// NULL if there is none of this name. The formats of less than a byte (F4, F6) are left out.
static inline const SafeTensorType* safetensor_type(const char* name) {
    for (size_t i = 0; i < sizeof safetensor_types / sizeof safetensor_types[0]; i++) {
        if (strcmp(safetensor_types[i].name, name) == 0) { return &safetensor_types[i]; }
    }
    return NULL;
}

typedef struct {
    char* name;
    const SafeTensorType* type;
    size_t shape[SAFETENSORS_MAX_DIMS];
    int dims;            // 0: a scalar, which is one element
    int file;            // index into SafeTensors.files
    size_t begin, bytes; // within the data of the file
} SafeTensor;

static inline size_t safetensor_elements(const SafeTensor* t) { return t->bytes / t->type->bytes; }

// The product of the shape times the size of an element, into `bytes`; false if that overflows.
static inline bool safetensor_size(const SafeTensor* t, size_t* bytes) {
    *bytes = t->type->bytes;
    for (int d = 0; d < t->dims; d++) {
        if (__builtin_mul_overflow(*bytes, t->shape[d], bytes)) { return false; }
    }
    return true;
}
