// Autotuning: at the start, chooses the fastest algorithm of each matmul of a library, and the fastest variant of each
// operation that the device can do in several (Backend.variant_name), timed on this model's shapes. Results differ in
// their last bits, so the choices are part of the run: state.json records them, and a resumed run uses those recorded,
// without timing. On a CPU there is nothing to choose.
#pragma once
#include "comm/comm.h"
#include "config.h"
#include "gpt2.h"

// Makes all choices. Call it when weights are loaded, before the first step; it overwrites activations, and zeroes
// gradients and sums. variants, matmuls: device_kernels() and matmuls_save() of the run being resumed, or NULL. comm:
// all ranks of it call this and make the choices of rank 0; NULL: one process. --tune 0 times no algorithm.
void autotune(GPT2* g, const Config* c, Comm* comm, const char* variants, const char* matmuls);
