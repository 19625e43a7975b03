// Writes and reads weights and moments in safetensors files, and the two JSON files that make a folder a Hugging Face
// model: GPT2LMHeadModel.from_pretrained(folder) loads what is written here, and folders by save_pretrained(folder) are
// read here.
#pragma once
#include "../base/base.h"
#include "../model/optimizer.h"
#include "../options/models.h"
#include "../model/tensors.h"
#include "safetensors.h"

// A block of fp32 numbers of an optimizer (weights, or moments) in its layout (optimizer_table), and its form in a
// file.
typedef struct {
    const char* prefix; // of the names: "transformer." for weights, "m." and "v." for moments
    float* data;        // the optimizer's: the whole block or, with ZeRO, this rank's shards of it
    const float* host;  // the whole block in host memory, to be written in place of `data`; NULL: there is none
    bool hf_layout;     // in the file, the tensors that GPT2_PARAMS names TRANSPOSED are transposed
} TensorBlock;

// Returns the tensor's name in a file, like "transformer.h.3.ln_1.weight". `layer` counts where the tensor repeats in
// each layer. The caller frees it.
char* tensor_file_name(const Tensor* t, int layer, const char* prefix);

// Sets the tensor's shape in the file, without padded rows; returns the number of dimensions, 1 or 2. shape[1] is 0 if
// there is one.
int tensor_file_shape(const Tensor* t, bool hf_layout, size_t shape[2]);

// Host memory for the largest tensor, in the file's layout and in ours.
typedef struct {
    float *file, *ours;
} TensorBuffers;

// Allocates the buffers, which tensor_buffers_free() frees; ends the program if memory is exhausted.
TensorBuffers tensor_buffers(const TensorTable* table);
void tensor_buffers_free(TensorBuffers* b);

// ---------------------------------------------------------------------------------------------------------------------
// writing

// Copies one tensor of a whole block, from the device or from host memory, to b->file, in the file's layout; returns
// its number of elements.
size_t tensor_fetch(const Backend* backend, TensorBuffers* b, const Tensor* t, int layer, const TensorBlock* block);

// Copies a tensor from b->ours to b->file, in Hugging Face's layout.
void tensor_to_hf(TensorBuffers* b, const Tensor* t);

// Writes the tensors of the blocks to a file, and its checksum to `hex`. With ZeRO the other ranks of the group call
// optimizer_whole() for each block that is in device memory, in the same order, meanwhile. Blocks in host memory may be
// written while training goes on. Fails if the file cannot be written; an unfinished file may remain.
bool tensors_save(const char* path, const Optimizer* o, const TensorBlock* blocks, int num_blocks,
                  char hex[BLAKE2B_HEX + 1], Error* err);

// Writes config.json and generation_config.json. `eot`: the tokenizer's end-of-text id, -1 if there is none;
// `torch_dtype`: PyTorch's name of the weights' type.
bool hf_save_config(const char* folder, const GPT2Config* m, int eot, const char* torch_dtype, Error* err);

// ---------------------------------------------------------------------------------------------------------------------
// reading

// Reads the model's shape from the config.json of a Hugging Face folder; pad_vocab: padded_vocab_size is padded. Fails
// if it is missing, or describes another model than this program's GPT-2.
bool hf_load_config(const char* folder, bool pad_vocab, GPT2Config* m, Error* err);

// Reads every tensor of the blocks from an open file or folder into the optimizer's memory. Ignores other tensors in
// the file: mask buffers, and the classifier's weight, which is wte. Fails if a tensor is missing, has another shape or
// holds a number that is not finite.
bool tensors_load(const SafeTensors* s, const Optimizer* o, const TensorBlock* blocks, int num_blocks, Error* err);

// Fails, naming the element, if a number is not finite.
bool tensor_is_finite(const float* x, size_t n, const char* path, const char* name, Error* err);

// The same of a whole tensor of files.
bool safetensor_is_finite(const SafeTensors* s, const SafeTensor* t, Error* err);

// Fails if a Hugging Face model has a classifier that is not its wte.
bool hf_check_tied(const SafeTensors* s, Error* err);

// Reads the tensor of a row of the table of parameters and of a layer from an open Hugging Face model to b->ours.
bool hf_read(const SafeTensors* s, TensorBuffers* b, const Tensor* t, int layer, Error* err);

// Reads the tensor of a row of the table of parameters and of a layer from `source` to b->ours, in our layout.
typedef bool TensorReader(const void* source, TensorBuffers* b, int row, int layer, Error* err);

// Reads every parameter: into `data`, memory of the optimizer `o`, or into the model itself if `o` is NULL.
bool params_load(const GPT2* g, const Optimizer* o, float* data, TensorReader* read, const void* source, Error* err);
