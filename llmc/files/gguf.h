// Reads and writes GGUF version 3, the file format of llama.cpp (https://github.com/ggml-org/ggml, gguf.md).
//
//   "GGUF", uint32 3, uint64 number of tensors, uint64 number of pairs
//   pairs      string key, uint32 type, value: a number (types 0 u8, 1 i8, 2 u16, 3 i16, 4 u32, 5 i32, 6 f32, 7 bool,
//              10 u64, 11 i64, 12 f64), 8 a string, or 9 an array: uint32 type, uint64 count, the values
//   tensors    string name, uint32 dimensions, uint64 each (neighbours in memory first), uint32 type of ggml,
//              uint64 offset in the data
//   padding    to a multiple of general.alignment (32 if that is absent)
//   data       of each tensor, padded to the same multiple
//
// A string is a uint64 length and its bytes. All numbers are little-endian.
//
// Nothing in a file is trusted: what gguf_open lets through can be read within the file's bounds, and takes memory in
// proportion to its size.
#pragma once
#include "weight_types.h"

enum { GGUF_VERSION = 3, GGUF_ALIGNMENT = 32, GGUF_MAX_DIMS = 4, GGUF_MAX_NAME = 64, GGUF_MAX_TEXT = 64 };

typedef enum {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64,
    GGUF_I64, GGUF_F64, NUM_GGUF_TYPES
} GgufType;

typedef struct {
    char name[GGUF_MAX_NAME + 1];
    uint32_t ggml;          // the type's number
    const WeightType* type; // NULL: one that is not read here
    size_t shape[GGUF_MAX_DIMS], elements;
    int dims;
    size_t offset, bytes;   // from the beginning of the file; bytes: 0 if the type is not read here
} GgufTensor;

// A pair whose value is a number or a short string, and whose key is short.
typedef struct {
    char key[GGUF_MAX_TEXT + 1], text[GGUF_MAX_TEXT + 1]; // text: of a string
    GgufType type;
    double number; // integers are taken as unsigned: none that is read here may be negative
} GgufPair;

typedef struct {
    char* path;
    int fd;
    GgufTensor* tensors; // sorted by name
    GgufPair* pairs;
    size_t num_tensors, num_pairs;
} Gguf;

// Opens a file and checks its header; gguf_close() closes it. Nothing is left open on failure.
bool gguf_open(Gguf* g, const char* path, Error* err);
void gguf_close(Gguf* g);

// Return what has this name; NULL if there is none.
const GgufTensor* gguf_tensor(const Gguf* g, const char* name);
const GgufPair* gguf_pair(const Gguf* g, const char* key);

// Reads a whole tensor as floats. Its type must be one that is read here.
bool gguf_read(const Gguf* g, const GgufTensor* t, float* out, Error* err);

// ---------------------------------------------------------------------------------------------------------------------
// writing

// Write to a stream, whose errors the caller finds when it closes it.
void gguf_put_u32(FILE* f, uint32_t x);
void gguf_put_u64(FILE* f, uint64_t x);
void gguf_put_text(FILE* f, const char* text, size_t bytes);
void gguf_put_padding(FILE* f, size_t at); // from byte `at` to a multiple of GGUF_ALIGNMENT

// Write a key and its value, or the head of an array, whose values follow.
void gguf_pair_text(FILE* f, const char* key, const char* text);
void gguf_pair_u32(FILE* f, const char* key, uint32_t x);
void gguf_pair_f32(FILE* f, const char* key, float x);
void gguf_pair_bool(FILE* f, const char* key, bool x);
void gguf_pair_array(FILE* f, const char* key, GgufType type, size_t count);
