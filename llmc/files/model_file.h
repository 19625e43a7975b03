// Opens the weights of a GPT-2 on disk, in each form that --init takes:
//
//   a folder    of Hugging Face's, or a checkpoint of ours (huggingface.h)
//   a file      llm.c's (llmc_model.h), or GGUF (gguf_model.h), known by its first bytes
//
// A tensor is read when it is asked for, so memory is needed for the largest one only.
#pragma once
#include "gguf_model.h"
#include "huggingface.h"
#include "llmc_model.h"

typedef struct ModelFormat ModelFormat;

typedef struct {
    const ModelFormat* format;
    const char* path;
    GPT2Config shape;  // vocabulary padded or not, as the caller asked for
    TensorTable table; // its parameters
    SafeTensors hf;    // the one of the format
    LlmcModel llmc;
    Gguf gguf;
} ModelFile;

struct ModelFormat {
    const char* name;
    const char* magic; // the first 4 bytes; NULL: a folder
    bool (*open)(ModelFile* m, Error* err); // sets the shape
    bool (*read)(const ModelFile* m, TensorBuffers* b, int row, int layer, Error* err);
};

// Returns true if a file is one of the formats above.
bool is_model_file(const char* path);

// Opens a folder or file; `path` must live until model_file_close(). Nothing is left open on failure.
bool model_file_open(ModelFile* m, const char* path, bool pad_vocab, Error* err);
void model_file_close(ModelFile* m);

// Reads the tensor of a row of the table and a layer to b->ours, in our layout without padding. Fails if it is missing,
// has another shape, or holds a number that is not finite.
bool model_file_read(const ModelFile* m, TensorBuffers* b, int row, int layer, Error* err);

// Reads the shape alone.
bool model_file_shape(const char* path, bool pad_vocab, GPT2Config* shape, Error* err);

// Reads all weights into a model of the same shape: into the masters of its optimizer `o` and from there into the
// model, or, if `o` is NULL, into the model alone.
bool model_file_load(const GPT2* g, const Optimizer* o, const char* path, Error* err);
