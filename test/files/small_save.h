// Saves checkpoints of the tiny model.
#pragma once
#include "test/files/save.h"
#include "test/files/small_model.h"

static inline TrainState state_at(long long step) {
    TrainState s;
    memset(&s, 0, sizeof s);
    s.step = step, s.tokens = 100 * step, s.window = (uint64_t)step * 3, s.data_hash = 0x8000000000000001ull;
    return s;
}

static inline Plan small_plan(const Model* m) {
    const Plan plan = {.backend = m->g.backend,
                       .dtype = dtype_fp32,
                       .model = "L=2,H=2,C=8,T=6,V=11",
                       .shape = m->g.config,
                       .B = 1,
                       .T = MAX_T,
                       .total_batch_size = MAX_T,
                       .keep = KEEP_ALL,
                       .shards = 1};
    return plan;
}

static inline char* save_with(const char* out, const Model* m, const TrainState* s, const Config* c, Error* err) {
    const Plan plan = small_plan(m);
    return checkpoint_save(out, &m->o, s, &plan, c, -1, err);
}

// Saves a checkpoint of that step; returns its path, which the caller frees; NULL on failure.
static inline char* try_save(const char* out, const Model* m, long long step, long long keep, Error* err) {
    Config c;
    config_defaults(&c);
    char* rule = format("%lld,best", keep);
    c.keep = rule;
    const TrainState s = state_at(step);
    char* path = save_with(out, m, &s, &c, err);
    free(rule);
    return path;
}

// The same, but a failure ends the program.
static inline char* save(const char* out, const Model* m, long long step, long long keep) {
    Error err;
    char* path = try_save(out, m, step, keep, &err);
    if (!path) { fatal("%s", err.text); }
    return path;
}
