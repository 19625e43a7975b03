// The loss of a model on validation data.
#pragma once
#include "../comm/comm.h"
#include "../data/dataloader.h"
#include "../model/gpt2.h"

// Returns the mean loss over the validation windows of all ranks, in nats a token. Collective. Returns NAN if
// is_interrupted (may be NULL), which all ranks call before each batch, returned true.
double validation_loss(GPT2* g, EvalLoader* val, Comm* comm, bool (*is_interrupted)(void*), void* context);
