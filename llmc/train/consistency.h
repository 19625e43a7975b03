// Checks that all ranks of a run have the same program, options, checkpoint and data at the start, and the same weights
// at every validation, checkpoint and replay. If one differs, the run ends with an error that names its host. All
// functions are collective: every rank must call them.
#pragma once
#include "../options/config.h"
#include "../model/gpt2.h"
#include "../comm/comm.h"
#include <jansson.h>

// Broadcasts rank 0's text, which may be NULL, to all ranks. `text`: allocated, on rank 0; NULL on the others. Returns
// `text` itself on rank 0, a copy on the others; the caller frees it.
char* share_text(Comm* comm, char* text);

// Ends the program unless all ranks run the same program with the same options, mean the same type by --dtype, and
// resume the same checkpoint (`state` is its state, with the checksums of its files; NULL: a fresh run).
void check_same_run(Comm* comm, const Config* c, enum dtype dtype, json_t* state);

// Ends the program unless all ranks have the same hashes of the data sets; 0: no such data set.
void check_same_data(Comm* comm, uint64_t train_data, uint64_t val_data, uint64_t eval_data);

// Ends the program if two ranks of a machine opened the same GPU.
void check_distinct_devices(Comm* comm, const Backend* b);

// Ends the program if the ranks' kernels may round in different ways: those of CPUs of several levels, or Muon's
// matmuls on GPUs of several names, for which cuBLASLt chooses. Without --zero 1 every rank computes the whole update.
void check_equal_kernels(Comm* comm, const Backend* b);

// Ends the program, with exit code 5, unless all ranks have the same parameters, bit for bit. The error names the first
// tensor that differs.
void check_same_weights(const GPT2* g, Comm* comm);
