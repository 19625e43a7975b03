// The GPU's backend: its kernels in reading order. This file is compiled once for each storage type (-DFLOATX=fp32 and
// bf16); each object exports one table of functions. The program itself begins in llmc/main.c.
#include "llmc/backend.h"             // the contract: every operation with its shapes
#include "llmc/cuda/device.cuh"       // memory, streams, errors, the storage type
#include "llmc/cuda/open.cuh"         // driver, options, opening the GPU
#include "llmc/cuda/graph.cuh"        // recorded work, replayed as CUDA graphs
#include "llmc/cuda/encoder.cuh"      // embeddings, over vector.cuh and column_sums.cuh
#include "llmc/cuda/layernorm.cuh"    // layernorm, alone and after an addition
#include "llmc/cuda/gelu.cuh"         // GELU
#include "llmc/cuda/matmul.cuh"       // linear layers, over matmul_plain.cuh, cublaslt.cuh and fp8.cuh
#include "llmc/cuda/tune.cuh"         // the fastest algorithm of each matmul, measured
#include "llmc/cuda/attention.cuh"    // attention: plain, flash.cuh or cuDNN
#include "llmc/cuda/crossentropy.cuh" // classifier, softmax and loss, in chunks of rows
#include "llmc/cuda/norm.cuh"         // sums of losses and squares
#include "llmc/cuda/adamw.cuh"        // the update
#include "llmc/cuda/choices.cuh"      // variants and memory of the operations
#include "llmc/cuda/peak.cuh"         // peak speeds of the GPU
#include "llmc/cuda/entry.cuh"        // converts Stored* of the table to floatX* of the kernels

#ifdef HAS_NCCL
#include "llmc/comm/nccl.cuh" // collectives between GPUs
#define ENGINE &NCCL_ENGINE
#else
#define ENGINE NULL
#endif

#define BACKEND JOIN(cuda_, FLOATX) // for example cuda_bf16
#define ENTRY(function) .function = Entry<function>{}
extern "C" const Backend BACKEND;
const Backend BACKEND = {.device = "cuda",
                         .storage = STRING(FLOATX),
                         .level = NULL,
                         .is_host = false,
                         .element_bytes = sizeof(floatX),
                         .engine = ENGINE,
                         BACKEND_FUNCTIONS(ENTRY)};
