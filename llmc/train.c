#include "train.h"
#include "comm/consistency.h"
#include "nonfinite.h"
#include "phases.h"
#include "replay.h"
#include "requests.h"

// ---------------------------------------------------------------------------------------------------------------------
// data

// Requests this rank's next micro-batch. The windows of a step are the same for any micro-batch size, and a window
// belongs to the same micro-batch for any number of ranks. In the first steps of a batch ramp the last ranks may have
// none.
static void train_request(TrainRun* run) {
    Cursor* c = &run->cursor;
    const long long B = run->plan.B, T = run->plan.T, stride = B * run->comm->size, first_row = B * run->comm->rank;
    long long windows = ramp_batch(&run->ramp, c->tokens) / T;
    while (c->row >= windows) { // the next step
        c->row = first_row;
        c->window += (uint64_t)windows;
        c->tokens += windows * T;
        windows = ramp_batch(&run->ramp, c->tokens) / T;
    }
    const long long left = windows - c->row;
    dataloader_request(&run->loader, (run->config->overfit ? 0 : c->window) + (uint64_t)c->row,
                       (int)(left < B ? left : B));
    c->row += stride;
}

// ---------------------------------------------------------------------------------------------------------------------
// one update

// Begins the all-reduce of a range of the gradients or, with ZeRO, its reduce-scatter.
static void train_range_ready(void* train_run, float* grads, TensorRange range) {
    TrainRun* run = train_run;
    if (run->optimizer.zero_group) { comm_reduce_scatter_begin(run->comm, grads + range.begin, range.size); }
    else { comm_all_reduce_begin(run->comm, grads + range.begin, range.size); }
}

// Begins the reduction of all ranges, on a rank that has no micro-batch in the last round of the step.
static void train_all_ready(TrainRun* run) {
    const TensorTable* table = &run->model.params_table;
    for (int i = tensors_num_ranges(table) - 1; i >= 0; i--) {
        train_range_ready(run, run->model.grads, tensors_range(table, i));
    }
}

// Ends the program if this rank's first micro-batch of a step has another gradient when it is computed again.
static void train_replay(TrainRun* run, const Batch* b, float dloss) {
    if (!replay_agrees(&run->model, b->rows, b->T, dloss)) {
        fatal_corruption("step %lld: the same micro-batch gave two results: %s, device %s, computes wrongly. The "
                         "weights may be wrong since the last replay (--replay %lld): look at the GPU "
                         "(scripts/gpu_health.sh), and resume on another one",
                         run->state.step + 1, run->plan.backend->device_name(), run->plan.backend->device_identity(),
                         run->config->replay);
    }
    gpt2_zero_grads(&run->model);
}

// Runs forward and backward of micro-batch number i of the step. In the last one, reduces gradients over ranks layer by
// layer.
static void train_micro_step(TrainRun* run, double tokens, long long i, bool is_last) {
    const Batch* b = dataloader_wait(&run->loader);
    const float dloss = (float)(run->state.loss_scale.scale / tokens);
    upload_batch(&run->model, b);
    train_request(run);
    if (i == 0 && run->replays) { train_replay(run, b, dloss); }
    gpt2_micro_step(&run->model, b->rows, b->T, dloss, is_last && run->comm->size > 1 ? train_range_ready : NULL, run);
}

// Returns true if the ranks compare their times in the step that begins or runs now.
static bool is_timed_step(const TrainRun* run) {
    const long long every = run->config->ranks_every;
    return run->comm->size > 1 && every > 0 && (run->state.step + 1) % every == 0;
}

// Logs how long each rank has computed in this step, from its begin to the end of its backward. What follows, the rest
// of the all-reduces and the update, waits for the slowest one.
static void train_compare_ranks(TrainRun* run) {
    const int size = run->comm->size;
    double* seconds = alloc_or_die((size_t)size, sizeof *seconds, "times of ranks");
    seconds[run->comm->rank] = run->compute_seconds;
    comm_all_reduce_host(run->comm, seconds, size); // each adds to zeros: a gather
    logger_ranks(&run->log, (int)run->state.step, seconds, size);
    free(seconds);
}

