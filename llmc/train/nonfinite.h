// Says where a loss or a gradient stopped being finite, for the message that ends a run.
#pragma once
#include "../model/optimizer.h"

// Looks at all weights in the order of forward, then at all gradients in the order of backward, for a number that is
// not finite: "the weight h.3.mlp.c_fc.weight", or "the gradient of ...". Returns NULL if there is none; the caller
// frees the text. With ZeRO-1 gradients, and weights of which a rank has masters in part, are not looked at.
char* first_nonfinite(const Optimizer* o);
