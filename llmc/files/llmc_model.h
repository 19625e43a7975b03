// Reads llm.c's model files (gpt2_124M.bin, gpt2_124M_bf16.bin, model_%08d.bin; https://github.com/karpathy/llm.c).
//
//   1024 bytes    256 int32: magic 20240326, version, T, V, L, NH, C, Vp, zeros. Version 3: elements are fp32, 5: bf16
//   the rest      the 16 tensors of GPT2_PARAMS (gpt2.h) in its order, in our orientation, each for all layers, row by
//                 row without gaps. wte has Vp rows, those from V on zero.
//
// All numbers are little-endian.
#pragma once
#include "../model/gpt2.h"
#include "weight_types.h"

enum { LLMC_MODEL_MAGIC = 20240326, LLMC_MODEL_HEADER = 1024 }; // bytes

typedef struct {
    char* path;
    int fd;
    GPT2Config shape;     // padded_vocab_size: Vp of the file
    TensorTable table;
    const WeightType* type;
} LlmcModel;

// Fills in the header of a model of this shape; the type is fp32 or bf16.
void llmc_model_header(int32_t header[LLMC_MODEL_HEADER / 4], const GPT2Config* shape, const WeightType* type);

// Opens a file and checks its header and size; llmc_model_close() closes it. Nothing is left open on failure.
bool llmc_model_open(LlmcModel* m, const char* path, Error* err);
void llmc_model_close(LlmcModel* m);

// Reads row `row` of the table of parameters, of a layer, without padding, to `out`.
bool llmc_model_read(const LlmcModel* m, int row, int layer, float* out, Error* err);
