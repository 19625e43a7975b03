// Autotuning: chooses the fastest variant of each operation of which the device has several (Backend.variant_name).
// They are timed at the start, on this model's shapes. Results of variants differ in the last bits, so the choice is
// part of the run: state.json records it (device_kernels), and a resumed run uses the recorded variant without timing.
#pragma once
#include "comm/comm.h"
#include "gpt2.h"

// Chooses a variant for each Choice. Call it when weights are loaded, before the first step; it overwrites activations
// of layer 0. `saved`: device_kernels() of the run being resumed, or NULL. comm: all ranks of it call this and choose
// the same variants; NULL: one process.
void autotune(const GPT2* g, Comm* comm, const char* saved);
