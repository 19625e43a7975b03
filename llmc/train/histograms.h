// Logs the distributions of weights, gradients and activations (--histogram_every).
#pragma once
#include "../log/logger.h"
#include "../model/optimizer.h"

// Logs a histogram of each tensor after `step` updates, under its name in checkpoints: of the fp32 master weights, and
// of the last step's gradients, before clipping. grads_scale: the loss scale that the gradients have; 0: there are none
// yet. All ranks call it; rank 0 logs. With ZeRO, the gradients are lost.
void log_histograms(Logger* log, const Optimizer* o, int step, float grads_scale);

// Logs histograms of the activations of each layer, for the batch (B,T) that was uploaded last. They are computed anew
// with the present weights, since --recompute may not have kept them:
//   activations/h.L.attn       attention's output, before its projection
//   activations/h.L.mlp.c_fc   the MLP's pre-activations, which enter GELU
//   activations/h.L.residual   the residual stream that leaves the layer
// Overwrites the model's activations. Rank 0 alone computes and logs.
void log_activations(Logger* log, const GPT2* g, int step, int B, int T);
