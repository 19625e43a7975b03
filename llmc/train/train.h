// The training loop, compiled once for all backends.
//
//   train()               the run, inside train.c:
//     start_run()         options, checkpoint and ranks become a plan                    (start.h)
//     train_open()        data, model, weights or checkpoint, logs             (setup.h, restore.h)
//     train_phases()      validation, test sets, samples                                (phases.h)
//     train_save()        a checkpoint                                                  (saving.h)
//     train_step()        one step: micro-batches, norm, clipping, AdamW, and its log
//       position_take()   the next micro-batch                                        (position.h)
//       ranks_vote()      requests to stop or save                                       (ranks.h)
//       numerics_judge()  updates, skips the update or ends the run          (numerics.h, spikes.h)
#pragma once
#include "../comm/comm.h"
#include "../model/backend.h"
#include "../options/config.h"

// Trains as the options say; returns the exit code. See requests.h for what it can be asked meanwhile.
int train(Config* config, const Backend* b, enum dtype dtype, Comm* comm);
