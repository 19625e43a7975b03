// The types that weights have in files: floats of 32 and 16 bits, and ggml's blocks of 8-bit integers
// (https://github.com/ggml-org/ggml, gguf.md).
//
//   name    bytes of a block    elements
//   fp32    4                   1
//   fp16    2                   1    IEEE half
//   bf16    2                   1    the upper half of a float
//   q8_0    34                  32   a half d, then 32 int8 q: x = d q, where d is the largest |x| / 127
//
// Floats are rounded to the nearest, ties to even. Blocks are those of ggml's reference code bit for bit: q is computed
// with 1/d in fp32, and d rounded to a half afterwards.
#pragma once
#include "../base/base.h"

typedef struct {
    const char* name;        // of export's --dtype
    const char* safetensors; // the name there; NULL: that format does not have it
    const char* torch;       // the name in config.json; NULL as well
    uint32_t ggml;           // its number in GGUF files
    uint32_t ggml_file;      // general.file_type of a file that has mostly this type
    size_t block, bytes;     // elements and bytes of a block
    float most;              // the largest number that it holds
    void (*encode)(void* out, const float* in, size_t n); // n is a multiple of `block`; `out` need not be aligned
    void (*decode)(float* out, const void* in, size_t n);
} WeightType;

enum { NUM_WEIGHT_TYPES = 4 };
extern const WeightType WEIGHT_TYPES[NUM_WEIGHT_TYPES];

// Return the type of this name, of export's --dtype or of safetensors, or of this number; NULL if there is none.
const WeightType* weight_type_find(const char* name);
const WeightType* weight_type_of_safetensors(const char* name);
const WeightType* weight_type_of_ggml(uint32_t number);

// Returns the bytes of n elements, a multiple of the type's block.
static inline size_t weight_bytes(const WeightType* t, size_t n) { return n / t->block * t->bytes; }

// Fails: tensor `name` of a file has shape `is`, the model's is `wanted`.
bool fail_shape(Error* err, const char* path, const char* name, const size_t* is, int dims, const size_t* wanted,
                int wanted_dims);
