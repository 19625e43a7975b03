// The GPU's backend: its kernels in reading order. This file is compiled once for each storage type (-DFLOATX=fp32,
// bf16 and fp16); each object exports one table of functions. The program itself begins in llmc/commands/main.c.
#include "llmc/model/backend.h"             // the contract: every operation with its shapes
#include "llmc/cuda/device.cuh"       // memory, streams, errors, the storage type
#include "llmc/cuda/open.cuh"         // driver, options, opening the GPU
#include "llmc/cuda/graph.cuh"        // recorded work, replayed as CUDA graphs
#include "llmc/cuda/state.cuh"        // the optimizer's state in host memory
#include "llmc/cuda/encoder.cuh"      // embeddings, over vector.cuh and column_sums.cuh
#include "llmc/cuda/layernorm.cuh"    // layernorm, alone and after an addition
#include "llmc/cuda/gelu.cuh"         // GELU
#include "llmc/cuda/matmul.cuh"       // linear layers, over matmul_plain.cuh, cublaslt.cuh and fp8.cuh
#include "llmc/cuda/tune.cuh"         // the fastest algorithm of each matmul, measured
#include "llmc/cuda/documents.cuh"    // documents that attention does not cross
#include "llmc/cuda/attention.cuh"    // attention: plain, flash.cuh or cuDNN
#include "llmc/cuda/crossentropy.cuh" // classifier, softmax and loss, in chunks of rows
#include "llmc/cuda/norm.cuh"         // sums of losses and squares
#include "llmc/cuda/adamw.cuh"        // the update
#include "llmc/cuda/muon.cuh"         // the update of matrices with --optimizer muon
#include "llmc/cuda/choices.cuh"      // variants and memory of the operations
#include "llmc/cuda/peak.cuh"         // peak speeds of the GPU
#include "llmc/cuda/entry.cuh"        // converts the table's Stored* and Residual* to the kernels' types

#ifdef HAS_NCCL
#include "llmc/cuda/nccl.cuh" // collectives between GPUs
#define ENGINE &NCCL_ENGINE
#else
#define ENGINE NULL
#endif

#define ENTRY(function) .function = Entry<function>{}
#define ENTRY_fp32(function) .function = Entry<function<fp32>, fp32>{}
#define ENTRY_bf16(function) .function = Entry<function<bf16>, bf16>{}
#define TABLE(residual, twin)                                                                                      \
    {.device = "cuda", .storage = STRING(FLOATX), .level = NULL, .is_host = false,                                 \
     .element_bytes = sizeof(floatX), .residual_bytes = sizeof(residual), .with_bf16_residual = twin,              \
     .engine = ENGINE, RESIDUAL_FUNCTIONS(ENTRY_##residual), BACKEND_FUNCTIONS(ENTRY), GPU_FUNCTIONS(ENTRY)}

#if HAS_BF16_RESIDUAL
static const Backend bf16_residual = TABLE(bf16, NULL);
#define TWIN &bf16_residual
#else
#define TWIN NULL
#endif

#define BACKEND JOIN(cuda_, FLOATX) // for example cuda_bf16
extern "C" const Backend BACKEND;
const Backend BACKEND = TABLE(fp32, TWIN);
