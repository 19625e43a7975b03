// The CPU's backend: its kernels in reading order. This file is compiled for each storage type (-DFLOATX=fp32) and each
// level of instructions (-DLEVEL=avx2, llmc/cpu/processor.h). Each object exports one table of functions. The program
// begins in llmc/commands/main.c.
#include "llmc/model/backend.h"          // the contract: every operation with its shapes
#include "llmc/cpu/device.h"       // memory, threads, the storage type
#include "llmc/cpu/residual.h"     // encoder.h, embeddings, and layernorm.h, for each type of the residual stream
#include "llmc/cpu/gelu.h"         // GELU
#include "llmc/cpu/matmul.h"       // linear layers, over gemm.h and tile.h
#include "llmc/cpu/documents.h"    // documents that attention does not cross
#include "llmc/cpu/attention.h"    // attention, plain and flash
#include "llmc/cpu/crossentropy.h" // classifier, softmax and loss, in chunks of rows
#include "llmc/cpu/norm.h"         // the norm of the gradient
#include "llmc/cpu/adamw.h"        // the update
#include "llmc/cpu/muon.h"         // the update of matrices with --optimizer muon
#include "llmc/cpu/plan.h"         // memory that the operations take
#include "llmc/cpu/peak.h"         // measured peaks of the processor

__attribute__((weak)) Cpu cpu; // one for all these objects

#define ENTRY(function) .function = function
#define ENTRY_fp32(function) .function = function##_fp32
#define ENTRY_bf16(function) .function = function##_bf16
#define TABLE(residual, twin)                                                                                      \
    {.device = "cpu", .storage = STRING(FLOATX), .level = STRING(LEVEL), .is_host = true,                          \
     .element_bytes = sizeof(Stored), .residual_bytes = sizeof(residual), .with_bf16_residual = twin,              \
     .engine = NULL, RESIDUAL_FUNCTIONS(ENTRY_##residual), BACKEND_FUNCTIONS(ENTRY)}

#if HAS_BF16_RESIDUAL
static const Backend bf16_residual = TABLE(bf16, NULL);
#define TWIN &bf16_residual
#else
#define TWIN NULL
#endif

#define BACKEND JOIN(JOIN(cpu_, FLOATX), JOIN(_, LEVEL)) // for example cpu_fp32_avx2
extern const Backend BACKEND;
const Backend BACKEND = TABLE(fp32, TWIN);
