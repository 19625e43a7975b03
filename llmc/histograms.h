// Logs the distributions of weights and gradients (--histogram_every).
#pragma once
#include "log/logger.h"
#include "optimizer.h"

// Logs a histogram of each tensor after `step` updates, under its name in checkpoints: of the fp32 master weights, and
// of the last step's gradients, before clipping. grads_scale: the loss scale that the gradients have; 0: there are none
// yet. All ranks call it; rank 0 logs. With ZeRO, the gradients are lost.
void log_histograms(Logger* log, const Optimizer* o, int step, float grads_scale);
