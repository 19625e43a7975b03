// Trains GPT-2 on the CPU. This file is compiled once for each storage type (-DFLOATX=fp32) and each level of instructions
// (-DLEVEL=avx2, llmc/cpu/processor.h) and exports one Trainer; llmc/main.c reads the command line and picks it.
//
// Read in this order:
#include "llmc/config.h"      // every option
#include "llmc/models.h"      // shapes by name
#include "llmc/cpu/device.h"  // the device, and the storage type floatX (contract: llmc/device.h)
#include "llmc/ops.h"         // the contract between model and kernels
#include "llmc/cpu/kernels.h" // the kernels, a header for each
#include "llmc/comm.h"        // other processes
#include "llmc/gpt2.h"        // the model: memory, forward, backward, update
#include "llmc/generate.h"    // text from it
#include "llmc/checkpoint.h"  // its weights on disk
#include "llmc/settings.h"    // options that fit together and into memory
#include "llmc/memory_table.h" // what fits, for info
#include "llmc/setup.h"       // a run's data, weights and logs
#include "llmc/train.h"       // the loop
#include "llmc/commands.h"    // generate, eval, info
#include "llmc/harness_impl.h" // what check and bench need
#include "llmc/trainer.h"

__attribute__((weak)) Cpu cpu; // one for all these objects

#define TRAINER JOIN(JOIN(cpu_, FLOATX), JOIN(_, LEVEL)) // cpu_fp32_avx2, say
extern const Trainer TRAINER;
const Trainer TRAINER = {"cpu", STRING(FLOATX), STRING(LEVEL), device_kernel_flops, train, generate_command, eval_command,
                         info_command, saved_choice, NULL,
                         &HARNESS};
