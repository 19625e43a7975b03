// The training loop, compiled once for all backends.
//
//   train()           the run as a sequence of phases, inside train.c:
//     train_open()    plan, data, model, weights or checkpoint, logs         (setup.h, resume.h)
//     train_step()    one step: micro-batches, norm, clipping, AdamW
//       spikes_judge()  skips its update, or ends the run                                   (spikes.h)
//     train_validate(), train_score(), train_sample(), train_save()                     (phases.h)
#pragma once
#include "../comm/comm.h"
#include "../options/config.h"
#include "../data/dataloader.h"
#include "../model/gpt2.h"

// Trains as the options say; returns the exit code. See requests.h for what it can be asked meanwhile.
int train(Config* config, const Backend* b, enum dtype dtype, Comm* comm);
