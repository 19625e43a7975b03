// Reads and writes safetensors, the file format of Hugging Face models (https://github.com/huggingface/safetensors).
//
//   8 bytes    n, the length of the header, uint64
//   n bytes    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
//              "__metadata__": {"key": "value", ...}}, padded with spaces
//   the rest   the tensors' elements, row by row; offsets count from here
//
// All numbers are little-endian, as are the processors that this program runs on.
//
// Files are read in pieces. Nothing in a file is trusted: whatever safetensors_open lets through can be read within the
// file's bounds. Files are written as a stream: create; declare all tensors; write their bytes in the order of
// declaration; finish.
#pragma once
#include "../base/blake2b.h"
#include "weight_types.h"
#include <jansson.h>

enum {
    SAFETENSORS_MAX_DIMS = 8,                   // chosen
    SAFETENSORS_MAX_HEADER = 100 * 1000 * 1000, // bytes; the limit of the safetensors library
};

typedef struct {
    char* name;
    char dtype[16];         // as in the file
    const WeightType* type; // NULL: not read as floats (integers, FP8, ...)
    size_t shape[SAFETENSORS_MAX_DIMS], elements;
    int dims;            // 0: a scalar, which is one element
    int file;            // index into SafeTensors.files
    size_t begin, bytes; // within the data of the file
} SafeTensor;

typedef struct {
    char* path;
    int fd;
    size_t data_begin, data_bytes;
} SafeTensorsFile;

// The tensors of one file, or of all the files of a model that was cut into several.
typedef struct {
    SafeTensorsFile* files;
    int num_files;
    SafeTensor* tensors; // sorted by name
    int count;
} SafeTensors;

// Closes the files and frees all memory.
void safetensors_close(SafeTensors* s);

// Returns the tensor of this name, or NULL. It belongs to `s`.
const SafeTensor* safetensors_find(const SafeTensors* s, const char* name);

// Opens a file and checks its header; the caller closes it. Nothing is left open on failure.
bool safetensors_open(SafeTensors* s, const char* path, Error* err);

// Opens the model in a Hugging Face folder: model.safetensors or, if there is none, the files that
// model.safetensors.index.json names. Nothing is left open on failure.
bool safetensors_open_folder(SafeTensors* s, const char* folder, Error* err);

// Reads a tensor's bytes. Several threads may read at once.
bool safetensors_read(const SafeTensors* s, const SafeTensor* t, void* out, Error* err);

// Reads a tensor as floats, whichever type of weights it is stored in. Fails if it is stored in another type.
bool safetensors_read_float(const SafeTensors* s, const SafeTensor* t, float* out, Error* err);

// ---------------------------------------------------------------------------------------------------------------------
// writing

typedef struct {
    char* path;
    FILE* file;
    json_t* header;           // NULL: it was written
    size_t declared, written; // bytes of all tensors
    Blake2b hash;             // of the whole file
} SafeTensorsWriter;

// Closes the file, unfinished, without removing it, and frees the writer. Harmless after any of the functions below.
void safetensors_abandon(SafeTensorsWriter* w);

// Begins a file under its own name: a caller that wants it to appear complete or not at all writes to another name and
// renames it. After a failure of this or of a function below the caller calls safetensors_abandon.
bool safetensors_create(SafeTensorsWriter* w, const char* path, Error* err);

// Declares the next tensor. Declare larger types before smaller ones: readers that map files need aligned elements.
void safetensors_declare(SafeTensorsWriter* w, const char* name, const char* dtype, const size_t* shape, int dims,
                         size_t bytes);

// Appends bytes of the tensors, when all were declared.
bool safetensors_write(SafeTensorsWriter* w, const void* data, size_t bytes, Error* err);

// Completes the file and writes the checksum of what was to be written to `hex`, which may be NULL. Fails unless as
// many bytes as declared were written. When this returns true the file survives a power cut, once sync_parent() was
// called too.
bool safetensors_finish(SafeTensorsWriter* w, char hex[BLAKE2B_HEX + 1], Error* err);
