// Trains GPT-2 on NVIDIA GPUs. This file is compiled once for each storage type (-DFLOATX=fp32 and bf16) and each
// object exports one Trainer; llmc/main.c reads the command line and picks it.
//
// Read in this order:
#include "llmc/config.h"         // every option
#include "llmc/models.h"         // shapes by name
#include "llmc/cuda/device.cuh"  // the device, and the storage type floatX (contract: llmc/device.h)
#include "llmc/ops.h"            // the contract between model and kernels
#include "llmc/cuda/kernels.cuh" // the kernels, a header for each
#include "llmc/comm.h"           // other processes
#ifdef HAS_NCCL
#include "llmc/comm/nccl.cuh"
#endif
#include "llmc/gpt2.h"           // the model: memory, forward, backward, update
#include "llmc/generate.h"       // text from it
#include "llmc/checkpoint.h"     // its weights on disk
#include "llmc/settings.h"       // options that fit together and into memory
#include "llmc/memory_table.h"   // what fits, for info
#include "llmc/setup.h"          // a run's data, weights and logs
#include "llmc/train.h"          // the loop
#include "llmc/commands.h"       // generate, eval, info
#include "llmc/harness_impl.h"   // what check and bench need
#include "llmc/trainer.h"

#ifdef HAS_NCCL
static const CommEngine* const engine = &NCCL_ENGINE;
#else
static const CommEngine* const engine = NULL;
#endif
extern const Trainer JOIN(cuda_, FLOATX);
const Trainer JOIN(cuda_, FLOATX) = {"cuda", STRING(FLOATX), NULL, NULL, train, generate_command, eval_command,
                                     info_command, saved_choice, engine,
                                     &HARNESS};
