#include "phases.h"
#include "consistency.h"
#include "../eval/core.h"
#include "../model/generate.h"
#include "../log/report.h"
#include "requests.h"
#include "../eval/validation.h"

void upload_batch(GPT2* g, const Batch* b) { gpt2_upload(g, b->tokens, (size_t)b->rows * (size_t)b->T); }

bool run_is_interrupted(void* train_run) {
    TrainRun* run = train_run;
    if (run->comm->size > 1 && !run->is_slow) { return false; }
    const bool stops = request_to_stop() != NULL;
    if (comm_min_host(run->comm, !stops) == 0) { run->stops = true; }
    return run->stops;
}

bool run_is_due(const TrainRun* run, long long every) {
    return every > 0 && (run->state.step % every == 0 || run->state.step >= run->num_steps);
}

Phases train_phases_due(const TrainRun* run) {
    const PhasePlan* p = &run->plan->phases;
    const Phases due = {.val = run->has_val && run_is_due(run, p->val_every),
                        .eval = run->num_test_sets && run_is_due(run, p->test_sets.every),
                        .sample = run->has_tokenizer && run_is_due(run, p->sample_every)};
    return due;
}

void train_drop_pending(TrainRun* run) {
    const Phases due = train_phases_due(run);
    Phases* p = &run->state.pending;
    p->val = p->val && due.val;
    p->eval = p->eval && due.eval;
    p->sample = p->sample && due.sample;
}

bool train_is_complete(const TrainRun* run) {
    const Phases* pending = &run->state.pending;
    return run->state.step >= run->num_steps && !pending->val && !pending->eval && !pending->sample;
}

// ---------------------------------------------------------------------------------------------------------------------
// the best checkpoint

// Finds the best checkpoint once that of this step is there: it, if its validation loss is the lowest so far.
static void find_best(TrainRun* run) {
    const TrainState* s = &run->state;
    const bool is_known = run->val_step == s->step && s->step > 0 && isfinite(run->val_loss);
    const bool is_best = is_known && (!s->best_step || run->val_loss < s->best_loss);
    run->saving_best_step = is_best ? s->step : s->best_step;
    run->saving_best_loss = is_best ? run->val_loss : s->best_loss;
}

// Records what find_best() has found, now that the checkpoint is there.
static void take_best(TrainRun* run) {
    run->state.best_step = run->saving_best_step;
    run->state.best_loss = run->saving_best_loss;
}

// Records the best checkpoint after a validation that a stop had left: that of this step may be there already.
static void note_saved_best(TrainRun* run) {
    const char* out = run->plan->save.out;
    char* path = checkpoint_path(out, run->state.step);
    if (run->comm->rank == 0 && *out && path_exists(path)) {
        find_best(run);
        take_best(run);
    }
    free(path);
}

// ---------------------------------------------------------------------------------------------------------------------
// validation, samples, the report

void train_validate(TrainRun* run) {
    check_same_weights(&run->model, run->comm);
    const double loss = validation_loss(&run->model, &run->val, run->comm, run_is_interrupted, run);
    if (run->stops && isnan(loss)) { return; }
    run->state.pending.val = false;
    run->val_loss = loss;
    run->val_step = run->state.step;
    logger_val(&run->log, (int)run->state.step, loss);
    if (run->saved_step == run->state.step) { note_saved_best(run); }
}

void train_score(TrainRun* run) {
    Error err;
    const int step = (int)run->state.step, count = run->num_test_sets;
    TestScore* scores = alloc_or_die((size_t)count, sizeof *scores, "scores");
    bool is_whole = true;
    for (int i = 0; i < count && !run->stops; i++) {
        const TestSet* s = &run->test_sets[i];
        if (!test_set_score(&scores[i], NULL, s, &run->model, run->comm, run_is_interrupted, run, &err)) {
            logger_notice(&run->log, "warning: no score: %s", err.text); // the next step will say more
        } else if (scores[i].total) {
            logger_eval(&run->log, step, s->name, s->convention, (int)scores[i].correct, (int)scores[i].total);
        }
        is_whole = is_whole && scores[i].total;
    }
    double error;
    int tasks;
    const double core = core_score(run->test_sets, scores, is_whole ? count : 0, &error, &tasks);
    if (tasks) { logger_notice(&run->log, "CORE: %f, standard error %.4f, of %d tasks", core, error, tasks); }
    free(scores);
    run->state.pending.eval = run->stops && !is_whole;
}

typedef struct {
    char* text;
    size_t bytes;
    bool is_cut; // by a request to stop
} TextBuffer;

static void text_append(TextBuffer* b, const char* text, size_t bytes) {
    b->text = realloc_or_die(b->text, b->bytes + bytes, "a sample");
    memcpy(b->text + b->bytes, text, bytes);
    b->bytes += bytes;
}

static bool take_token(void* buffer, const NextToken* token) {
    TextBuffer* b = buffer;
    if (token->bytes) { text_append(b, token->bytes, token->size); }
    b->is_cut = request_to_stop() != NULL;
    return !b->is_cut;
}