// Queues the gradient of the mean loss over `windows` sequences, accumulated over micro-batches and ranks, and its
// norm. Returns false if the run is to stop before the last micro-batch, whose gradients are reduced: the gradient is
// then incomplete.
static bool train_gradients(TrainRun* run, long long windows) {
    GPT2* g = &run->model;
    const Backend* b = run->plan.backend;
    Mailbox* mail = run->mailbox;
    Progress shown = {0, 0};
    const long long B = run->plan.B, stride = B * run->comm->size, rounds = (windows + stride - 1) / stride;
    const double start = seconds_now();
    if (is_timed_step(run)) { b->device_timer_start(); }
    gpt2_zero_grads(g);
    for (long long i = 0; i < rounds; i++) {
        const long long first = i * stride + B * run->comm->rank;
        if (run_is_interrupted(run)) { return false; }
        if (first < windows) { train_micro_step(run, (double)windows * run->plan.T, i, i + 1 == rounds); }
        else { train_all_ready(run); }
        progress(&shown, "step %lld: micro-batch %lld of %lld", run->state.step + 1, i + 1, rounds);
    }
    if (is_timed_step(run)) { run->compute_seconds = b->device_timer_stop(); }
    comm_end(run->comm);
    optimizer_norm(&run->optimizer);
    mail->votes[0] = request_to_stop() != NULL;
    mail->votes[1] = request_to_save() || run->failed_saves > 0;
    mail->votes[2] = seconds_now() - start > (double)rounds * SLOW_BATCH;
    b->device_send(&g->sums[SUM_STOP], mail->votes, sizeof mail->votes);
    // without ZeRO each rank has the norm of the whole gradient: only the sums before SUM_NORM are reduced
    comm_all_reduce_sums(run->comm, g->sums, run->optimizer.zero_group ? NUM_SUMS : SUM_NORM);
    b->device_fetch(mail->sums, g->sums, sizeof mail->sums);
    return true;
}

// Names the last good checkpoint: one after which at least another step had a finite loss.
static void name_last_good(const TrainRun* run) {
    size_t count;
    const char* out = run->config->out;
    long long* steps = checkpoint_list(out, &count);
    const long long good = checkpoint_before(out, run->state.step);
    const bool has_bad = count > 0 && steps[0] == run->state.step;
    if (has_bad) { notice("%s/step_%08lld holds the weights that gave this loss.", out, steps[0]); }
    if (good >= 0) {
        notice("The last good checkpoint is %s/step_%08lld; continue from it with --resume auto%s.", out, good,
               has_bad ? ", after moving the newer one away" : "");
    }
    free(steps);
}

// Ends the run at a step whose loss or gradient is not finite.
static void ATTR_NORETURN train_stop_nonfinite(TrainRun* run, const StepRecord* r) {
    char scale[80] = "";
    const bool can_shrink = isfinite(r->loss) && r->loss_scale > 1;
    train_finish_save(run);
    logger_erase_bar(&run->log);
    if (r->loss_scale > 0) { snprintf(scale, sizeof scale, " with a loss scale of %.9g", r->loss_scale); }
    char* where = first_nonfinite(&run->optimizer);
    const unsigned long long first = run->state.window, windows = r->step_tokens / (size_t)run->plan.T;
    char* text = format("step %d: loss %f, norm of the gradient %f%s: not finite, so the run ends here. %s. The first "
                        "was %s; the step's data are windows %llu to %llu.",
                        r->step, r->loss, r->norm, scale,
                        can_shrink ? "Give --loss_scale dynamic" : "Lower --lr, or raise --warmup_steps",
                        where ? where : "the loss or a sum", first, first + windows - 1);
    notice("error: %s", text);
    free(where);
    logger_end(&run->log, (int)run->state.step, "non-finite", text);
    train_report(run);
    if (*run->config->out && run->comm->rank == 0) { name_last_good(run); }
    wait_for_rank0_message();
    exit(EXIT_NONFINITE);
}

// Steps in a row whose loss or norm is not finite that --skip_loss_z or --skip_norm_z skip. More are taken for a fault
// of the weights, not of the data (chosen).
enum { MAX_NONFINITE_STEPS = 8 };

// Returns true if options ask to leave out the update of a step by its loss or norm.
static bool train_may_skip(const Config* c) { return c->skip_loss_z > 0 || c->skip_norm_z > 0; }

