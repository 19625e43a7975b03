// The CPU's backend: its kernels in reading order. This file is compiled for each storage type (-DFLOATX=fp32) and each
// level of instructions (-DLEVEL=avx2, llmc/cpu/processor.h). Each object exports one table of functions. The program
// begins in llmc/main.c.
#include "llmc/backend.h"          // the contract: every operation with its shapes
#include "llmc/cpu/device.h"       // memory, threads, the storage type
#include "llmc/cpu/encoder.h"      // embeddings
#include "llmc/cpu/layernorm.h"    // layernorm, alone and after an addition
#include "llmc/cpu/gelu.h"         // GELU
#include "llmc/cpu/matmul.h"       // linear layers, over gemm.h and tile.h
#include "llmc/cpu/attention.h"    // attention, plain and flash
#include "llmc/cpu/crossentropy.h" // classifier, softmax and loss, in chunks of rows
#include "llmc/cpu/norm.h"         // the norm of the gradient
#include "llmc/cpu/adamw.h"        // the update
#include "llmc/cpu/plan.h"         // memory that the operations take
#include "llmc/cpu/peak.h"         // measured peaks of the processor

__attribute__((weak)) Cpu cpu; // one for all these objects

#define BACKEND JOIN(JOIN(cpu_, FLOATX), JOIN(_, LEVEL)) // for example cpu_fp32_avx2
#define ENTRY(function) .function = function
extern const Backend BACKEND;
const Backend BACKEND = {.device = "cpu",
                         .storage = STRING(FLOATX),
                         .level = STRING(LEVEL),
                         .is_host = true,
                         .element_bytes = sizeof(Stored),
                         .engine = NULL,
                         BACKEND_FUNCTIONS(ENTRY)};
