// Autotuning: at the start, chooses the fastest algorithm of each matmul of a library, and the fastest variant of each
// operation that the device can do in several (Backend.variant_name), timed on this model's shapes. Results differ in
// their last bits, so the choices are part of the run: state.json records them, and a resumed run uses those recorded,
// without timing. A fresh start takes the choices of an earlier one from the cache (files/tune_cache.h), so that two
// starts give the same bits. On a CPU there is nothing to choose.
#pragma once
#include "../model/optimizer.h"
#include "plan.h"

// Makes all choices for a model and its optimizer. Call it when weights are loaded, before the first step; it
// overwrites activations, gradients and sums. variants, matmuls: device_kernels() and matmuls_save() of the run being
// resumed, or NULL. All ranks of `comm` call this and make the choices of rank 0. With --zero 1 and Muon a rank may own
// matrices of a shape that rank 0 does not own: for these it takes the library's first algorithm. --tune 0 times no
// algorithm, and has no cache.
void autotune(Optimizer* o, const Plan* p, Comm* comm, const char* variants, const char* matmuls);