// Returns true if the z-score of a step's loss or norm is above --skip_loss_z or --skip_norm_z.
static bool train_is_outlier(TrainRun* run, const StepRecord* r) {
    const Config* c = run->config;
    const bool skip_loss = c->skip_loss_z > 0 && r->loss_z > c->skip_loss_z,
               skip_norm = c->skip_norm_z > 0 && r->norm_z > c->skip_norm_z;
    if (skip_loss) { logger_skip(&run->log, r->step, "loss", r->loss_z); }
    else if (skip_norm) { logger_skip(&run->log, r->step, "grad", r->norm_z); }
    return skip_loss || skip_norm;
}

// Judges a step by its loss and norm. Returns true if its update is skipped, or ends the run. All ranks judge alike
// without another collective: their sums are equal, and a gradient that overflowed on one rank is not finite after the
// reduction either, nor is the norm. Such steps are left out of the statistics of outliers.
static bool train_skips(TrainRun* run, StepRecord* r) {
    TrainState* s = &run->state;
    const bool is_finite = isfinite(r->loss) && isfinite(r->norm), is_optional = train_may_skip(run->config);
    const bool has_overflowed = isfinite(r->loss) && !is_finite && loss_scale_can_shrink(&s->loss_scale);
    run->nonfinite_steps = is_finite || has_overflowed ? 0 : run->nonfinite_steps + 1;
    if (run->nonfinite_steps > (is_optional ? MAX_NONFINITE_STEPS : 0)) { train_stop_nonfinite(run, r); }
    if (is_finite || has_overflowed) { loss_scale_update(&s->loss_scale, has_overflowed); }
    if (has_overflowed) { logger_overflow(&run->log, r->step, r->loss_scale, s->loss_scale.scale); }
    else if (!is_finite) { logger_skip(&run->log, r->step, isfinite(r->loss) ? "grad" : "loss", INFINITY); }
    if (!is_finite) { return true; }
    r->loss_z = outlier_update(&s->loss_window, r->loss);
    r->norm_z = outlier_update(&s->norm_window, r->norm);
    return train_is_outlier(run, r);
}

// Returns the learning rate of the next step. With a batch ramp, steps are counted as tokens / tokens of a full batch.
static double train_lr(const TrainRun* run) {
    const TrainState* s = &run->state;
    const double full = (double)run->ramp.full;
    if (!run->ramp.start) { return schedule_lr(run->config, (double)s->step, (double)run->num_steps); }
    const double lr = schedule_lr(run->config, (double)s->tokens / full, (double)run->total_tokens / full);
    return run->config->ramp_lr ? lr * ramp_lr_factor(&run->ramp, s->tokens) : lr;
}

static AdamW train_hyper(const TrainRun* run, double lr) {
    const Config* c = run->config;
    const AdamW hyper = {.lr = (float)lr,
                         .beta1 = (float)c->beta1,
                         .beta2 = (float)c->beta2,
                         .eps = (float)c->eps,
                         .weight_decay = (float)c->weight_decay,
                         .grad_clip = (float)c->grad_clip,
                         .grad_scale = 1 / run->state.loss_scale.scale,
                         .step = (int)run->state.updates + 1,
                         .rounding_seed = c->stochastic_round ? mix64((uint64_t)c->seed) | 1 : 0};
    return hyper;
}

// Returns true if this step begins with a replay: the first of each start, and every --replay steps. All ranks agree,
// also those that have no micro-batch to replay.
static bool is_replayed_step(const TrainRun* run) {
    const long long every = run->config->replay;
    return every > 0 && (run->state.step == run->first_step || run->state.step % every == 0);
}

