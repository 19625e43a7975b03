// GPT-2 in GGUF files, as llama.cpp's architecture "gpt2" has it.
//
// Names of tensors are in GPT2_PARAMS (gpt2.h); matrices lie in memory as ours do. V is unpadded; ids that the
// tokenizer does not have are [PADid]. Vectors and position_embd stay F32, as llama.cpp's converter leaves them. There
// is no output.weight: the classifier is token_embd.
//
//   general.architecture "gpt2", .name, .file_type; .quantization_version 2 if blocks are quantized
//   gpt2.context_length, .embedding_length, .feed_forward_length, .block_count, .attention.head_count
//   gpt2.attention.layer_norm_epsilon 1e-5
//   tokenizer.ggml.model "gpt2", .pre "gpt-2", .tokens, .token_type, .merges, .bos_token_id, .eos_token_id,
//   .add_bos_token
#pragma once
#include "../tokenizer/tokenizer.h"
#include "../model/gpt2.h"
#include "gguf.h"

// Returns the type that a tensor gets in a file of mostly `type`.
const WeightType* gguf_tensor_type(const Tensor* t, const WeightType* type);

// Reads the model's shape. Fails if the file holds another model than this program's GPT-2, or if a tensor is missing,
// has another shape, or a type that is not read here.
bool gguf_model_shape(const Gguf* g, GPT2Config* m, Error* err);

// Reads a tensor, in our layout, to `out`.
bool gguf_model_read(const Gguf* g, const Tensor* t, int layer, float* out, Error* err);

// Writes everything that stands before the data. Fails if the tokenizer has no merges, or more tokens than the model.
// `name` is the model's.
bool gguf_model_header(FILE* f, const TensorTable* table, const GPT2Config* m, const WeightType* type,
                       const Tokenizer* t, const char* name, Error* err);