void train_sample(TrainRun* run) {
    Error err;
    const PhasePlan* p = &run->plan->phases;
    run->state.pending.sample = false;
    if (run->comm->rank != 0) { return; }
    const GenerateOptions options = {.sampling = p->sampling, .max_tokens = p->sample_tokens, .samples = 1,
                                     .stops_at_eot = true};
    TextBuffer b = {NULL, 0, false};
    const TextSink sink = {.token = take_token, .context = &b};
    TokenList prompt = prompt_tokens(&run->tokenizer, p->prompt, strlen(p->prompt));
    text_append(&b, p->prompt, strlen(p->prompt));
    if (generate(&run->model, &run->tokenizer, &prompt, 1, &options, &sink, NULL, &err)) {
        logger_sample(&run->log, (int)run->state.step, b.text, b.bytes);
    } else { // the next step will say more
        logger_notice(&run->log, "warning: no sample: %s", err.text);
    }
    run->state.pending.sample = b.is_cut;
    token_list_free(&prompt);
    free(b.text);
}

// At the start of a fresh run there are no gradients and no batch yet; a resumed one comes here only after its first
// step.
void train_report(TrainRun* run) {
    Error err;
    const char* folder = run->plan->save.out;
    if (run->comm->rank != 0 || !*folder) { return; }
    const double start = seconds_now();
    char* path = format("%s/report.html", folder);
    if (!report_write(path, &folder, 1, &err)) { notice("warning: %s", err.text); }
    free(path);
    const double now = seconds_now();
    run->report_due = now + fmax(10, 100 * (now - start));
}

// ---------------------------------------------------------------------------------------------------------------------
// checkpoints

bool train_save_is_due(const TrainRun* run) {
    const SavePlan* p = &run->plan->save;
    if (!*p->out || run->state.step == 0 || p->every == 0 || run->saved_step == run->state.step) { return false; }
    return run->stops || run->saves || run_is_due(run, p->every);
}

enum { SAVE_RETRIES = 3 }; // of a save that fails; chosen

// Logs the save that has ended, if one has; `waits`: waits for one that goes on. After too many failures the run ends.
static void look_at_save(TrainRun* run, bool waits) {
    char* path;
    Error err;
    const Snapshot* snapshot = &run->saver.snapshot;
    const bool needs_ranks = !snapshot->blocks && run->optimizer.zero_group; // which have handed over their shards once
    const long long step = snapshot->step;
    const int retries = needs_ranks ? 0 : SAVE_RETRIES;
    switch (saver_poll(&run->saver, waits, &path, &err)) {
    case SAVER_SAVED:
        run->failed_saves = 0;
        take_best(run);
        logger_save(&run->log, (int)step, path);
        free(path);
        train_report(run);
        break;
    case SAVER_FAILED:
        if (run->failed_saves++ >= retries) { fatal("%s", err.text); }
        logger_notice(&run->log, "warning: no checkpoint of step %lld: %s. Trying again (%d of %d)", step, err.text,
                      run->failed_saves, retries);
        break;
    default: break;
    }
}

void train_look_at_save(TrainRun* run) { look_at_save(run, false); }

// Returns the tokenizer's files for a checkpoint, made by the first call; NULL if there is no tokenizer, or the files
// cannot hold it, of which the first call warns.
static const TokenizerFiles* tokenizer_files(TrainRun* run) {
    Error err;
    const int T = run->model.config.max_seq_len;
    if (!run->has_tokenizer) { return NULL; }
    TokenizerFiles* files = &run->tokenizer_files;
    if (!run->has_made_files && !tokenizer_files_make(files, &run->tokenizer, T, run->plan->tokenizer.option, &err)) {
        logger_notice(&run->log, "warning: checkpoints without a tokenizer: %s", err.text);
    }
    run->has_made_files = true;
    return files->text[0] ? files : NULL;
}

KeepRule keep_rule(const Plan* p, const TrainState* s) {
    KeepRule keep = p->save.keep;
    keep.best_step = s->best_step;
    return keep;
}

void train_save(TrainRun* run) {
    Error err;
    check_same_weights(&run->model, run->comm);
    run->saved_step = run->state.step;
    run->saves = false;
    if (run->comm->rank != 0) {
        checkpoint_hand_over(&run->optimizer);
        return;
    }
    look_at_save(run, true);
    if (!logger_sync(&run->log, &err)) { fatal("%s", err.text); }
    float* blocks = saver_blocks(&run->saver, &run->optimizer);
    find_best(run); // after the end of the save before
    TrainState state = run->state;
    state.best_step = run->saving_best_step;
    state.best_loss = run->saving_best_loss;
    Snapshot snapshot = snapshot_take(&run->optimizer, &state, json_deep_copy(run->start.options),
                                      run->plan->nccl_algorithms, blocks);
    snapshot.eot = run->has_tokenizer ? run->tokenizer.eot : NO_TOKEN;
    snapshot.tokenizer = tokenizer_files(run);
    snapshot.keep = keep_rule(run->plan, &state);
    saver_begin(&run->saver, run->plan->save.out, &snapshot);
    train_look_at_save(run);
}

void train_finish_save(TrainRun* run) {
    look_at_save(run, true);
    for (int pause = 1; run->failed_saves > 0; pause *= 2) {
        sleep((unsigned)pause);
        saver_begin(&run->saver, run->plan->save.out, &run->saver.snapshot);
        look_at_save(run, true);
    }
}
