// The training loop, compiled once for all backends.
//
//   train()           the run as a sequence of phases, inside train.c:
//     train_open()    plan, data, model, weights or checkpoint, logs         (setup.h)
//     train_step()    one step: micro-batches, norm, clipping, AdamW
//     train_validate(), train_sample(), train_save()
#pragma once
#include "comm/comm.h"
#include "config.h"
#include "data/dataloader.h"
#include "gpt2.h"

// Trains as the options say; returns the exit code. SIGINT and SIGTERM end the run after the current micro-batch (with
// several ranks: after the current step) with a checkpoint; a second signal ends it at once.
int train(Config* config, const Backend* b, const char* dtype, Comm* comm);

// Returns the mean loss over the validation windows of all ranks, in nats a token. Collective. Returns NAN if
// `is_stopped` (may be NULL) became true between two batches.
double validation_loss(GPT2* g, EvalLoader* val, Comm* comm, bool (*is_stopped)(void));
