// Finds a device that computes wrongly without an error, as overheated or worn GPUs and memory do (Dixit et al. 2021,
// "Silent Data Corruptions at Scale"). This program is deterministic: the same micro-batch with the same weights has
// the same gradient, bit for bit, so one that is computed twice shows it.
#pragma once
#include "../model/gpt2.h"

// Runs forward and backward of the uploaded micro-batch (B,T) twice, and returns true if losses and gradients had the
// same bits: the sum of losses, and the sum of squares of each range of gradients (tensors_range). Overwrites the
// gradients and the sums. Waits for the device.
bool replay_agrees(GPT2* g, int B, int T, float dloss);
