#include "saving.h"
#include "../base/file.h"

enum { SAVE_RETRIES = 3 }; // of a save that fails; chosen

// Records the options and, as --resume, the checkpoint of another folder that the run begins from.
static void record_options(const Saving* s, const char* checkpoint) {
    Error err;
    if (s->plan->save.every == 0) { return; }
    json_t* options = json_copy(s->options);
    if (checkpoint) { json_object_set_new(options, "resume", json_string(checkpoint)); }
    if (!run_write_options(s->plan->save.out, options, &err)) { fatal("--out %s", err.text); }
    json_decref(options);
}

static KeepRule keep_rule(const Saving* s, const Validated* best) {
    KeepRule keep = s->plan->save.keep;
    keep.best_step = best->step;
    return keep;
}

void saving_open(Saving* s, const Start* start, const TrainState* state, const Tokenizer* tokenizer, Logger* log,
                 int rank) {
    const char* out = start->plan.save.out;
    *s = (Saving){.plan = &start->plan, .options = start->options, .log = log, .tokenizer = tokenizer, .rank = rank,
                  .saved_step = start->checkpoint ? state->step : -1, .best = state->best};
    if (rank > 0 || !*out) { return; }
    if (!start->checkpoint || !path_is_entry_of(start->checkpoint, out)) {
        record_options(s, start->checkpoint);
        return;
    }
    const KeepRule keep = keep_rule(s, &s->best);
    checkpoint_rotate(out, state->step, &keep);
}

void saving_close(Saving* s) {
    saver_close(&s->saver);
    tokenizer_files_free(&s->tokenizer_files);
}

bool saving_is_due(const Saving* s, long long step, long long last_step, bool is_asked) {
    if (!*s->plan->save.out || step == 0 || s->plan->save.every == 0 || s->saved_step == step) { return false; }
    return is_asked || step_is_due(step, last_step, s->plan->save.every);
}

// ---------------------------------------------------------------------------------------------------------------------
// the best checkpoint

// Returns the best checkpoint when one of `step` is added: the new one, if its validation loss is the lowest so far, or
// the first on other validation data.
static Validated best_with(const Saving* s, long long step) {
    const Validated *last = &s->last, *best = &s->best;
    const bool is_known = last->step == step && step > 0 && isfinite(last->loss);
    const bool is_first = !best->step || (best->data && best->data != last->data);
    return is_known && (is_first || last->loss < best->loss) ? *last : *best;
}

void saving_take_validation(Saving* s, Validated validated) {
    const long long step = validated.step;
    s->last = validated;
    if (s->saved_step != step || s->rank > 0 || !*s->plan->save.out) { return; }
    char* path = checkpoint_path(s->plan->save.out, step);
    if (path_exists(path)) { s->best = s->begun_best = best_with(s, step); }
    free(path);
}

// ---------------------------------------------------------------------------------------------------------------------
// saves

// saving_look(); waits: waits for the save that goes on.
static bool log_save(Saving* s, bool waits) {
    char* path;
    Error err;
    const Snapshot* snapshot = &s->saver.snapshot;
    const long long step = snapshot->step;
    const bool needs_ranks = snapshot->optimizer && !snapshot->blocks && snapshot->optimizer->zero_group;
    const int retries = needs_ranks ? 0 : SAVE_RETRIES; // the ranks have handed over their shards once
    switch (saver_poll(&s->saver, waits, &path, &err)) {
    case SAVER_SAVED:
        s->failed_saves = 0;
        s->best = s->begun_best;
        logger_save(s->log, (int)step, path);
        free(path);
        return true;
    case SAVER_FAILED:
        if (s->failed_saves++ >= retries) { fatal("%s", err.text); }
        logger_notice(s->log, "warning: no checkpoint of step %lld: %s. Trying again (%d of %d)", step, err.text,
                      s->failed_saves, retries);
        return false;
    default: return false;
    }
}

bool saving_look(Saving* s) { return log_save(s, false); }

// Returns the tokenizer's files for a checkpoint, which the first call makes. NULL if there is no tokenizer, or if the
// files cannot hold it; the first call then warns.
static const TokenizerFiles* tokenizer_files(Saving* s, int T) {
    Error err;
    if (!s->tokenizer) { return NULL; }
    TokenizerFiles* files = &s->tokenizer_files;
    if (!s->has_made_files && !tokenizer_files_make(files, s->tokenizer, T, s->plan->tokenizer.option, &err)) {
        logger_notice(s->log, "warning: checkpoints without a tokenizer: %s", err.text);
    }
    s->has_made_files = true;
    return files->text[0] ? files : NULL;
}

bool saving_begin(Saving* s, const Optimizer* o, TrainState state) {
    Error err;
    s->saved_step = state.step;
    if (s->rank != 0) {
        checkpoint_hand_over(o);
        return false;
    }
    const bool has_ended = log_save(s, true);
    if (!logger_sync(s->log, &err)) { fatal("%s", err.text); }
    float* blocks = saver_blocks(&s->saver, o);
    s->begun_best = best_with(s, state.step); // after the end of the save before
    state.best = s->begun_best;
    Snapshot snapshot = snapshot_take(o, &state, json_deep_copy(s->options), s->plan->nccl_algorithms, blocks);
    snapshot.eot = s->tokenizer ? s->tokenizer->eot : NO_TOKEN;
    snapshot.tokenizer = tokenizer_files(s, o->model->config.max_seq_len);
    snapshot.keep = keep_rule(s, &s->begun_best);
    saver_begin(&s->saver, s->plan->save.out, &snapshot);
    return log_save(s, false) || has_ended;
}

void saving_finish(Saving* s) {
    log_save(s, true);
    for (int pause = 1; s->failed_saves > 0; pause *= 2) {
        sleep((unsigned)pause);
        saver_begin(&s->saver, s->plan->save.out, &s->saver.snapshot);
        log_save(s, true);
    }
}
