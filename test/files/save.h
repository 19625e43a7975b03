// Saves a checkpoint at once, from the device's memory.
#pragma once
#include "llmc/files/checkpoint.h"
#include "llmc/train/plan.h"

// Returns the checkpoint's path, which the caller frees; NULL on failure.
static inline char* checkpoint_save(const char* out, const Optimizer* o, const TrainState* s, const Plan* p,
                                    const Config* c, int eot, Error* err) {
    Snapshot snapshot = snapshot_take(o, s, plan_options(p, c), p->nccl_algorithms, NULL);
    snapshot.eot = eot;
    if (!keep_parse(&snapshot.keep, c->keep, err)) { fatal("%s", err->text); }
    snapshot.keep.best_step = s->best.step;
    char* path = checkpoint_write(out, &snapshot, err);
    snapshot_free(&snapshot);
    return path;
}