// Does one step, or nothing if a single process was asked to stop. Queues all work of the device and waits for it once:
// the update is queued before the loss is known, since it changes nothing if the norm is not finite. With --skip_loss_z
// or --skip_norm_z it has to wait for both.
static void train_step(TrainRun* run) {
    const Backend* b = run->plan.backend;
    TrainState* s = &run->state;
    const double start = seconds_now();
    const long long tokens = ramp_batch(&run->ramp, s->tokens), windows = tokens / run->plan.T;
    const bool may_skip = train_may_skip(run->config);
    StepRecord r = {.step = (int)s->step + 1,
                    .tokens = (size_t)(s->tokens + tokens),
                    .step_tokens = (size_t)tokens,
                    .lr = train_lr(run),
                    .loss_z = NAN,
                    .norm_z = NAN,
                    .loss_scale = loss_scale_is_on(&s->loss_scale) ? s->loss_scale.scale : 0};
    const AdamW hyper = train_hyper(run, r.lr);
    run->grads_scale = s->loss_scale.scale;
    run->replays = is_replayed_step(run);
    if (run->replays) { check_same_weights(&run->model, run->comm); }
    if (!train_gradients(run, windows)) { return; } // run->stops
    if (!may_skip) { optimizer_update(&run->optimizer, &hyper); }
    b->device_sync();
    const double* sums = run->mailbox->sums;
    r.loss = sums[SUM_LOSS] / (double)tokens;
    r.norm = sqrt(sums[SUM_NORM]) / s->loss_scale.scale;
    const bool skips = train_skips(run, &r);
    if (may_skip && !skips) {
        optimizer_update(&run->optimizer, &hyper);
        b->device_sync();
    }
    const bool is_timed = is_timed_step(run);
    run->stops = sums[SUM_STOP] > 0;
    run->saves = sums[SUM_SAVE] > 0;
    run->is_slow = sums[SUM_SLOW] > 0;
    s->step++;
    s->updates += !skips;
    s->tokens += tokens;
    s->window += (uint64_t)windows;
    const double seconds = seconds_now() - start, flops = gpt2_flops_per_token(&run->model) * (double)tokens / seconds;
    r.ms = 1e3 * seconds;
    r.mfu = run->peak_flops > 0 ? flops / (run->peak_flops * run->comm->size) : NAN;
    logger_step(&run->log, &r);
    if (is_timed) { train_compare_ranks(run); }
    if (seconds_now() >= run->report_due) { train_report(run); }
}

// ---------------------------------------------------------------------------------------------------------------------
// the loop

// Does a phase, after telling the other ranks of it: their messages name it if they have to wait for this rank.
static void train_phase(TrainRun* run, RankActivity activity, void (*phase)(TrainRun*)) {
    comm_report_activity(run->comm, run->state.step, activity);
    phase(run);
}

// Does what is due after an update, or at the start.
static void train_due_phases(TrainRun* run) {
    const Config* c = run->config;
    const bool samples = run->has_tokenizer && run_is_due(run, c->sample_every);
    if (run->has_val && run_is_due(run, c->val_every)) { train_phase(run, RANK_VALIDATES, train_validate); }
    if (run->num_test_sets && !run->stops && run_is_due(run, c->eval_every)) {
        train_phase(run, RANK_SCORES, train_score);
    }
    if (samples && !run->stops) { train_phase(run, RANK_SAMPLES, train_sample); }
    if (run_is_due(run, c->histogram_every)) { train_phase(run, RANK_LOGS, train_histograms); }
}

// Says what ended the loop, in the logs and to who watches.
static void train_say_end(TrainRun* run) {
    const Config* c = run->config;
    const char* asked = request_to_stop();
    const bool is_complete = run->state.step >= run->num_steps;
    if (run->stops && (!*c->out || c->save_every == 0)) {
        notice("stopped; nothing was saved, as --out or --save_every asked");
    }
    logger_end(&run->log, (int)run->state.step, is_complete ? "finished" : "stopped",
               is_complete ? "" : asked ? asked : "asked by another process of the run");
}

int train(Config* config, const Backend* b, const char* dtype, Comm* comm) {
    requests_open();
    TrainRun* run = train_open(config, b, dtype, comm);
    long long done = run->resumed ? run->state.step : -1; // the step whose phases were done
    run->saved_step = done;
    run->first_step = run->state.step;
    run->is_slow = true; // until a step has shown otherwise
    requests_take_stops(config->max_time);
    train_request(run);
    for (;;) {
        if (comm->size == 1) { run->stops = request_to_stop() != NULL; }
        if (done != run->state.step) { train_due_phases(run); }
        done = run->state.step;
        if (train_save_is_due(run)) { train_phase(run, RANK_SAVES, train_save); }
        if (run->stops || run->state.step >= run->num_steps) { break; }
        train_phase(run, RANK_TRAINS, train_step);
        train_look_at_save(run);
    }
    train_finish_save(run);
    comm_report_activity(comm, run->state.step, RANK_ENDS);
    train_say_end(run);
    train_report(run);
    return train_close(run);
}
